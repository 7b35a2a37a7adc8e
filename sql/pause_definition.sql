-- pause_definition(): no attempt of a step begins, in any version; what has begun goes on, and compensations are done.
CREATE EXTENSION IF NOT EXISTS stacksaga;
\set VERBOSITY terse
CREATE SCHEMA pausing;
CREATE TABLE pausing.done (saga text, step text);
CREATE FUNCTION pausing.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    INSERT INTO pausing.done VALUES (call.saga, call.step) RETURNING '{}'::jsonb $$;
CREATE FUNCTION pausing.undo(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    INSERT INTO pausing.done VALUES (call.saga, 'undo ' || call.step) RETURNING '{}'::jsonb $$;
CREATE FUNCTION pausing.fail_once(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.attempt = 1 THEN RAISE EXCEPTION 'once' USING ERRCODE = 'SR503'; END IF;
    RETURN '{}';
END $$;
CREATE FUNCTION pausing.verify(call stacksaga.step_call) RETURNS text LANGUAGE sql AS $$ SELECT 'not_done' $$;
CREATE FUNCTION pg_temp.at(by interval) RETURNS text LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', by::text, false) $$;
CREATE FUNCTION pg_temp.run() RETURNS bigint LANGUAGE sql AS $$ SELECT stacksaga.run_pending(1000) $$;
CREATE FUNCTION pg_temp.complete(queue text) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.complete_step(c.saga_id, c.step, c.lease)) FROM stacksaga.claim_steps(queue, 'w', 100) AS c $$;
CREATE VIEW pausing.held AS
    SELECT w.paused_saga, w.queue, w.direction, w.due_at = 'infinity' AS never_due, w.resume_at IS NOT NULL AS comes_back, count(*)
      FROM stacksaga.work w WHERE w.purpose = 'step' GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5;

SELECT stacksaga.define_saga('pausing', ARRAY[
    stacksaga.queue_step('a', 'pausing', compensable => false), stacksaga.sql_step('b', 'pausing.act(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('pausing_other', ARRAY[stacksaga.queue_step('a', 'pausing', compensable => false)]);

-- Misuse.
SELECT stacksaga.pause_definition('pausing nothing', 'a test');
SELECT stacksaga.resume_definition('pausing nothing', 'a test');
SELECT stacksaga.pause_definition('pausing', NULL);
SELECT stacksaga.pause_definition('pausing', '');
SELECT stacksaga.pause_definition('pausing', 'a test', 'infinity');
SELECT stacksaga.pause_definition('pausing', 'a test', stacksaga.clock_now() - interval '1 second');
SELECT stacksaga.resume_definition('pausing', 'a test');

-- A step that was due is not claimed, nor is one that is started meanwhile; those of others are.
SELECT count(*) FROM stacksaga.start_sagas('pausing', array_fill('{}'::jsonb, ARRAY[3]));
SELECT stacksaga.pause_definition('pausing', 'the bug of Monday');
SELECT stacksaga.pause_definition('pausing', 'twice');
SELECT saga, version, paused, paused_since IS NOT NULL AS since, paused_until, pause_reason
  FROM stacksaga.definitions WHERE saga IN ('pausing', 'pausing_other') ORDER BY 1;
SELECT count(*) FROM stacksaga.start_saga('pausing') AS p, stacksaga.start_saga('pausing_other') AS o;
SELECT count(*), count(*) FILTER (WHERE step = 'a') FROM stacksaga.claim_steps('pausing', 'w', 1);
SELECT count(*) FROM stacksaga.claim_steps('pausing', 'w', 100);
SELECT * FROM pausing.held;
SELECT DISTINCT waits_for FROM stacksaga.find_sagas(saga => 'pausing');
SELECT DISTINCT regexp_replace(line, '^[0-9:. -]+', '') AS line FROM stacksaga.sagas s, stacksaga.saga_timeline(s.saga_id) AS line
 WHERE s.saga = 'pausing' AND line LIKE '%paused%';
SELECT severity, check_name, regexp_replace(detail, '\d\d:\d\d:\d\d', 'a while') AS detail, fix FROM stacksaga.doctor()
 WHERE check_name = 'definitions';
SELECT name, labels, value FROM stacksaga.metrics() WHERE name LIKE 'stacksaga_definition\_%' ORDER BY 1;
-- A new version is paused, too.
SELECT stacksaga.define_saga('pausing', ARRAY[stacksaga.queue_step('a', 'pausing new', compensable => false)]);
SELECT count(*) FROM stacksaga.start_saga('pausing');
SELECT count(*) FROM stacksaga.claim_steps('pausing new', 'w');
SELECT version, paused FROM stacksaga.definitions WHERE saga = 'pausing' ORDER BY 1;

-- The end brings all of it back at its instant; nothing waits for a worker.
SELECT w.saga_id, w.resume_at FROM stacksaga.work w WHERE w.paused_saga = 'pausing' ORDER BY w.resume_at LIMIT 1 \gset
SELECT stacksaga.resume_definition('pausing', 'it is fixed');
SELECT stacksaga.resume_definition('pausing', 'twice');
SELECT saga_id = :'saga_id' AS oldest_first FROM stacksaga.claim_steps('pausing', 'w', 1);
SELECT count(*) FROM stacksaga.claim_steps('pausing', 'w', 100);
SELECT count(*) FROM stacksaga.claim_steps('pausing new', 'w');
SELECT count(*) FROM stacksaga.work WHERE paused_saga IS NOT NULL;
SELECT count(*) FROM stacksaga.definitions WHERE paused;
SELECT action, object, reason, detail FROM stacksaga.operator_actions WHERE object = 'definition pausing' ORDER BY at;

-- What was claimed before goes on: its answer counts, and the next step waits.
SELECT stacksaga.pause_definition('pausing', 'again');
SELECT DISTINCT stacksaga.complete_step(w.saga_id, 'a', w.lease) FROM stacksaga.work w JOIN stacksaga.sagas s USING (saga_id)
 WHERE s.saga = 'pausing' AND s.version = 1 AND w.lease_until IS NOT NULL;
SELECT pg_temp.run(), count(*) FROM pausing.done;
SELECT * FROM pausing.held WHERE paused_saga IS NOT NULL;
SELECT stacksaga.resume_definition('pausing', 'again');
SELECT pg_temp.run() > 0 AS ran;
SELECT count(*) FROM pausing.done;

-- Retries wait; leases run out; verify is asked; signals and timers are waited for; children that exist go on.
TRUNCATE pausing.done;
SELECT stacksaga.define_saga('pausing child', ARRAY[stacksaga.sql_step('c', 'pausing.act(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('pausing all', ARRAY[
    stacksaga.sql_step('fails once', 'pausing.fail_once(stacksaga.step_call)', stage => 1),
    stacksaga.queue_step('lost', 'pausing lost', compensable => false, stage => 1, timeout => '1 minute',
                         verify => 'pausing.verify(stacksaga.step_call)'),
    stacksaga.child_step('child', 'pausing child', stage => 1),
    stacksaga.signal_step('signal', 'go', stage => 1),
    stacksaga.timer_step('timer', '10 minutes', stage => 1),
    stacksaga.message_step('message', 'pausing topic', stage => 2)]);
SELECT saga_id AS all FROM stacksaga.start_saga('pausing all') \gset
SELECT stacksaga.run_pending(1) > 0 AS ran FROM generate_series(1, 2);
SELECT count(*) FROM stacksaga.claim_steps('pausing lost', 'w', 1, '1 minute');
SELECT status FROM stacksaga.sagas WHERE saga = 'pausing child';
SELECT stacksaga.pause_definition('pausing all', 'a test');
SELECT stacksaga.signal_saga(:'all', 'go') IS NOT NULL AS signalled;
SELECT pg_temp.at('11 minutes') IS NOT NULL;
SELECT pg_temp.run() > 0 AS ran;
SELECT step, status, error_class FROM stacksaga.saga_history WHERE saga_id = :'all' ORDER BY step, attempt;
SELECT saga, step FROM pausing.done;
SELECT status, current_step FROM stacksaga.sagas WHERE saga_id = :'all';
SELECT waits_for FROM stacksaga.find_sagas(saga => 'pausing all');
SELECT stacksaga.resume_definition('pausing all', 'a test');
SELECT pg_temp.run() > 0 AS ran;
SELECT count(*) FROM stacksaga.claim_steps('pausing lost', 'w', 1, '1 minute');
SELECT step, attempt, status FROM stacksaga.saga_history WHERE saga_id = :'all' AND step IN ('fails once', 'lost') ORDER BY step, attempt;
SELECT stacksaga.cancel_saga(:'all', 'the test is over') IS NOT NULL;
SELECT pg_temp.at('0') IS NOT NULL;

-- No child is started and nothing is published; the parent's pause is not the child's.
SELECT stacksaga.define_saga('pausing parent', ARRAY[stacksaga.child_step('child', 'pausing child')]);
SELECT stacksaga.define_saga('pausing message', ARRAY[stacksaga.message_step('m', 'pausing topic')]);
SELECT stacksaga.pause_definition('pausing parent', 'a test'), stacksaga.pause_definition('pausing message', 'a test');
SELECT saga_id AS parent FROM stacksaga.start_saga('pausing parent') \gset
SELECT saga_id AS message FROM stacksaga.start_saga('pausing message') \gset
SELECT pg_temp.run();
SELECT count(*) FROM stacksaga.sagas WHERE parent_id = :'parent';
SELECT stacksaga.resume_definition('pausing parent', 'a test'), stacksaga.pause_definition('pausing child', 'a test');
SELECT pg_temp.run() > 0 AS ran;
SELECT status FROM stacksaga.sagas WHERE parent_id = :'parent';
SELECT stacksaga.resume_definition('pausing child', 'a test'), stacksaga.resume_definition('pausing message', 'a test');
SELECT pg_temp.run() > 0 AS ran;
SELECT status FROM stacksaga.sagas WHERE saga_id = :'parent' OR parent_id = :'parent';
SELECT count(*) FROM stacksaga.saga_history WHERE saga_id = :'message';

-- Cancel and deadline undo while it is paused; a suspended saga that is resumed then waits; a retried one, too.
TRUNCATE pausing.done;
SELECT stacksaga.define_saga('pausing undo', ARRAY[
    stacksaga.sql_step('x', 'pausing.act(stacksaga.step_call)', compensation => 'pausing.undo(stacksaga.step_call)'),
    stacksaga.queue_step('y', 'pausing y', compensable => true)], deadline => '1 hour');
SELECT saga_id AS cancelled FROM stacksaga.start_saga('pausing undo') \gset
SELECT saga_id AS late FROM stacksaga.start_saga('pausing undo') \gset
SELECT saga_id AS suspended FROM stacksaga.start_saga('pausing undo') \gset
SELECT pg_temp.run() > 0 AS ran;
SELECT stacksaga.pause_definition('pausing undo', 'a test', stacksaga.clock_now() + interval '3 hours');
SELECT count(*) FROM stacksaga.claim_steps('pausing y', 'w', 100);
SELECT stacksaga.suspend_saga(:'suspended', 'a test');
SELECT count(*) FROM stacksaga.work WHERE saga_id = :'suspended' AND paused_saga IS NOT NULL;
SELECT stacksaga.resume_saga(:'suspended', 'a test');
SELECT count(*) FROM stacksaga.work WHERE saga_id = :'suspended' AND paused_saga IS NOT NULL;
SELECT stacksaga.cancel_saga(:'cancelled', 'a test');
SELECT pg_temp.run() > 0 AS ran;
SELECT status FROM stacksaga.sagas WHERE saga_id = :'cancelled';
SELECT pg_temp.at('2 hours') IS NOT NULL;
SELECT pg_temp.run() > 0 AS ran;
SELECT status FROM stacksaga.sagas WHERE saga_id = :'late';
SELECT step, count(*) FROM pausing.done GROUP BY 1 ORDER BY 1;
SELECT pg_temp.at('0') IS NOT NULL;
SELECT stacksaga.resume_definition('pausing undo', 'a test');

-- `until` needs nobody, not even a worker: from then on claims find the steps, and who waits is woken.
SELECT stacksaga.define_saga('pausing until', ARRAY[stacksaga.queue_step('a', 'pausing until', compensable => false)]);
SELECT count(*) FROM stacksaga.start_sagas('pausing until', array_fill('{}'::jsonb, ARRAY[250]));
SELECT stacksaga.pause_definition('pausing until', 'a moment', stacksaga.clock_now() + interval '1 hour');
-- A claim that meets them holds about a hundred back, and searches no more.
SELECT count(*) FROM stacksaga.claim_steps('pausing until', 'w', 1);
SELECT count(*) BETWEEN 100 AND 120 FROM stacksaga.work WHERE paused_saga = 'pausing until';
SELECT count(*) FROM stacksaga.claim_steps('pausing until', 'w', 100);
SELECT count(*) > 150 FROM stacksaga.work WHERE paused_saga = 'pausing until';
SELECT paused_until > stacksaga.clock_now() AS has_end FROM stacksaga.definitions WHERE saga = 'pausing until';
SELECT waits_for ~ 'the definition is paused until \d{4}-' AS says_until FROM stacksaga.find_sagas(saga => 'pausing until', max_sagas => 1);
SELECT pg_temp.at('61 minutes') IS NOT NULL;
SELECT paused FROM stacksaga.definitions WHERE saga = 'pausing until';
SELECT stacksaga.resume_definition('pausing until', 'too late');
DO $$ DECLARE claimed bigint := 0; calls integer := 0; n bigint;
BEGIN
    WHILE claimed < 250 AND calls < 20 LOOP
        SELECT count(*) INTO n FROM stacksaga.claim_steps('pausing until', 'w', 50);
        claimed := claimed + n; calls := calls + 1;
    END LOOP;
    RAISE NOTICE 'claimed %', claimed;
END $$;
SELECT pg_temp.at('0') IS NOT NULL;
-- A clock that goes back is in the pause again.
SELECT stacksaga.resume_definition('pausing until', 'the clock');
SELECT count(*) FROM stacksaga.start_saga('pausing until');
SELECT stacksaga.pause_definition('pausing until', 'a moment', stacksaga.clock_now() + interval '1 second');
SELECT count(*) FROM stacksaga.claim_steps('pausing until', 'w', 100);
SELECT clock_timestamp() AS began \gset
CALL stacksaga.wait_for_steps('pausing until', '30 s');
SELECT clock_timestamp() - :'began' BETWEEN '0.5 s' AND '20 s' AS at_the_end;
SELECT count(*) FROM stacksaga.claim_steps('pausing until', 'w', 100);

-- Who may.
CREATE ROLE pausing_support;
CREATE ROLE pausing_service;
SELECT stacksaga.grant_usage('pausing_support', 'support'), stacksaga.grant_usage('pausing_service', 'service');
SET ROLE pausing_support;
SELECT stacksaga.pause_definition('pausing_other', 'support');
SELECT paused FROM stacksaga.definitions WHERE saga = 'pausing_other';
SELECT stacksaga.resume_definition('pausing_other', 'support');
SET ROLE pausing_service;
SELECT stacksaga.pause_definition('pausing_other', 'service');
SELECT stacksaga.resume_definition('pausing_other', 'service');
RESET ROLE;
DROP OWNED BY pausing_support, pausing_service;
DROP ROLE pausing_support, pausing_service;
-- Nothing stays that another file would find due.
SELECT count(stacksaga.complete_step(w.saga_id, 'a', w.lease)) > 0 FROM stacksaga.work w
 WHERE w.queue LIKE 'pausing%' AND w.lease_until IS NOT NULL;
SELECT count(stacksaga.cancel_saga(saga_id, 'the test is over')) > 0 FROM stacksaga.sagas
 WHERE (saga LIKE 'pausing%' OR saga = 'pausing_other') AND finished_at IS NULL;
WITH gone AS (DELETE FROM stacksaga.work w USING stacksaga.sagas s
               WHERE s.saga_id = w.saga_id AND (s.saga LIKE 'pausing%' OR s.saga = 'pausing_other') RETURNING 1)
SELECT count(*) > 0 AS gone FROM gone;
DELETE FROM stacksaga.definition_pause;
SET client_min_messages = warning;
DROP SCHEMA pausing CASCADE;
