-- Who acted undoes, whatever kind of step it was; and what a park, a suspension and a parent hold back.

-- (14 names no folder: there it is the one that the tests are started from.)
\set srcdir `printf %s "${PG_ABS_SRCDIR:-.}"`
\set truth :srcdir '/sql/include/truth.sql'
\i :truth
CREATE VIEW truth.now AS
    SELECT s.saga, s.status, t.direction, s.compensation_requested AS requested, p.step AS parked_step,
           t.parked_direction AS parked, s.last_error AS error
      FROM stacksaga.sagas s JOIN stacksaga.saga t USING (saga_id)
      LEFT JOIN stacksaga.definition_step p ON p.definition_id = t.definition_id AND p.step_no = t.parked_step
     ORDER BY s.parent_id NULLS FIRST;
CREATE FUNCTION truth.retry(attempts int DEFAULT 1) RETURNS stacksaga.retry_policy LANGUAGE sql AS $$
    SELECT stacksaga.retry_policy(max_attempts => attempts, initial_interval => '0', jitter => 0)
$$;
-- Claims and answers.
CREATE FUNCTION truth.serve(queue text)
RETURNS TABLE (step text, direction text, by_fallback boolean, status text) LANGUAGE sql AS $$
    SELECT step, direction, by_fallback, stacksaga.complete_step(saga_id, step, lease, to_jsonb(queue))
      FROM stacksaga.claim_steps(queue, 'w')
$$;
CREATE FUNCTION truth.refuse(queue text, class text DEFAULT 'non_retryable') RETURNS text LANGUAGE sql AS $$
    SELECT stacksaga.fail_step(saga_id, step, lease, 'no', class) FROM stacksaga.claim_steps(queue, 'w')
$$;
-- Fails for good where the input says the direction and the step.
CREATE FUNCTION truth.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.input ->> 'fails' = call.direction || ' ' || call.step THEN
        RAISE EXCEPTION 'no' USING ERRCODE = 'SG424';
    END IF;
    INSERT INTO truth.log (what) VALUES (call.direction || ' ' || call.step || CASE WHEN call.by_fallback THEN ' by fallback' ELSE '' END);
    RETURN '1';
