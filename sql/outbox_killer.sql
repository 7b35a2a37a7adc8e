-- A message that ends its consumers: it alone runs out of attempts, whatever it is received with, and all
-- others are delivered. Lost batches are halved until it is alone, new messages and retries alike.

\set SHOW_CONTEXT never
CREATE SCHEMA killer;
CREATE TABLE killer.got (at bigint GENERATED ALWAYS AS IDENTITY, n int, attempt int);
-- Receives and acknowledges until nothing is left. A consumer that gets a message of `killers` never answers:
-- a minute later its lease is over.
CREATE PROCEDURE killer.consume(name text, killers int[], max_messages int DEFAULT 100) LANGUAGE plpgsql AS $$
DECLARE
    got record;
    lost int := 0;
    clock int := extract(epoch FROM current_setting('stacksaga.clock_offset')::interval);
BEGIN
    LOOP
        SELECT max(batch_id) AS batch, array_agg((payload -> 'n')::int) AS numbers, array_agg(attempt) AS attempts INTO got
          FROM stacksaga.receive_messages(name, 'c', max_messages);
        EXIT WHEN got.batch IS NULL;
        IF got.numbers && killers THEN
            lost := lost + 1;
            IF lost > 60 THEN
                RAISE '% batches were lost', lost;
            END IF;
            clock := clock + 60;
            PERFORM set_config('stacksaga.clock_offset', format('%s s', clock), false);
        ELSE
            INSERT INTO killer.got (n, attempt) SELECT * FROM unnest(got.numbers, got.attempts);
            PERFORM stacksaga.ack_messages(got.batch);
        END IF;
        COMMIT;
    END LOOP;
END $$;
-- All fail once.
CREATE PROCEDURE killer.fail_all(name text) LANGUAGE plpgsql AS $$
DECLARE
    batch bigint;
BEGIN
    LOOP
        SELECT max(m.batch_id) INTO batch FROM stacksaga.receive_messages(name, 'c', 1000) AS m,
               LATERAL (SELECT stacksaga.fail_message(m.batch_id, m.message_id, 'busy', retry_after => '59 s')) AS f;
        EXIT WHEN batch IS NULL;
        PERFORM stacksaga.ack_messages(batch);
        COMMIT;
    END LOOP;
END $$;
CREATE VIEW killer.outcome AS
    SELECT (SELECT count(*) FROM killer.got) AS delivered, (SELECT count(DISTINCT n) FROM killer.got) AS different,
           (SELECT max(attempt) FROM killer.got) AS attempt,
           (SELECT array_agg(ARRAY[(payload -> 'n')::int, attempts]) FROM stacksaga.dead_messages) AS dead,
           (SELECT sum(lag_messages) FROM stacksaga.subscriptions) AS left;
SET stacksaga.clock_offset = '0 s';
SELECT stacksaga.create_subscription(name, name, retry => stacksaga.retry_policy(max_attempts => 5, initial_interval => '1 s', jitter => 0))
  FROM unnest('{retries,retries_alike,new,spread,key,two}'::text[]) AS name;

-- Retries: 500 messages that failed once, and one that ends its consumer.
SELECT count(stacksaga.publish('retries', jsonb_build_object('n', n))) FROM generate_series(1, 501) AS n;
CALL killer.fail_all('retries');
SET stacksaga.clock_offset = '90 s';
CALL killer.consume('retries', '{250}', 1000);
TABLE killer.outcome;
SELECT last_error FROM stacksaga.dead_messages;
SELECT stacksaga.discard_message('retries', message_id, 'it kills') FROM stacksaga.dead_messages;
TRUNCATE killer.got;

-- The same when they are received in smaller batches.
SELECT count(stacksaga.publish('retries_alike', jsonb_build_object('n', n), 'k' || n % 20)) FROM generate_series(1, 501) AS n;
CALL killer.fail_all('retries_alike');
SELECT set_config('stacksaga.clock_offset', (current_setting('stacksaga.clock_offset')::interval + '90 s')::text, false) IS NOT NULL;
CALL killer.consume('retries_alike', '{250}');
SELECT different, attempt, dead FROM killer.outcome;
SELECT stacksaga.discard_message('retries_alike', message_id, 'it kills') FROM stacksaga.dead_messages;
CALL killer.consume('retries_alike', '{}');
TABLE killer.outcome;
TRUNCATE killer.got;

-- New messages, two of which end their consumers.
SELECT count(stacksaga.publish('new', jsonb_build_object('n', n))) FROM generate_series(1, 500) AS n;
CALL killer.consume('new', '{7,450}', 1000);
TABLE killer.outcome;
SELECT stacksaga.discard_message('new', message_id, 'it kills') FROM stacksaga.dead_messages;
TRUNCATE killer.got;

