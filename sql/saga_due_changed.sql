-- A worker finds a batch of due steps at once and reads each again under the lock of its saga: what the
-- step before it in the batch has suspended does not run, and runs once when it is resumed.
CREATE SCHEMA due_changed;
CREATE TABLE due_changed.log (n serial, what text);
CREATE FUNCTION due_changed.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.input ? 'suspends' THEN
        PERFORM stacksaga.suspend_saga((call.input ->> 'suspends')::uuid, 'another saga wants that');
    END IF;
    INSERT INTO due_changed.log (what) VALUES (call.saga || ' ' || call.attempt);
    RETURN '{}';
END
$$;
SELECT stacksaga.define_saga(saga, ARRAY[stacksaga.sql_step('only', 'due_changed.act(stacksaga.step_call)')]) AS version
  FROM unnest(ARRAY['due first', 'due second']) AS saga;
SELECT saga_id AS second FROM stacksaga.start_saga('due second') \gset
SELECT saga_id AS first FROM stacksaga.start_saga('due first', jsonb_build_object('suspends', :'second')) \gset
UPDATE stacksaga.work SET due_at = due_at - interval '1 hour' WHERE saga_id = :'first';

SELECT stacksaga.run_pending();
SELECT what FROM due_changed.log ORDER BY n;
SELECT saga, status, attempt FROM stacksaga.sagas WHERE saga IN ('due first', 'due second') ORDER BY saga;

SELECT stacksaga.resume_saga(:'second', 'go on');
SELECT stacksaga.run_pending();
SELECT what FROM due_changed.log ORDER BY n;

TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_action;
