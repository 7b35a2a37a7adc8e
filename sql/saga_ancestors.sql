-- What a parent's operators, deadline and failures mean for its children and their children is in force at once: claims,
-- answers and heartbeats read the direction of their ancestors. Nothing of it is written down before.

\set SHOW_CONTEXT never
SELECT stacksaga.define_saga('ancestor 3', ARRAY[
    stacksaga.queue_step('hold', 'ancestors', compensable => true), stacksaga.queue_step('pay', 'ancestors', effect => 'irreversible')]);
SELECT stacksaga.define_saga('ancestor 2', ARRAY[stacksaga.child_step('inner', 'ancestor 3')]);
SELECT stacksaga.define_saga('ancestor 1', ARRAY[
    stacksaga.child_step('outer', 'ancestor 2', stage => 1), stacksaga.queue_step('beside', 'beside', compensable => false, stage => 1)]);
CREATE VIEW family AS SELECT saga, status, compensation_requested FROM stacksaga.sagas WHERE saga LIKE 'ancestor%' AND finished_at IS NULL;
CREATE FUNCTION settle() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 5 LOOP
        PERFORM stacksaga.run_pending();
        PERFORM stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('ancestors', 'w', 10) WHERE direction = 'compensate';
    END LOOP;
    RETURN QUERY SELECT s.saga || ' ' || s.status || ' ' || count(*) FROM stacksaga.sagas s WHERE s.saga LIKE 'ancestor%' GROUP BY s.saga, s.status ORDER BY 1;
END $$;

-- A cancel while the step of the grandchild is claimed, and before it is.
SELECT (stacksaga.start_saga('ancestor 1')).saga_id AS top \gset
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT saga_id, lease FROM stacksaga.claim_steps('ancestors', 'w') \gset
SELECT cancel_requested FROM stacksaga.extend_step(:'saga_id', 'hold', :lease);
SELECT stacksaga.cancel_saga(:'top', 'not wanted');
SELECT saga, status, compensation_requested FROM family ORDER BY saga;
SELECT cancel_requested FROM stacksaga.extend_step(:'saga_id', 'hold', :lease);
SELECT stacksaga.complete_step(:'saga_id', 'hold', :lease);
SELECT step, direction, stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('ancestors', 'w', 10);
SELECT count(*) FROM stacksaga.sagas s JOIN stacksaga.saga_history h USING (saga_id) WHERE s.saga LIKE 'ancestor%' AND h.step = 'pay';
SELECT settle();

-- The failure of a sibling; the child's step is due and not claimed.
SELECT (stacksaga.start_saga('ancestor 1')).saga_id AS top \gset
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT saga_id, lease FROM stacksaga.claim_steps('beside', 'w') WHERE saga_id = :'top' \gset
SELECT stacksaga.fail_step(:'saga_id', 'beside', :lease, 'no', 'non_retryable');
SELECT count(*) FROM stacksaga.claim_steps('ancestors', 'w', 10) WHERE direction = 'act';
SELECT settle();

-- Suspended: nothing is claimed, answers count, a compensation neither.
SELECT (stacksaga.start_saga('ancestor 1')).saga_id AS top \gset
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT saga_id, lease FROM stacksaga.claim_steps('ancestors', 'w') \gset
SELECT stacksaga.suspend_saga(:'top', 'a look');
SELECT cancel_requested FROM stacksaga.extend_step(:'saga_id', 'hold', :lease);
SELECT stacksaga.complete_step(:'saga_id', 'hold', :lease);
SELECT count(*) FROM stacksaga.claim_steps('ancestors', 'w', 10);
SELECT stacksaga.resume_saga(:'top', 'seen');
-- The turn of a step that was held back comes within a second.
SET stacksaga.clock_offset = '2 s';
SELECT step, direction, saga_id, lease FROM stacksaga.claim_steps('ancestors', 'w') \gset
SELECT :'step' AS step, :'direction' AS direction;
-- The irreversible step of the grandchild is in flight: the cancel waits for it, and it settles the whole.
SELECT stacksaga.cancel_saga(:'top', 'too late');
SELECT cancel_requested FROM stacksaga.extend_step(:'saga_id', 'pay', :lease);
SELECT stacksaga.complete_step(:'saga_id', 'pay', :lease);
SELECT settle();
SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM stacksaga.claim_steps('beside', 'w', 10);
SELECT settle();
RESET stacksaga.clock_offset;
DROP VIEW family;
DROP FUNCTION settle();
