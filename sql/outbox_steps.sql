-- A long backlog of a blocked key is copied out in steps: each call commits its part, and the next one
-- continues behind it, until it reaches the messages after the backlog.

CREATE SCHEMA steps;
CREATE FUNCTION steps.handle(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF m.payload = '1' THEN
        RAISE 'the first one';
    END IF;
END
$$;
-- A key of the same partition.
SELECT count(stacksaga.publish('before', '{}', k)) FROM unnest('{k}' || array(SELECT 'o-' || n FROM generate_series(1, 200) AS n)) AS k;
SELECT min(o.key) AS other FROM stacksaga.outbox_message AS o JOIN stacksaga.outbox_message AS k USING (stripe)
 WHERE k.key = 'k' AND o.key <> 'k' \gset
SELECT stacksaga.create_subscription('service', 'steps'),
       stacksaga.create_subscription('handled', 'steps', 'steps.handle(stacksaga.message)');
SELECT count(stacksaga.publish('steps', to_jsonb(n), 'k')) FROM generate_series(1, 12000) AS n;
SELECT stacksaga.publish('steps', '"behind"', :'other') IS NOT NULL AS published;

SELECT batch_id AS batch, message_id AS first FROM stacksaga.receive_messages('service', 'c', 1) \gset
SELECT stacksaga.fail_message(:batch, :'first', 'no', 'non_retryable');
SELECT stacksaga.ack_messages(:batch);
SELECT payload FROM stacksaga.receive_messages('service', 'c');
SELECT count(*) FROM stacksaga.message_retry;
SELECT payload FROM stacksaga.receive_messages('service', 'c');
SELECT count(*) FROM stacksaga.message_retry;

-- A call that handles all messages in one transaction goes through the whole backlog.
SELECT stacksaga.run_pending();
SELECT stacksaga.run_pending();
SELECT subscription, waiting FROM stacksaga.blocked_keys ORDER BY subscription;
SELECT lag_messages FROM stacksaga.subscriptions WHERE subscription = 'handled';

SET stacksaga.clock_offset = '1 minute';
SELECT stacksaga.drop_subscription('service', true), stacksaga.drop_subscription('handled', true);
RESET stacksaga.clock_offset;
DROP SCHEMA steps CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
