-- What people read. Columns may be added at the end only.

CREATE OR REPLACE VIEW stacksaga_internal.step_work AS
SELECT w.saga_id, w.token, d.definition_id, w.step_no, d.step, w.attempt, w.due_at,
       CASE WHEN w.lease_until IS NULL AND w.due_at > stacksaga_internal.statement_clock() AND w.due_at < 'infinity'
                 AND (d.kind <> 'signal' OR w.started_at IS NULL)
            THEN w.due_at END AS paused_until,
       CASE WHEN w.deferred AND w.lease_until IS NULL AND w.due_at > stacksaga_internal.statement_clock()
            THEN 'SR429' END AS pause_reason
  FROM stacksaga.work w
  JOIN stacksaga.definition_step d ON d.step_no = w.step_no
 WHERE w.purpose = 'step';
COMMENT ON VIEW stacksaga_internal.step_work IS
    'Internal: the steps of a saga that are due or will be; definition_id must be the saga''s';

-- No joins: a subquery runs for the rows that are returned and for none beyond a LIMIT, and an index
-- that has the rows in order can be used whatever the statistics say. Rings are read by functions, as Citus joins
-- no table that is distributed with one that is not.
CREATE OR REPLACE VIEW stacksaga.sagas AS
SELECT s.saga_id,
       (SELECT d.saga FROM stacksaga.saga_definition d
         WHERE d.definition_id = s.definition_id) AS saga,
       (SELECT d.version FROM stacksaga.saga_definition d
         WHERE d.definition_id = s.definition_id) AS version,
       s.key,
       s.status::text AS status,
       (
            SELECT w.step FROM stacksaga_internal.step_work w
             WHERE w.definition_id = s.definition_id AND w.saga_id = s.saga_id
               AND w.token OPERATOR(stacksaga.=) s.token
             ORDER BY w.due_at, w.step_no LIMIT 1) AS current_step,
       (
            SELECT w.attempt FROM stacksaga_internal.step_work w
             WHERE w.definition_id = s.definition_id AND w.saga_id = s.saga_id
               AND w.token OPERATOR(stacksaga.=) s.token
             ORDER BY w.due_at, w.step_no LIMIT 1) AS attempt,
       (
            SELECT w.paused_until FROM stacksaga_internal.step_work w
             WHERE w.definition_id = s.definition_id AND w.saga_id = s.saga_id
               AND w.token OPERATOR(stacksaga.=) s.token
             ORDER BY w.due_at, w.step_no LIMIT 1) AS paused_until,
       stacksaga_internal.ring_region(s.ring_id) AS region,
       stacksaga_internal.ring_cluster(s.ring_id) AS cluster,
       s.token::bigint AS token,
       s.input,
       CASE WHEN s.status = 'completed' THEN (
            SELECT coalesce(jsonb_object_agg(ds.step, e.output), '{}')
              FROM stacksaga.effect e
              JOIN stacksaga.definition_step ds
                ON ds.definition_id = s.definition_id AND ds.step_no = e.step_no
             WHERE e.saga_id = s.saga_id AND e.token OPERATOR(stacksaga.=) s.token
               AND e.direction = 'act') END AS output,
       coalesce((
            SELECT f.error FROM stacksaga.failure f
             WHERE f.saga_id = s.saga_id AND f.token OPERATOR(stacksaga.=) s.token
             ORDER BY f.finished_at DESC, f.attempt DESC LIMIT 1), s.error) AS last_error,
       s.created_at,
       s.updated_at,
       s.finished_at,
       s.parent_id,
       (
            SELECT w.pause_reason FROM stacksaga_internal.step_work w
             WHERE w.definition_id = s.definition_id AND w.saga_id = s.saga_id
               AND w.token OPERATOR(stacksaga.=) s.token
             ORDER BY w.due_at, w.step_no LIMIT 1) AS pause_reason,
       s.priority::integer AS priority,
       s.group_key,
       coalesce(s.attributes, '{}') AS attributes,
       s.compensation_requested::text AS compensation_requested
  FROM stacksaga.saga s
 CROSS JOIN (SELECT true) AS read_only; -- a view of one table could be written through
COMMENT ON VIEW stacksaga.sagas IS
    'One row per saga, with the step that it is at; paused_until is set while its next attempt lies in the future';

