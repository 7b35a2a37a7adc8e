-- Sagas that stop at a failure (on_failure => 'park'), go on by retry_saga and resolve_step, or are undone by
-- compensate_saga: alone, and with stages, deadlines, children, doubts, late answers and suspensions.

\set SHOW_CONTEXT never
CREATE SCHEMA park;
CREATE TABLE park.log (n serial, what text);
CREATE TABLE park.bad (what text, sqlstate text);   -- what fails, as 'act a' or 'compensate a'
CREATE FUNCTION park.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    state text;
BEGIN
    SELECT b.sqlstate INTO state FROM park.bad b WHERE b.what = call.direction || ' ' || call.step;
    IF FOUND THEN
        RAISE EXCEPTION 'no %', call.step USING ERRCODE = state;
    END IF;
    INSERT INTO park.log (what) VALUES (call.direction || ' ' || call.step);
    RETURN to_jsonb(call.step);
END
$$;
CREATE FUNCTION park.step(name text, stage int DEFAULT NULL, effect text DEFAULT 'compensable', on_failure text DEFAULT NULL)
RETURNS stacksaga.step_definition LANGUAGE sql AS $$
    SELECT stacksaga.sql_step(name, 'park.run(stacksaga.step_call)',
        CASE effect WHEN 'compensable' THEN 'park.run(stacksaga.step_call)' END, stage => stage, effect => effect,
        on_failure => on_failure, retry => stacksaga.retry_policy(max_attempts => 2, jitter => 0))
$$;
CREATE FUNCTION park.queue(name text, stage int DEFAULT NULL, compensable boolean DEFAULT true,
                           compensate_when text DEFAULT 'started', fallback text DEFAULT NULL, on_failure text DEFAULT NULL)
RETURNS stacksaga.step_definition LANGUAGE sql AS $$
    SELECT stacksaga.queue_step(name, 'park', compensable, stage => stage, compensate_when => compensate_when,
        fallback => fallback, on_failure => on_failure, retry => stacksaga.retry_policy(max_attempts => 1, jitter => 0))
$$;
-- A new world with one saga.
CREATE FUNCTION park.start(saga text, deadline interval DEFAULT NULL) RETURNS uuid LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_signal, stacksaga.saga_action,
        stacksaga.parked_saga;
    TRUNCATE park.bad;
    TRUNCATE park.log RESTART IDENTITY;
    PERFORM set_config('stacksaga.clock_offset', '0', false);
    RETURN (SELECT s.saga_id FROM stacksaga.start_saga(saga, deadline => deadline) AS s);
END
$$;
CREATE FUNCTION park.pass(length interval) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (current_setting('stacksaga.clock_offset')::interval + length)::text, false)
$$;
-- Claims what is due, as 'act a, act b', and keeps the leases.
CREATE TABLE park.claimed (saga_id uuid, step text, lease bigint, key text);
CREATE FUNCTION park.claim(queue text DEFAULT 'park') RETURNS text LANGUAGE sql AS $$
    WITH c AS (SELECT * FROM stacksaga.claim_steps(queue, 'w', 10)),
         kept AS (INSERT INTO park.claimed SELECT saga_id, step, lease, idempotency_key FROM c)
    SELECT string_agg(direction || ' ' || step, ', ' ORDER BY step) FROM c
$$;
CREATE FUNCTION park.lease(step text) RETURNS bigint LANGUAGE sql AS
    $$ SELECT max(lease) FROM park.claimed c WHERE c.step = $1 AND saga_id IN (SELECT saga_id FROM stacksaga.saga) $$;
CREATE FUNCTION park.done(id uuid, step text) RETURNS text LANGUAGE sql AS
    $$ SELECT stacksaga.complete_step(id, step, park.lease(step)) $$;
CREATE FUNCTION park.fail(id uuid, step text, error_class text DEFAULT 'non_retryable') RETURNS text LANGUAGE sql AS
    $$ SELECT stacksaga.fail_step(id, step, park.lease(step), 'no ' || step, error_class) $$;