END
$$;
CREATE FUNCTION truth.spare(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO truth.log (what) VALUES ('spare ' || call.step);
    RETURN '2';
END
$$;

-- A function.
SELECT stacksaga.define_saga('truth who', ARRAY[
    stacksaga.sql_step('a', 'truth.run(stacksaga.step_call)', 'truth.run(stacksaga.step_call)', fallback => 'truth.spare(stacksaga.step_call)'),
    stacksaga.queue_step('last', 'last', compensable => false, retry => truth.retry())]);
SELECT truth.start('truth who', '{"fails": "act a"}') AS id \gset
SELECT stacksaga.run_pending();
SELECT truth.refuse('last');
SELECT stacksaga.run_pending();
SELECT what FROM truth.log ORDER BY n;
-- A message: the fallback's compensation has a topic of its own, or says on the one topic whom it means.
SELECT stacksaga.define_saga('truth who', ARRAY[
    stacksaga.message_step('a', 'acts', 'undoes', fallback => 'spares', fallback_compensation_topic => 'spares undo', retry => truth.retry()),
    stacksaga.message_step('b', 'acts', 'undoes', fallback => 'spares', retry => truth.retry()),
    stacksaga.queue_step('last', 'last', compensable => false, retry => truth.retry())], compensation_retry => truth.retry());
CREATE FUNCTION truth.commands(ok boolean) RETURNS TABLE (topic text, step text, by_fallback text, answered text) LANGUAGE sql AS $$
    SELECT m.topic, m.payload ->> 'step', m.payload ->> 'by_fallback',
           CASE WHEN ok THEN stacksaga.complete_step((m.payload ->> 'saga_id')::uuid, m.payload ->> 'step', (m.payload ->> 'lease')::bigint)
                ELSE stacksaga.fail_step((m.payload ->> 'saga_id')::uuid, m.payload ->> 'step', (m.payload ->> 'lease')::bigint, 'no', 'non_retryable') END
      FROM stacksaga.outbox_message m ORDER BY m.number DESC LIMIT 1
$$;
SELECT truth.start('truth who') AS id \gset
SELECT stacksaga.run_pending();
SELECT * FROM truth.commands(false);
SELECT stacksaga.run_pending();
SELECT * FROM truth.commands(true);
SELECT stacksaga.run_pending();
SELECT * FROM truth.commands(false);
SELECT stacksaga.run_pending();
SELECT * FROM truth.commands(true);
SELECT truth.refuse('last');
SELECT stacksaga.run_pending();
SELECT * FROM truth.commands(true);
SELECT stacksaga.run_pending();
SELECT * FROM truth.commands(true);
-- A signal that did not come, and a child that failed: their fallbacks acted, and are asked.
SELECT stacksaga.define_saga('truth small', ARRAY[stacksaga.queue_step('x', 'small', compensable => true, retry => truth.retry())]);
SELECT stacksaga.define_saga('truth who', ARRAY[
    stacksaga.signal_step('a', 'ready', timeout => '1 minute', effect => 'compensable', fallback => 'spares', retry => truth.retry()),
    stacksaga.child_step('b', 'truth small', fallback => 'spares', retry => truth.retry()),
    stacksaga.queue_step('last', 'last', compensable => false, retry => truth.retry())]);
SELECT truth.start('truth who') AS id \gset
SELECT stacksaga.run_pending();
SELECT truth.pass('61 s');
SELECT * FROM truth.serve('spares');
SELECT stacksaga.run_pending();
SELECT truth.refuse('small');
SELECT stacksaga.run_pending();
SELECT * FROM truth.serve('spares');
SELECT truth.refuse('last');
SELECT * FROM truth.serve('spares');
SELECT * FROM truth.serve('spares');
SELECT saga, status FROM truth.now;
-- The signal came: nobody acted for the saga, and nobody is asked.
SELECT truth.start('truth who') AS id \gset
SELECT stacksaga.run_pending();
SELECT stacksaga.signal_saga(:'id', 'ready');
SELECT stacksaga.run_pending();
SELECT * FROM truth.serve('small');
SELECT stacksaga.run_pending();
SELECT truth.refuse('last');
SELECT stacksaga.run_pending();
SELECT truth.claim('spares') AS spares;
SELECT step, direction FROM truth.serve('small');
SELECT stacksaga.run_pending();
SELECT saga, status FROM truth.now;

-- A parked child holds its parent, whose timeout stands still; the parent is named.
SELECT stacksaga.define_saga('truth pays', ARRAY[stacksaga.queue_step('pay', 'pays', effect => 'irreversible', retry => truth.retry())]);
SELECT stacksaga.define_saga('truth big', ARRAY[
    stacksaga.sql_step('a', 'truth.run(stacksaga.step_call)', 'truth.run(stacksaga.step_call)'),
    stacksaga.child_step('c', 'truth pays', effect => 'irreversible', timeout => '1 minute', retry => truth.retry(2)),
    stacksaga.queue_step('z', 'z', effect => 'guarded', stage => 2, retry => truth.retry())]);
SELECT truth.start('truth big') AS id \gset
SELECT stacksaga.run_pending();
SELECT saga_id AS child FROM stacksaga.sagas WHERE parent_id = :'id' \gset
SELECT truth.refuse('pays', 'unknown');
SELECT truth.pass('5 minutes'), truth.pass('5 minutes'), truth.pass('5 minutes');
SELECT saga, status FROM truth.now;
SELECT saga, step, parent_id = :'id' AS of_the_parent FROM stacksaga.parked_sagas;
-- The step is a saga of its own, which only that saga's operator decides.
SELECT truth.try(format('resolve_step(%L, ''c'', %L)', :'id', outcome)) FROM unnest('{done,not_done,never}'::text[]) AS outcome;
SELECT stacksaga.resolve_step(:'child', 'pay', 'done');
SELECT stacksaga.run_pending();
SELECT saga, status FROM truth.now;
SELECT * FROM truth.serve('z');
-- A sibling fails meanwhile: pending until the child, which may have passed its pivot, is known. It did not.
SELECT stacksaga.define_saga('truth side', ARRAY[
    stacksaga.sql_step('a', 'truth.run(stacksaga.step_call)', 'truth.run(stacksaga.step_call)'),
    stacksaga.child_step('c', 'truth pays', effect => 'irreversible', timeout => '1 minute', stage => 2, retry => truth.retry(2)),
    stacksaga.queue_step('z', 'z', effect => 'guarded', stage => 2, retry => truth.retry())]);
SELECT truth.start('truth side') AS id \gset
SELECT stacksaga.run_pending();
SELECT saga_id AS child FROM stacksaga.sagas WHERE parent_id = :'id' \gset
SELECT truth.refuse('pays', 'unknown');
SELECT truth.refuse('z');
SELECT stacksaga.run_pending();
SELECT * FROM truth.now;
SELECT stacksaga.resolve_step(:'child', 'pay', 'never');
SELECT stacksaga.run_pending();
SELECT saga, status FROM truth.now;
SELECT what FROM truth.log ORDER BY n;
-- The parent is cancelled or suspended: a service gets nothing of its child from then on, before any worker has passed.
SELECT truth.start('truth big') AS id \gset
SELECT stacksaga.run_pending();
SELECT stacksaga.suspend_saga(:'id', 'audit');
SELECT truth.claim('pays') AS pays;
SELECT stacksaga.resume_saga(:'id', 'audited');
SELECT truth.pass('1 minute');
SELECT truth.claim('pays') IS NOT NULL AS pays;
SELECT truth.start('truth big') AS id \gset
SELECT stacksaga.run_pending();
SELECT stacksaga.cancel_saga(:'id', 'why');
SELECT truth.claim('pays') AS pays;
SELECT stacksaga.run_pending();
SELECT saga, status FROM truth.now;
-- A heartbeat of the child says so, and what it was paid is the end of the cancel.
SELECT truth.start('truth big') AS id \gset
SELECT stacksaga.run_pending();
SELECT saga_id AS child FROM stacksaga.sagas WHERE parent_id = :'id' \gset
SELECT truth.claim('pays') AS lease \gset
SELECT stacksaga.cancel_saga(:'id', 'why');
SELECT cancel_requested FROM stacksaga.extend_step(:'child', 'pay', :lease);
SELECT stacksaga.complete_step(:'child', 'pay', :lease);
SELECT stacksaga.run_pending();
SELECT saga, status, requested FROM truth.now;

-- A deadline that falls into the pause between two waits for a child, and a cancel after it.
SELECT stacksaga.define_saga('truth pause', ARRAY[
    stacksaga.child_step('c', 'truth small', timeout => '1 minute', retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '10 minutes',
                         max_interval => '10 minutes', jitter => 0))],
    deadline => '5 minutes');
