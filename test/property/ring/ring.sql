-- What the episodes of rings need beside the extension's own functions.

CREATE SCHEMA property;

-- What a worker does before it works: locks slots, and says in which of them it may.
CREATE FUNCTION property.lock_slots(ring_id integer, incarnation bigint, slots integer[], epochs bigint[])
RETURNS boolean[] LANGUAGE c AS 'stacksaga_testing', 'stacksaga_lock_slots';

SELECT stacksaga.define_saga('work', ARRAY[
    stacksaga.queue_step('work', queue => 'work', effect => 'idempotent',
        retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '1 ms', max_interval => '1 ms'))]);

-- Makes a saga in each slot of the session's ring of 64 slots whose step has failed once, so that only the
-- slot's owner may claim it. Of these ids a slot has eight on average, and may have none.
CREATE PROCEDURE property.make_retries(salt text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM s.saga_id
       FROM (SELECT DISTINCT ON (stacksaga.slot(stacksaga.token_uuid(id), 64)) id
               FROM (SELECT md5(salt || n)::uuid AS id FROM generate_series(1, 512) AS n) AS ids) AS chosen,
            stacksaga.start_saga('work', saga_id => chosen.id) AS s;
    PERFORM stacksaga.fail_step(c.saga_id, c.step, c.lease, 'again', 'retryable', retry_after => '0')
       FROM stacksaga.claim_steps('work', 'nobody', 1000) AS c;
END
$$;
