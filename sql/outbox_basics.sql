-- Publishing, subscriptions, and services that receive: batches, leases, order and failures. Time is
-- moved by stacksaga.clock_offset.

\set SHOW_CONTEXT never
ALTER SEQUENCE stacksaga.message_batch_id_seq RESTART;
CREATE SCHEMA outbox;
-- The messages that a subscription gets now, without the ids that change from run to run.
CREATE FUNCTION outbox.receive(subscription text, max_messages int DEFAULT 100,
    consumer text DEFAULT 'c') RETURNS TABLE (batch bigint, key text, n int, attempt int)
LANGUAGE sql AS $$
    SELECT batch_id, key, (payload -> 'n')::int, attempt
      FROM stacksaga.receive_messages(subscription, consumer, max_messages)
$$;
CREATE FUNCTION outbox.id_of(n int) RETURNS uuid LANGUAGE sql AS $$
    SELECT message_id FROM stacksaga.outbox_message WHERE payload -> 'n' = to_jsonb($1)
$$;
CREATE FUNCTION outbox.put(n int, key text DEFAULT NULL, topic text DEFAULT 'orders')
RETURNS uuid LANGUAGE sql AS $$
    SELECT stacksaga.publish(topic, jsonb_build_object('n', n), key)
$$;

-- One message, as it arrives.
SELECT stacksaga.create_subscription('one', 'orders');
SELECT stacksaga.publish('orders', '{"n": 0}', 'key', 'type', '{"traceparent": "00-ab-cd-01"}',
    '11111111-1111-7111-8111-111111111111');
SELECT message_id, topic, key, type, payload, headers, attempt,
       published_at BETWEEN now() - interval '1 hour' AND clock_timestamp() AS published
  FROM stacksaga.receive_messages('one', 'c');
SELECT stacksaga.ack_messages(max(batch_id)) FROM stacksaga.message_batch;
SELECT * FROM outbox.receive('one');
SELECT stacksaga.drop_subscription('one', true);

-- From now on, or from the earliest message; a topic or a prefix; each subscription on its own.
SELECT stacksaga.create_subscription('now', 'orders');
SELECT stacksaga.create_subscription('all', '*', start_at => 'earliest');
SELECT stacksaga.create_subscription('prefix', 'ord*');
SELECT stacksaga.create_subscription('other', 'others');
SELECT outbox.put(1, 'a') IS NOT NULL, outbox.put(2, 'b') IS NOT NULL,
       outbox.put(3, 'a', 'other') IS NOT NULL;
SELECT key, n, attempt FROM outbox.receive('now');
SELECT key, n, attempt FROM outbox.receive('all');
SELECT key, n, attempt FROM outbox.receive('prefix');
SELECT * FROM outbox.receive('other');
SELECT subscription, topic, lag_messages, lag_seconds >= 0 AS lag, blocked_keys, dead_messages
  FROM stacksaga.subscriptions ORDER BY 1;
SELECT subscription_id > 0 AS known, stacksaga.ack_messages(batch_id) FROM stacksaga.message_batch
    WHERE batch_id > 1 ORDER BY batch_id;
SELECT subscription, lag_messages FROM stacksaga.subscriptions ORDER BY 1;
SELECT stacksaga.drop_subscription(subscription, true) FROM stacksaga.subscriptions;

-- The same settings again change nothing, others are refused.
SELECT stacksaga.create_subscription('s', 'orders');
SELECT stacksaga.create_subscription('s', 'orders');
SELECT stacksaga.create_subscription('s', 'orders', start_at => 'earliest');

-- A batch in order; all of it is published at once.
SELECT count(*) FROM stacksaga.publish_batch('orders',
    (SELECT array_agg(jsonb_build_object('n', n) ORDER BY n) FROM generate_series(1, 1000) n),
    (SELECT array_agg('k' || n % 7 ORDER BY n) FROM generate_series(1, 1000) n));
CREATE TABLE outbox.got (at bigint GENERATED ALWAYS AS IDENTITY, key text, n int, attempt int);
CREATE PROCEDURE outbox.drain(subscription text, max_messages int) LANGUAGE plpgsql AS $$
DECLARE
    batch bigint;
BEGIN
    LOOP
        WITH got AS (SELECT * FROM outbox.receive(subscription, max_messages)),
             kept AS (INSERT INTO outbox.got (key, n, attempt) SELECT g.key, g.n, g.attempt FROM got g)
        SELECT max(g.batch) INTO batch FROM got g;
        EXIT WHEN batch IS NULL;
        PERFORM stacksaga.ack_messages(batch);
        COMMIT;
    END LOOP;
END
$$;
CALL outbox.drain('s', 33);
SELECT count(*), count(DISTINCT n), min(n), max(n) FROM outbox.got;
SELECT count(*) AS out_of_order FROM (
    SELECT n < lag(n) OVER (PARTITION BY key ORDER BY at) AS wrong FROM outbox.got) AS g WHERE wrong;
TRUNCATE outbox.got;