SELECT truth.start('truth pause') AS id \gset
SELECT stacksaga.run_pending();
SELECT truth.pass('61 s');
SELECT truth.pass('5 minutes');
SELECT saga, status FROM truth.now;
SELECT truth.start('truth pause') AS id \gset
SELECT stacksaga.run_pending();
SELECT truth.pass('61 s');
SELECT stacksaga.cancel_saga(:'id', 'why');
SELECT truth.claim('small') AS small;
SELECT stacksaga.run_pending();
SELECT saga, status FROM truth.now;

-- A parked saga stands still: its steps are withdrawn until it goes on; what is claimed settles.
SELECT stacksaga.define_saga('truth stage', ARRAY[
    stacksaga.queue_step('p', 'p', effect => 'irreversible', stage => 1, retry => truth.retry()),
    stacksaga.queue_step('q', 'q', effect => 'guarded', stage => 1, retry => truth.retry(2)),
    stacksaga.queue_step('r', 'r', effect => 'guarded', stage => 1, retry => truth.retry(2))], deadline => '1 hour');
SELECT truth.start('truth stage') AS id \gset
SELECT truth.claim('q') AS q \gset
SELECT truth.refuse('p', 'unknown');
SELECT truth.claim('r') AS r;
SELECT stacksaga.fail_step(:'id', 'q', :q, 'busy', 'retryable');
SELECT truth.claim('q') AS q;
-- A suspension is neither ended nor begun by it, and its time does not count for the deadline.
SELECT truth.start('truth stage') AS id \gset
SELECT deadline_at AS deadline FROM stacksaga.saga WHERE saga_id = :'id' \gset
SELECT truth.claim('p') AS p \gset
SELECT stacksaga.suspend_saga(:'id', 'audit');
SELECT stacksaga.fail_step(:'id', 'p', :p, 'no answer');
SELECT * FROM truth.now;
SELECT truth.pass('2 hours');
SELECT stacksaga.resolve_step(:'id', 'p', 'done');
SELECT truth.claim('q') AS q;
SELECT stacksaga.resume_saga(:'id', 'audited');
SELECT deadline_at - :'deadline' >= interval '2 hours' AS moved FROM stacksaga.saga WHERE saga_id = :'id';
SELECT truth.claim('q') IS NOT NULL AS q, truth.claim('r') IS NOT NULL AS r;
SELECT truth.start('truth stage') AS id \gset
SELECT truth.claim('p') AS p \gset
SELECT stacksaga.suspend_saga(:'id', 'audit');
SELECT stacksaga.fail_step(:'id', 'p', :p, 'no answer');
SELECT stacksaga.resume_saga(:'id', 'audited');
SELECT stacksaga.complete_step(:'id', 'p', :p);
SELECT replace(substr(line, 26), current_user, '(me)') AS event FROM stacksaga.saga_timeline(:'id') AS line WHERE line !~ 'lease|claimed';

RESET stacksaga.clock_offset;
SET client_min_messages = warning;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.parked_saga,
    stacksaga.saga_action, stacksaga.saga_signal, stacksaga.saga_contradiction;
DROP SCHEMA truth CASCADE;
