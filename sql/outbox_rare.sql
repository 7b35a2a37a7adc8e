-- A subscription whose messages are rare finds them behind any number of windows for others, though
-- no session moves its position over those.

SELECT stacksaga.create_subscription('rare', 'rare'), stacksaga.create_subscription('none', 'none');
CREATE PROCEDURE rare_tick(rounds int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. rounds LOOP
        PERFORM stacksaga.publish('often', '{}');
        COMMIT;
        PERFORM stacksaga.receive_messages('none', 'c'); -- ticks
        COMMIT;
    END LOOP;
END
$$;
CALL rare_tick(150);
SELECT stacksaga.publish('rare', '{}') IS NOT NULL AS published;
SELECT count(*) FROM stacksaga.receive_messages('none', 'c'); -- ticks
SELECT count(*) > 150 AS are_many FROM stacksaga.outbox_tick;
SELECT subscription, stacksaga_internal.outbox_unread_since(subscription_id) IS NOT NULL AS is_waited_for
  FROM stacksaga.subscription ORDER BY subscription;
SELECT count(*), max(batch_id) AS batch FROM stacksaga.receive_messages('rare', 'c') \gset
SELECT :count AS received, stacksaga.ack_messages(:batch);

-- The next call does not read again what one call has read in vain.
CALL rare_tick(150);
SELECT count(*) FROM stacksaga.receive_messages('rare', 'c');
SELECT max((SELECT max(tick) FROM stacksaga.outbox_tick) - p.tick) < 70 AS all_are_near
  FROM (SELECT DISTINCT ON (l.partition) l.tick
          FROM stacksaga.subscription_position AS l
          JOIN stacksaga.subscription AS s USING (subscription_id)
         WHERE s.subscription = 'rare' ORDER BY l.partition, l.version DESC) AS p;

SELECT stacksaga.drop_subscription('rare', true), stacksaga.drop_subscription('none', true);
DROP PROCEDURE rare_tick(int);
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
