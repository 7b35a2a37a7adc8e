-- Finished sagas as spans of the trace that their caller began: the saga, its steps, their attempts.

CREATE SCHEMA spans;
CREATE FUNCTION spans.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.direction = 'act' AND call.step = 'flaky' AND call.attempt = 1 THEN
        RAISE 'not yet' USING ERRCODE = 'SR503';
    ELSIF call.direction = 'act' AND call.step = 'broken' THEN
        RAISE 'no money' USING ERRCODE = 'SG424';
    END IF;
    RETURN '{}';
END
$$;
SELECT stacksaga.define_saga('spans_inner', ARRAY[
    stacksaga.sql_step('inner', 'spans.run(stacksaga.step_call)', 'spans.run(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('spans', ARRAY[
    stacksaga.sql_step('flaky', 'spans.run(stacksaga.step_call)', 'spans.run(stacksaga.step_call)',
        retry => stacksaga.retry_policy(initial_interval => '0')),
    stacksaga.child_step('child', 'spans_inner'),
    stacksaga.sql_step('broken', 'spans.run(stacksaga.step_call)')]);

-- Not read as a trace: none, not recorded by its caller, zeros, a version that does not exist, no text.
SELECT headers, c.*
  FROM unnest(ARRAY[
           '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}',
           '{"traceparent": "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-what-the-future-will-be-like"}',
           '{}', '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}',
           '{"traceparent": "00-00000000000000000000000000000000-b7ad6b7169203331-01"}',
           '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"}',
           '{"traceparent": "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}',
           '{"traceparent": "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"}',
           '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01b"}',
           '{"traceparent": null}', '{"traceparent": 7}']::jsonb[]) AS headers,
       stacksaga_internal.trace_context(headers) AS c;

-- By the index, however few sagas there are.
SET enable_seqscan = off;
SET enable_sort = off;
SELECT saga_id AS traced FROM stacksaga.start_saga('spans', '{}', 'order 1',
    headers => '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}') \gset
SELECT saga_id AS unrecorded FROM stacksaga.start_saga('spans', '{}', 'order 2',
    headers => '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}') \gset
SELECT count(*) FROM stacksaga.start_saga('spans', '{}', 'order 3');
SELECT count(*) FROM stacksaga.traced_sagas('-infinity') AS t JOIN stacksaga.sagas USING (saga_id) WHERE saga LIKE 'spans%';
SELECT stacksaga.run_pending() > 0 AS ran;

-- The child is a saga of the same trace. What was not recorded is listed, and has no spans.
SELECT saga, key, count(*) FROM stacksaga.traced_sagas('-infinity') AS t JOIN stacksaga.sagas USING (saga_id)
 WHERE saga LIKE 'spans%' GROUP BY 1, 2 ORDER BY 1, 2;
SELECT count(*) FROM stacksaga.saga_spans(ARRAY[:'unrecorded', NULL, gen_random_uuid()]::uuid[]);

-- The tree of the trace, below the span of the caller.
CREATE TEMP TABLE span AS
    SELECT s.* FROM stacksaga.saga_spans((SELECT array_agg(saga_id) FROM stacksaga.traced_sagas('-infinity'))) AS s
     WHERE trace_id = '0af7651916cd43dd8448eb211c80319c';
WITH RECURSIVE tree AS (
    SELECT 1 AS depth, ARRAY[name] AS path, s.* FROM span AS s
     WHERE parent_span_id = 'b7ad6b7169203331'
    UNION ALL
    SELECT t.depth + 1, path || s.name, s.* FROM span AS s JOIN tree AS t ON s.parent_span_id = t.span_id)
SELECT repeat('  ', depth) || name AS span, error, attributes - 'stacksaga.saga_id' - 'stacksaga.worker' AS attributes
  FROM tree ORDER BY path;
SELECT count(*) = count(DISTINCT span_id) AS distinct_ids, bool_and(finished_at >= started_at) AS in_time,
       bool_and(span_id ~ '^[0-9a-f]{16}$') AS are_ids,
       count(*) - (SELECT count(*) FROM span AS s JOIN span AS p ON p.span_id = s.parent_span_id) AS roots
  FROM span;

-- Pages.
SELECT count(*) = 1 AS one FROM stacksaga.traced_sagas('-infinity', max_sagas => 1);
SELECT count(*) AS after_the_last FROM (SELECT * FROM stacksaga.traced_sagas('-infinity', max_sagas => 10000)
     ORDER BY finished_at DESC, saga_id DESC LIMIT 1) AS l, stacksaga.traced_sagas(l.finished_at, l.saga_id);
SELECT stacksaga.traced_sagas('-infinity', max_sagas => 0);
SELECT stacksaga.traced_sagas(NULL);

-- A saga without a traceparent leaves nothing in the index.
SELECT count(*) AS by_index FROM stacksaga.saga
 WHERE finished_at IS NOT NULL AND headers ? 'traceparent' AND key IN ('order 1', 'order 2', 'order 3');

DROP SCHEMA spans CASCADE;
