-- A message of message_retry that was handed out blocks its key, and is held in it, like any other,
-- whatever brought it there. A batch whose lease ran out ends when its messages change.

CREATE FUNCTION pg_temp.receive(name text, room int, lease interval DEFAULT '10 minutes')
RETURNS TABLE (batch bigint, messages text) LANGUAGE sql AS $$
    SELECT max(batch_id), string_agg(payload::text || ':' || attempt, ' ' ORDER BY place)
      FROM stacksaga.receive_messages(name, 'c', room, lease) WITH ORDINALITY AS m(batch_id, message_id,
           topic, key, type, payload, headers, attempt, published_at, place)
$$;
CREATE FUNCTION pg_temp.publish(topic text, n int, delay interval DEFAULT NULL, key text DEFAULT 'k')
RETURNS void LANGUAGE sql AS $$
    SELECT stacksaga.publish(topic, to_jsonb(n), key, deliver_at => stacksaga.clock_now() + delay)
$$;
CREATE FUNCTION pg_temp.fail(batch bigint, n int, class text DEFAULT 'retryable')
RETURNS void LANGUAGE sql AS $$
    SELECT stacksaga.fail_message(batch, (SELECT message_id FROM stacksaga.outbox_message
           WHERE payload = to_jsonb(n)), 'no', class)
