-- Histories in which every service tells the truth, late or never: what the saga then ends with is what happened.

-- (14 names no folder: there it is the one that the tests are started from.)
\set srcdir `printf %s "${PG_ABS_SRCDIR:-.}"`
\set truth :srcdir '/sql/include/truth.sql'
\i :truth
CREATE VIEW truth.now AS
    SELECT s.status, t.direction, s.compensation_requested AS requested, p.step AS parked_step,
           t.parked_direction AS parked, s.last_error AS error
      FROM stacksaga.sagas s JOIN stacksaga.saga t USING (saga_id)
      LEFT JOIN stacksaga.definition_step p ON p.definition_id = t.definition_id AND p.step_no = t.parked_step
     WHERE s.parent_id IS NULL;
-- What verify finds; an SQLSTATE is raised.
CREATE TABLE truth.found (answer text);
INSERT INTO truth.found VALUES (NULL);
CREATE FUNCTION truth.look(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    found text := (SELECT answer FROM truth.found);
BEGIN
    IF found ~ '^[0-9A-Z]{5}$' THEN
        RAISE EXCEPTION 'the provider is away' USING ERRCODE = found;
    END IF;
    RETURN found::jsonb;
END
$$;
CREATE FUNCTION truth.retry(attempts int DEFAULT 2) RETURNS stacksaga.retry_policy LANGUAGE sql AS $$
    SELECT stacksaga.retry_policy(max_attempts => attempts, initial_interval => '0', jitter => 0)
$$;

-- The first attempt timed out, the second one is refused for good under the same key: what the first did stands, so it
-- is undone, and nothing is tried on top.
SELECT stacksaga.define_saga('truth charge', ARRAY[
    stacksaga.queue_step('pay', 'pays', compensable => true, retry => truth.retry(), fallback => 'lends'),
    stacksaga.queue_step('ship', 'ships', compensable => false, retry => truth.retry())]);
SELECT truth.start('truth charge') AS id \gset
SELECT truth.claim('pays') AS first \gset
SELECT truth.pass('31 s');
SELECT truth.claim('pays') AS second \gset
SELECT stacksaga.fail_step(:'id', 'pay', :second, 'HTTP 422', 'non_retryable');
SELECT * FROM truth.now;
SELECT truth.claim('lends') AS lent;
SELECT direction, by_fallback, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('pays', 'w');
-- All attempts known: the fallback is tried.
SELECT truth.start('truth charge') AS id \gset
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'HTTP 422', 'non_retryable');
SELECT direction, by_fallback, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('lends', 'w');
-- It fails afterwards: who acted is asked to undo, where he works, and nobody else.
SELECT stacksaga.fail_step(:'id', 'ship', truth.claim('ships'), 'sold out', 'non_retryable');
SELECT truth.claim('pays') AS pays;
SELECT direction, by_fallback, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('lends', 'w');
-- The fallback's outcome is not known: it is undone where it may have acted.
SELECT truth.start('truth charge') AS id \gset
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'HTTP 422', 'non_retryable');
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('lends'), 'no answer');
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('lends'), 'no answer');
SELECT truth.claim('pays') AS pays;
SELECT direction, by_fallback, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('lends', 'w');

-- verify says that nothing is to be seen yet, while the slow original is under way.
SELECT stacksaga.define_saga('truth slow', ARRAY[
    stacksaga.queue_step('pay', 'pays', compensable => true, verify => 'truth.look(stacksaga.step_call)',
                         retry => truth.retry(1), fallback => 'lends')]);
UPDATE truth.found SET answer = '"not_done"';
SELECT truth.start('truth slow') AS id \gset
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'no answer');
SELECT stacksaga.run_pending();
SELECT truth.claim('lends') AS lends;
SELECT direction, by_fallback, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('pays', 'w');
-- The service refuses the key from now on: nothing can come of it any more, and the fallback does it.
UPDATE truth.found SET answer = '"never"';
SELECT truth.start('truth slow') AS id \gset
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'no answer');
SELECT stacksaga.run_pending();
SELECT truth.claim('pays') AS pays;
SELECT direction, by_fallback, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('lends', 'w');
-- An irreversible step is not offered again: verify is asked again, until its pauses are used up.
SELECT stacksaga.define_saga('truth transfer', ARRAY[
    stacksaga.queue_step('pay', 'pays', effect => 'irreversible', verify => 'truth.look(stacksaga.step_call)',
                         retry => truth.retry(3))]);