-- No consumer gets messages that another one holds; the others are free for all. When a lease runs out,
-- the next consumer gets the batch, and the late answer is refused.
SELECT outbox.put(1, 'a') IS NOT NULL, outbox.put(2, 'b') IS NOT NULL;
SELECT batch AS first, key, n, attempt FROM outbox.receive('s', 1) \gset
SELECT batch AS second, key, n, attempt FROM outbox.receive('s', 1, 'd') \gset
SELECT :first <> :second AS others;
SELECT * FROM outbox.receive('s');
\set VERBOSITY terse
SELECT stacksaga.drop_subscription('s', true);
\set VERBOSITY default
SELECT stacksaga.ack_messages(:second);
SELECT stacksaga.extend_batch(:first, '1 minute') > stacksaga.clock_now() + interval '50 s' AS extended;
SET stacksaga.clock_offset = '40 s';
SELECT * FROM outbox.receive('s');
SET stacksaga.clock_offset = '2 minutes';
SELECT batch AS third, attempt FROM outbox.receive('s') \gset
SELECT :attempt AS attempt;
SELECT stacksaga.ack_messages(:first);
SELECT stacksaga.extend_batch(:first);
SELECT stacksaga.fail_message(:first, outbox.id_of(1), 'no');
SELECT stacksaga.ack_messages(:third);
SELECT stacksaga.ack_messages(:third);
RESET stacksaga.clock_offset;
-- Answered batches double the room that the lost one has halved.
SELECT count(outbox.put(0, key)) FROM generate_series(1, 7), unnest('{a,b}'::text[]) AS key;
CALL outbox.drain('s', 100);
TRUNCATE outbox.got;

-- A failure holds its key and no other; a held message uses up no attempt.
TRUNCATE stacksaga.outbox_message;
SELECT count(outbox.put(n, CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END))
  FROM generate_series(1, 6) n;
SELECT batch, key, n, attempt FROM outbox.receive('s') ORDER BY n LIMIT 1 \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(3), 'busy');
SELECT stacksaga.fail_message(:batch, outbox.id_of(3), 'said again');
-- Though a consumer still holds its batch, it is counted once.
SELECT lag_messages FROM stacksaga.subscriptions;
SELECT stacksaga.ack_messages(:batch);
SELECT count(outbox.put(n, CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END))
  FROM generate_series(7, 8) n;
SELECT * FROM outbox.receive('s') \gset
SELECT :'key' AS key, :n AS n;
SELECT subscription, topic, key, message_id = outbox.id_of(3) AS third, attempts, last_error, waiting
  FROM stacksaga.blocked_keys;
-- What status() walks to is what the view reads.
SELECT count(*) AS differing
  FROM ((TABLE stacksaga.blocked_keys EXCEPT ALL SELECT * FROM stacksaga_internal.first_blocked_keys())
        UNION ALL (SELECT * FROM stacksaga_internal.first_blocked_keys() EXCEPT ALL TABLE stacksaga.blocked_keys)) AS d;
SELECT lag_messages, blocked_keys, dead_messages FROM stacksaga.subscriptions;
SELECT stacksaga.ack_messages(:batch);
SET stacksaga.clock_offset = '5 s';
CALL outbox.drain('s', 1);
SELECT * FROM outbox.got;
SELECT * FROM stacksaga.blocked_keys;
SELECT count(*) FROM stacksaga.message_retry;
TRUNCATE outbox.got;

-- A message that failed for good is dead, and blocks its key until an operator redrives or discards it.
SELECT count(outbox.put(n, 'k')) FROM generate_series(11, 13) n;
SELECT batch FROM outbox.receive('s') LIMIT 1 \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(11), 'never', 'non_retryable');
SELECT lag_messages, dead_messages FROM stacksaga.subscriptions;
SELECT stacksaga.ack_messages(:batch);
SELECT * FROM outbox.receive('s');
SELECT subscription, topic, key, message_id = outbox.id_of(11) AS known, attempts, last_error, payload
  FROM stacksaga.dead_messages;
SELECT key, attempts, last_error, waiting FROM stacksaga.blocked_keys;
SELECT count(*) AS differing
  FROM ((TABLE stacksaga.blocked_keys EXCEPT ALL SELECT * FROM stacksaga_internal.first_blocked_keys())
        UNION ALL (SELECT * FROM stacksaga_internal.first_blocked_keys() EXCEPT ALL TABLE stacksaga.blocked_keys)) AS d;
SELECT stacksaga.redrive_message('s', outbox.id_of(11));
SELECT * FROM stacksaga.dead_messages;
SELECT batch, n, attempt FROM outbox.receive('s') \gset
SELECT :n AS n, :attempt AS attempt;
SELECT stacksaga.fail_message(:batch, outbox.id_of(11), 'never', 'non_retryable');
SELECT stacksaga.ack_messages(:batch);
CREATE ROLE outbox_operator;
SELECT stacksaga.grant_usage('outbox_operator', 'operator');
SELECT outbox.id_of(11) AS id \gset
SET ROLE outbox_operator;
SELECT stacksaga.discard_message('s', :'id', 'a customer asked for it');
RESET ROLE;
SELECT * FROM stacksaga.dead_messages;
CALL outbox.drain('s', 10);
SELECT key, n, attempt FROM outbox.got;
SELECT discard_reason, discarded_by FROM stacksaga.dead_message;
TRUNCATE outbox.got;

