-- Generations of the log: filled in turn, truncated when all subscriptions have read them; and a
-- subscription that does not read. Time is moved by stacksaga.clock_offset.

ALTER SEQUENCE stacksaga.message_batch_id_seq RESTART;
CREATE SCHEMA generations;
CREATE VIEW generations.filled AS
    SELECT tableoid::regclass AS generation, count(*), min((payload -> 'n')::int), max((payload -> 'n')::int)
      FROM stacksaga.outbox_message GROUP BY 1 ORDER BY 3;
CREATE FUNCTION generations.put(first int, last int) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.publish('t', jsonb_build_object('n', n), 'k' || n % 3))
      FROM generate_series(first, last) n
$$;
CREATE FUNCTION generations.take(subscription text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg((payload ->> 'n'), ' ' ORDER BY (payload -> 'n')::int) || ' in batch '
           || min(batch_id) FROM stacksaga.receive_messages(subscription, 'c')
$$;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick;
SELECT setval('stacksaga.outbox_generation_seq', 0);

-- The next generation begins; this one is kept while a subscription has not read it.
SELECT stacksaga.create_subscription('fast', 't'), stacksaga.create_subscription('slow', 't');
SELECT generations.put(1, 6);
SELECT stacksaga.maintain_outbox();
SELECT generations.put(7, 8);
SELECT * FROM generations.filled;
SELECT stacksaga.maintain_outbox(true);
SELECT generations.put(9, 12);
SELECT * FROM generations.filled;
SELECT generations.take('fast');
SELECT stacksaga.ack_messages(1);
SELECT stacksaga.maintain_outbox(true);
SELECT * FROM generations.filled;
-- A batch that is not acknowledged does not count as read.
SELECT generations.take('slow');
SELECT stacksaga.maintain_outbox(true);
SELECT * FROM generations.filled;
SELECT generations.put(13, 14);
SELECT stacksaga.ack_messages(2);
SELECT stacksaga.maintain_outbox(true);
SELECT * FROM generations.filled;
SELECT generations.take('slow'), generations.take('fast');
SELECT stacksaga.ack_messages(3), stacksaga.ack_messages(4);
SELECT generations.put(15, 15);
SELECT stacksaga.maintain_outbox(true);
SELECT * FROM generations.filled;
SELECT generations.take('slow'), generations.take('fast');
SELECT stacksaga.ack_messages(5), stacksaga.ack_messages(6);
-- Ticks and positions that no subscription needs are deleted.
SELECT stacksaga.maintain_outbox();
SELECT count(*) AS positions FROM stacksaga.subscription_position;
SELECT count(*) AS ticks FROM stacksaga.outbox_tick;

-- A subscription that stalls: its unread messages are copied out, and delivered in order when it reads
-- again.
SELECT generations.put(21, 26);
SELECT generations.take('fast');
SELECT stacksaga.ack_messages(7);
SET stacksaga.clock_offset = '73 hours';
SELECT stacksaga.maintain_outbox(true);
SELECT stacksaga.maintain_outbox(true);
SELECT * FROM generations.filled;
SELECT key, state, count(*), min(last_error) FROM stacksaga.message_retry GROUP BY 1, 2 ORDER BY 1, 2;
SELECT subscription, lag_messages, blocked_keys FROM stacksaga.subscriptions ORDER BY 1;
SELECT payload -> 'n' AS n, key, attempt FROM stacksaga.receive_messages('slow', 'c');
SELECT stacksaga.ack_messages(8);
SELECT count(*) FROM stacksaga.message_retry;
SELECT stacksaga.drop_subscription('slow', true), stacksaga.drop_subscription('fast', true);

-- Without any subscription the log is kept for as long.
SELECT generations.put(31, 31);
SELECT stacksaga.maintain_outbox(true), stacksaga.maintain_outbox(true);
SELECT * FROM generations.filled;
SET stacksaga.clock_offset = '146 hours';
SELECT stacksaga.maintain_outbox();
SELECT * FROM generations.filled;
RESET stacksaga.clock_offset;

DROP SCHEMA generations CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