UPDATE truth.found SET answer = '"not_done"';
SELECT truth.start('truth transfer') AS id \gset
SELECT truth.claim('pays') AS lease \gset
SELECT stacksaga.fail_step(:'id', 'pay', :lease, 'no answer');
SELECT stacksaga.run_pending(1), truth.claim('pays') AS pays FROM generate_series(1, 4);
SELECT * FROM truth.now;
-- By retry_saga() it is asked again, and not offered. Its late answer counts.
SELECT stacksaga.retry_saga(:'id', 'they say it is slow today');
SELECT truth.claim('pays') AS pays;
SELECT stacksaga.complete_step(:'id', 'pay', :lease, '"paid"');

-- verify raises because the provider is away: no answer, asked again; anything else is unknown.
UPDATE truth.found SET answer = '08006';
SELECT truth.start('truth transfer') AS id \gset
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'no answer');
SELECT stacksaga.run_pending(1);
SELECT * FROM truth.now;
UPDATE truth.found SET answer = '{"outcome": "done", "output": {"transfer": 7}}';
SELECT stacksaga.run_pending();
SELECT status, output FROM stacksaga.saga_result(:'id');
UPDATE truth.found SET answer = '22012';
SELECT truth.start('truth transfer') AS id \gset
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'no answer');
SELECT stacksaga.run_pending();
SELECT * FROM truth.now;
-- retry_saga() asks it first.
UPDATE truth.found SET answer = '"done"';
SELECT stacksaga.retry_saga(:'id', 'verify is repaired');
SELECT truth.claim('pays') AS pays;
SELECT stacksaga.run_pending();
-- A fallback in doubt: the fallback goes on under its key, not the action.
SELECT stacksaga.define_saga('truth stops', ARRAY[
    stacksaga.queue_step('pay', 'pays', effect => 'irreversible', retry => truth.retry(1)),
    stacksaga.queue_step('note', 'notes', effect => 'guarded', retry => truth.retry(1), fallback => 'spares')]);
SELECT truth.start('truth stops') AS id \gset
SELECT stacksaga.complete_step(:'id', 'pay', truth.claim('pays'));
SELECT stacksaga.fail_step(:'id', 'note', truth.claim('notes'), 'full', 'non_retryable');
SELECT stacksaga.fail_step(:'id', 'note', truth.claim('spares'), 'no answer');
SELECT * FROM truth.now;
SELECT stacksaga.retry_saga(:'id', 'again');
SELECT truth.claim('notes') AS notes;
SELECT by_fallback, idempotency_key LIKE '%:act:fallback' AS own_key, stacksaga.complete_step(saga_id, step, lease)
  FROM stacksaga.claim_steps('spares', 'w');

-- verify = done without output: the answer that comes later fills it, once.
SELECT stacksaga.define_saga('truth id later', ARRAY[
    stacksaga.queue_step('pay', 'pays', compensable => true, verify => 'truth.look(stacksaga.step_call)',
                         retry => truth.retry()),
    stacksaga.queue_step('ship', 'ships', compensable => false, retry => truth.retry(1))]);
SELECT truth.start('truth id later') AS id \gset
SELECT truth.claim('pays') AS lease \gset
SELECT stacksaga.fail_step(:'id', 'pay', :lease, 'no answer');
SELECT stacksaga.run_pending();
SELECT stacksaga.complete_step(:'id', 'pay', :lease, '{"charge": 7}');
SELECT stacksaga.complete_step(:'id', 'pay', :lease, '{"charge": 7}');
SELECT truth.try(format('complete_step(%L, ''pay'', %s, ''{"charge": 8}'')', :'id', :lease));
SELECT stacksaga.fail_step(:'id', 'ship', truth.claim('ships'), 'sold out', 'non_retryable');
SELECT direction, results FROM stacksaga.claim_steps('pays', 'w');

-- resolve_step() speaks of one direction, and of no attempt that is under its lease.
SELECT stacksaga.define_saga('truth ask', ARRAY[
    stacksaga.queue_step('pay', 'pays', compensable => true, retry => truth.retry(1), timeout => '1 minute'),
    stacksaga.queue_step('ship', 'ships', compensable => false, retry => truth.retry(1))],
    compensation_retry => truth.retry(1));
