-- The tables of python-cqrs' saga storage, as views: its models read them unchanged, with search_path = stacksaga.

CREATE OR REPLACE VIEW stacksaga.saga_executions AS
SELECT s.saga_id AS id,
       (SELECT d.saga FROM stacksaga.saga_definition d
         WHERE d.definition_id = s.definition_id)::character varying(255) AS name,
       (CASE s.status WHEN 'parked' THEN 'FAILED'
                      WHEN 'suspended' THEN CASE s.direction WHEN 'act' THEN 'RUNNING' ELSE 'COMPENSATING' END
                      ELSE upper(s.status::text) END)::stacksaga.sagastatus AS status,
       (CASE WHEN jsonb_typeof(s.input) = 'object' THEN s.input ELSE jsonb_build_object('input', s.input) END
        || coalesce((
            SELECT jsonb_object_agg(ds.step, e.output)
              FROM stacksaga.effect e
              JOIN stacksaga.definition_step ds
                ON ds.definition_id = s.definition_id AND ds.step_no = e.step_no
             WHERE e.saga_id = s.saga_id AND e.token OPERATOR(stacksaga.=) s.token
               AND e.direction = 'act'), '{}'))::json AS context,
       (1 + (SELECT count(*) FROM stacksaga.effect e
              WHERE e.saga_id = s.saga_id AND e.token OPERATOR(stacksaga.=) s.token)
          + (SELECT count(*) FROM stacksaga.failure f
              WHERE f.saga_id = s.saga_id AND f.token OPERATOR(stacksaga.=) s.token))::integer AS version,
       s.created_at,
       s.updated_at,
       (SELECT count(*)::integer FROM stacksaga.failure f
         WHERE f.saga_id = s.saga_id AND f.token OPERATOR(stacksaga.=) s.token) AS recovery_attempts
  FROM stacksaga.saga s
 CROSS JOIN (SELECT true) AS read_only; -- a view of one table could be written through
COMMENT ON VIEW stacksaga.saga_executions IS
    'One row per saga, named and typed as the table of python-cqrs';

-- Citus plans no UNION of expressions over tables that it distributes: there the view is of the node that is asked.
CREATE OR REPLACE VIEW stacksaga.saga_logs AS
WITH stacksaga_this_node AS (SELECT)
SELECT hashtextextended(concat_ws(':', h.saga_id, h.direction, h.attempt, l.status, h.step), 0)
           & 9223372036854775807 AS id,
       h.saga_id,
       h.step::character varying(255) AS step_name,
       h.direction::character varying(50) AS action,
       l.status::stacksaga.sagastepstatus AS status,
       l.details,
       l.created_at
  FROM stacksaga.saga_history h
 CROSS JOIN LATERAL (
       SELECT 'STARTED', NULL::text, h.started_at
       UNION ALL
       SELECT upper(h.status), h.error, h.finished_at WHERE h.status <> 'started') AS l(status, details, created_at)
 WHERE h.status <> 'released'; -- python-cqrs has no word for it
COMMENT ON VIEW stacksaga.saga_logs IS
    'One row for the beginning of each attempt and one for its end, named and typed as the table of python-cqrs';