CREATE OR REPLACE VIEW stacksaga.saga_history AS
SELECT a.saga_id, d.step, a.direction::text AS direction, a.attempt, a.status, a.error,
       a.error_class::text AS error_class, a.started_at,
       a.finished_at, a.worker, a.published, a.progress
  FROM (SELECT e.saga_id, e.token, e.step_no, e.direction, e.attempt, 'completed' AS status,
               NULL::text AS error, NULL::text AS error_class, e.started_at,
               e.completed_at AS finished_at, e.worker, e.published, NULL::jsonb AS progress
          FROM stacksaga.effect e
        UNION ALL
        SELECT f.saga_id, f.token, f.step_no, f.direction, f.attempt, 'failed', f.error,
               f.error_class, f.started_at, f.finished_at, f.worker, NULL, NULL
          FROM stacksaga.failure f
         WHERE NOT EXISTS ( -- a late answer completed an attempt that had timed out
               SELECT FROM stacksaga.effect e
                WHERE e.saga_id = f.saga_id AND e.token OPERATOR(stacksaga.=) f.token
                  AND e.step_no = f.step_no AND e.direction = f.direction
                  AND e.attempt = f.attempt)
        UNION ALL
        SELECT w.saga_id, w.token, w.step_no, w.direction, w.attempt, 'started', NULL, NULL,
               w.started_at, NULL, w.worker, NULL, w.progress
          FROM stacksaga.work w
         WHERE w.lease_until IS NOT NULL
        UNION ALL
        SELECT r.saga_id, r.token, r.step_no, r.direction, r.attempt, 'released', r.reason, NULL,
               r.started_at, r.released_at, r.worker, NULL, NULL
          FROM stacksaga.step_release r) AS a
  JOIN stacksaga.saga s
    ON s.saga_id = a.saga_id AND s.token OPERATOR(stacksaga.=) a.token
  JOIN stacksaga.definition_step d
    ON d.definition_id = s.definition_id AND d.step_no = a.step_no;
COMMENT ON VIEW stacksaga.saga_history IS
    'One row per attempt: completed, failed, released, or started and not answered yet; with the messages that the handler of a completed one published. An attempt that failed and was released later has two';

CREATE OR REPLACE VIEW stacksaga.saga_actions AS
SELECT a.saga_id, a.action, ds.step, a.outcome, a.role::text AS role, a.reason, a.acted_at,
       a.status_before::text AS status_before, a.status_after::text AS status_after, a.on_behalf_of
  FROM stacksaga.saga_action a
  JOIN stacksaga.saga s ON s.saga_id = a.saga_id AND s.token OPERATOR(stacksaga.=) a.token
  LEFT JOIN stacksaga.definition_step ds
    ON ds.definition_id = s.definition_id AND ds.step_no = a.step_no;
COMMENT ON VIEW stacksaga.saga_actions IS
    'What operators did to sagas: which role, for whom, when and why';

CREATE OR REPLACE VIEW stacksaga.definitions AS
SELECT d.saga, d.version, d.is_current,
       (SELECT count(*)::integer FROM stacksaga.definition_step s
         WHERE s.definition_id = d.definition_id) AS steps,
       d.definer::text AS definer, d.defined_at,
       stacksaga_internal.live_sagas(d.definition_id) AS live_sagas,
       p.saga IS NOT NULL AS paused, p.paused_at AS paused_since, p.paused_until, p.pause_reason
  FROM stacksaga.saga_definition d
  LEFT JOIN stacksaga_internal.definition_pauses() AS p ON p.saga = d.saga
 CROSS JOIN (SELECT true) AS read_only; -- a view of one table could be written through
COMMENT ON VIEW stacksaga.definitions IS
    'One row per version of a saga definition; live_sagas counts up to 1,000 sagas that have not ended';