SELECT truth.start('truth ask') AS id \gset
SELECT truth.claim('pays') AS act \gset
SELECT truth.try(format('resolve_step(%L, ''pay'', %L)', :'id', outcome)) FROM unnest('{done,not_done,never}'::text[]) AS outcome;
SELECT stacksaga.fail_step(:'id', 'pay', :act, 'no answer');
SELECT truth.claim('pays') AS undo \gset
SELECT truth.try(format('resolve_step(%L, ''pay'', ''done'')', :'id'));
SELECT truth.try(format('resolve_step(%L, ''pay'', ''done'', direction => ''compensate'')', :'id'));
SELECT stacksaga.fail_step(:'id', 'pay', :undo, 'no such charge', 'non_retryable');
SELECT * FROM truth.now;
-- Both directions are open: the saga does not guess; the refund counts once it is known that there was a charge.
SELECT truth.try(format('resolve_step(%L, ''pay'', ''done'')', :'id'));
SELECT truth.try(format('resolve_step(%L, ''pay'', ''done'', direction => ''compensate'')', :'id'));
SELECT truth.try(format('resolve_step(%L, ''pay'', ''never'', direction => ''compensate'')', :'id'));
SELECT stacksaga.resolve_step(:'id', 'pay', 'done', '{"charge": 7}', 'found it', 'act');
SELECT stacksaga.resolve_step(:'id', 'pay', 'done', NULL, 'refunded by hand', 'compensate');
SELECT step, outcome, reason, status_after FROM stacksaga.saga_actions WHERE action = 'resolve' ORDER BY acted_at;
-- Never: there is nothing to undo.
SELECT truth.start('truth ask') AS id \gset
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'no answer');
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'no such charge', 'non_retryable');
SELECT stacksaga.resolve_step(:'id', 'pay', 'never', NULL, 'they refuse the key', 'act');
-- not_done is what one sees now: the compensation is asked for all the same.
SELECT truth.start('truth ask') AS id \gset
SELECT truth.claim('pays') AS act \gset
SELECT truth.pass('31 s');
SELECT stacksaga.resolve_step(:'id', 'pay', 'not_done', NULL, 'not in their books', 'act');
SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('pays', 'w');
SELECT truth.try(format('complete_step(%L, ''pay'', %s)', :'id', :act));
-- What a person did, a person undoes.
SELECT truth.start('truth ask') AS id \gset
SELECT stacksaga.resolve_step(:'id', 'pay', 'done', NULL, 'paid in cash');
SELECT stacksaga.fail_step(:'id', 'ship', truth.claim('ships'), 'sold out', 'non_retryable');
SELECT truth.claim('pays') AS pays;
SELECT * FROM truth.now;
SELECT truth.try(format('retry_saga(%L, ''again'')', :'id'));
SELECT stacksaga.resolve_step(:'id', 'pay', 'done', NULL, 'gave the cash back', 'compensate');

-- A pivot in flight, and a sibling that fails: in either order of their answers the saga is past its pivot.
SELECT stacksaga.define_saga('truth two', ARRAY[
    stacksaga.queue_step('hold', 'holds', compensable => true, retry => truth.retry(1)),
    stacksaga.queue_step('pay', 'pays', effect => 'irreversible', stage => 2, retry => truth.retry(2)),
    stacksaga.queue_step('note', 'notes', effect => 'guarded', stage => 2, retry => truth.retry(1))], deadline => '1 day');
CREATE FUNCTION truth.two() RETURNS uuid LANGUAGE sql AS $$
    SELECT truth.start('truth two');
    SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('holds', 'w');
    SELECT saga_id FROM stacksaga.saga
