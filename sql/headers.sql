-- traceparent and other headers travel through every attempt, act and compensation, fallback, verify
-- and child, as they were given.

\set SHOW_CONTEXT never
CREATE SCHEMA headers;
CREATE TABLE headers.seen (n serial, saga text, step text, direction text, attempt int, headers jsonb);
-- Fails as the input says, with the trace in the error, which is what is left of a failed attempt.
CREATE FUNCTION headers.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    code text := call.input -> (call.direction || ' ' || call.step) ->> (call.attempt - 1);
BEGIN
    IF code IS NOT NULL THEN
        RAISE EXCEPTION '%', call.headers ->> 'traceparent' USING ERRCODE = code;
    END IF;
    INSERT INTO headers.seen (saga, step, direction, attempt, headers)
        VALUES (call.saga, call.step, call.direction, call.attempt, call.headers);
    RETURN NULL;
END
$$;
CREATE FUNCTION headers.verify(call stacksaga.step_call) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO headers.seen (saga, step, direction, attempt, headers)
        VALUES (call.saga, call.step, 'verify', call.attempt, call.headers);
    RETURN 'not_done';
END
$$;
CREATE FUNCTION headers.step(name text, undo boolean DEFAULT true, verify boolean DEFAULT false,
                             fallback boolean DEFAULT false)
RETURNS stacksaga.step_definition LANGUAGE sql AS $$
    SELECT stacksaga.sql_step(name, 'headers.run(stacksaga.step_call)',
        CASE WHEN undo THEN 'headers.run(stacksaga.step_call)' END,
        verify => CASE WHEN verify THEN 'headers.verify(stacksaga.step_call)' END,
        fallback => CASE WHEN fallback THEN 'headers.run(stacksaga.step_call)' END,
        retry => stacksaga.retry_policy(initial_interval => '0', max_attempts => 3))
$$;
SELECT stacksaga.define_saga('headers grandchild', ARRAY[headers.step('deepest')]);
SELECT stacksaga.define_saga('headers child', ARRAY[headers.step('inner'),
    stacksaga.child_step('deeper', 'headers grandchild')]);
SELECT stacksaga.define_saga('headers', ARRAY[headers.step('first', verify => true),
    headers.step('second', fallback => true), stacksaga.child_step('child', 'headers child'),
    stacksaga.queue_step('queue', 'headers', compensable => true, retry => stacksaga.retry_policy(initial_interval => '0')),
    headers.step('last', undo => false)],
    compensation_retry => stacksaga.retry_policy(initial_interval => '0'));
\set headers '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1,b=2", "tenant": {"id": 7, "Größe": [1, null]}}'

-- Steps with failures of every class, then all compensations.
SELECT saga_id AS id FROM stacksaga.start_saga('headers', '{"act first": ["40001", "SR504"],
    "act second": ["40001", "SR503", "SG424"], "act last": ["SG424"], "compensate first": ["40001"]}',
    headers => :'headers') \gset
SELECT stacksaga.run_pending() > 0 AS ran;
-- A service: refused, lost, done.
CREATE TABLE headers.claimed (n serial, direction text, attempt int, headers jsonb);
CREATE FUNCTION headers.claim() RETURNS stacksaga.claimed_step LANGUAGE plpgsql AS $$
DECLARE
    c stacksaga.claimed_step;
BEGIN
    SELECT * INTO STRICT c FROM stacksaga.claim_steps('headers', 'w', lease => '10 s');
    INSERT INTO headers.claimed (direction, attempt, headers) VALUES (c.direction, c.attempt, c.headers);
    RETURN c;
END
$$;
SELECT stacksaga.fail_step(c.saga_id, c.step, c.lease, 'busy', 'retryable') FROM headers.claim() c;
SELECT attempt FROM headers.claim() c;
SET stacksaga.clock_offset = '11 s';
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT stacksaga.complete_step(c.saga_id, c.step, c.lease) FROM headers.claim() c;
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT stacksaga.fail_step(c.saga_id, c.step, c.lease, 'busy', 'retryable') FROM headers.claim() c;
SELECT stacksaga.complete_step(c.saga_id, c.step, c.lease) FROM headers.claim() c;
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT status FROM stacksaga.saga_result(:'id');
SELECT saga, step, direction, attempt, headers = :'headers' AS same FROM headers.seen ORDER BY n;
SELECT direction, attempt, headers = :'headers' AS same FROM headers.claimed ORDER BY n;
-- The attempts that failed had them as well (verify has the last word on one whose outcome was unknown).
SELECT step, direction, attempt, error = :'headers'::jsonb ->> 'traceparent' AS same
  FROM stacksaga.saga_history WHERE saga_id = :'id' AND status = 'failed' AND worker IS DISTINCT FROM 'w'
 ORDER BY started_at, attempt;
-- A new run has its own; none is an empty object.
SELECT saga_id AS id FROM stacksaga.start_saga('headers grandchild', key => 'k', headers => '{"traceparent": "one"}') \gset
SELECT stacksaga.cancel_saga(:'id', 'test');
SELECT count(*) FROM stacksaga.start_saga('headers grandchild', key => 'k', on_conflict => 'restart_if_failed',
    headers => '{"traceparent": "two"}');
SELECT count(*) FROM stacksaga.start_saga('headers grandchild');
TRUNCATE headers.seen;
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT headers FROM headers.seen ORDER BY headers;
RESET stacksaga.clock_offset;
SET client_min_messages = warning;
DROP SCHEMA headers CASCADE;
