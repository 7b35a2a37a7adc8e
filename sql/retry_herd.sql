-- Ten thousand sagas that fall due at the same instant are spread out, by jitter and by the budget.
SET stacksaga.retry_budget = 0; -- what is left are ten a second
SELECT stacksaga.define_saga('herd', ARRAY[
    stacksaga.queue_step('first', 'herd', compensable => true, timeout => '1 hour', retry => stacksaga.retry_policy(
        initial_interval => '100 seconds', jitter => 0.2))]);
SELECT count(*) FROM (SELECT stacksaga.start_saga('herd') FROM generate_series(1, 10000)) AS s;
SELECT sum((SELECT count(*) FROM stacksaga.claim_steps('herd', 'a service ' || i, 1000, '1 minute')))
  FROM generate_series(1, 10) AS i;

-- the service is gone, and all leases with it, settled much later and at once
SET stacksaga.clock_offset = '80 seconds';
SELECT stacksaga.run_pending(20000);
CREATE TEMPORARY TABLE due AS
SELECT extract(epoch FROM w.due_at - f.finished_at) AS pause
  FROM stacksaga.work w JOIN stacksaga.failure f USING (saga_id)
  JOIN stacksaga.saga s USING (saga_id) JOIN stacksaga.saga_definition d USING (definition_id)
 WHERE d.saga = 'herd';
SELECT width_bucket(pause, 80, 120, 8) AS eighth, count(*) BETWEEN 1000 AND 1500 AS about_an_eighth
  FROM due GROUP BY eighth ORDER BY eighth;

-- they are all overdue when a service comes back, as after an outage: few are let through at once, and
-- the others form a line, with room between them
SET stacksaga.clock_offset = '10 minutes';
CREATE TEMPORARY TABLE let_through AS
SELECT (SELECT count(*) FROM stacksaga.claim_steps('herd', 'another service ' || i, 1000)) AS count
  FROM generate_series(1, 10) AS i;
SELECT sum(count) < 1000 AS few FROM let_through;
SELECT count(*) > 9000 AS most, max(per_second) < 150 AS nowhere_dense, max(second) < 400 AS soon
  FROM (SELECT second, count(*) OVER (PARTITION BY second) AS per_second
          FROM (SELECT floor(extract(epoch FROM w.due_at - stacksaga.clock_now())) AS second
                  FROM stacksaga.work w WHERE w.queue = 'herd' AND w.deferred) AS d) AS s;
RESET stacksaga.retry_budget;
RESET stacksaga.clock_offset;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