$$;
SELECT truth.two() AS id \gset
SELECT truth.claim('pays') AS pay, truth.claim('notes') AS note \gset
SELECT stacksaga.fail_step(:'id', 'note', :note, 'full', 'non_retryable');
SELECT * FROM truth.now;
SELECT stacksaga.complete_step(:'id', 'pay', :pay);
SELECT * FROM truth.now;
SELECT truth.two() AS id \gset
SELECT truth.claim('pays') AS pay, truth.claim('notes') AS note \gset
SELECT stacksaga.complete_step(:'id', 'pay', :pay);
SELECT stacksaga.fail_step(:'id', 'note', :note, 'full', 'non_retryable');
SELECT * FROM truth.now;
-- A cancel and the deadline wait for it as well, and are void once it is done.
SELECT truth.two() AS id \gset
SELECT truth.claim('pays') AS pay \gset
SELECT stacksaga.cancel_saga(:'id', 'wrong order');
SELECT status, compensation_requested FROM stacksaga.sagas;
SELECT truth.claim('notes') AS notes;
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'pay', :pay);
SELECT stacksaga.complete_step(:'id', 'pay', :pay);
SELECT status, compensation_requested FROM stacksaga.sagas;
SELECT stacksaga.complete_step(:'id', 'note', truth.claim('notes'));
-- It was not done: not tried again, and compensation begins.
SELECT truth.two() AS id \gset
SELECT truth.claim('pays') AS pay \gset
SELECT stacksaga.extend_step(:'id', 'pay', :pay, '1 hour') IS NOT NULL;
SELECT stacksaga.cancel_saga(:'id', 'wrong order');
SELECT stacksaga.fail_step(:'id', 'pay', :pay, 'busy', 'retryable');
SELECT truth.claim('pays') AS pays;
SELECT direction FROM stacksaga.claim_steps('holds', 'w');
-- In doubt: it parks, a person decides, and then the request.
SELECT truth.two() AS id \gset
SELECT truth.claim('pays') AS pay \gset
SELECT stacksaga.cancel_saga(:'id', 'wrong order');
SELECT stacksaga.fail_step(:'id', 'pay', :pay, 'no answer');
SELECT * FROM truth.now;
SELECT truth.try(format('retry_saga(%L, ''again'')', :'id'));
SELECT truth.try(format('resolve_step(%L, ''pay'', ''not_done'')', :'id'));
-- Its late "done" counts, and the cancel is void.
SELECT stacksaga.complete_step(:'id', 'pay', :pay);
SELECT status, compensation_requested FROM stacksaga.sagas;
SELECT replace(substr(line, 26), current_user, '(me)') AS event FROM stacksaga.saga_timeline(:'id') AS line WHERE line ~ '  (cancel|void|saga|step pay)';
SELECT truth.two() AS id \gset
SELECT truth.claim('pays') AS pay \gset
SELECT stacksaga.cancel_saga(:'id', 'wrong order');
SELECT stacksaga.fail_step(:'id', 'pay', :pay, 'no answer');
SELECT stacksaga.resolve_step(:'id', 'pay', 'never', NULL, 'they refuse the key');
SELECT * FROM truth.now;
-- The deadline.
SELECT truth.two() AS id \gset
SELECT truth.claim('pays') AS pay \gset
SELECT truth.pass('29 s');
SELECT stacksaga.suspend_saga(:'id', 'audit'), truth.pass('2 days'), stacksaga.resume_saga(:'id', 'audited');
SELECT status, compensation_requested FROM stacksaga.sagas;
SELECT stacksaga.complete_step(:'id', 'pay', :pay);

-- compensate_when => 'completed', in doubt when its turn to be undone comes: verify is asked, else a person; the
-- completion that comes then is undone, and what is before it after that.
SELECT stacksaga.define_saga('truth late', ARRAY[
    stacksaga.queue_step('hold', 'holds', compensable => true, retry => truth.retry(1)),
    stacksaga.queue_step('pay', 'pays', compensable => true, compensate_when => 'completed', stage => 2, retry => truth.retry(1)),
    stacksaga.queue_step('ship', 'ships', compensable => false, stage => 2, retry => truth.retry(1))]);
CREATE FUNCTION truth.late() RETURNS uuid LANGUAGE sql AS $$
    SELECT truth.start('truth late');
    SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('holds', 'w');
    SELECT saga_id FROM stacksaga.saga
$$;
SELECT truth.late() AS id \gset
SELECT truth.claim('pays') AS pay \gset
SELECT stacksaga.fail_step(:'id', 'ship', truth.claim('ships'), 'sold out', 'non_retryable');
SELECT truth.pass('31 s');
SELECT * FROM truth.now;
SELECT truth.claim('holds') AS holds;
SELECT stacksaga.complete_step(:'id', 'pay', :pay, '{"charge": 7}');
SELECT direction, results, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('pays', 'w');
SELECT direction, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('holds', 'w');
-- Who is refused is told the truth: once its compensation was sent, that it is being undone.
SELECT truth.start('truth ask') AS id \gset
SELECT truth.claim('pays') AS pay \gset
SELECT truth.pass('31 s');
SELECT truth.try(format('complete_step(%L, ''pay'', %s)', :'id', :pay));

-- The same report twice; another one after it contradicts, which is shown until somebody has looked.
SELECT truth.start('truth ask') AS id \gset
SELECT truth.claim('pays') AS pay \gset
SELECT stacksaga.fail_step(:'id', 'pay', :pay, 'HTTP 422', c), stacksaga.fail_step(:'id', 'pay', :pay, 'HTTP 422', c)
  FROM (VALUES ('non_retryable')) AS v(c);
CREATE TEMP TABLE before AS SELECT value FROM stacksaga.metrics() WHERE name = 'stacksaga_contradictions_total';
SELECT truth.try(format('complete_step(%L, ''pay'', %s, ''5'')', :'id', :pay));
SELECT truth.try(format('complete_step(%L, ''pay'', %s, ''5'')', :'id', :pay));
SELECT m.value - b.value AS counted FROM stacksaga.metrics() m, before b WHERE m.name = 'stacksaga_contradictions_total';
SELECT severity, regexp_replace(detail, '[0-9a-f]{8}-[0-9a-f-]{27}', '(id)') AS detail FROM stacksaga.doctor()
 WHERE check_name ~ 'contradict';
