-- Sagas as spans of distributed traces: what a daemon exports, and whoever else wants to.

CREATE OR REPLACE FUNCTION stacksaga_internal.span_id(parts text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT encode(substr(sha256(convert_to(array_to_string(parts, '/'), 'UTF8')), 1, 8), 'hex')
$$;
COMMENT ON FUNCTION stacksaga_internal.span_id IS
    'Internal: returns the same 16 hexadecimal digits for the same texts';

CREATE OR REPLACE FUNCTION stacksaga_internal.trace_context(headers jsonb, OUT trace_id text, OUT parent_span_id text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c[1], c[2]
      FROM regexp_match(headers ->> 'traceparent',
               '^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-|$)') AS c
     WHERE get_byte(decode(c[3], 'hex'), 0) & 1 = 1
$$;
COMMENT ON FUNCTION stacksaga_internal.trace_context IS
    'Internal: reads a W3C traceparent, version 00 or later; NULLs where there is none, or one that its caller does not record';

CREATE OR REPLACE FUNCTION stacksaga.traced_sagas(after timestamptz, after_saga_id uuid DEFAULT NULL,
    max_sagas integer DEFAULT 1000)
RETURNS TABLE (saga_id uuid, finished_at timestamptz)
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF after IS NULL THEN
        RAISE EXCEPTION 'argument "after" is required' USING ERRCODE = 'SG400',
            DETAIL = 'The value is NULL.', HINT = 'Pass an instant, such as -infinity for all sagas.';
    ELSIF max_sagas IS NULL OR max_sagas NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'argument "max_sagas" is out of range' USING ERRCODE = 'SG400',
            DETAIL = format('The value is %s.', coalesce(max_sagas::text, 'NULL')), HINT = 'Use 1 to 10000.';
    END IF;
    RETURN QUERY
    WITH stacksaga_this_node AS (SELECT)
    SELECT s.saga_id, s.finished_at
      FROM stacksaga.saga s
     WHERE s.finished_at IS NOT NULL AND s.headers ? 'traceparent'
       AND (s.finished_at, s.saga_id) > (after, coalesce(after_saga_id, '00000000-0000-0000-0000-000000000000'))
     ORDER BY s.finished_at, s.saga_id LIMIT max_sagas;
END $$;
COMMENT ON FUNCTION stacksaga.traced_sagas IS
    'Lists sagas that were started with a traceparent and have finished after an instant, in that order. Raises SG400';

-- By the token, since on Citus a parent may be on another node than its child.
CREATE OR REPLACE FUNCTION stacksaga_internal.step_name(saga_id uuid, step_no smallint) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT ds.step
              FROM stacksaga.saga s JOIN stacksaga.definition_step ds ON ds.definition_id = s.definition_id
             WHERE s.saga_id = step_name.saga_id AND ds.step_no = step_name.step_no
               AND s.token OPERATOR(stacksaga.=) stacksaga.token_uuid(step_name.saga_id)::stacksaga.ring_token);
END $$;
COMMENT ON FUNCTION stacksaga_internal.step_name IS
    'Internal: returns the name of a step of a saga, NULL where there is none';

CREATE OR REPLACE FUNCTION stacksaga.saga_spans(saga_ids uuid[])
RETURNS TABLE (saga_id uuid, trace_id text, span_id text, parent_span_id text, name text,
               started_at timestamptz, finished_at timestamptz, error text, attributes jsonb)
LANGUAGE sql STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), traced AS MATERIALIZED (
        SELECT s.saga_id, d.saga, s.key, s.status::text AS status, s.error, s.created_at,
               s.finished_at, s.parent_id, n.step AS parent_step, c.trace_id, c.parent_span_id
          FROM unnest(saga_ids) AS f(saga_id)
               CROSS JOIN LATERAL (SELECT * FROM stacksaga.saga s WHERE s.saga_id = f.saga_id) AS s
               JOIN stacksaga.saga_definition d ON d.definition_id = s.definition_id
               CROSS JOIN LATERAL stacksaga_internal.trace_context(s.headers) AS c
               CROSS JOIN LATERAL stacksaga_internal.step_name(s.parent_id, s.parent_step) AS n(step)
         WHERE s.finished_at IS NOT NULL AND c.trace_id IS NOT NULL),
    attempt AS MATERIALIZED (
        SELECT t.saga_id, t.trace_id, h.step, h.direction, h.attempt, h.status,
               coalesce(h.started_at, h.finished_at) AS started_at, h.finished_at, h.error, h.error_class,
               h.worker, row_number() OVER (PARTITION BY t.saga_id, h.step, h.direction
                                            ORDER BY h.finished_at DESC, h.attempt DESC) AS from_last
          FROM traced t
               CROSS JOIN LATERAL (SELECT * FROM stacksaga.saga_history h WHERE h.saga_id = t.saga_id) AS h
         WHERE h.finished_at IS NOT NULL)
    SELECT t.saga_id, t.trace_id, stacksaga_internal.span_id(ARRAY[t.saga_id::text]),
           CASE WHEN t.parent_step IS NULL THEN t.parent_span_id
                ELSE stacksaga_internal.span_id(ARRAY[t.parent_id::text, t.parent_step, 'act']) END,
           t.saga, t.created_at, t.finished_at,
           CASE WHEN t.status = 'failed' THEN coalesce(t.error, 'failed') END,
           jsonb_strip_nulls(jsonb_build_object('stacksaga.saga_id', t.saga_id, 'stacksaga.key', t.key,
                                                'stacksaga.status', t.status))
      FROM traced t
    UNION ALL
    SELECT a.saga_id, a.trace_id, stacksaga_internal.span_id(ARRAY[a.saga_id::text, a.step, a.direction]),
           stacksaga_internal.span_id(ARRAY[a.saga_id::text]),
           CASE a.direction WHEN 'act' THEN a.step ELSE a.direction || ' ' || a.step END,
           min(a.started_at), max(a.finished_at),
           max(coalesce(a.error, a.status)) FILTER (WHERE a.from_last = 1 AND a.status = 'failed'),
           jsonb_build_object('stacksaga.step', a.step, 'stacksaga.direction', a.direction)
      FROM attempt a
     GROUP BY a.saga_id, a.trace_id, a.step, a.direction
    UNION ALL
    SELECT a.saga_id, a.trace_id, stacksaga_internal.span_id(ARRAY[a.saga_id::text, a.step, a.direction, a.attempt::text, a.status]),
           stacksaga_internal.span_id(ARRAY[a.saga_id::text, a.step, a.direction]),
           'attempt ' || a.attempt, a.started_at, a.finished_at,
           CASE WHEN a.status = 'failed' THEN coalesce(a.error, a.status) END,
           jsonb_strip_nulls(jsonb_build_object('stacksaga.step', a.step, 'stacksaga.direction', a.direction,
                                                'stacksaga.attempt', a.attempt, 'stacksaga.worker', a.worker,
                                                'error.type', a.error_class))
      FROM attempt a
$$;
COMMENT ON FUNCTION stacksaga.saga_spans IS
    'One row per span of each of these sagas that has finished and is traced: the saga below its caller''s span, its steps below it, their attempts below those';

-- The session's, until it ends. An advisory lock would be anybody's to take.
CREATE OR REPLACE FUNCTION stacksaga_internal.hold_span_export() RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_hold_span_export';
COMMENT ON FUNCTION stacksaga_internal.hold_span_export IS
    'Internal: makes this session the one that exports the spans of its database; false while another one is';
