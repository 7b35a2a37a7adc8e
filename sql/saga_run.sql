-- A saga on its way forward: what a step is called with, what it leaves, stages, views, results.

CREATE SCHEMA run;
CREATE TABLE run.log (n serial, step text, direction text, attempt int, input jsonb, results jsonb,
    key text, headers jsonb);
CREATE FUNCTION run.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run.log (step, direction, attempt, input, results, key, headers)
    VALUES (call.step, call.direction, call.attempt, call.input, call.results,
            replace(call.idempotency_key, call.saga_id::text, '(id)'), call.headers);
    RETURN to_jsonb(upper(call.step));
END
$$;
CREATE FUNCTION run.nothing(call stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
CREATE FUNCTION run.json_null(call stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT 'null'::jsonb $$;
CREATE FUNCTION run.strict(call stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql STRICT AS $$ SELECT '"strict"'::jsonb $$;

-- Steps of both kinds, in order; the worker's share is done by run_pending.
SELECT stacksaga.define_saga('run', ARRAY[
    stacksaga.sql_step('reserve', 'run.act(stacksaga.step_call)', 'run.act(stacksaga.step_call)'),
    stacksaga.queue_step('charge', 'run', compensable => true),
    stacksaga.sql_step('none', 'run.nothing(stacksaga.step_call)'),
    stacksaga.sql_step('null', 'run.json_null(stacksaga.step_call)'),
    stacksaga.sql_step('strict', 'run.strict(stacksaga.step_call)'),
    stacksaga.sql_step('ship', 'run.act(stacksaga.step_call)', effect => 'irreversible')]);
SELECT saga_id AS id FROM stacksaga.start_saga('run', '{"order": 7}', 'o7',
    headers => '{"trace": "t"}') \gset
SELECT * FROM stacksaga.saga_result(:'id');
SELECT count(*) FROM stacksaga.claim_steps('run', 'teller');
SELECT stacksaga.run_pending();
SELECT status, current_step, attempt, paused_until, output, finished_at FROM stacksaga.sagas
  WHERE saga_id = :'id';
SELECT saga, step, direction, attempt, input, results, replace(idempotency_key, :'id',
    '(id)') AS key, headers, lease AS lease
  FROM stacksaga.claim_steps('run', 'teller') \gset charge_
\echo :charge_saga :charge_step :charge_direction :charge_attempt
\echo :charge_input :charge_results :charge_key :charge_headers
SELECT count(*) FROM stacksaga.claim_steps('run', 'teller');
SELECT step, attempt, status, worker, finished_at IS NOT NULL AS finished
  FROM stacksaga.saga_history WHERE saga_id = :'id' ORDER BY started_at, step;
SELECT stacksaga.complete_step(:'id', 'charge', :charge_lease, '{"paid": 12.50}');
SELECT stacksaga.run_pending();
SELECT status, output, error, failed_step, finished_at IS NOT NULL AS finished
  FROM stacksaga.saga_result(:'id');
SELECT status, current_step, attempt, output, last_error, finished_at = updated_at AS finished
  FROM stacksaga.sagas WHERE saga_id = :'id';
SELECT step, direction, attempt, status, error, error_class, worker,
    finished_at >= started_at AS in_order
  FROM stacksaga.saga_history WHERE saga_id = :'id' ORDER BY finished_at, step;
SELECT step, direction, attempt, input, results, key, headers FROM run.log ORDER BY n;
SELECT regexp_replace(line, '^[-0-9]{10} [:.0-9]{12}', '(time)')
  FROM stacksaga.saga_timeline(:'id') AS line;
-- Nothing is left to look at.
SELECT count(*) FROM stacksaga.work WHERE saga_id = :'id';
SELECT stacksaga.run_pending();
SELECT stacksaga.await_saga(:'id', '0');

-- The compare-and-set of the marker: a completed step cannot be written again, by anybody.
\set VERBOSITY sqlstate
INSERT INTO stacksaga.effect (saga_id, token, step_no, direction, attempt, started_at, completed_at)
    SELECT saga_id, token, step_no, direction, attempt + 1, started_at, completed_at
        FROM stacksaga.effect WHERE saga_id = :'id' AND step_no = 1;
\set VERBOSITY default

-- Stages: steps with one number run side by side, the next stage starts when all have completed,
-- and each step sees what was completed before it.
SELECT stacksaga.define_saga('run stages', ARRAY[
    stacksaga.queue_step('hotel', 'run', compensable => true, stage => 1), stacksaga.queue_step('flight', 'run', compensable => true,
        stage => 1),
    stacksaga.sql_step('car', 'run.act(stacksaga.step_call)', stage => 1),
    stacksaga.queue_step('mail', 'run', compensable => true, stage => 2), stacksaga.queue_step('log', 'run', compensable => true,
        stage => 2)]);
SELECT saga_id AS id FROM stacksaga.start_saga('run stages') \gset
CREATE TABLE run.claimed AS SELECT * FROM stacksaga.claim_steps('run', 'agent', 10);
SELECT step, results FROM run.claimed ORDER BY step;
SELECT stacksaga.run_pending();
SELECT stacksaga.complete_step(saga_id, step, lease, '"H"') FROM run.claimed WHERE step = 'hotel';
SELECT step FROM stacksaga.claim_steps('run', 'agent', 10);
SELECT stacksaga.complete_step(saga_id, step, lease, '"F"') FROM run.claimed WHERE step = 'flight';
TRUNCATE run.claimed;
INSERT INTO run.claimed SELECT * FROM stacksaga.claim_steps('run', 'agent', 10);
SELECT step, results FROM run.claimed ORDER BY step;
SELECT stacksaga.complete_step(saga_id, step, lease) FROM run.claimed ORDER BY step;
SELECT status, output FROM stacksaga.saga_result(:'id');

-- A step that waits for run_at, and a saga of many steps.
SELECT stacksaga.define_saga('run many',
    (SELECT array_agg(stacksaga.sql_step('s' || n, 'run.json_null(stacksaga.step_call)'))
  FROM generate_series(1, 300) n));
SELECT saga_id AS id FROM stacksaga.start_saga('run many',
    run_at => stacksaga.clock_now() + interval '1 minute') \gset
SELECT stacksaga.run_pending(10000);
SET stacksaga.clock_offset = '2 minutes';
SELECT stacksaga.run_pending(1);
SELECT stacksaga.run_pending(200);
SELECT status, current_step FROM stacksaga.sagas WHERE saga_id = :'id';
SELECT stacksaga.run_pending(10000);
RESET stacksaga.clock_offset;
SELECT status, (SELECT count(*) FROM jsonb_object_keys(output)) AS outputs
  FROM stacksaga.saga_result(:'id');
SELECT count(*) FROM stacksaga.saga_timeline(:'id');

-- Rows that are rewritten: the saga's own twice (running, completed), whatever the number of steps.
SELECT stacksaga.define_saga('run writes', ARRAY[
    stacksaga.sql_step('a', 'run.json_null(stacksaga.step_call)'),
        stacksaga.sql_step('b', 'run.json_null(stacksaga.step_call)'),
    stacksaga.sql_step('c', 'run.json_null(stacksaga.step_call)'),
        stacksaga.sql_step('d', 'run.json_null(stacksaga.step_call)')]);
CREATE TABLE run.writes (n int);
CREATE FUNCTION run.count_write() RETURNS trigger
  LANGUAGE plpgsql AS $$ BEGIN INSERT INTO run.writes VALUES (1); RETURN NULL; END $$;
CREATE TRIGGER run_count AFTER UPDATE ON stacksaga.saga FOR EACH ROW
  EXECUTE FUNCTION run.count_write();
SELECT saga_id AS id FROM stacksaga.start_saga('run writes') \gset
SELECT stacksaga.run_pending();
DROP TRIGGER run_count ON stacksaga.saga;
SELECT count(*) AS updates_of_the_saga FROM run.writes;

-- What is asked about a saga that is not there, and bad input.
CREATE FUNCTION run.outcome(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    result text; message text; detail text; hint text;
BEGIN
    EXECUTE statement INTO result;
    RETURN NEXT 'accepted: ' || coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN QUERY SELECT regexp_replace(line, '[0-9a-f]{8}-[0-9a-f-]{27}', '(id)', 'g')
      FROM (VALUES (SQLSTATE || ': ' || message), ('DETAIL: ' || nullif(detail, '')),
                   ('HINT: ' || nullif(hint, ''))) AS v(line) WHERE line IS NOT NULL;
END
$$;
SELECT call, line FROM unnest(ARRAY[
    $$ saga_result('00000000-0000-0000-0000-00000000dead') $$, $$ saga_result(NULL) $$,
    $$ await_saga('00000000-0000-0000-0000-00000000dead', '0') $$, $$ await_saga(NULL, '0') $$,
    $$ await_saga('00000000-0000-0000-0000-00000000dead', NULL) $$,
    $$ await_saga('00000000-0000-0000-0000-00000000dead', '-1 s') $$,
    $$ await_saga('00000000-0000-0000-0000-00000000dead', '178000000 years') $$,
    $$ run_pending(0) $$, $$ run_pending(-1) $$, $$ run_pending(NULL) $$,
        $$ run_pending(2147483647) $$
    ]) AS call, run.outcome('SELECT stacksaga.' || call) AS line;
SELECT count(*) FROM stacksaga.saga_timeline('00000000-0000-0000-0000-00000000dead');
SELECT count(*) FROM stacksaga.saga_timeline(NULL);
-- Nobody works on what is not committed: waiting for it in its own transaction is refused.
BEGIN;
SELECT saga_id AS id FROM stacksaga.start_saga('run') \gset
SELECT * FROM run.outcome(format('SELECT stacksaga.await_saga(%L)', :'id'));
SAVEPOINT inner_start;
SELECT saga_id AS id FROM stacksaga.start_saga('run') \gset
SELECT line FROM run.outcome(format('SELECT stacksaga.await_saga(%L, ''1 ms'')', :'id'))
  WITH ORDINALITY AS o(line, n) WHERE n = 1;
ROLLBACK;
-- It returns what the status is when its time is over.
SELECT saga_id AS id FROM stacksaga.start_saga('run') \gset
SELECT stacksaga.await_saga(:'id', '1 millisecond');

SET client_min_messages = warning;
DROP SCHEMA run CASCADE;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
