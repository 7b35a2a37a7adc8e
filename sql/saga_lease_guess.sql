-- A lease cannot be guessed: who has claimed some steps learns nothing about the leases of others.
SELECT stacksaga.define_saga('guess', ARRAY[stacksaga.queue_step('first', 'guess', compensable => true)]) AS version;
SELECT count(*) FROM stacksaga.start_sagas('guess', array_fill('{}'::jsonb, ARRAY[50]));
CREATE TEMPORARY TABLE guess AS SELECT saga_id, lease FROM stacksaga.claim_steps('guess', 'till', 50);
SELECT count(*), count(DISTINCT lease) AS different FROM guess;
-- Nor is one that is a number away from a lease that was given.
SELECT min(abs(a.lease - b.lease)) > 1000 AS are_far_apart FROM guess a JOIN guess b ON a.saga_id < b.saga_id;
SELECT count(stacksaga.complete_step(saga_id, 'first', lease)) FROM guess;

TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_action;
