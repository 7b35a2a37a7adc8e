-- Values whose text is much larger than they are: new ones are refused (extension/src/common/limits.cpp).

CREATE OR REPLACE FUNCTION stacksaga_internal.json_text_bytes(value jsonb) RETURNS bigint
LANGUAGE c STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_json_text_bytes';
COMMENT ON FUNCTION stacksaga_internal.json_text_bytes IS
    'Internal: returns how many bytes the text of a value has, without making the text; NULL when it is damaged';

-- Of each table a limited number of rows, first those that are handed out next where an index says which.
CREATE OR REPLACE FUNCTION stacksaga_internal.large_values(rows_max integer DEFAULT 10000)
RETURNS TABLE (place text, bytes integer, text_bytes bigint)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), open AS MATERIALIZED (
        SELECT DISTINCT w.saga_id, w.token
          FROM ((SELECT saga_id, token FROM stacksaga.work ORDER BY saga_id LIMIT greatest(rows_max, 0))
                UNION ALL
                (SELECT saga_id, token FROM stacksaga.saga
                  ORDER BY created_at DESC, saga_id DESC LIMIT greatest(rows_max, 0) / 10)) AS w
    ), held (what, name, value) AS (
        SELECT v.what || ' of saga', s.saga_id::text, v.value
          FROM open w
         CROSS JOIN LATERAL (SELECT * FROM stacksaga.saga s
                              WHERE s.saga_id = w.saga_id AND s.token OPERATOR(stacksaga.=) w.token LIMIT 1) AS s
         CROSS JOIN LATERAL (VALUES ('input', s.input), ('headers', s.headers), ('attributes', s.attributes))
                AS v(what, value)
        UNION ALL
        SELECT 'output of a step of saga', e.saga_id::text, e.output
          FROM open w
         CROSS JOIN LATERAL (SELECT * FROM stacksaga.effect e
                              WHERE e.saga_id = w.saga_id AND e.token OPERATOR(stacksaga.=) w.token
                              LIMIT 1000) AS e
        UNION ALL
        SELECT 'payload of a signal of saga', g.saga_id::text, g.payload
          FROM (SELECT * FROM stacksaga.saga_signal WHERE step_no IS NULL
                 ORDER BY arrived_at DESC LIMIT greatest(rows_max, 0)) AS g
        UNION ALL
        SELECT v.what || ' of message', m.message_id::text, v.value
          FROM ((SELECT message_id, payload, headers FROM stacksaga.outbox_message LIMIT greatest(rows_max, 0))
                UNION ALL
                (SELECT message_id, payload, headers FROM stacksaga.message_retry ORDER BY due_at LIMIT greatest(rows_max, 0))
                UNION ALL
                (SELECT message_id, payload, headers FROM stacksaga.dead_message
                  WHERE discarded_at IS NULL LIMIT greatest(rows_max, 0))) AS m
         CROSS JOIN LATERAL (VALUES ('payload', m.payload), ('headers', m.headers)) AS v(what, value)
        UNION ALL
        SELECT 'response of idempotency key', k.scope || ' ' || k.key, k.response
          FROM (SELECT * FROM stacksaga.idempotency_key LIMIT greatest(rows_max, 0)) AS k
        UNION ALL
        SELECT 'value of key', c.scope || ' ' || c.key, c.value
          FROM (SELECT * FROM stacksaga.versioned_value LIMIT greatest(rows_max, 0)) AS c
        UNION ALL
        SELECT 'input of schedule', p.schedule, p.input FROM stacksaga.schedule p
        UNION ALL
        SELECT 'progress of node', n.node, n.progress FROM stacksaga.node n
    )
    SELECT DISTINCT h.what || ' "' || h.name || '"', pg_column_size(h.value), b.text_bytes
      FROM held h
     CROSS JOIN LATERAL (SELECT stacksaga_internal.json_text_bytes(h.value) AS text_bytes OFFSET 0) AS b -- once
     WHERE h.value IS NOT NULL
       AND (b.text_bytes IS NULL
            OR b.text_bytes > 2 * (SELECT p.setting::bigint FROM pg_settings p WHERE p.name = 'stacksaga.max_payload'))
$$;
COMMENT ON FUNCTION stacksaga_internal.large_values IS
    'Internal: returns the values that cannot be read (text_bytes is NULL), or whose text is longer than twice stacksaga.max_payload, of a limited number of rows of each table';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_values()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'error', 'values',
           CASE WHEN v.text_bytes IS NULL THEN format('the %s is damaged and cannot be read', v.place)
                ELSE format('the text of the %s has %s bytes (the value: %s), more than twice stacksaga.max_payload: '
                            'what hands it out is slow, needs that memory, or fails', v.place, v.text_bytes, v.bytes) END,
           CASE WHEN v.text_bytes IS NULL
                THEN 'Look at the disk. Restore the value, or end what holds it: cancel_saga(), discard_message() or '
                     'drop_schedule().'
                ELSE 'Raise stacksaga.max_payload if it is wanted; otherwise end what holds it: cancel_saga(), '
                     'discard_message(), drop_schedule() or compare_and_set() -- and pass huge numbers as strings' END
      FROM (SELECT * FROM stacksaga_internal.large_values() AS l ORDER BY l.text_bytes DESC, l.place LIMIT 100) AS v
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_values IS
    'Internal: returns what doctor() says of values whose text is too large';
