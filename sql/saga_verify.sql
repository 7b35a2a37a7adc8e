-- Outcomes that are not known: verify is asked; without one the step is tried again under the same
-- key.

CREATE SCHEMA verify;
CREATE TABLE verify.world (answer text);
INSERT INTO verify.world VALUES ('unknown');
-- What verify finds; an SQLSTATE is raised.
CREATE FUNCTION verify.ask(call stacksaga.step_call) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found text := (SELECT answer FROM verify.world);
BEGIN
    IF found ~ '^[0-9A-Z]{5}$' THEN
        RAISE EXCEPTION USING ERRCODE = found, MESSAGE = 'verify raises';
    END IF;
    RETURN found;
END
$$;
CREATE FUNCTION verify.start(saga text, found text) RETURNS text LANGUAGE sql AS $$
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
    UPDATE verify.world SET answer = found;
    SELECT stacksaga.run_pending() FROM stacksaga.start_saga(saga);
    SELECT 'started';
$$;
CREATE FUNCTION verify.claim_and(class text) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s %s attempt %s %s: %s', direction, step, attempt,
        replace(idempotency_key, saga_id::text, '(id)'),
                  CASE WHEN class = 'complete' THEN stacksaga.complete_step(saga_id, step, lease,
                      '"claimed"')
                       ELSE stacksaga.fail_step(saga_id, step, lease, 'say ' || class, class) END)
      FROM stacksaga.claim_steps('verify', 'w')
$$;
CREATE VIEW verify.now AS
    SELECT s.status, current_step, attempt, r.output, r.error, r.failed_step FROM stacksaga.sagas s,
        stacksaga.saga_result(s.saga_id) r;
CREATE VIEW verify.history AS
    SELECT step, direction, attempt, status, error_class, error FROM stacksaga.saga_history
        ORDER BY started_at, step, attempt;

