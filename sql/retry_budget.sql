-- The retry budget of a queue: a share of the first attempts, and ten a second whatever happens.
SELECT stacksaga.token(''); -- brings the module
SELECT name, setting, context, min_val, max_val FROM pg_settings
 WHERE name = 'stacksaga.retry_budget';
SELECT stacksaga.define_saga('budget', ARRAY[
    stacksaga.queue_step('first', 'budget', compensable => true, retry => stacksaga.retry_policy(max_attempts => 0))]);
SELECT count(*) FROM (SELECT stacksaga.start_saga('budget') FROM generate_series(1, 100)) AS s;

-- the first attempts are never held back
SELECT stacksaga.clock_now() AS first_began \gset
CREATE TEMPORARY TABLE claimed AS
    SELECT saga_id, lease FROM stacksaga.claim_steps('budget', 'a service', 1000);
SELECT count(*) FROM claimed;
SELECT count(stacksaga.fail_step(saga_id, 'first', lease, 'it is down', 'retryable', retry_after => '0 s'))
  FROM claimed;

-- of a hundred retries about a fifth and ten more are let through, as 100 first attempts were: with each
-- second that has passed since, ten more, and a tenth less of the fifth
TRUNCATE claimed;
SELECT stacksaga.clock_now() AS began \gset
INSERT INTO claimed SELECT saga_id, lease FROM stacksaga.claim_steps('budget', 'a service', 1000);
SELECT stacksaga.clock_now() AS ended,
       extract(epoch FROM stacksaga.clock_now() - :'first_began') AS passed \gset
SELECT count(*) BETWEEN 28 - 2 * :passed AND 30 + 10 * :passed AS a_fifth_and_ten FROM claimed;

-- the others are deferred: due later, one after the other, for a reason that can be seen, as long as
-- none is due again
SET stacksaga.clock_offset = '-1 hour';
SELECT bool_and(pause_reason = 'SR429' AND attempt = 1 AND status = 'running'
                AND paused_until > :'began'
                AND paused_until < :'ended'::timestamptz + interval '20 s') AS deferred,
       count(DISTINCT paused_until) = count(*) AS at_different_times,
       count(*) = 100 - (SELECT count(*) FROM claimed) AS all_others
  FROM stacksaga.sagas WHERE saga = 'budget' AND pause_reason IS NOT NULL;
SELECT count(*) FROM stacksaga.saga_history h JOIN stacksaga.sagas s USING (saga_id)
 WHERE s.saga = 'budget' AND s.pause_reason IS NOT NULL AND h.attempt > 1;

-- retries do not hold up first attempts that are due after them
SET stacksaga.clock_offset = '1 minute';
SELECT stacksaga.start_saga('budget', '{"late": true}') IS NOT NULL AS started;
SET stacksaga.clock_offset = '2 minutes';
DO $$
BEGIN
    FOR i IN 1 .. 100 LOOP
        IF EXISTS (SELECT FROM stacksaga.claim_steps('budget', 'a service', 1)
                    WHERE input = '{"late": true}') THEN
            RETURN;
        END IF;
    END LOOP;
    RAISE 'the first attempt is not claimed';
END $$;

-- the pause of a failure is the policy's again
SET stacksaga.clock_offset = '3 minutes';
SELECT stacksaga.run_pending(1000) > 0 AS leases_settled;
SELECT count(*) FROM stacksaga.sagas WHERE saga = 'budget' AND pause_reason IS NOT NULL
   AND attempt > 1;

-- without a limit all are let through
SET stacksaga.retry_budget = -1;
SET stacksaga.clock_offset = '2 hours';
SELECT count(*) > 80 AS all FROM stacksaga.claim_steps('budget', 'a service', 200);
SELECT count(*) FROM stacksaga.sagas WHERE saga = 'budget' AND pause_reason IS NOT NULL;
RESET stacksaga.retry_budget;
RESET stacksaga.clock_offset;
SET stacksaga.retry_budget = 1001;
SET stacksaga.retry_budget = 'NaN';
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