$$;
CREATE FUNCTION public.delayed_fallback(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE 'fallback for %', m.payload;
END
$$;
SELECT stacksaga.create_subscription(name, name, stop_on_first_failure => name <> 'delayed_d',
    retry => stacksaga.retry_policy(2, '1 minute', jitter => 0),
    fallback => CASE name WHEN 'delayed_e' THEN 'public.delayed_fallback(stacksaga.message)' END)
  FROM unnest(ARRAY['delayed_a', 'delayed_b', 'delayed_c', 'delayed_d', 'delayed_e', 'delayed_f']) AS name;

-- Two delayed messages of a key in one batch: the second one is held behind the failure of the first.
SELECT pg_temp.publish('delayed_a', 1, '1 minute'), pg_temp.publish('delayed_a', 2, '1 minute');
SELECT * FROM pg_temp.receive('delayed_a', 10);
SET stacksaga.clock_offset = '1 minute';
SELECT * FROM pg_temp.receive('delayed_a', 10) \gset
SELECT :'messages' AS messages, pg_temp.fail(:batch, 1), stacksaga.ack_messages(:batch);
SELECT payload, state FROM stacksaga.message_retry ORDER BY number;
SET stacksaga.clock_offset = '2 minutes';
SELECT * FROM pg_temp.receive('delayed_a', 10) \gset
SELECT :'messages' AS messages, stacksaga.ack_messages(:batch);
SELECT * FROM pg_temp.receive('delayed_a', 10) \gset
SELECT :'messages' AS messages, stacksaga.ack_messages(:batch);

-- A message of a batch whose lease ran out is given up on when its attempts are used up: the consumer
-- that still holds the batch acknowledges neither it nor the one behind it.
SELECT pg_temp.publish('delayed_b', 11, '1 minute'), pg_temp.publish('delayed_b', 12, '3 minutes');
SELECT * FROM pg_temp.receive('delayed_b', 10);
SET stacksaga.clock_offset = '4 minutes';
SELECT * FROM pg_temp.receive('delayed_b', 10, '1 minute') \gset
SELECT :'messages' AS messages, pg_temp.fail(:batch, 11), stacksaga.ack_messages(:batch);
SET stacksaga.clock_offset = '6 minutes';
SELECT * FROM pg_temp.receive('delayed_b', 10, '1 minute') \gset
SELECT :'messages' AS messages;
SELECT :batch AS lost \gset
SET stacksaga.clock_offset = '7 minutes 10 s';
SELECT messages FROM pg_temp.receive('delayed_b', 10, '30 s');
SET stacksaga.clock_offset = '8 minutes';
SELECT messages FROM pg_temp.receive('delayed_b', 10);
\set VERBOSITY sqlstate
SELECT stacksaga.ack_messages(:lost);
\set VERBOSITY default
SELECT stacksaga.discard_message('delayed_b', message_id, 'by order') FROM stacksaga.dead_messages;
SELECT * FROM pg_temp.receive('delayed_b', 10) \gset
SELECT :'messages' AS messages, stacksaga.ack_messages(:batch);

-- A consumer with room for one message gets the first one of a key that was handed out, though
-- another was due before it.
SELECT pg_temp.publish('delayed_c', 21, '2 minutes'), pg_temp.publish('delayed_c', 22, '1 minute');
SELECT * FROM pg_temp.receive('delayed_c', 10);
SET stacksaga.clock_offset = '10 minutes';
SELECT messages FROM pg_temp.receive('delayed_c', 10, '1 minute');
SET stacksaga.clock_offset = '12 minutes';
SELECT messages FROM pg_temp.receive('delayed_c', 1, '1 minute');
SELECT payload, state FROM stacksaga.message_retry WHERE topic = 'delayed_c' ORDER BY number;

-- A message that failed is not an attempt of the next one in the log, which was in no batch yet.
SELECT pg_temp.publish('delayed_d', 31);
SELECT * FROM pg_temp.receive('delayed_d', 1, '1 minute') \gset
SET stacksaga.clock_offset = '14 minutes';
SELECT * FROM pg_temp.receive('delayed_d', 1, '1 minute') \gset
SELECT :'messages' AS messages, pg_temp.fail(:batch, 31, 'non_retryable');
SELECT pg_temp.publish('delayed_d', 32);
SET stacksaga.clock_offset = '16 minutes';
SELECT messages FROM pg_temp.receive('delayed_d', 10);
SELECT subscription, payload FROM stacksaga.dead_messages;

-- A message that has just been held behind an earlier one, which was given up on, is not delivered either.
SELECT pg_temp.publish('delayed_e', 41), pg_temp.publish('delayed_e', 42);
SELECT * FROM pg_temp.receive('delayed_e', 10, '1 minute') \gset
SELECT :'messages' AS messages, pg_temp.fail(:batch, 42);
SET stacksaga.clock_offset = '18 minutes';
SELECT messages FROM pg_temp.receive('delayed_e', 1, '1 minute');
SET stacksaga.clock_offset = '20 minutes';
SELECT messages FROM pg_temp.receive('delayed_e', 10, '30 s');
SET stacksaga.clock_offset = '21 minutes';
SELECT messages FROM pg_temp.receive('delayed_e', 10);
SELECT payload, state FROM stacksaga.message_retry WHERE topic = 'delayed_e' ORDER BY number;
SELECT stacksaga.run_pending();

-- A fallback waits for an earlier message of its key that was lost with the batch of the failure.
SELECT stacksaga.alter_subscription('delayed_f', fallback => 'public.delayed_fallback(stacksaga.message)');
SELECT pg_temp.publish('delayed_f', 51, '1 minute'), pg_temp.publish('delayed_f', 52, '1 minute');
SELECT * FROM pg_temp.receive('delayed_f', 10);
SET stacksaga.clock_offset = '22 minutes';
SELECT * FROM pg_temp.receive('delayed_f', 10, '1 minute') \gset
SELECT :'messages' AS messages, pg_temp.fail(:batch, 52, 'non_retryable');
SET stacksaga.clock_offset = '24 minutes';
SELECT stacksaga.run_pending();
SELECT * FROM pg_temp.receive('delayed_f', 10, '1 minute') \gset
SELECT :'messages' AS messages, stacksaga.ack_messages(:batch);
SELECT stacksaga.run_pending();

SET stacksaga.clock_offset = '1 hour';
SELECT stacksaga.drop_subscription(name, true)
  FROM unnest(ARRAY['delayed_a', 'delayed_b', 'delayed_c', 'delayed_d', 'delayed_e', 'delayed_f']) AS name;
RESET stacksaga.clock_offset;
DROP FUNCTION public.delayed_fallback(stacksaga.message);
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
