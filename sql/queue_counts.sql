-- The view queues counts what became of the attempts of each queue: when the transaction commits, by
-- the queue that an attempt was claimed from, and by ring.

\set SHOW_CONTEXT never
SELECT stacksaga.define_saga('counted', ARRAY[
    stacksaga.queue_step('charge', queue => 'counted charges', compensable => true, fallback => 'counted cash'),
    stacksaga.queue_step('ship', queue => 'counted parcels', compensable => true)],
    retry => stacksaga.retry_policy(initial_interval => '0', max_attempts => 2));
CREATE VIEW counts AS
    SELECT queue, cluster, completed, failed FROM stacksaga.queues WHERE queue LIKE 'counted %' ORDER BY queue, cluster;
CREATE PROCEDURE answer(queue text, error text DEFAULT NULL, error_class text DEFAULT 'retryable', claims integer DEFAULT 1)
LANGUAGE plpgsql AS $$
DECLARE
    answered integer := 0;
    found_now integer;
BEGIN
    FOR i IN 1..1000 LOOP -- a claim leaves out what another session has locked
        PERFORM CASE WHEN error IS NULL THEN stacksaga.complete_step(c.saga_id, c.step, c.lease)
                     ELSE stacksaga.fail_step(c.saga_id, c.step, c.lease, error, error_class) END
           FROM stacksaga.claim_steps(queue, 'teller', claims - answered) AS c;
        GET DIAGNOSTICS found_now = ROW_COUNT;
        answered := answered + found_now;
        EXIT WHEN answered = claims;
    END LOOP;
END $$;
SELECT * FROM counts;

-- Completed and failed attempts, of steps and of compensations; several of one transaction.
SELECT count(*) FROM stacksaga.start_sagas('counted', array_fill('{}'::jsonb, ARRAY[2]));
CALL answer('counted charges', claims => 2);
SELECT * FROM counts;
CALL answer('counted parcels', 'no such address', 'non_retryable');
CALL answer('counted charges'); -- the compensation
SELECT count(*) FROM stacksaga.start_saga('counted');
CALL answer('counted charges', 'the bank is closed');
SELECT * FROM counts;

-- What is rolled back is not counted, to a savepoint or as a whole.
BEGIN;
CALL answer('counted parcels');
SAVEPOINT s;
CALL answer('counted charges');
ROLLBACK TO s;
SAVEPOINT t;
CALL answer('counted charges', 'still closed', 'non_retryable');
RELEASE t;
SELECT * FROM counts;
COMMIT;
SELECT * FROM counts;
BEGIN;
CALL answer('counted cash');
ROLLBACK;
SELECT * FROM counts WHERE queue = 'counted cash';

-- The fallback is of another queue; so is the queue of this name in another ring.
CALL answer('counted cash');
SELECT * FROM counts;
SELECT stacksaga.create_ring('default', 'counted') > 0 AS created;
SET stacksaga.cluster = 'counted';
SELECT count(*) FROM stacksaga.start_saga('counted');
CALL answer('counted charges');
SELECT * FROM counts WHERE queue = 'counted charges';
RESET stacksaga.cluster;

-- Where all places are taken, a further queue is unknown; those that have a place are not.
DO $$
BEGIN
    FOR n IN 1..160 LOOP
        PERFORM stacksaga.define_saga('many', ARRAY[stacksaga.queue_step('q', queue => 'many ' || n, compensable => true)]);
        PERFORM stacksaga.start_saga('many', version => n);
    END LOOP;
    FOR n IN 1..160 LOOP
        PERFORM stacksaga.complete_step(c.saga_id, c.step, c.lease) FROM stacksaga.claim_steps('many ' || n, 'teller') AS c;
    END LOOP;
END $$;
SELECT count(*) > 100 AS most, count(*) < 160 AS not_all FROM stacksaga.queues WHERE queue LIKE 'many %' AND completed = 1;
SELECT count(*) FROM stacksaga.queues WHERE queue LIKE 'many %' AND completed IS DISTINCT FROM 1 AND completed IS NOT NULL;
SELECT * FROM counts WHERE queue = 'counted charges';