SELECT stacksaga.define_saga('verify',
    ARRAY[stacksaga.queue_step('a', 'verify', compensable => true, verify => 'verify.ask(stacksaga.step_call)',
    retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0'))]);
SELECT stacksaga.define_saga('verify not', ARRAY[stacksaga.queue_step('a', 'verify', compensable => true,
    retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0'))]);
SELECT stacksaga.define_saga('verify pivot',
    ARRAY[stacksaga.queue_step('first', 'verify first', compensable => false, stage => 1),
    stacksaga.queue_step('a', 'verify', effect => 'irreversible',
        verify => 'verify.ask(stacksaga.step_call)', stage => 1,
    retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0'))]);
SELECT stacksaga.define_saga('verify blind pivot',
    ARRAY[stacksaga.queue_step('a', 'verify', effect => 'irreversible',
    retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0'))]);

-- done: the step is completed, its output is not known.
SELECT verify.start('verify', 'done');
SELECT verify.claim_and('unknown');
SELECT * FROM verify.now;
SELECT verify.claim_and('complete');
SELECT stacksaga.run_pending();
SELECT * FROM verify.now;
SELECT * FROM verify.history;
-- not_done: tried again, under the same key; not_done at the last attempt leaves nothing to undo.
SELECT verify.start('verify', 'not_done');
SELECT verify.claim_and('unknown');
SELECT stacksaga.run_pending();
SELECT verify.claim_and('unknown');
SELECT stacksaga.run_pending();
SELECT * FROM verify.now;
SELECT * FROM verify.history;
-- unknown, NULL, another word or an error: as if there was no verify; in the end the step is
-- undone.
SELECT verify.start('verify', 'unknown');
SELECT verify.claim_and('unknown');
SELECT stacksaga.run_pending();
SELECT verify.claim_and('unknown');
SELECT stacksaga.run_pending();
SELECT * FROM verify.now;
SELECT verify.claim_and('complete');
SELECT * FROM verify.history;
CREATE FUNCTION verify.answers(answer text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM verify.start('verify', answer);
    PERFORM verify.claim_and('unknown');
    PERFORM stacksaga.run_pending();
    RETURN verify.claim_and('complete');
END
$$;
SELECT answer, verify.answers(answer)
  FROM unnest('{NULL,maybe,DONE,"",40001,SG424,P0001,22012}'::text[]) AS answer;

-- Without verify: the same key again until the attempts end, then the step is undone.
SELECT verify.start('verify not', 'never asked');
SELECT verify.claim_and('unknown');
SELECT stacksaga.run_pending();
SELECT verify.claim_and('unknown');
SELECT * FROM verify.now;
SELECT verify.claim_and('complete');
SELECT * FROM verify.now;
SELECT verify.start('verify not', 'never asked');
SELECT verify.claim_and('unknown');
SELECT verify.claim_and('complete');
SELECT * FROM verify.now;
-- Irreversible: parked, not tried again blindly; so it is for a lease that runs out.
SELECT verify.start('verify blind pivot', 'never asked');
SELECT verify.claim_and('unknown');
SELECT * FROM verify.now;
SELECT verify.claim_and('complete');
SELECT verify.start('verify blind pivot', 'never asked');
SELECT attempt FROM stacksaga.claim_steps('verify', 'w');
SET stacksaga.clock_offset = '31 s';
SELECT stacksaga.run_pending();
SELECT * FROM verify.now;
SELECT verify.start('verify blind pivot', 'never asked');
SELECT verify.claim_and('retryable');
SELECT verify.claim_and('non_retryable');
SELECT * FROM verify.now;
RESET stacksaga.clock_offset;
-- Irreversible with verify: done goes on, not_done is tried again, unknown parks.
SELECT verify.start('verify pivot', 'done');
SELECT verify.claim_and('unknown');
SELECT stacksaga.run_pending();
SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('verify first',
    'w');
SELECT verify.start('verify pivot', 'not_done');
SELECT verify.claim_and('unknown');
SELECT stacksaga.run_pending();
SELECT verify.claim_and('complete');
SELECT verify.start('verify pivot', 'unknown');
SELECT verify.claim_and('unknown');
SELECT stacksaga.run_pending();
SELECT status, current_step FROM verify.now;
-- verify is asked during compensation as well: a step that was not done is not compensated.
SELECT verify.start('verify pivot', 'not_done');
CREATE TABLE verify.held AS SELECT saga_id, step, lease FROM stacksaga.claim_steps('verify', 'w');
SELECT stacksaga.fail_step(saga_id, step, lease, 'no', 'non_retryable')
  FROM stacksaga.claim_steps('verify first', 'w');
SELECT stacksaga.fail_step(saga_id, step, lease, 'lost', 'unknown') FROM verify.held;
SELECT stacksaga.run_pending();
SELECT * FROM verify.now;
SELECT verify.start('verify pivot', 'done');
TRUNCATE verify.held;
INSERT INTO verify.held SELECT saga_id, step, lease FROM stacksaga.claim_steps('verify', 'w');
SELECT stacksaga.fail_step(saga_id, step, lease, 'no', 'non_retryable')
  FROM stacksaga.claim_steps('verify first', 'w');
SELECT stacksaga.fail_step(saga_id, step, lease, 'lost', 'unknown') FROM verify.held;
SELECT stacksaga.run_pending();
SELECT * FROM verify.now;

-- A timeout is an unknown outcome: verify is asked, and a late answer counts until it has answered.
SELECT verify.start('verify', 'done');
TRUNCATE verify.held;
INSERT INTO verify.held SELECT saga_id, step, lease FROM stacksaga.claim_steps('verify', 'w', 1,
    '1 hour');
SET stacksaga.clock_offset = '31 s';
SELECT stacksaga.run_pending(1);
SELECT * FROM verify.history;
SELECT verify.claim_and('complete');
SELECT stacksaga.complete_step(saga_id, step, lease, '"late"') FROM verify.held;
SELECT * FROM verify.now;
SELECT stacksaga.run_pending();
SELECT * FROM verify.history;
RESET stacksaga.clock_offset;
SELECT verify.start('verify', 'done');
TRUNCATE verify.held;
INSERT INTO verify.held SELECT saga_id, step, lease FROM stacksaga.claim_steps('verify', 'w', 1,
    '1 hour');
SET stacksaga.clock_offset = '31 s';
SELECT stacksaga.run_pending();
SELECT * FROM verify.now;
-- After verify said done, under the same lease: another output is another answer; none is the same.
SELECT stacksaga.complete_step(saga_id, step, lease) FROM verify.held;
\set VERBOSITY sqlstate
SELECT stacksaga.complete_step(saga_id, step, lease, '1') FROM verify.held;
SELECT stacksaga.fail_step(saga_id, step, lease, 'no', 'retryable') FROM verify.held;
\set VERBOSITY default
RESET stacksaga.clock_offset;

-- A sql step says SR504; its transaction was rolled back, the world outside may have seen it.
CREATE FUNCTION verify.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.direction = 'act' THEN
        RAISE EXCEPTION 'no answer' USING ERRCODE = 'SR504';
    END IF;
    RETURN to_jsonb(call.direction);
END
$$;
SELECT stacksaga.define_saga('verify sql',
    ARRAY[stacksaga.sql_step('s', 'verify.act(stacksaga.step_call)',
    'verify.act(stacksaga.step_call)',
    verify => 'verify.ask(stacksaga.step_call)', retry => stacksaga.retry_policy(max_attempts => 2,
        initial_interval => '0'))]);
SELECT verify.start('verify sql', 'done');
SELECT * FROM verify.now;
SELECT * FROM verify.history;
SELECT verify.start('verify sql', 'not_done');
SELECT * FROM verify.now;
SELECT * FROM verify.history;
SELECT verify.start('verify sql', 'unknown');
SELECT * FROM verify.now;
SELECT * FROM verify.history;

SET client_min_messages = warning;
DROP SCHEMA verify CASCADE;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;

-- A parked step that cannot be undone waits for its late answer, and the saga goes on with it.
SELECT stacksaga.define_saga('verify_late', ARRAY[
    stacksaga.queue_step('pay', queue => 'verify_late', effect => 'irreversible'),
    stacksaga.queue_step('thank', queue => 'verify_thanks', compensable => false)]);
SELECT saga_id AS id FROM stacksaga.start_saga('verify_late') \gset
SELECT lease FROM stacksaga.claim_steps('verify_late', 'w') \gset
SET stacksaga.clock_offset = '10 minutes';
SELECT stacksaga.run_pending();
SELECT count(*) AS claimable FROM stacksaga.claim_steps('verify_late', 'w');
SELECT status, current_step, paused_until, last_error FROM stacksaga.sagas WHERE saga_id = :'id';
SELECT stacksaga.complete_step(:'id', 'pay', :lease, '{"paid": true}');
SELECT stacksaga.complete_step(:'id', 'pay', :lease, '{"paid": true}') AS again;
SELECT stacksaga.complete_step(saga_id, step, lease) AS finished, results
  FROM stacksaga.claim_steps('verify_thanks', 'w');
SELECT status, error, failed_step FROM stacksaga.saga_result(:'id');
RESET stacksaga.clock_offset;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