-- What a call returns, or why it is refused.
CREATE FUNCTION park.try(call text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    result text; message text; detail text; hint text;
BEGIN
    EXECUTE 'SELECT ' || call INTO result;
    RETURN NEXT result;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ': ' || regexp_replace(message, '[0-9a-f-]{36}', '(id)');
    RETURN NEXT '  DETAIL: ' || detail;
    RETURN NEXT '  HINT: ' || hint;
END
$$;
CREATE VIEW park.now AS
    SELECT s.saga, s.status, t.direction, p.step AS parked_step, p.error, s.compensation_requested AS requested
      FROM stacksaga.sagas s JOIN stacksaga.saga t USING (saga_id) LEFT JOIN stacksaga.parked_sagas p USING (saga_id)
     ORDER BY s.parent_id NULLS FIRST, s.saga;
CREATE VIEW park.hint AS
    SELECT step, regexp_replace(regexp_replace(hint, '[0-9a-f-]{36}', '(id)', 'g'), 'until .* at least', 'until (instant) at least')
           AS hint
      FROM stacksaga.parked_sagas;
-- How far the deadline is away.
CREATE VIEW park.deadline AS
    SELECT round(extract(epoch FROM deadline_at - created_at) / 60) AS minutes,
           round(extract(epoch FROM deadline_at - stacksaga.clock_now()) / 60) AS from_now FROM stacksaga.saga;

SELECT stacksaga.define_saga('park', ARRAY[park.step('a'), park.step('b'), park.step('c')], on_failure => 'park');

-- A step that has failed for good parks the saga at once: also by an error that is never tried again.
SELECT park.start('park') AS id \gset
INSERT INTO park.bad VALUES ('act b', 'SG424');
SELECT stacksaga.run_pending();
SELECT * FROM park.now;
SELECT * FROM park.hint;
SELECT detail ~ '^1 sagas are parked at step "b" of saga "park" since .*, which need a person: no b$' AS is_named, fix
  FROM stacksaga.doctor() WHERE check_name = 'parked';
SELECT string_agg(what, ', ' ORDER BY n) FROM park.log;
-- The bug is fixed, and the saga goes on where it stopped.
TRUNCATE park.bad;
SELECT stacksaga.retry_saga(:'id', 'fixed');
SELECT stacksaga.run_pending();
SELECT status FROM park.now;
SELECT string_agg(what, ', ' ORDER BY n) FROM park.log;

-- Or it is undone, once, and said again.
SELECT park.start('park') AS id \gset
INSERT INTO park.bad VALUES ('act b', 'SG424');
SELECT stacksaga.run_pending();
SELECT stacksaga.compensate_saga(:'id', 'nobody wants it any more');
SELECT stacksaga.compensate_saga(:'id', 'said again');
SELECT stacksaga.run_pending();
SELECT status, direction FROM park.now;
SELECT string_agg(what, ', ' ORDER BY n) FROM park.log;
SELECT * FROM park.try(format('stacksaga.compensate_saga(%L, %L)', :'id', 'it is over'));
SELECT action, status_before, status_after, reason FROM stacksaga.saga_actions ORDER BY acted_at;
SELECT replace(substring(line FROM 'compensate by.*'), current_user, '(me)') AS line
  FROM stacksaga.saga_timeline(:'id') AS line WHERE line LIKE '%compensate by%';
-- Nothing was done: it has failed.
SELECT park.start('park') AS id \gset
INSERT INTO park.bad VALUES ('act a', 'SG424');
SELECT stacksaga.run_pending();
SELECT stacksaga.compensate_saga(:'id', 'nothing to undo');
-- cancel_saga undoes it too.
SELECT park.start('park') AS id \gset
INSERT INTO park.bad VALUES ('act b', 'SG424');
SELECT stacksaga.run_pending();
SELECT stacksaga.cancel_saga(:'id', 'cancelled');

-- Who is refused: pending, running, unknown, without reason; a saga that is suspended is compensated.
SELECT stacksaga.define_saga('wait', ARRAY[park.queue('a'), park.queue('b')], on_failure => 'park');
SELECT park.start('wait') AS id \gset
SELECT * FROM park.try(format('stacksaga.compensate_saga(%L, %L)', :'id', 'pending'));
SELECT park.claim();
SELECT * FROM park.try(format('stacksaga.compensate_saga(%L, %L)', :'id', 'running'));
SELECT * FROM park.try($$stacksaga.compensate_saga('00000000-0000-0000-0000-000000000000', 'unknown')$$);
SELECT * FROM park.try(format('stacksaga.compensate_saga(%L, NULL)', :'id'));
SELECT park.done(:'id', 'a');
SELECT stacksaga.suspend_saga(:'id', 'look');
SELECT stacksaga.compensate_saga(:'id', 'suspended');
-- A parked compensation is for retry_saga and resolve_step.
SELECT park.claim();
SELECT park.fail(:'id', 'a');
SELECT * FROM park.try(format('stacksaga.compensate_saga(%L, %L)', :'id', 'a compensation failed'));

-- Not by a handler on its own saga.
CREATE FUNCTION park.own(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.step = 'one' THEN
        PERFORM stacksaga.compensate_saga(call.saga_id, 'me');
    ELSE
        PERFORM * FROM stacksaga.compensate_sagas(ARRAY[call.saga_id], 'me', false) AS c WHERE c.sqlstate <> 'SG409';
        IF FOUND THEN
            RAISE 'not refused' USING ERRCODE = 'SG424';
        END IF;
    END IF;
    RETURN NULL;
END
$$;
SELECT stacksaga.define_saga('own', ARRAY[stacksaga.sql_step('many', 'park.own(stacksaga.step_call)'),
    stacksaga.sql_step('one', 'park.own(stacksaga.step_call)', retry => stacksaga.retry_policy(max_attempts => 1))],
    on_failure => 'park');
SELECT park.start('own') AS id \gset
SELECT stacksaga.run_pending();
SELECT status, parked_step, regexp_replace(error, '[0-9a-f-]{36}', '(id)') AS error FROM park.now;

-- Many: a dry run by default, and spread over time.
SELECT park.start('park') AS id \gset
SELECT saga_id AS other FROM stacksaga.start_saga('park') \gset
SELECT saga_id AS third FROM stacksaga.start_saga('park') \gset
INSERT INTO park.bad VALUES ('act b', 'SG424');
SELECT stacksaga.run_pending();
SELECT saga_id AS pending FROM stacksaga.start_saga('park') \gset
SELECT status_before, status_after, sqlstate, regexp_replace(error, '[0-9a-f-]{36}', '(id)') AS error
  FROM stacksaga.compensate_sagas(ARRAY[:'id', :'other', :'third', :'pending']::uuid[], 'why') ORDER BY 1;
SELECT status, count(*) FROM park.now GROUP BY 1 ORDER BY 1;
SELECT status_before, status_after, sqlstate
  FROM stacksaga.compensate_sagas(ARRAY[:'id', :'other', :'third', :'pending']::uuid[], 'why', false, '90 minutes') ORDER BY 1;
SELECT round(extract(epoch FROM due_at - stacksaga.clock_now()) / 60) AS minutes FROM stacksaga.work
 WHERE direction = 'compensate' ORDER BY 1;
SELECT * FROM park.try(format('stacksaga.compensate_sagas(ARRAY[%L]::uuid[], %L, spread => %L)', :'id', 'why', '2 months'));

-- The stage ends when each of its steps is done, and never because no work is left.
SELECT stacksaga.define_saga('stage', ARRAY[park.queue('a', 1), park.queue('b', 1), park.queue('c', 2)], on_failure => 'park');
SELECT park.start('stage') AS id \gset
SELECT park.claim();
SELECT park.fail(:'id', 'b'), park.done(:'id', 'a');
SELECT park.claim() AS nothing;
SELECT status, parked_step, error FROM park.now;
SELECT stacksaga.retry_saga(:'id', 'fixed'), park.claim(), park.done(:'id', 'b'), park.claim() AS then;
-- A second failure changes nothing; retry_saga tries both again.
SELECT park.start('stage') AS id \gset
SELECT park.claim();
SELECT park.fail(:'id', 'b'), park.fail(:'id', 'a');
SELECT status, parked_step, error FROM park.now;
SELECT stacksaga.retry_saga(:'id', 'fixed'), park.claim();
-- Unless it says compensate for itself.
SELECT stacksaga.define_saga('mixed', ARRAY[park.queue('z'), park.queue('a', on_failure => 'compensate'), park.queue('c')],
    on_failure => 'park');
SELECT stacksaga.define_saga('mixed', ARRAY[park.queue('z', 1), park.queue('a', 2, on_failure => 'compensate'), park.queue('b', 2)],
    on_failure => 'park');
SELECT park.start('mixed') AS id \gset
SELECT park.claim(), park.done(:'id', 'z'), park.claim() AS then;
SELECT park.fail(:'id', 'b'), park.fail(:'id', 'a'), park.claim();
-- The pivot itself and its siblings park, and the saga is past the pivot then.
SELECT stacksaga.define_saga('park_pivot', ARRAY[park.queue('z', 1),
    stacksaga.queue_step('p', 'park', effect => 'irreversible', stage => 2, retry => stacksaga.retry_policy(max_attempts => 1)),
    park.queue('b', 2, false)], on_failure => 'park');
SELECT park.start('park_pivot') AS id \gset
SELECT park.claim(), park.done(:'id', 'z'), park.claim() AS then;
SELECT park.fail(:'id', 'b');
SELECT status, parked_step, requested FROM park.now;
SELECT park.done(:'id', 'p');
SELECT * FROM park.hint;
SELECT * FROM park.try(format('stacksaga.compensate_saga(%L, %L)', :'id', 'past the pivot'));
SELECT park.start('park_pivot') AS id \gset
SELECT park.claim(), park.done(:'id', 'z'), park.claim() AS then;
SELECT park.done(:'id', 'b'), park.fail(:'id', 'p'), stacksaga.retry_saga(:'id', 'again'), park.claim(), park.done(:'id', 'p');
-- While the pivot is in doubt compensate_saga is a request.
SELECT park.start('park_pivot') AS id \gset
SELECT park.claim(), park.done(:'id', 'z'), park.claim() AS then;
SELECT park.done(:'id', 'b'), park.fail(:'id', 'p', 'unknown'), stacksaga.compensate_saga(:'id', 'a request');
SELECT status, parked_step, requested FROM park.now;
SELECT stacksaga.compensate_saga(:'id', 'said again'), stacksaga.resolve_step(:'id', 'p', 'never', reason => 'refused');

-- In doubt: it parks, a late answer counts, and a saga that is undone undoes this step too.
SELECT park.start('stage') AS id \gset
SELECT park.claim();
SELECT park.done(:'id', 'a'), park.fail(:'id', 'b', 'unknown');
SELECT status, parked_step FROM park.now;
SELECT park.done(:'id', 'b') AS late, park.claim();
SELECT park.start('stage') AS id \gset
SELECT park.claim();
SELECT park.done(:'id', 'a'), park.fail(:'id', 'b', 'unknown'), stacksaga.compensate_saga(:'id', 'undo'), park.claim();
-- A late answer leaves it parked for the other step that failed.
SELECT park.start('stage') AS id \gset
SELECT park.claim();
SELECT park.fail(:'id', 'a', 'unknown'), park.fail(:'id', 'b', 'unknown'), park.done(:'id', 'a');
SELECT status, parked_step, error FROM park.now;
SELECT park.done(:'id', 'b');
-- never makes the outcome known and leaves it parked; done goes on.
SELECT park.start('stage') AS id \gset
SELECT park.claim();
SELECT park.done(:'id', 'a'), park.fail(:'id', 'b', 'unknown'), stacksaga.resolve_step(:'id', 'b', 'never', reason => 'refused');
SELECT error_class, outcome_known FROM stacksaga.failure;
SELECT stacksaga.resolve_step(:'id', 'b', 'done', reason => 'by hand'), park.claim();
-- With a fallback in doubt retry_saga begins with the fallback, under its key; else with the action.
SELECT stacksaga.define_saga('fallback', ARRAY[park.queue('a', fallback => 'park other')], on_failure => 'park');
SELECT park.start('fallback') AS id \gset
SELECT park.claim(), park.fail(:'id', 'a'), park.claim('park other') AS other, park.fail(:'id', 'a', 'unknown');
SELECT stacksaga.retry_saga(:'id', 'again'), park.claim() AS action, park.claim('park other') AS other;
SELECT count(*) AS attempts, count(DISTINCT key) AS keys FROM park.claimed WHERE saga_id = :'id';
SELECT park.fail(:'id', 'a'), stacksaga.resolve_step(:'id', 'a', 'never', reason => 'refused'),
       stacksaga.retry_saga(:'id', 'again'), park.claim() AS action;

-- A signal that did not come in time parks, and gets a new wait.
SELECT stacksaga.define_saga('signal', ARRAY[stacksaga.signal_step('s', 'go', timeout => '1 hour')], on_failure => 'park');
SELECT park.start('signal') AS id \gset
SELECT park.pass('2 hours'), stacksaga.run_pending();
SELECT status, parked_step, error FROM park.now;
SELECT stacksaga.retry_saga(:'id', 'again'), stacksaga.run_pending();
SELECT round(extract(epoch FROM due_at - stacksaga.clock_now()) / 60) AS minutes FROM stacksaga.work;
SELECT stacksaga.signal_saga(:'id', 'go');
SELECT status FROM park.now;

-- A suspended saga whose step in flight fails parks, and is suspended again; compensate_saga ends the suspension.
SELECT park.start('wait') AS id \gset
SELECT park.claim(), park.done(:'id', 'a'), park.claim() AS then;
SELECT stacksaga.suspend_saga(:'id', 'look'), park.fail(:'id', 'b'), stacksaga.retry_saga(:'id', 'again'), park.claim() AS nothing,
       stacksaga.resume_saga(:'id', 'go on'), park.claim();
SELECT stacksaga.suspend_saga(:'id', 'look'), park.fail(:'id', 'b'), stacksaga.compensate_saga(:'id', 'undo'), park.claim();

-- A deadline parks for the first open step. What goes on has the whole of it again, also where its start said it.
SELECT stacksaga.define_saga('deadline', ARRAY[park.queue('a', 1), park.queue('b', 1), park.queue('c', 2)], deadline => '30 minutes',
    on_failure => 'park');
SELECT park.start('deadline', '100 minutes') AS id \gset
SELECT stacksaga.resolve_step(:'id', 'a', 'done', reason => 'by hand');
SELECT park.pass('50 minutes'), stacksaga.run_pending();
SELECT status FROM park.now;
SELECT park.pass('51 minutes'), stacksaga.run_pending() > 0 AS ran;
SELECT * FROM park.now;
SELECT * FROM park.hint;
SELECT park.pass('1 day'), stacksaga.retry_saga(:'id', 'again');
SELECT from_now FROM park.deadline;
SELECT * FROM park.now;
SELECT park.start('deadline') AS id \gset
SELECT park.pass('31 minutes'), stacksaga.run_pending() > 0 AS ran, stacksaga.resolve_step(:'id', 'a', 'done', reason => 'by hand');
SELECT from_now FROM park.deadline;
SELECT park.start('deadline') AS id \gset
SELECT park.pass('31 minutes'), stacksaga.run_pending() > 0 AS ran, stacksaga.compensate_saga(:'id', 'too late');
-- What was claimed settles; the saga stands, and ends where nothing is left to do.
SELECT stacksaga.define_saga('last', ARRAY[park.queue('a'), park.queue('b')], deadline => '1 second', on_failure => 'park');
SELECT park.start('last') AS id \gset
SELECT park.claim(), park.pass('2 seconds'), stacksaga.run_pending() > 0 AS ran;
SELECT status, parked_step FROM park.now;
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'a', park.lease('a'));
SELECT park.done(:'id', 'a');
SELECT status, parked_step, error FROM park.now;
SELECT * FROM park.hint;
SELECT stacksaga.retry_saga(:'id', 'again'), park.claim(), park.pass('2 seconds'), stacksaga.run_pending() > 0 AS ran;
SELECT status, parked_step FROM park.now;
SELECT park.done(:'id', 'b');
-- The time that it is parked does not count, whatever made it go on.
SELECT stacksaga.define_saga('counts', ARRAY[park.queue('a'), park.queue('b')], deadline => '30 minutes', on_failure => 'park');
SELECT park.start('counts') AS id \gset
SELECT park.claim(), park.fail(:'id', 'a'), park.pass('100 minutes'), stacksaga.run_pending();
SELECT stacksaga.retry_saga(:'id', 'again');
SELECT minutes FROM park.deadline;
SELECT park.claim(), park.fail(:'id', 'a', 'unknown'), park.pass('100 minutes'), park.done(:'id', 'a');
SELECT minutes FROM park.deadline;
SELECT park.claim(), park.fail(:'id', 'b'), park.pass('100 minutes'), stacksaga.resolve_step(:'id', 'b', 'never'),
       stacksaga.retry_saga(:'id', 'again');
SELECT minutes FROM park.deadline;

-- Each saga follows its own definition: a child that says nothing compensates, and its parent parks.
SELECT stacksaga.define_saga('child', ARRAY[park.queue('x'), park.queue('y')]);
SELECT stacksaga.define_saga('parent', ARRAY[stacksaga.child_step('c', 'child', stage => 1), park.queue('b', 1)],
    deadline => '30 minutes', on_failure => 'park');
SELECT park.start('parent') AS id \gset
SELECT stacksaga.run_pending() > 0 AS ran, park.claim();
SELECT stacksaga.fail_step(c.saga_id, c.step, c.lease, 'no', 'non_retryable') FROM park.claimed c
 WHERE c.step = 'x' AND c.saga_id IN (SELECT saga_id FROM stacksaga.saga);
SELECT stacksaga.run_pending() > 0 AS ran, park.done(:'id', 'b');
SELECT saga, status, parked_step FROM park.now;
-- Tried again it is another child.
SELECT stacksaga.retry_saga(:'id', 'again'), stacksaga.run_pending() > 0 AS ran, park.claim();
SELECT stacksaga.complete_step(c.saga_id, c.step, c.lease) FROM park.claimed c
 WHERE c.step = 'x' AND c.saga_id IN (SELECT saga_id FROM stacksaga.saga WHERE status = 'running');
-- A deadline of the parent does not reach the child either.
SELECT park.start('parent') AS id \gset
SELECT stacksaga.run_pending() > 0 AS ran, park.pass('31 minutes'), stacksaga.run_pending() > 0 AS again;
SELECT saga, status, parked_step FROM park.now;
SELECT stacksaga.compensate_saga(:'id', 'undo'), stacksaga.run_pending() > 0 AS ran;
SELECT saga, status FROM park.now;
-- A child in doubt is waited for again, and no operator has to know what became of it.
SELECT stacksaga.define_saga('pays', ARRAY[stacksaga.queue_step('x', 'park', effect => 'irreversible')]);
SELECT stacksaga.define_saga('park_waits', ARRAY[stacksaga.child_step('c', 'pays', effect => 'irreversible', timeout => '1 minute',
    retry => stacksaga.retry_policy(max_attempts => 1))], on_failure => 'park');
SELECT park.start('park_waits') AS id \gset
SELECT stacksaga.run_pending() > 0 AS ran, park.pass('2 minutes'), stacksaga.run_pending() > 0 AS again;
SELECT * FROM park.hint;
SELECT stacksaga.retry_saga(:'id', 'again'), stacksaga.run_pending() > 0 AS ran, park.claim();
SELECT stacksaga.complete_step(c.saga_id, c.step, c.lease) FROM park.claimed c
 WHERE c.step = 'x' AND c.saga_id IN (SELECT saga_id FROM stacksaga.saga);
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT saga, status FROM park.now;

-- Sagas in flight keep the version that they began with.
SELECT stacksaga.define_saga('changed', ARRAY[park.queue('z'), park.queue('a')]);
SELECT park.start('changed') AS id \gset
SELECT park.claim(), park.done(:'id', 'z'), park.claim() AS then;
SELECT stacksaga.define_saga('changed', ARRAY[park.queue('z'), park.queue('a')], on_failure => 'park');
SELECT park.fail(:'id', 'a');
SELECT park.start('changed') AS id \gset
SELECT park.claim(), park.done(:'id', 'z'), park.claim() AS then, park.fail(:'id', 'a');

-- The tables of rules.
SELECT rule, error_class, attempts_left, in_doubt, outcome, sentence FROM stacksaga.outcome_rules() WHERE on_failure = 'park';

SET client_min_messages = warning;
DROP SCHEMA park CASCADE;
SELECT set_config('stacksaga.clock_offset', '0', false);
