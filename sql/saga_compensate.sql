-- Compensation: of which steps, in which order, and what happens when it fails.

CREATE SCHEMA undo;
CREATE TABLE undo.log (n serial, what text);
-- Steps whose name the input holds under "fail", and compensations whose step it holds under
-- "stuck", fail for good; those under "busy" fail retryably.
CREATE FUNCTION undo.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.input -> (CASE call.direction WHEN 'act' THEN 'fail' ELSE 'stuck' END) ? call.step THEN
        RAISE EXCEPTION 'no %', call.step USING ERRCODE = 'SG424';
    ELSIF call.input -> 'busy' ? (call.direction || ' ' || call.step) THEN
        RAISE EXCEPTION 'busy %', call.step USING ERRCODE = 'SR503';
    END IF;
    INSERT INTO undo.log (what)
        VALUES (format('%s %s, attempt %s, sees %s', call.direction, call.step, call.attempt,
        call.results));
    RETURN to_jsonb(call.direction || ' ' || call.step);
END
$$;
CREATE FUNCTION undo.start(saga text, input jsonb DEFAULT '{}') RETURNS uuid LANGUAGE sql AS $$
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
    TRUNCATE undo.log RESTART IDENTITY;
    SELECT set_config('stacksaga.clock_offset', '0', false);
    SELECT saga_id FROM stacksaga.start_saga(saga, input);
$$;
CREATE VIEW undo.now AS
    SELECT s.status, direction, current_step, r.error, r.failed_step, p.step AS parked_step,
        parked_direction
      FROM stacksaga.saga s JOIN stacksaga.sagas USING (saga_id),
          stacksaga.saga_result(s.saga_id) r,
           LATERAL (SELECT (SELECT step FROM stacksaga.definition_step d
               WHERE d.definition_id = s.definition_id AND d.step_no = s.parked_step)) AS p(step);
CREATE VIEW undo.history AS
    SELECT step, direction, attempt, status, error_class, error FROM stacksaga.saga_history
        ORDER BY finished_at, step, direction, attempt;
CREATE FUNCTION undo.step(name text, stage int DEFAULT NULL, compensate_when text DEFAULT 'started',
    effect text DEFAULT NULL) RETURNS stacksaga.step_definition LANGUAGE sql AS $$
    SELECT stacksaga.sql_step(name, 'undo.run(stacksaga.step_call)',
        CASE WHEN coalesce(effect, 'compensable') = 'compensable' THEN
            'undo.run(stacksaga.step_call)' END,
        stage, compensate_when => compensate_when, effect => effect)
$$;

-- In reverse order, with what the steps had returned; the step that failed is not compensated.
SELECT stacksaga.define_saga('undo', ARRAY[undo.step('a'), undo.step('b'),
    undo.step('none', effect => 'guarded'), undo.step('c'), undo.step('d')]);
SELECT undo.start('undo', '{"fail": ["d"]}') AS id \gset
SELECT stacksaga.run_pending();
SELECT what FROM undo.log ORDER BY n;
SELECT * FROM undo.now;
SELECT * FROM undo.history;
SELECT output FROM stacksaga.saga_result(:'id');
SELECT regexp_replace(line, '[-0-9]{10} [:.0-9]{12}', '(time)', 'g')
  FROM stacksaga.saga_timeline(:'id') AS line;
SELECT count(*) FROM stacksaga.work;
-- Between: compensating, and the step that is undone next.
SELECT undo.start('undo', '{"fail": ["d"]}') IS NOT NULL AS started;
SELECT stacksaga.run_pending(5);
SELECT * FROM undo.now;
SELECT stacksaga.run_pending(1);
SELECT * FROM undo.now;
-- The first step fails: nothing is undone.
SELECT undo.start('undo', '{"fail": ["a"]}') IS NOT NULL AS started;
SELECT stacksaga.run_pending();
SELECT * FROM undo.now;

-- A compensation has attempts and a policy of its own.
SELECT stacksaga.define_saga('undo retry', ARRAY[undo.step('a'), undo.step('b')],
    retry => stacksaga.retry_policy(max_attempts => 7),
    compensation_retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '10 s',
        jitter => 0));
SELECT undo.start('undo retry', '{"fail": ["b"], "busy": ["compensate a"]}') AS id \gset
SELECT stacksaga.run_pending();
SELECT status, attempt, paused_until - stacksaga.clock_now() BETWEEN '9 s' AND '10 s' AS paused
  FROM stacksaga.sagas;
SET stacksaga.clock_offset = '11 s';
SELECT stacksaga.run_pending();
-- Its attempts are used up: the saga parks and stays there.
SELECT * FROM undo.now;
SELECT * FROM undo.history;
SELECT stacksaga.run_pending(), (SELECT count(*) FROM stacksaga.work) AS work,
    stacksaga.await_saga(:'id', '0');
