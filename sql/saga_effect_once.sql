-- The marker alone: a step whose work row is there once more, as if the fence and the compare-and-set of
-- the row had both failed, does not take effect again, whatever number its attempt has.
\set VERBOSITY terse
CREATE SCHEMA effect_once;
CREATE TABLE effect_once.charged (direction text, attempt integer);
CREATE FUNCTION effect_once.charge(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO effect_once.charged VALUES (call.direction, call.attempt);
    RETURN '{}';
END
$$;
SELECT stacksaga.define_saga('effect once', ARRAY[
    stacksaga.sql_step('charge', action => 'effect_once.charge(stacksaga.step_call)',
                                 compensation => 'effect_once.charge(stacksaga.step_call)'),
    stacksaga.queue_step('ship', 'effect once', compensable => true)]) AS version;
SELECT saga_id AS id FROM stacksaga.start_saga('effect once') \gset
-- The first step's work row as its second attempt would have it.
CREATE FUNCTION effect_once.work_again(saga_id uuid, direction text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO stacksaga.work (saga_id, token, ring_id, slot, purpose, step_no, direction, due_at, attempt)
    SELECT s.saga_id, s.token, s.ring_id, s.slot, 'step', 1, work_again.direction::stacksaga.step_direction,
           stacksaga.clock_now(), 1
      FROM stacksaga.saga s WHERE s.saga_id = work_again.saga_id
$$;

SELECT stacksaga.run_pending();
SELECT effect_once.work_again(:'id', 'act');
SELECT stacksaga.run_pending();
SELECT * FROM effect_once.charged;
DELETE FROM stacksaga.work WHERE saga_id = :'id' AND step_no = 1;

-- Nor does a compensation.
SELECT stacksaga.cancel_saga(:'id', 'enough');
SELECT stacksaga.run_pending();
SELECT effect_once.work_again(:'id', 'compensate');
SELECT stacksaga.run_pending();
SELECT * FROM effect_once.charged;
SELECT step_no, direction, attempt FROM stacksaga.effect WHERE saga_id = :'id' ORDER BY direction;

TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_action;
