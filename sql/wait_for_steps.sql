-- wait_for_steps: when it returns, and when it refuses. (How it waits is in test/tap/wait_for_steps.pl.)

CREATE SCHEMA waits;
SELECT stacksaga.define_saga('waits', ARRAY[stacksaga.queue_step('a', 'waits', compensable => true,
    retry => stacksaga.retry_policy(initial_interval => '1 hour', max_interval => '1 hour', jitter => 0))]);
CALL stacksaga.wait_for_steps('waits', '0');
CALL stacksaga.wait_for_steps('waits', '10 milliseconds');
SELECT saga_id FROM stacksaga.start_saga('waits') \gset
-- Something is due: it does not wait a minute.
SET statement_timeout = '30s';
CALL stacksaga.wait_for_steps('waits', '1 minute');
CALL stacksaga.wait_for_steps(queue => 'waits', wait => '1 minute');
SELECT lease FROM stacksaga.claim_steps('waits', 'w') \gset
-- A lease that runs out makes its step due.
SET stacksaga.clock_offset = '31 seconds';
CALL stacksaga.wait_for_steps('waits', '1 minute');
RESET stacksaga.clock_offset;
SELECT stacksaga.fail_step(:'saga_id', 'a', :lease, 'no', 'retryable');
CALL stacksaga.wait_for_steps('waits', '10 milliseconds');
SET stacksaga.clock_offset = '2 hours';
CALL stacksaga.wait_for_steps('waits', '1 minute');
RESET stacksaga.clock_offset;
RESET statement_timeout;

\set VERBOSITY sqlstate
BEGIN;
CALL stacksaga.wait_for_steps('waits');
ROLLBACK;
\set VERBOSITY default
CREATE FUNCTION waits.in_a_function() RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN CALL stacksaga.wait_for_steps('waits'); END $$;
SELECT waits.in_a_function();
DO $$
BEGIN
    CALL stacksaga.wait_for_steps('waits', '0');
    BEGIN
        CALL stacksaga.wait_for_steps('waits', '0');
    EXCEPTION WHEN SQLSTATE 'SG409' THEN
        RAISE NOTICE 'not inside a block with EXCEPTION';
    END;
END
$$;
CALL stacksaga.wait_for_steps(NULL);
CALL stacksaga.wait_for_steps('');
CALL stacksaga.wait_for_steps('waits', NULL);
CALL stacksaga.wait_for_steps('waits', '-1 second');
CALL stacksaga.wait_for_steps('waits', '61 seconds');

-- Who may: services.
CREATE ROLE waits_service;
CREATE ROLE waits_monitor;
SELECT stacksaga.grant_usage('waits_service', 'service'), stacksaga.grant_usage('waits_monitor', 'monitor');
SET ROLE waits_service;
CALL stacksaga.wait_for_steps('nothing', '0');
SET ROLE waits_monitor;
CALL stacksaga.wait_for_steps('nothing', '0');
RESET ROLE;
DROP OWNED BY waits_service, waits_monitor;
DROP ROLE waits_service, waits_monitor;
SELECT stacksaga.cancel_saga(:'saga_id', 'the test is over') IS NOT NULL AS cancelled;
DROP SCHEMA waits CASCADE;