SELECT regexp_replace(line, '[-0-9]{10} [:.0-9]{12}', '(time)', 'g')
  FROM stacksaga.saga_timeline(:'id') AS line;

-- on_compensation_failure: park stops there, continue undoes the rest and parks then.
SELECT undo.start('undo', '{"fail": ["d"], "stuck": ["b"]}') IS NOT NULL AS started;
SELECT stacksaga.run_pending();
SELECT what FROM undo.log ORDER BY n;
SELECT * FROM undo.now;
SELECT stacksaga.define_saga('undo on', ARRAY[undo.step('a'), undo.step('b'), undo.step('c'),
    undo.step('d')], on_compensation_failure => 'continue');
SELECT undo.start('undo on', '{"fail": ["d"], "stuck": ["b", "c"]}') IS NOT NULL AS started;
SELECT stacksaga.run_pending();
SELECT what FROM undo.log ORDER BY n;
SELECT * FROM undo.now;
SELECT count(*) FROM stacksaga.work;

-- Past a pivot nothing is compensated: a step that fails for good behind it parks the saga, before it
-- compensates.
SELECT stacksaga.define_saga('undo pivot',
    ARRAY[undo.step('a'), undo.step('pivot', effect => 'irreversible'),
    undo.step('after', effect => 'guarded')]);
SELECT undo.start('undo pivot', '{"fail": ["after"]}') IS NOT NULL AS started;
SELECT stacksaga.run_pending();
SELECT what FROM undo.log ORDER BY n;
SELECT * FROM undo.now;
SELECT undo.start('undo pivot', '{"fail": ["pivot"]}') IS NOT NULL AS started;
SELECT stacksaga.run_pending();
SELECT what FROM undo.log ORDER BY n;
SELECT * FROM undo.now;

-- At the same time within a stage, in compensation too; stage by stage.
SELECT stacksaga.define_saga('undo stages', ARRAY[
    stacksaga.queue_step('a1', 'undo', compensable => true, stage => 1), stacksaga.queue_step('a2', 'undo', compensable => true, stage => 1),
    stacksaga.queue_step('b1', 'undo', compensable => true, stage => 2), stacksaga.queue_step('b2', 'undo', compensable => true, stage => 2),
        undo.step('b3', 2)]);
CREATE TABLE undo.held AS SELECT saga_id, step, direction, lease, results
  FROM stacksaga.claim_steps('undo', 'w');
CREATE FUNCTION undo.claim() RETURNS text LANGUAGE sql AS $$
    WITH c AS (INSERT INTO undo.held SELECT saga_id, step, direction, lease, results
        FROM stacksaga.claim_steps('undo', 'w', 100) RETURNING *)
    SELECT string_agg(direction || ' ' || step || ' sees ' || results, ', ' ORDER BY step) FROM c
$$;
CREATE FUNCTION undo.complete(step text, direction text DEFAULT 'act') RETURNS text
  LANGUAGE sql AS $$
    SELECT stacksaga.complete_step(h.saga_id, h.step, h.lease,
        to_jsonb(h.direction || ' ' || h.step))
      FROM undo.held h JOIN stacksaga.saga USING (saga_id) WHERE h.step = $1 AND h.direction = $2
$$;
CREATE FUNCTION undo.fail(step text, class text, direction text DEFAULT 'act') RETURNS text
  LANGUAGE sql AS $$
    SELECT stacksaga.fail_step(h.saga_id, h.step, h.lease, 'no ' || h.step, $2)
      FROM undo.held h JOIN stacksaga.saga USING (saga_id) WHERE h.step = $1 AND h.direction = $3