-- Attempts run out, by the policy of the subscription; retry_after instead of its delay.
SELECT stacksaga.create_subscription('few', 'orders', stop_on_first_failure => false,
    retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '1 minute', jitter => 0));
SELECT count(outbox.put(n, 'k')) FROM generate_series(21, 22) n;
SELECT batch FROM outbox.receive('few') LIMIT 1 \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(21), 'later', retry_after => '1 hour');
SELECT stacksaga.ack_messages(:batch);
SELECT due_at > stacksaga.clock_now() + interval '59 minutes' AS later, attempt, state
  FROM stacksaga.message_retry;
SELECT * FROM stacksaga.blocked_keys;
SELECT outbox.put(23, 'k') IS NOT NULL;
SELECT n, stacksaga.ack_messages(batch) FROM outbox.receive('few');
SET stacksaga.clock_offset = '2 hours';
SELECT batch, n, attempt FROM outbox.receive('few') \gset
SELECT :n AS n, :attempt AS attempt;
SELECT stacksaga.fail_message(:batch, outbox.id_of(21), 'again', 'unknown');
SELECT stacksaga.ack_messages(:batch);
SELECT subscription, attempts, last_error FROM stacksaga.dead_messages;

-- A consumer that dies with its message again and again: the attempts of the message are used up.
SELECT outbox.put(24) IS NOT NULL;
CREATE FUNCTION outbox.die(times int) RETURNS SETOF int LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..times LOOP
        RETURN QUERY SELECT attempt FROM outbox.receive('few');
        PERFORM set_config('stacksaga.clock_offset', (10000 + i * 60) || ' s', false);
    END LOOP;
END
$$;
SELECT outbox.die(8);
SELECT attempts, last_error FROM stacksaga.dead_messages WHERE payload @> '{"n": 24}';
RESET stacksaga.clock_offset;

-- A message is not delivered before deliver_at, and blocks no other.
SELECT stacksaga.create_subscription('delayed', 'later');
SELECT stacksaga.publish('later', '{"n": 1}', 'k', deliver_at => stacksaga.clock_now() + '1 hour')
    IS NOT NULL, outbox.put(2, 'k', 'later') IS NOT NULL;
SELECT n, stacksaga.ack_messages(batch) FROM outbox.receive('delayed');
SELECT * FROM outbox.receive('delayed');
SELECT lag_messages, blocked_keys FROM stacksaga.subscriptions WHERE subscription = 'delayed';
SET stacksaga.clock_offset = '61 minutes';
SELECT n, attempt, stacksaga.ack_messages(batch) FROM outbox.receive('delayed');
RESET stacksaga.clock_offset;

-- A message that its own transaction published is not delivered before it commits.
SELECT stacksaga.create_subscription('own', 'own');
BEGIN;
SELECT outbox.put(1, 'k', 'own') IS NOT NULL;
SELECT * FROM outbox.receive('own');
COMMIT;
-- Inside a transaction block the tick is made by its commit: for the next call.
BEGIN;
SELECT n FROM outbox.receive('own');
COMMIT;
SELECT n FROM outbox.receive('own');
BEGIN;
SELECT stacksaga.create_subscription('in the middle', 'own');
SELECT outbox.put(2, 'k', 'own') IS NOT NULL;
COMMIT;
SELECT n FROM outbox.receive('in the middle');

SELECT stacksaga.cloudevent('orders', 'k', 'order.placed', '{"n": 1}',
    '{"traceparent": "00-ab-cd-01", "Not-A-Name": "x", "n": 1, "id": "mine"}',
    '11111111-1111-7111-8111-111111111111', '2026-01-02 03:04:05.678+01');
SELECT stacksaga.cloudevent('orders', NULL, NULL, NULL, NULL,
    '11111111-1111-7111-8111-111111111111', 'infinity');
-- The source is a URI reference, whatever the topic is.
SELECT stacksaga.cloudevent(U&'50% \00fcber/a?b#c', NULL, NULL, NULL, NULL,
    '11111111-1111-7111-8111-111111111111', 'infinity') ->> 'source' AS source;

DROP SCHEMA outbox CASCADE;
DROP OWNED BY outbox_operator;
DELETE FROM stacksaga.usage_grant WHERE role = 'outbox_operator';
DROP ROLE outbox_operator;
TRUNCATE stacksaga.outbox_message, stacksaga.subscription, stacksaga.subscription_position,
    stacksaga.message_retry, stacksaga.dead_message, stacksaga.message_batch, stacksaga.outbox_tick;