SELECT stacksaga.run_pending();
SELECT severity, regexp_replace(detail, '[0-9a-f]{8}-[0-9a-f-]{27}', '(id)') AS detail FROM stacksaga.doctor()
 WHERE check_name ~ 'contradict';
SELECT truth.try(format('acknowledge_contradiction(%L, ''ship'', ''refunded'')', :'id'));
SELECT stacksaga.acknowledge_contradiction(:'id', 'pay', 'refunded by hand');
SELECT truth.try(format('acknowledge_contradiction(%L, ''pay'', ''again'')', :'id'));
SELECT count(*) FROM stacksaga.doctor() WHERE check_name ~ 'contradict';
SELECT action, step, reason FROM stacksaga.saga_actions WHERE action = 'acknowledge';

-- In doubt for longer than its service remembers the key: not offered again, a person decides.
SET stacksaga.dedupe_retention = '1h';
SELECT truth.start('truth charge') AS id \gset
SELECT truth.claim('pays') AS pay \gset
SELECT truth.pass('31 s');
SELECT stacksaga.suspend_saga(:'id', 'audit'), truth.pass('2 hours'), stacksaga.resume_saga(:'id', 'audited');
SELECT truth.claim('pays') AS pays;
SELECT status, error FROM stacksaga.saga;
SELECT step, error, regexp_replace(hint, '[0-9a-f]{8}-[0-9a-f-]{27}', '(id)') AS hint FROM stacksaga.parked_sagas;
SELECT truth.try(format('retry_saga(%L, ''again'')', :'id'));
SELECT stacksaga.resolve_step(:'id', 'pay', 'never', NULL, 'they refuse the key');
SELECT by_fallback, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('lends', 'w');
-- A compensation in doubt is not asked for again either, until a person has looked.
SELECT truth.start('truth charge') AS id \gset
SELECT stacksaga.complete_step(:'id', 'pay', truth.claim('pays'));
SELECT stacksaga.fail_step(:'id', 'ship', truth.claim('ships'), 'sold out', 'non_retryable');
SELECT truth.claim('pays') AS refund \gset
SELECT truth.pass('31 s');
SELECT stacksaga.suspend_saga(:'id', 'audit'), truth.pass('2 hours'), stacksaga.resume_saga(:'id', 'audited');
SELECT truth.claim('pays') AS pays;
SELECT * FROM truth.now;
SELECT step, direction, regexp_replace(hint, '[0-9a-f]{8}-[0-9a-f-]{27}', '(id)') AS hint FROM stacksaga.parked_sagas;
SELECT truth.try(format('retry_saga(%L, ''again'')', :'id'));
SELECT stacksaga.resolve_step(:'id', 'pay', 'not_done', NULL, 'no refund there');
SELECT stacksaga.retry_saga(:'id', 'again');
SELECT direction, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('pays', 'w');
-- With verify, that is asked.
SELECT stacksaga.define_saga('truth slow', ARRAY[
    stacksaga.queue_step('pay', 'pays', compensable => true, verify => 'truth.look(stacksaga.step_call)',
                         retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '5 minutes', jitter => 0))]);
UPDATE truth.found SET answer = '"not_done"';
SELECT truth.start('truth slow') AS id \gset
SELECT stacksaga.fail_step(:'id', 'pay', truth.claim('pays'), 'no answer');
SELECT stacksaga.run_pending();
SELECT set_config('stacksaga.clock_offset', '2 hours', false);
SELECT truth.claim('pays') AS pays;
SELECT * FROM truth.now;
UPDATE truth.found SET answer = '"done"';
SELECT stacksaga.run_pending();
SELECT status FROM truth.now;
RESET stacksaga.dedupe_retention;

-- Equal by jsonb is the same request.
SELECT created FROM stacksaga.start_saga('truth ask', '{"amount": 10, "of": [1.50, 0]}', 'k1');
SELECT created FROM stacksaga.start_saga('truth ask', '{"of": [1.5, 0.00], "amount": 10.0}', 'k1');
SELECT truth.try($$start_saga('truth ask', '{"amount": 10.01, "of": [1.5, 0]}', 'k1')$$);

RESET stacksaga.clock_offset;
SET client_min_messages = warning;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.parked_saga,
    stacksaga.saga_action, stacksaga.saga_signal, stacksaga.saga_contradiction;
DROP SCHEMA truth CASCADE;
