-- A service that waits finds the one step that may run among very many whose groups are full.

SELECT stacksaga.define_saga('wait_for_groups', ARRAY[stacksaga.queue_step('only', 'wait_for_groups', compensable => true)]);
SELECT stacksaga.set_queue('wait_for_groups', max_running_per_group => 1);
SELECT count(*) FROM generate_series(1, 300) AS n, generate_series(1, 2) AS m,
       LATERAL stacksaga.start_saga('wait_for_groups', to_jsonb(m), group_key => 'full ' || to_char(n, '0000'));
DO $$
BEGIN
    WHILE EXISTS (SELECT FROM stacksaga.claim_steps('wait_for_groups', 'w', 1000, '1 hour')) LOOP END LOOP;
END
$$;
SELECT count(*) FROM stacksaga.work WHERE queue = 'wait_for_groups' AND lease IS NOT NULL;
SELECT count(*) FROM stacksaga.start_saga('wait_for_groups', group_key => 'full 0150 and a half');
SELECT clock_timestamp() AS begun \gset
CALL stacksaga.wait_for_steps('wait_for_groups', '20 seconds');
SELECT clock_timestamp() - :'begun' < '10 seconds' AS is_soon;
SELECT count(*) FROM stacksaga.claim_steps('wait_for_groups', 'w', 1000);

-- What waits longest is claimed at once, also where a search that goes on behind the group that was claimed last visits
-- full groups alone.
SET stacksaga.clock_offset = '-1 hour';
SELECT count(*) FROM stacksaga.start_saga('wait_for_groups', group_key => 'full 0140 and a half');
RESET stacksaga.clock_offset;
SELECT count(*) FROM stacksaga.claim_steps('wait_for_groups', 'w', 1000);
SELECT count(stacksaga.cancel_saga(saga_id, 'over')) FROM stacksaga.find_sagas(saga => 'wait_for_groups', max_sagas => 1000);
SELECT stacksaga.set_queue('wait_for_groups');