-- One message in each of 16 partitions.
CREATE FUNCTION killer.id_in(wanted int) RETURNS uuid LANGUAGE sql AS $$
    SELECT id FROM (SELECT md5(n::text)::uuid AS id FROM generate_series(1, 10000) AS n) AS i
     WHERE stacksaga.slot(stacksaga.token_uuid(id), 16) = wanted LIMIT 1
$$;
SELECT count(stacksaga.publish('spread', jsonb_build_object('n', n), message_id => killer.id_in(n))) FROM generate_series(0, 15) AS n;
CALL killer.consume('spread', '{11}');
TABLE killer.outcome;
SELECT stacksaga.discard_message('spread', message_id, 'it kills') FROM stacksaga.dead_messages;
TRUNCATE killer.got;

-- One key, whose first message ends its consumers: the others wait for it, and one redrive is enough.
SELECT count(stacksaga.publish('key', jsonb_build_object('n', n), 'k')) FROM generate_series(1, 200) AS n;
CALL killer.consume('key', '{1}');
TABLE killer.outcome;
SELECT stacksaga.redrive_message('key', message_id) FROM stacksaga.dead_messages;
CALL killer.consume('key', '{}');
SELECT delivered, different, attempt, dead FROM killer.outcome;
SELECT count(*) AS out_of_order FROM (SELECT n < lag(n) OVER (ORDER BY at) AS wrong FROM killer.got) AS g WHERE wrong;
TRUNCATE killer.got;

-- The dead messages behind a message are redriven with it: a consumer has failed three of a key for good, and the first is redriven.
SELECT count(stacksaga.publish('key', jsonb_build_object('n', n), 'k')) FROM generate_series(1, 5) AS n;
SELECT count(stacksaga.fail_message(batch_id, message_id, 'no', 'non_retryable')), max(batch_id) AS batch
  FROM (SELECT * FROM stacksaga.receive_messages('key', 'c') OFFSET 0) AS m WHERE (payload -> 'n')::int IN (2, 3, 5) \gset
SELECT :count AS failed, stacksaga.ack_messages(:batch);
SELECT payload -> 'n' AS n FROM stacksaga.dead_messages ORDER BY 1;
SELECT stacksaga.redrive_message('key', message_id, 'fixed') FROM stacksaga.dead_messages WHERE payload -> 'n' = '3';
SELECT payload -> 'n' AS n FROM stacksaga.dead_messages ORDER BY 1;
SELECT count(*) FROM stacksaga.receive_messages('key', 'c');
SELECT stacksaga.redrive_message('key', message_id, 'fixed') FROM stacksaga.dead_messages;
-- Each may be redriven by itself as well: that of one that came with an earlier one changes nothing.
SELECT stacksaga.redrive_message('key', message_id, 'fixed') FROM stacksaga.outbox_message
 WHERE topic = 'key' AND payload -> 'n' = '3' ORDER BY number DESC LIMIT 1;
CALL killer.consume('key', '{}');
SELECT array_agg(n ORDER BY at) AS n, max(attempt) AS attempt FROM killer.got;
SELECT action, count(*), count(DISTINCT object) FROM stacksaga.operator_actions WHERE reason = 'fixed' GROUP BY action;
TRUNCATE killer.got;

-- Batches double again when they are answered, with a failure or without.
SELECT count(stacksaga.publish('two', jsonb_build_object('n', n), 'k')) FROM generate_series(1, 31) AS n;
SELECT count(*) FROM stacksaga.receive_messages('two', 'c', 2, '1 s');
SELECT set_config('stacksaga.clock_offset', (current_setting('stacksaga.clock_offset')::interval + '90 s')::text, false) IS NOT NULL;
SELECT count(*), stacksaga.ack_messages(max(batch_id)) FROM stacksaga.receive_messages('two', 'c');
SELECT count(*), stacksaga.ack_messages(max(batch_id)) FROM stacksaga.receive_messages('two', 'c');
SELECT count(*), stacksaga.ack_messages(max(batch_id)) FROM stacksaga.receive_messages('two', 'c');
SELECT batch_id AS batch, message_id, count(*) OVER () AS count FROM stacksaga.receive_messages('two', 'c')
 ORDER BY (payload -> 'n')::int DESC LIMIT 1 \gset
SELECT :count AS count, stacksaga.fail_message(:batch, :'message_id', 'busy', retry_after => '0');
SELECT stacksaga.ack_messages(:batch);
SELECT count(*), stacksaga.ack_messages(max(batch_id)) FROM stacksaga.receive_messages('two', 'c');
SELECT count(*), stacksaga.ack_messages(max(batch_id)) FROM stacksaga.receive_messages('two', 'c');

SELECT set_config('stacksaga.clock_offset', (current_setting('stacksaga.clock_offset')::interval + '1 hour')::text, false) IS NOT NULL;
SELECT stacksaga.drop_subscription(name, true) FROM unnest('{retries,retries_alike,new,spread,key,two}'::text[]) AS name;
RESET stacksaga.clock_offset;
SET client_min_messages = warning;
DROP SCHEMA killer CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
