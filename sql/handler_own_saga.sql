-- What a handler may do to the saga whose step it runs, and to others.

\set SHOW_CONTEXT never
CREATE SCHEMA own;
-- Runs the statements of its input in the step that they are given for, and keeps their errors.
CREATE TABLE own.log (n serial, step text, what text);
CREATE FUNCTION own.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    statement text := call.input ->> CASE call.direction WHEN 'act' THEN call.step ELSE 'undo' END;
    detail text;
BEGIN
    IF statement IS NOT NULL THEN
        EXECUTE format('DO %L', format('BEGIN %s; END', replace(statement, 'THIS',
            quote_literal(call.saga_id) || '::uuid')));
    END IF;
    INSERT INTO own.log (step, what) VALUES (call.step, call.direction || ' done');
    RETURN to_jsonb(call.step);
END $$;
CREATE FUNCTION own.asked(call stacksaga.step_call) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stacksaga.cancel_saga(call.saga_id, 'verify cancels');
    RETURN 'done';
END $$;
CREATE FUNCTION own.unknown(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE 'nobody knows' USING ERRCODE = 'SR504';
END $$;
CREATE FUNCTION own.fails(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE 'no' USING ERRCODE = 'SG424';
END $$;
CREATE FUNCTION own.falls_back(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stacksaga.suspend_saga(call.saga_id, 'the fallback suspends');
    RETURN '1';
END $$;
SELECT stacksaga.define_saga('own', ARRAY[
    stacksaga.sql_step('first', 'own.run(stacksaga.step_call)',
        compensation => 'own.run(stacksaga.step_call)'),
    stacksaga.sql_step('second', 'own.run(stacksaga.step_call)', stage => 2,
        retry => stacksaga.retry_policy(max_attempts => 1)),
    stacksaga.queue_step('beside', 'own', compensable => true, stage => 2),
    stacksaga.signal_step('told', 'go', stage => 2),
    stacksaga.sql_step('last', 'own.run(stacksaga.step_call)')]);
CREATE FUNCTION own.start(input jsonb, name text DEFAULT 'own') RETURNS uuid LANGUAGE sql AS
    $$ SELECT saga_id FROM stacksaga.start_saga(name, input) $$;
CREATE FUNCTION own.shown(id uuid) RETURNS TABLE (status text, last_error text) LANGUAGE sql AS $$
    SELECT s.status, replace(s.last_error, s.saga_id::text, 'THIS')
      FROM stacksaga.sagas AS s WHERE s.saga_id = id $$;
-- One that does this in the step `second` of its saga.
CREATE FUNCTION own.try(statement text) RETURNS TABLE (status text, last_error text)
LANGUAGE plpgsql AS $$
DECLARE
    id uuid := own.start(jsonb_build_object('second', statement));
BEGIN
    PERFORM stacksaga.run_pending();
    RETURN QUERY SELECT * FROM own.shown(id);
    DELETE FROM stacksaga.work WHERE saga_id = id;
END $$;

-- It is not its own operator.
SELECT * FROM own.try($$PERFORM stacksaga.cancel_saga(THIS, 'why')$$);
SELECT * FROM own.try($$PERFORM stacksaga.suspend_saga(THIS, 'why')$$);
SELECT * FROM own.try($$PERFORM stacksaga.resume_saga(THIS, 'why')$$);
SELECT * FROM own.try($$PERFORM stacksaga.retry_saga(THIS, 'why')$$);
SELECT * FROM own.try($$PERFORM stacksaga.resolve_step(THIS, 'second', 'done')$$);
SELECT * FROM own.try($$PERFORM stacksaga.resolve_step(THIS, 'beside', 'not_done', NULL, 'why')$$);
-- Nor a service of its own saga.
SELECT * FROM own.try($$PERFORM stacksaga.claim_steps('own', 'w')$$);
SELECT * FROM own.try($$PERFORM stacksaga.complete_step(THIS, 'beside', 1)$$);
SELECT * FROM own.try($$PERFORM stacksaga.fail_step(THIS, 'beside', 1, 'no', 'retryable')$$);
SELECT * FROM own.try($$PERFORM stacksaga.extend_step(THIS, 'beside', 1)$$);
SELECT * FROM own.try($$
    INSERT INTO own.log (step, what) SELECT 'many', sqlstate
      FROM stacksaga.complete_steps(ARRAY[THIS], ARRAY['beside'], ARRAY[1])$$);
SELECT * FROM own.try($$
    INSERT INTO own.log (step, what) SELECT 'many', sqlstate
      FROM stacksaga.cancel_sagas(ARRAY[THIS], 'why', false)$$);
SELECT * FROM own.try($$PERFORM stacksaga.adopt_ring('a', 'b', 'default', 'default', 'why')$$);
SELECT what FROM own.log WHERE step = 'many';
-- A refusal that it catches has changed nothing, and neither has what a trigger of its tables tries.
SELECT * FROM own.try($$
    BEGIN PERFORM stacksaga.cancel_saga(THIS, 'why'); EXCEPTION WHEN SQLSTATE 'SG409' THEN NULL; END$$);
CREATE TABLE own.deferred (id uuid);
CREATE FUNCTION own.cancel() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stacksaga.cancel_saga(NEW.id, 'a deferred trigger cancels');
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER cancel AFTER INSERT ON own.deferred DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION own.cancel();
SELECT * FROM own.try($$INSERT INTO own.deferred VALUES (THIS)$$);

-- It may signal its saga, publish, and start others: what follows knows of it.
TRUNCATE own.log;
SELECT own.start(jsonb_build_object('second', $$PERFORM stacksaga.signal_saga(THIS, 'go', '1');
    PERFORM stacksaga.publish('own', '{}')$$)) AS id \gset
SELECT stacksaga.run_pending();
SELECT * FROM own.shown(:'id');
SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('own', 'w');
SELECT stacksaga.run_pending();
SELECT * FROM own.shown(:'id');
SELECT step, direction, status, error FROM stacksaga.saga_history WHERE saga_id = :'id' ORDER BY 1;
SELECT step, what FROM own.log ORDER BY n;
-- The signal may be what its own stage still waits for.
SELECT stacksaga.define_saga('own_told', ARRAY[
    stacksaga.sql_step('second', 'own.run(stacksaga.step_call)', stage => 1),
    stacksaga.signal_step('told', 'go', stage => 1),
    stacksaga.sql_step('last', 'own.run(stacksaga.step_call)')]);
SELECT own.start(jsonb_build_object('second', $$PERFORM stacksaga.signal_saga(THIS, 'go', '1')$$),
    'own_told') AS id \gset
SELECT stacksaga.run_pending();
SELECT * FROM own.shown(:'id');

-- A compensation, verify and a fallback are handlers as an action is.
SELECT own.start(jsonb_build_object('second', $$RAISE 'no' USING ERRCODE = 'SG424'$$,
    'undo', $$PERFORM stacksaga.suspend_saga(THIS, 'why')$$)) AS id \gset
SELECT stacksaga.run_pending();
SELECT status, replace(error, :'id', 'THIS') AS error FROM stacksaga.saga_history
 WHERE saga_id = :'id' AND direction = 'compensate';
DELETE FROM stacksaga.work WHERE saga_id = :'id';
SELECT stacksaga.define_saga('own_asked', ARRAY[stacksaga.sql_step('only',
        'own.unknown(stacksaga.step_call)', verify => 'own.asked(stacksaga.step_call)',
        retry => stacksaga.retry_policy(max_attempts => 1))]),
    stacksaga.define_saga('own_falls_back', ARRAY[stacksaga.sql_step('only',
        'own.fails(stacksaga.step_call)', fallback => 'own.falls_back(stacksaga.step_call)',
        retry => stacksaga.retry_policy(max_attempts => 1))]);
SELECT own.start('{}', 'own_asked') AS asked, own.start('{}', 'own_falls_back') AS falls_back \gset
SELECT stacksaga.run_pending();
SELECT * FROM own.shown(:'asked');
SELECT * FROM own.shown(:'falls_back');

-- It may act on another saga, also one that is due in the same batch, that it is a step of, or that
-- is a step of it.
SELECT own.start('{}') AS other \gset
SELECT own.start(jsonb_build_object('first', format(
    $$PERFORM stacksaga.cancel_saga(%L, 'by another')$$, :'other'))) AS id \gset
UPDATE stacksaga.work SET due_at = due_at - interval '1 hour' WHERE saga_id = :'id';
SELECT stacksaga.run_pending();
SELECT * FROM own.shown(:'other');
SELECT * FROM own.shown(:'id');
SELECT stacksaga.cancel_saga(:'id', 'over');
SELECT stacksaga.run_pending() > 0 AS done;
SELECT stacksaga.define_saga('own_child', ARRAY[
    stacksaga.sql_step('in_child', 'own.run(stacksaga.step_call)',
        compensation => 'own.run(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('own_parent', ARRAY[
    stacksaga.child_step('child', 'own_child', stage => 1),
    stacksaga.sql_step('in_parent', 'own.run(stacksaga.step_call)', stage => 1,
        compensation => 'own.run(stacksaga.step_call)')]);
CREATE FUNCTION own.family() RETURNS TABLE (saga text, status text, error text) LANGUAGE sql AS $$
    SELECT d.saga, s.status, regexp_replace(s.error, '[0-9a-f-]{36}', 'ID')
      FROM stacksaga.saga AS s JOIN stacksaga.saga_definition AS d USING (definition_id)
     WHERE d.saga IN ('own_parent', 'own_child') ORDER BY s.created_at DESC, d.saga LIMIT 2 $$;
SELECT own.start(jsonb_build_object('in_child', $$PERFORM stacksaga.cancel_saga(parent_id, 'by its child')
    FROM stacksaga.saga WHERE saga_id = THIS$$), 'own_parent') IS NOT NULL AS started;
SELECT stacksaga.run_pending() > 0 AS done;
SELECT * FROM own.family();
SELECT own.start(jsonb_build_object('in_parent', $$PERFORM stacksaga.cancel_saga(saga_id, 'by its parent')
    FROM stacksaga.saga WHERE parent_id = THIS$$), 'own_parent') IS NOT NULL AS started;
UPDATE stacksaga.work SET due_at = due_at - interval '1 hour' WHERE step_no = 1;
SELECT stacksaga.run_pending() > 0 AS done;
SELECT * FROM own.family();

-- A handler of messages is no step's: it may do all of this.
CREATE FUNCTION own.handle(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stacksaga.cancel_saga((m.payload ->> 'saga_id')::uuid, 'by a message');
END $$;
SELECT stacksaga.create_subscription('own', 'own_cancel', 'own.handle(stacksaga.message)');
SELECT own.start('{}') AS id \gset
SELECT stacksaga.publish('own_cancel', jsonb_build_object('saga_id', :'id')) IS NOT NULL AS published;
SELECT stacksaga.run_pending() > 0 AS done;
SELECT stacksaga.run_pending() > 0 AS done;
SELECT * FROM own.shown(:'id');

SET client_min_messages = warning;
SELECT stacksaga.drop_subscription('own', true);
DROP SCHEMA own CASCADE;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure,
    stacksaga.parked_saga, stacksaga.saga_signal, stacksaga.saga_action;
TRUNCATE stacksaga.outbox_message;
