-- run_pending() runs the steps of a saga that follow each other at once one behind the other: each is counted,
-- finds what the ones before have done, and fails alone.
CREATE SCHEMA run_ahead;
CREATE TABLE run_ahead.call (n serial, saga text, step text, direction text, attempt int, results jsonb, markers bigint);
CREATE SEQUENCE run_ahead.calls; -- which no failure undoes
CREATE FUNCTION run_ahead.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('run_ahead.calls');
    INSERT INTO run_ahead.call (saga, step, direction, attempt, results, markers)
    SELECT call.input ->> 'name', call.step, call.direction, call.attempt, call.results, count(*)
      FROM stacksaga.effect WHERE saga_id = call.saga_id;
    IF call.input -> 'fails' ? call.step AND call.direction = 'act' THEN
        RAISE EXCEPTION 'no' USING ERRCODE = call.input -> 'fails' ->> call.step;
    ELSIF call.input ->> 'signals' = call.step THEN
        PERFORM stacksaga.signal_saga(call.saga_id, 'go', '"gone"');
    ELSIF call.input ->> 'locks' = call.step THEN
        PERFORM pg_advisory_lock(1);
    END IF;
    RETURN to_jsonb(call.attempt);
END
$$;
CREATE FUNCTION run_ahead.step(name text, stage integer DEFAULT NULL) RETURNS stacksaga.step_definition LANGUAGE sql AS $$
    SELECT stacksaga.sql_step(name, 'run_ahead.act(stacksaga.step_call)', 'run_ahead.act(stacksaga.step_call)',
        stage => stage, retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '1 minute'))
$$;
-- The calls since the last time.
CREATE FUNCTION run_ahead.seen() RETURNS TABLE (saga text, step text, direction text, attempt int, results jsonb, markers bigint)
LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM run_ahead.call RETURNING *)
    SELECT saga, step, direction, attempt, results, markers FROM gone ORDER BY n
$$;
SELECT stacksaga.define_saga('run ahead', ARRAY[run_ahead.step('a'), run_ahead.step('b'), run_ahead.step('c')]);
SELECT stacksaga.define_saga('run ahead of a signal', ARRAY[run_ahead.step('a'), run_ahead.step('b'),
    stacksaga.signal_step('go', 'go', timeout => '1 hour'), run_ahead.step('c')]);
SELECT stacksaga.define_saga('run ahead side by side', ARRAY[
    run_ahead.step('a', 1), run_ahead.step('b', 1), run_ahead.step('c', 1), run_ahead.step('d', 2)]);

-- One saga behind the other, each to its end.
SELECT FROM stacksaga.start_saga('run ahead', '{"name": "first"}');
SELECT FROM stacksaga.start_saga('run ahead', '{"name": "second"}');
SELECT stacksaga.run_pending();
SELECT * FROM run_ahead.seen();

-- max_items counts steps, and what is left is found by the next call.
SELECT saga_id AS id FROM stacksaga.start_saga('run ahead', '{"name": "cut"}') \gset
SELECT stacksaga.run_pending(2);
SELECT status, current_step FROM stacksaga.sagas WHERE saga_id = :'id';
SELECT step_no, purpose, direction, attempt FROM stacksaga.work WHERE saga_id = :'id';
SELECT stacksaga.run_pending(2);
SELECT status FROM stacksaga.sagas WHERE saga_id = :'id';
SELECT * FROM run_ahead.seen();

-- A failure is that of the step that failed; what was done before it stands, what it did does not.
SELECT saga_id AS id FROM stacksaga.start_saga('run ahead', '{"name": "pauses", "fails": {"b": "SR503"}}') \gset
SELECT last_value AS before FROM run_ahead.calls \gset
SELECT stacksaga.run_pending();
SELECT last_value - :before AS calls FROM run_ahead.calls;
SELECT * FROM run_ahead.seen();
SELECT step, direction, attempt, status FROM stacksaga.saga_history WHERE saga_id = :'id' ORDER BY step, attempt;
SELECT stacksaga.cancel_saga(:'id', 'enough');
SELECT stacksaga.run_pending();
SELECT * FROM run_ahead.seen();

-- Compensations run ahead as well, in reverse order.
SELECT FROM stacksaga.start_saga('run ahead', '{"name": "back", "fails": {"c": "SG424"}}');
SELECT stacksaga.run_pending();
SELECT * FROM run_ahead.seen();

-- A handler that signals its own saga.
SELECT FROM stacksaga.start_saga('run ahead of a signal', '{"name": "signals", "signals": "b"}');
SELECT stacksaga.run_pending();
SELECT * FROM run_ahead.seen();

-- A step that only a worker may run does not keep its siblings, and is tried once a call.
SELECT saga_id AS id FROM stacksaga.start_saga('run ahead side by side', '{"name": "locks", "locks": "b"}') \gset
\set VERBOSITY sqlstate
SELECT stacksaga.run_pending();
\set VERBOSITY default
SELECT step, attempt FROM run_ahead.seen();
SELECT step_no, attempt FROM stacksaga.work WHERE saga_id = :'id';

TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_action;