$$;
-- The SQLSTATE of a completion that comes too late.
CREATE FUNCTION undo.refused(step text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN undo.complete(step);
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END
$$;
SELECT undo.start('undo stages') IS NOT NULL AS started;
SELECT undo.claim();
SELECT undo.complete('a1'), undo.complete('a2');
SELECT undo.claim();
SELECT stacksaga.run_pending();
SELECT undo.complete('b1');
SELECT undo.fail('b2', 'non_retryable');
SELECT stacksaga.run_pending();
SELECT undo.claim();
SELECT undo.complete('b1', 'compensate');
SELECT undo.claim();
SELECT undo.complete('a2', 'compensate');
SELECT undo.claim();
SELECT undo.complete('a1', 'compensate');
SELECT * FROM undo.now;
SELECT step, direction, status FROM undo.history;

-- When a stage fails, steps that nobody has claimed are cancelled, claimed ones settle:
-- compensation begins after them, and undoes what they did.
SELECT stacksaga.define_saga('undo settle', ARRAY[
    undo.step('first'),
    stacksaga.queue_step('fails', 'undo', compensable => true, stage => 7), stacksaga.queue_step('claimed', 'undo', compensable => true,
        stage => 7),
    stacksaga.queue_step('paused', 'undo', compensable => true, stage => 7), stacksaga.queue_step('idle', 'undo idle', compensable => true,
        stage => 7)]);
SELECT undo.start('undo settle') IS NOT NULL AS started;
SELECT stacksaga.run_pending();
SELECT undo.claim();
SELECT undo.fail('paused', 'retryable');
SELECT undo.fail('fails', 'non_retryable');
SELECT count(*) FROM stacksaga.claim_steps('undo idle', 'w');
SELECT stacksaga.run_pending();
SELECT lease_until IS NOT NULL AS extended, cancel_requested
  FROM undo.held h JOIN stacksaga.saga USING (saga_id), stacksaga.extend_step(h.saga_id, h.step,
      h.lease) WHERE step = 'claimed';
SELECT undo.complete('claimed');
SELECT * FROM undo.now;
SELECT undo.claim();
SELECT undo.complete('claimed', 'compensate');
SELECT stacksaga.run_pending();
SELECT * FROM undo.now;
-- A claimed sibling that fails, or whose lease runs out, settles as well. What is lost may have
-- happened and is undone; what failed was not done.
SELECT undo.start('undo settle') IS NOT NULL AS started;
SELECT stacksaga.run_pending();
SELECT undo.claim();
SELECT undo.fail('paused', 'retryable'), undo.fail('fails', 'non_retryable');
SELECT undo.fail('claimed', 'retryable');
SELECT undo.claim();
SELECT stacksaga.run_pending();
SELECT * FROM undo.now;
SELECT undo.start('undo settle') IS NOT NULL AS started;
SELECT stacksaga.run_pending();
SELECT undo.claim();
SELECT undo.fail('paused', 'retryable'), undo.fail('fails', 'non_retryable');
SET stacksaga.clock_offset = '1 hour';
SELECT stacksaga.run_pending();
SELECT undo.claim();
SELECT undo.refused('claimed');
SELECT undo.complete('claimed', 'compensate');
SELECT stacksaga.run_pending();
SELECT * FROM undo.now;

-- compensate_when: a step whose outcome is not known is undone ('started') or not ('completed').
SELECT stacksaga.define_saga('undo unknown', ARRAY[
    stacksaga.queue_step('started', 'undo', compensable => true, stage => 1,
        retry => stacksaga.retry_policy(max_attempts => 1)),
    stacksaga.queue_step('completed', 'undo', compensable => true, stage => 1, compensate_when => 'completed',
        retry => stacksaga.retry_policy(max_attempts => 1)),
    stacksaga.queue_step('confirmed', 'undo', compensable => true, stage => 1, compensate_when => 'completed',
        retry => stacksaga.retry_policy(max_attempts => 1))]);
SELECT undo.start('undo unknown') IS NOT NULL AS started;
SELECT undo.claim();
SELECT undo.fail('started', 'unknown'), undo.fail('completed', 'unknown'),
    undo.complete('confirmed');
SELECT * FROM undo.now;
SELECT stacksaga.resolve_step(saga_id, 'completed', 'never') FROM stacksaga.sagas WHERE saga = 'undo unknown' AND status = 'parked';
SELECT undo.claim();
SELECT undo.complete('started', 'compensate'), undo.complete('confirmed', 'compensate');
SELECT * FROM undo.now;
-- A later attempt speaks of itself alone: the earlier one may have been done, so the step is undone.
SELECT stacksaga.define_saga('undo known', ARRAY[undo.step('first'),
    stacksaga.queue_step('doubtful', 'undo', compensable => true,
        retry => stacksaga.retry_policy(initial_interval => '0'))]);
SELECT undo.start('undo known') IS NOT NULL AS started;
SELECT stacksaga.run_pending();
SELECT undo.claim();
SELECT undo.fail('doubtful', 'unknown');
DELETE FROM undo.held;
SELECT undo.claim();
SELECT undo.fail('doubtful', 'non_retryable');
SELECT undo.claim();
SELECT undo.complete('doubtful', 'compensate');
SELECT stacksaga.run_pending();
SELECT * FROM undo.now;

-- Deadlines: of the definition, of the start; compensation begins, claimed steps settle first.
DELETE FROM undo.held;
SELECT stacksaga.define_saga('undo deadline',
    ARRAY[undo.step('a'), stacksaga.queue_step('b', 'undo', compensable => true)], deadline => '1 hour');
SELECT undo.start('undo deadline') IS NOT NULL AS started;
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '59 minutes';
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '61 minutes';
SELECT stacksaga.run_pending();
SELECT * FROM undo.now;
SELECT what FROM undo.log ORDER BY n;
SELECT count(*) FROM stacksaga.work;
SELECT undo.start('undo deadline') IS NOT NULL AS started;
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '3599 s';
SELECT undo.claim();
SET stacksaga.clock_offset = '61 minutes';
SELECT stacksaga.run_pending();
SELECT * FROM undo.now;
SELECT undo.refused('b');
SELECT stacksaga.run_pending();
SELECT undo.claim();
SELECT undo.complete('b', 'compensate');
SELECT stacksaga.run_pending();
SELECT * FROM undo.now;
-- Nothing was done in time: it fails before its first step, whether a worker or a service finds it, and
-- however late.
SELECT undo.start('undo deadline') IS NOT NULL AS started;
SET stacksaga.clock_offset = '2 hours';
SELECT stacksaga.run_pending(1);
SELECT * FROM undo.now;
SELECT stacksaga.define_saga('undo deadline queue', ARRAY[stacksaga.queue_step('b', 'undo', compensable => true)],
    deadline => '1 hour');
SELECT undo.start('undo deadline queue') IS NOT NULL AS started;
SET stacksaga.clock_offset = '2 hours';
SELECT undo.claim();
SELECT * FROM undo.now;
-- The compensation of a saga that is too late has a deadline of its own.
SELECT stacksaga.define_saga('undo deadline two', ARRAY[stacksaga.queue_step('b', 'undo', compensable => true),
    stacksaga.queue_step('c', 'undo', compensable => true)], deadline => '1 hour');
DELETE FROM undo.held;
SELECT undo.start('undo deadline two') IS NOT NULL AS started;
SELECT undo.claim();
SELECT undo.complete('b');
SET stacksaga.clock_offset = '2 hours';
SELECT stacksaga.run_pending();
SELECT direction, step, deadline - stacksaga.clock_now() BETWEEN '29 s' AND '30 s' AS has_time
  FROM stacksaga.claim_steps('undo', 'w');
DELETE FROM undo.held;
SELECT undo.start('undo deadline two') IS NOT NULL AS started;
SELECT undo.claim();
SELECT undo.complete('b');
SET stacksaga.clock_offset = '3590 s';
SELECT undo.claim();
SELECT undo.fail('c', 'non_retryable');
SELECT direction, step, deadline - stacksaga.clock_now() BETWEEN '29 s' AND '30 s' AS has_time
  FROM stacksaga.claim_steps('undo', 'w');
-- A deadline that is not reached leaves nothing behind; one past a pivot means nothing.
SELECT undo.start('undo deadline') IS NOT NULL AS started;
SELECT count(*) FROM stacksaga.work WHERE purpose = 'deadline';
DELETE FROM undo.held;
SELECT stacksaga.run_pending();
SELECT undo.claim();
SELECT undo.complete('b');
SELECT count(*) FROM stacksaga.work;
SELECT stacksaga.define_saga('undo late',
    ARRAY[undo.step('a'), undo.step('pivot', effect => 'irreversible'),
    stacksaga.queue_step('last', 'undo', compensable => false)], deadline => '1 minute');
SELECT undo.start('undo late') IS NOT NULL AS started;
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '2 minutes';
SELECT stacksaga.run_pending();
SELECT * FROM undo.now;

DELETE FROM undo.held;
SELECT undo.claim();
SELECT undo.complete('last');

-- An irreversible step that settles after the compensation had begun: it was done, or may have
-- been, so nothing is undone any more and an operator is needed; if it was not, compensation
-- continues.
SELECT stacksaga.define_saga('undo crossing', ARRAY[undo.step('a'),
    stacksaga.queue_step('fails', 'undo', stage => 9, compensable => false),
    stacksaga.queue_step('pivot', 'undo', stage => 9, effect => 'irreversible')]);
CREATE FUNCTION undo.cross() RETURNS text LANGUAGE sql AS $$
    DELETE FROM undo.held;
    SELECT undo.start('undo crossing');
    SELECT stacksaga.run_pending();
    SELECT undo.claim();
    SELECT undo.fail('fails', 'non_retryable');
$$;
SELECT undo.cross();
SELECT undo.complete('pivot');
SELECT stacksaga.run_pending();
SELECT * FROM undo.now;
SELECT undo.cross();
SELECT undo.fail('pivot', 'unknown');
SELECT * FROM undo.now;
SELECT undo.cross();
SELECT undo.fail('pivot', 'retryable');
SELECT stacksaga.run_pending();
SELECT * FROM undo.now;
SELECT what FROM undo.log ORDER BY n;

SET client_min_messages = warning;
DROP SCHEMA undo CASCADE;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