-- On Citus by the node that has the saga: Citus sends the call there beside the saga's row.
CREATE OR REPLACE FUNCTION stacksaga_internal.timeline_here(saga_id uuid) RETURNS SETOF text
LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT line
      FROM (SELECT s.created_at AS at, 0 AS rank, 0 AS attempt,
                   format('%s of saga %s (version %s)%s', 'start', s.saga, s.version,
                          coalesce(', key ' || s.key, '')) AS event
              FROM stacksaga.sagas s WHERE s.saga_id = $1
            UNION ALL
            SELECT coalesce(h.finished_at, h.started_at), 1, h.attempt,
                   format('%s %s: %s', CASE h.direction WHEN 'act' THEN 'step'
                                                        ELSE 'compensation of step' END, h.step,
                          CASE h.status
                          WHEN 'completed' THEN 'completed'
                          WHEN 'started' THEN 'claimed by ' || coalesce(h.worker, 'nobody') || coalesce(', progress ' || left(h.progress::text, 200), '')
                          WHEN 'released' THEN 'released by ' || coalesce(h.worker, 'nobody') || coalesce(': ' || h.error, '')
                          ELSE format('failed, %s: %s', replace(h.error_class, '_', '-'), h.error)
                          END)
                   || CASE WHEN h.attempt > 1 THEN format(' (attempt %s)', h.attempt) ELSE '' END
                   || coalesce((
                        SELECT '; published '
                               || string_agg((m.message ->> 'topic')
                                             || coalesce(' of key ' || (m.message ->> 'key'), ''), ', ' ORDER BY m.n)
                               || CASE WHEN (h.published -> 'count')::bigint > 3
                                       THEN format(' and %s more', (h.published -> 'count')::bigint - 3) ELSE '' END
                          FROM jsonb_array_elements(h.published -> 'messages') WITH ORDINALITY AS m(message, n)
                         WHERE m.n <= 3), '')
              FROM stacksaga.saga_history h WHERE h.saga_id = $1
            UNION ALL
            SELECT a.acted_at, 2, 0,
                   format('%s by %s', concat_ws(' ', a.action, 'step ' || a.step, 'as ' || a.outcome), a.role)
                   || coalesce(' for ' || a.on_behalf_of, '') || coalesce(': ' || a.reason, '')
              FROM stacksaga.saga_actions a WHERE a.saga_id = $1
            UNION ALL
            SELECT g.arrived_at, 2, 0, format('signal %s arrived, no step has taken it', g.signal)
              FROM stacksaga.saga_signal g WHERE g.saga_id = $1 AND g.step_no IS NULL
            UNION ALL
            SELECT s.updated_at, 3, 0,
                   format('saga %s%s', s.status, CASE WHEN s.status = 'parked' AND t.suspended_at IS NOT NULL
                                                      THEN ', still suspended' ELSE '' END) || CASE s.status
                       WHEN 'failed' THEN coalesce(': ' || t.error, '')
                       WHEN 'parked' THEN coalesce(': ' || s.last_error, '') ELSE '' END
              FROM stacksaga.sagas s
              JOIN stacksaga.saga t ON t.saga_id = s.saga_id AND t.token::bigint = s.token
             WHERE s.saga_id = $1 AND s.status IN ('completed', 'failed', 'parked', 'suspended')) AS events,
           LATERAL (SELECT stacksaga_internal.printable(concat(to_char(at, 'YYYY-MM-DD HH24:MI:SS.MS') || '  ', event))) AS l(line)
     ORDER BY at, rank, attempt
$$;
COMMENT ON FUNCTION stacksaga_internal.timeline_here IS
    'Internal: returns what happened to a saga of this node, one line an event, in order';

CREATE OR REPLACE FUNCTION stacksaga.saga_timeline(saga_id uuid) RETURNS SETOF text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT stacksaga_internal.timeline_here(s.saga_id)
      FROM stacksaga.saga s
     WHERE s.saga_id = saga_timeline.saga_id
       AND s.token OPERATOR(stacksaga.=) stacksaga.token_uuid(saga_timeline.saga_id)::stacksaga.ring_token;
    RETURN QUERY
    SELECT stacksaga_internal.printable(w.what) FROM stacksaga_internal.saga_waits_for(saga_timeline.saga_id) AS w(what) WHERE w.what IS NOT NULL;
    RETURN QUERY
    SELECT format('queue %s: suspended saga %s has kept a lease of it since %s', stacksaga_internal.printable(l.queue), l.suspended_saga,
                  to_char(l.since, 'YYYY-MM-DD HH24:MI:SS.MS'))
      FROM stacksaga_internal.suspended_leases_of(saga_timeline.saga_id, interval '1 hour') AS l;
END
$$;
COMMENT ON FUNCTION stacksaga.saga_timeline IS
    'Returns what happened to one saga, one line an event, in order, and last what it waits for, and the suspended saga whose lease a limit of its queue has counted for an hour';
