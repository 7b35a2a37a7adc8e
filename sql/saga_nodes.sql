-- Claims of registered nodes: a worker gets retries only from the slots that it owns, a standard
-- node first attempts only, and who is not registered whatever is due; each within its ring.

CREATE SCHEMA nodes;
SELECT stacksaga.define_saga('nodes', ARRAY[stacksaga.queue_step('a', 'nodes', compensable => true,
    retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '0'))]);
SELECT stacksaga.create_ring('default', 'nodes', slots => 64) AS ring \gset
SET stacksaga.cluster = 'nodes';
SET stacksaga.retry_budget = -1; -- it is about who gets which, not how many
SELECT stacksaga.register_node('left', 'default', 'nodes') AS l,
       stacksaga.register_node('right', 'default', 'nodes') AS r,
       stacksaga.register_node('plain', 'default', 'nodes', 'standard') IS NOT NULL AS plain \gset
UPDATE stacksaga.slot SET owner = CASE WHEN slot < 32 THEN :l ELSE :r END WHERE ring_id = :ring;
SELECT count(*) FROM generate_series(1, 40) n,
  LATERAL stacksaga.start_saga('nodes', key => n::text);
-- Claims all that a node gets, and has it tried again.
CREATE FUNCTION nodes.claim(worker text) RETURNS TABLE (attempt int, claimed bigint, slots text)
LANGUAGE sql AS $$
    WITH c AS (SELECT c.*, s.slot, stacksaga.fail_step(saga_id, step, c.lease, 'again', 'retryable') AS status
                 FROM stacksaga.claim_steps('nodes', worker, 1000) c
                     JOIN stacksaga.saga s USING (saga_id))
    SELECT attempt, count(*), CASE WHEN max(slot) < 32 THEN 'left' WHEN min(slot) >= 32 THEN 'right'
        ELSE 'both' END
      FROM c GROUP BY attempt
$$;
-- First attempts are for everybody.
SELECT slot < 32 AS on_the_left, count(*) > 0 AS some FROM stacksaga.saga GROUP BY 1 ORDER BY 1;
SELECT count(*) AS claimed FROM stacksaga.claim_steps('nodes', 'plain', 10);
SELECT attempt, slots FROM nodes.claim('left');
-- Retries are not: those of the claims of plain are still held.
SELECT count(*) FROM nodes.claim('plain');
SELECT attempt, slots FROM nodes.claim('left');
SELECT attempt, slots FROM nodes.claim('right');
SELECT attempt, slots FROM nodes.claim('left');
SELECT sum(claimed) FROM nodes.claim('nobody in the ring');
-- A lease that ran out is a retry too.
SET stacksaga.clock_offset = '1 hour';
SELECT count(*) FROM nodes.claim('plain');
SELECT DISTINCT slots FROM nodes.claim('left');
SELECT DISTINCT slots FROM nodes.claim('right');
-- Slots that change hands take their retries along.
UPDATE stacksaga.slot SET owner = :r WHERE ring_id = :ring;
SELECT count(*) FROM nodes.claim('left');
SELECT sum(claimed), min(slots) FROM nodes.claim('right');
-- It held nothing then, and gets a WARNING once a minute.
SELECT count(*) FROM nodes.claim('left');
SET stacksaga.clock_offset = '1 hour 1 minute';
SELECT count(*) FROM nodes.claim('left');
-- One that is removed is no node any more.
BEGIN;
DELETE FROM stacksaga.node WHERE node = 'left';
SELECT sum(claimed) FROM nodes.claim('left');
ROLLBACK;

-- A node is a node whichever ring the session claims from: of another ring's work it gets first
-- attempts only, for it holds nothing there.
RESET stacksaga.cluster;
SELECT count(*) FROM stacksaga.start_saga('nodes', key => 'of the default ring');
SELECT attempt, claimed FROM nodes.claim('plain');
SELECT count(*) FROM nodes.claim('plain');
SELECT count(*) FROM nodes.claim('right');
SELECT attempt, claimed FROM nodes.claim('nobody in the ring');
SELECT status FROM stacksaga.cancel_saga(
    (SELECT saga_id FROM stacksaga.sagas WHERE key = 'of the default ring'), 'it is not needed') AS status;
-- One name is one node of one ring.
SELECT stacksaga.register_node('right');
-- Where a node has its slots it gets their retries, in a ring of another name as well.
SELECT stacksaga.create_ring('default', 'more nodes', slots => 64) AS more \gset
SELECT stacksaga.register_node('third', 'default', 'more nodes') AS third \gset
UPDATE stacksaga.slot SET owner = :third WHERE ring_id = :more;
SET stacksaga.cluster = 'more nodes';
SELECT count(*) FROM stacksaga.start_saga('nodes', key => 'of one more ring');
SELECT attempt, claimed FROM nodes.claim('right');
SELECT count(*) FROM nodes.claim('right');
SELECT attempt, claimed FROM nodes.claim('third');

-- A node of this ring gets no work of another ring, and vice versa.
RESET stacksaga.cluster;
SELECT count(*) FROM nodes.claim('right');
SELECT count(*) FROM nodes.claim('nobody in the ring');
SELECT stacksaga.run_pending();
SELECT count(*) FROM stacksaga.start_saga('nodes', key => 'elsewhere');
SET stacksaga.cluster = 'nodes';
SELECT count(*) FROM stacksaga.claim_steps('nodes', 'nobody', 1000)
  JOIN stacksaga.sagas USING (saga_id)
 WHERE key = 'elsewhere';
SELECT region, cluster, count(*) FROM stacksaga.sagas GROUP BY region, cluster ORDER BY cluster;
-- A key is of no ring: the saga that it stands for is found, wherever it runs.
SELECT created FROM stacksaga.start_saga('nodes', key => 'elsewhere');
-- A ring that is not there.
SET stacksaga.cluster = 'missing';
\set VERBOSITY sqlstate
SELECT stacksaga.start_saga('nodes');
SELECT stacksaga.claim_steps('nodes', 'nobody');
SELECT stacksaga.run_pending();
\set VERBOSITY default
RESET stacksaga.cluster;
RESET stacksaga.clock_offset;

SET client_min_messages = warning;
DROP SCHEMA nodes CASCADE;
DELETE FROM stacksaga.node WHERE ring_id IN (:ring, :more);
DELETE FROM stacksaga.slot WHERE ring_id IN (:ring, :more);
DELETE FROM stacksaga.ring WHERE ring_id IN (:ring, :more);
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
