-- Steps that wait: signals, timers and child sagas, and fallbacks before compensation.

CREATE SCHEMA kinds;
CREATE TABLE kinds.log (n serial, what text);
-- Fails for good where the input holds the step under "fail", and retryably under "busy".
CREATE FUNCTION kinds.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.direction = 'act' AND call.input -> 'fail' ? call.step
       OR call.direction = 'compensate' AND call.input -> 'stuck' ? call.step THEN
        RAISE EXCEPTION 'no %', call.step USING ERRCODE = 'SG424';
    ELSIF call.direction = 'act' AND call.input -> 'busy' ? call.step THEN
        RAISE EXCEPTION 'busy %', call.step USING ERRCODE = 'SR503';
    END IF;
    INSERT INTO kinds.log (what) VALUES (format('%s: %s %s, attempt %s, sees %s', call.saga,
        call.direction, call.step, call.attempt, call.results));
    RETURN to_jsonb(call.direction || ' ' || call.step);
END
$$;
CREATE FUNCTION kinds.other(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.input -> 'fail' ? ('other ' || call.step) THEN
        RAISE EXCEPTION 'no other %', call.step USING ERRCODE = 'SG424';
    END IF;
    INSERT INTO kinds.log (what) VALUES (format('%s: other %s, attempt %s, %s', call.saga, call.step,
        call.attempt, split_part(call.idempotency_key, ':', 2)));
    RETURN to_jsonb('other ' || call.step);
END
$$;
CREATE FUNCTION kinds.step(name text, stage int DEFAULT NULL, fallback text DEFAULT NULL,
    compensable boolean DEFAULT true)
RETURNS stacksaga.step_definition LANGUAGE sql AS $$
    SELECT stacksaga.sql_step(name, 'kinds.run(stacksaga.step_call)',
        CASE WHEN compensable THEN 'kinds.run(stacksaga.step_call)' END, stage => stage,
        fallback => fallback, retry => stacksaga.retry_policy(max_attempts => 2, jitter => 0))
$$;
CREATE FUNCTION kinds.start(saga text, input jsonb DEFAULT '{}') RETURNS uuid LANGUAGE sql AS $$
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure,
        stacksaga.saga_signal, stacksaga.saga_action, stacksaga.parked_saga;
    TRUNCATE kinds.log RESTART IDENTITY;
    SELECT set_config('stacksaga.clock_offset', '0', false);
    SELECT saga_id FROM stacksaga.start_saga(saga, input);
$$;
CREATE FUNCTION kinds.refused(call text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    message text; detail text; hint text;
BEGIN
    EXECUTE 'SELECT stacksaga.' || call;
    RETURN NEXT 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ': ' || regexp_replace(message, '[0-9a-f-]{36}', '(id)');
    RETURN NEXT '  DETAIL: ' || regexp_replace(detail, '[0-9a-f-]{36}', '(id)');
    RETURN NEXT '  HINT: ' || hint;
END
$$;
-- The sagas without their ids, and what is left to do.
CREATE VIEW kinds.now AS
    SELECT saga, s.status, current_step AS step, attempt, parent_id IS NOT NULL AS child,
           date_trunc('minute', paused_until - stacksaga.clock_now() + '30 s') AS paused,
           s.output, regexp_replace(last_error, '[0-9a-f-]{36}', '(id)') AS last_error
      FROM stacksaga.sagas s ORDER BY created_at, parent_id NULLS FIRST, s.saga_id;
CREATE VIEW kinds.history AS
    SELECT saga, step, direction, h.attempt, h.status, error_class,
           regexp_replace(error, '[0-9a-f-]{36}', '(id)') AS error
      FROM stacksaga.saga_history h JOIN stacksaga.sagas USING (saga_id)
     ORDER BY parent_id NULLS FIRST, h.finished_at, step, direction, h.attempt;

-- A signal that comes while its step waits; its payload is the output.
SELECT stacksaga.define_saga('approve', ARRAY[kinds.step('ask'),
    stacksaga.signal_step('answer', 'approved', timeout => '1 hour'), kinds.step('do')]);
SELECT kinds.start('approve') AS id \gset
SELECT stacksaga.run_pending();
SELECT * FROM kinds.now;
SELECT stacksaga.signal_saga(:'id', 'approved', '{"by": "kim"}', 'm1') AS accepted,
       stacksaga.signal_saga(:'id', 'approved', '{"by": "lee"}', 'm1') AS again;
SELECT stacksaga.run_pending();
SELECT * FROM kinds.now;
SELECT what FROM kinds.log ORDER BY n;
SELECT * FROM kinds.history;
SELECT count(*) FROM stacksaga.work;
-- Before its step waits; only the first of two is for this step.
SELECT kinds.start('approve') AS id \gset
SELECT stacksaga.signal_saga(:'id', 'approved', '1');
SELECT kinds.refused(format('signal_saga(%L, ''approved'', ''2'')', :'id')); -- no step is left for it
SELECT stacksaga.run_pending();
SELECT status, output FROM kinds.now;
SELECT signal, signal_no, step_no, payload FROM stacksaga.saga_signal ORDER BY signal_no;
-- Not in time: the step fails for good, and the old timer of a step that has its signal does nothing.
SELECT kinds.start('approve') AS id \gset
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '59 minutes';
SELECT stacksaga.run_pending();
SELECT * FROM kinds.now;
SET stacksaga.clock_offset = '61 minutes';
SELECT stacksaga.run_pending();
SELECT * FROM kinds.now;
SELECT kinds.refused(format('signal_saga(%L, ''approved'')', :'id'));
-- Without bound.
SELECT stacksaga.define_saga('forever', ARRAY[stacksaga.signal_step('wait', 's')]);
SELECT kinds.start('forever') AS id \gset
SET stacksaga.clock_offset = '1000 days';
SELECT stacksaga.run_pending();
SELECT * FROM kinds.now;
SELECT stacksaga.signal_saga(:'id', 's', 'null');
SELECT * FROM kinds.now;
-- Two that wait side by side for one name take one signal each, in the order of the steps.
SELECT stacksaga.define_saga('two', ARRAY[stacksaga.signal_step('a', 's', stage => 1),
    stacksaga.signal_step('b', 's', stage => 1), stacksaga.timer_step('pause', '5 minutes')]);
SELECT kinds.start('two') AS id \gset
SELECT stacksaga.signal_saga(:'id', 's', '1');
SELECT * FROM kinds.now;
SELECT stacksaga.signal_saga(:'id', 's', '2');
SELECT * FROM kinds.now;
SET stacksaga.clock_offset = '4 minutes';
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '6 minutes';
SELECT stacksaga.run_pending();
SELECT * FROM kinds.now;
-- A wait begins at run_at, and takes what came before it.
SELECT kinds.start('approve') IS NOT NULL AS other;
SELECT saga_id AS id FROM stacksaga.start_saga('forever', run_at => now() + '1 hour') \gset
SELECT stacksaga.signal_saga(:'id', 's', '"early"');
SELECT * FROM kinds.now WHERE saga = 'forever';
SET stacksaga.clock_offset = '61 minutes';
SELECT stacksaga.run_pending();
SELECT * FROM kinds.now WHERE saga = 'forever';

-- A child: its input is the saga's, its output the step's.
SELECT stacksaga.define_saga('child', ARRAY[kinds.step('c1'), kinds.step('c2')]);
SELECT stacksaga.define_saga('parent', ARRAY[kinds.step('a'),
    stacksaga.child_step('kid', 'child', timeout => '1 hour'), kinds.step('z')]);
SELECT step, kind, effect, child_saga FROM stacksaga.definition_step
  JOIN stacksaga.saga_definition USING (definition_id) WHERE saga = 'parent' ORDER BY step_no;
SELECT kinds.start('parent', '{"x": 1}') AS id \gset
SELECT stacksaga.run_pending();
SELECT * FROM kinds.now;
SELECT what FROM kinds.log ORDER BY n;
SELECT s.input, s.parent_step, s.run, s.ring_id = p.ring_id AS same_ring
  FROM stacksaga.saga s JOIN stacksaga.saga p ON p.saga_id = s.parent_id;
SELECT count(*) FROM stacksaga.work;
-- It fails: the step does, and is not undone again.
SELECT kinds.start('parent', '{"fail": ["c2"]}') AS id \gset
SELECT stacksaga.run_pending();
SELECT * FROM kinds.now;
SELECT * FROM kinds.history;
SELECT what FROM kinds.log ORDER BY n;
-- The saga fails after it: the child is undone although it had completed.
SELECT kinds.start('parent', '{"fail": ["z"]}') AS id \gset
SELECT stacksaga.run_pending();
SELECT saga, status, child, last_error FROM kinds.now;
SELECT what FROM kinds.log ORDER BY n;
SELECT count(*) FROM stacksaga.work;
-- Cancelled while the child runs: the child compensates first.
SELECT stacksaga.define_saga('slow', ARRAY[kinds.step('c1'), stacksaga.signal_step('c2', 'go')]);
SELECT stacksaga.define_saga('patient', ARRAY[kinds.step('a'),
    stacksaga.child_step('kid', 'slow', timeout => '1 hour')]);
SELECT kinds.start('patient') AS id \gset
SELECT stacksaga.run_pending();
SELECT saga, status, step, attempt FROM kinds.now;
SELECT stacksaga.cancel_saga(:'id', 'changed my mind');
SELECT stacksaga.run_pending();
SELECT saga, status, child, last_error FROM kinds.now;
SELECT what FROM kinds.log ORDER BY n;
SELECT count(*) FROM stacksaga.work;
-- It takes longer than the timeout: the next attempt waits for the same child.
SELECT kinds.start('patient') AS id \gset
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '61 minutes';
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '63 minutes';
SELECT stacksaga.run_pending();
SELECT saga, status, step, attempt, last_error FROM kinds.now;
SELECT count(*) FROM stacksaga.saga WHERE parent_id IS NOT NULL;
SELECT stacksaga.signal_saga(saga_id, 'go') FROM stacksaga.sagas WHERE saga = 'slow';
SELECT stacksaga.run_pending();
SELECT saga, status, output FROM kinds.now;
-- An operator cancels the child: the step fails.
SELECT kinds.start('patient') AS id \gset
SELECT stacksaga.run_pending();
SELECT stacksaga.cancel_saga(saga_id, 'not this') FROM stacksaga.sagas WHERE saga = 'slow';
SELECT stacksaga.run_pending();
SELECT saga, status, last_error FROM kinds.now;
-- The child's compensation is stuck: it parks, and the saga waits for it.
SELECT kinds.start('parent', '{"fail": ["z"], "stuck": ["c1"]}') AS id \gset
SELECT stacksaga.run_pending();
SELECT saga, status, step, last_error FROM kinds.now;
SELECT stacksaga.resolve_step(saga_id, 'c1', 'done') FROM stacksaga.sagas WHERE saga = 'child';
SELECT stacksaga.run_pending();
SELECT saga, status, step FROM kinds.now;
-- A child that cannot be undone makes its step irreversible; retried, it is a new child.
SELECT stacksaga.define_saga('final', ARRAY[
    stacksaga.sql_step('pay', 'kinds.run(stacksaga.step_call)', effect => 'irreversible')]);
SELECT stacksaga.define_saga('buy', ARRAY[
    stacksaga.child_step('kid', 'final'),
    stacksaga.child_step('kid2', 'child', effect => 'guarded')]);
SELECT step, effect FROM stacksaga.definition_step
  JOIN stacksaga.saga_definition USING (definition_id) WHERE saga = 'buy' ORDER BY step_no;
SELECT kinds.start('buy', '{"fail": ["c1"]}') AS id \gset
SELECT stacksaga.run_pending();
SELECT saga, status, child, last_error FROM kinds.now;
SET session_replication_role = replica; -- what a saga was started with may not change
UPDATE stacksaga.saga SET input = '{}' WHERE saga_id = :'id';
RESET session_replication_role;
SELECT stacksaga.retry_saga(:'id', 'the child may pass now');
SELECT stacksaga.run_pending();
SELECT saga, status, output FROM kinds.now;
SELECT parent_step, run, status FROM stacksaga.saga WHERE parent_id IS NOT NULL
 ORDER BY parent_step, run;
-- One that cannot be undone and takes longer than all attempts parks its saga. It is not for this
-- saga's operator to say what became of it; it goes on when the child settles.
SELECT stacksaga.define_saga('slow final', ARRAY[stacksaga.signal_step('wait', 'go'),
    stacksaga.sql_step('pay', 'kinds.run(stacksaga.step_call)', effect => 'irreversible')]);
SELECT stacksaga.define_saga('wait for it', ARRAY[stacksaga.child_step('kid', 'slow final',
    timeout => '1 minute', retry => stacksaga.retry_policy(max_attempts => 1))]);
SELECT kinds.start('wait for it') AS id \gset
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '2 minutes';
SELECT stacksaga.run_pending();
SELECT saga, status, step, last_error FROM kinds.now;
SELECT kinds.refused(format('resolve_step(%L, ''kid'', ''done'')', :'id'));
SELECT stacksaga.signal_saga(saga_id, 'go') FROM stacksaga.sagas WHERE saga = 'slow final';
SELECT stacksaga.run_pending();
SELECT saga, status, output FROM kinds.now;
-- Headers travel to children and grandchildren.
CREATE FUNCTION kinds.headers(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    SELECT call.headers $$;
SELECT stacksaga.define_saga('leaf', ARRAY[
    stacksaga.sql_step('h', 'kinds.headers(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('branch', ARRAY[stacksaga.child_step('leaf', 'leaf')]);
SELECT stacksaga.define_saga('tree', ARRAY[stacksaga.child_step('branch', 'branch')]);
SELECT kinds.start('tree') IS NOT NULL AS other;
SELECT saga_id AS id FROM stacksaga.start_saga('tree', headers =>
    '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tenant": 7}') \gset
SELECT stacksaga.run_pending();
SELECT output FROM stacksaga.saga_result(:'id');

-- Fallbacks. A function for a sql_step, with attempts of its own, under the same key.
SELECT stacksaga.define_saga('else', ARRAY[
    kinds.step('a', fallback => 'kinds.other(stacksaga.step_call)'), kinds.step('b')]);
SELECT kinds.start('else', '{"fail": ["a"]}') AS id \gset
SELECT stacksaga.run_pending();
SELECT saga, status, output FROM kinds.now;
SELECT * FROM kinds.history;
SELECT what FROM kinds.log ORDER BY n;
-- After the last of the attempts; and it fails as well.
SELECT kinds.start('else', '{"busy": ["a"], "fail": ["other a"]}') AS id \gset
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '1 minute';
SELECT stacksaga.run_pending();
SELECT * FROM kinds.history;
SELECT saga, status, last_error FROM kinds.now;
-- What the fallback of a step did is undone by the step's compensation.
SELECT kinds.start('else', '{"fail": ["a", "b"]}') AS id \gset
SELECT stacksaga.run_pending();
SELECT what FROM kinds.log ORDER BY n;
-- A queue for the others; here for a signal that does not come.
SELECT stacksaga.define_saga('call', ARRAY[
    stacksaga.queue_step('q', 'kinds_main', compensable => true, fallback => 'kinds_spare',
        retry => stacksaga.retry_policy(max_attempts => 1)),
    stacksaga.signal_step('s', 'go', timeout => '1 minute', fallback => 'kinds_spare')]);
SELECT kinds.start('call') AS id \gset
SELECT stacksaga.fail_step(saga_id, step, lease, 'down', 'retryable') FROM stacksaga.claim_steps('kinds_main', 'w');
SELECT step, direction, attempt FROM stacksaga.claim_steps('kinds_main', 'w');
SELECT step, direction, attempt, stacksaga.complete_step(saga_id, step, lease, '"spare"') AS status
  FROM stacksaga.claim_steps('kinds_spare', 'w');
SET stacksaga.clock_offset = '2 minutes';
SELECT stacksaga.run_pending();
SELECT step, direction, attempt, stacksaga.complete_step(saga_id, step, lease, '"by phone"') AS status
  FROM stacksaga.claim_steps('kinds_spare', 'w');
SELECT saga, status, output FROM kinds.now;
-- An unknown outcome is undone and not done another way.
SELECT kinds.start('call') AS id \gset
SELECT stacksaga.fail_step(saga_id, step, lease, 'lost', 'unknown')
  FROM stacksaga.claim_steps('kinds_main', 'w');
SELECT count(*) FROM stacksaga.claim_steps('kinds_spare', 'w');
SELECT direction, stacksaga.complete_step(saga_id, step, lease) AS status
  FROM stacksaga.claim_steps('kinds_main', 'w');

-- A lease that ran out leaves the outcome unknown as well.
SELECT kinds.start('call') AS id \gset
SELECT lease AS lease FROM stacksaga.claim_steps('kinds_main', 'w') \gset
SET stacksaga.clock_offset = '31 seconds';
SELECT stacksaga.run_pending();
SELECT count(*) FROM stacksaga.claim_steps('kinds_spare', 'w');
SELECT direction, stacksaga.complete_step(saga_id, step, lease) AS status
  FROM stacksaga.claim_steps('kinds_main', 'w');
-- An outcome that is not known stays so when a later attempt fails.
SELECT stacksaga.define_saga('doubted', ARRAY[
    stacksaga.queue_step('q', 'kinds_main', compensable => true, fallback => 'kinds_spare',
        retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0'))]);
SELECT kinds.start('doubted') AS id \gset
SELECT stacksaga.fail_step(saga_id, step, lease, 'lost', 'unknown')
  FROM stacksaga.claim_steps('kinds_main', 'w');
SELECT stacksaga.fail_step(saga_id, step, lease, 'busy', 'retryable')
  FROM stacksaga.claim_steps('kinds_main', 'w');
SELECT count(*) FROM stacksaga.claim_steps('kinds_spare', 'w');
-- A saga that is parked for a step whose fallback is due now compensates if a sibling has failed.
SELECT stacksaga.define_saga('paid', ARRAY[
    stacksaga.queue_step('pay', 'kinds_main', stage => 1, effect => 'irreversible',
        fallback => 'kinds_spare'),
    stacksaga.queue_step('b', 'kinds_side', stage => 1, compensable => false)]);
SELECT kinds.start('paid') AS id \gset
SELECT lease AS lease FROM stacksaga.claim_steps('kinds_side', 'w') \gset
SELECT stacksaga.fail_step(saga_id, step, lease, 'lost', 'unknown')
  FROM stacksaga.claim_steps('kinds_main', 'w');
SELECT stacksaga.fail_step(:'id', 'b', :lease, 'no', 'non_retryable');
SELECT stacksaga.resolve_step(:'id', 'pay', 'never');
SELECT count(*) FROM stacksaga.work;
-- What an operator says of another step does not lead past an irreversible one that is done.
SELECT kinds.start('paid') AS id \gset
SELECT lease AS lease FROM stacksaga.claim_steps('kinds_main', 'w') \gset
SELECT stacksaga.fail_step(saga_id, step, lease, 'no', 'non_retryable')
  FROM stacksaga.claim_steps('kinds_side', 'w');
SELECT stacksaga.complete_step(:'id', 'pay', :lease);
SELECT stacksaga.resolve_step(:'id', 'b', 'not_done');

-- A child that takes too long compensates; no fallback runs beside it.
SELECT stacksaga.define_saga('hasty', ARRAY[stacksaga.child_step('kid', 'slow',
    timeout => '1 minute', fallback => 'kinds_spare',
    retry => stacksaga.retry_policy(max_attempts => 1))]);
SELECT kinds.start('hasty') AS id \gset
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '2 minutes';
SELECT stacksaga.run_pending();
SELECT count(*) FROM stacksaga.claim_steps('kinds_spare', 'w');
SELECT saga, status, child FROM kinds.now;
SELECT count(*) FROM stacksaga.work;

-- Bad signals change nothing.
SELECT kinds.start('forever') AS id \gset
SELECT line FROM unnest(ARRAY[
    'signal_saga(NULL, ''s'')',
    format('signal_saga(%L, NULL)', :'id'),
    format('signal_saga(%L, '''')', :'id'),
    format('signal_saga(%L, repeat(''x'', 10000))', :'id'),
    format('signal_saga(%L, ''other'')', :'id'),
    format('signal_saga(%L, ''s'', NULL)', :'id'),
    format('signal_saga(%L, ''s'', to_jsonb(repeat(''x'', 2000000)))', :'id'),
    format('signal_saga(%L, ''s'', message_id => '''')', :'id'),
    format('signal_saga(%L, ''s'', message_id => repeat(''x'', 256))', :'id'),
    'signal_saga(''00000000-0000-0000-0000-000000000000'', ''s'')']) AS call,
    kinds.refused(call) AS line;
SELECT count(*) FROM stacksaga.saga_signal;
SELECT stacksaga.signal_saga(:'id', 's', message_id => 'm');
SELECT line FROM kinds.refused(format('signal_saga(%L, ''s'')', :'id')) AS line;
SELECT stacksaga.signal_saga(:'id', 's', message_id => 'm') AS again;

-- Definitions that are refused.
SELECT line FROM unnest(ARRAY[
    $$ stacksaga.signal_step('a', '') $$,
    $$ stacksaga.signal_step('a', 's', timeout => '-1 s') $$,
    $$ stacksaga.signal_step('a', 's', verify => 'kinds.run(stacksaga.step_call)') $$,
    $$ stacksaga.signal_step('a', 's', effect => 'compensable') $$,
    $$ stacksaga.signal_step('a', 's', fallback => '') $$,
    $$ stacksaga.timer_step('a', NULL) $$,
    $$ stacksaga.timer_step('a', '-1 s') $$,
    $$ stacksaga.child_step('a', 'nobody') $$,
    $$ stacksaga.child_step('a', NULL) $$,
    $$ stacksaga.child_step('a', 'circle') $$,
    $$ stacksaga.child_step('a', 'final', effect => 'compensable') $$,
    $$ stacksaga.child_step('a', 'child', effect => 'irreversible'), stacksaga.child_step('b', 'child') $$,
    $$ stacksaga.sql_step('a', 'kinds.run(stacksaga.step_call)', fallback => 'kinds.nothing(stacksaga.step_call)') $$,
    $$ stacksaga.sql_step('a', 'kinds.run(stacksaga.step_call)', fallback => 'a_queue') $$,
    $$ stacksaga.queue_step('a', 'q', compensable => true, fallback => repeat('q', 64)) $$]) AS step,
    kinds.refused(format('define_saga(''circle'', ARRAY[%s])', step)) AS line;
-- A circle of two, closed by a new version.
SELECT stacksaga.define_saga('circle', ARRAY[stacksaga.child_step('a', 'child')]);
SELECT stacksaga.define_saga('outer', ARRAY[stacksaga.child_step('a', 'circle')]);
SELECT line FROM kinds.refused($$define_saga('circle', ARRAY[stacksaga.child_step('a', 'outer')])$$)
    AS line;
SELECT saga, version FROM stacksaga.saga_definition WHERE saga IN ('circle', 'outer') ORDER BY saga;

RESET stacksaga.clock_offset;
SET client_min_messages = warning;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure,
    stacksaga.saga_signal, stacksaga.saga_action, stacksaga.parked_saga;
DROP SCHEMA kinds CASCADE;
