-- A batch holds one message of a message_id: the second one, and what is behind it in its partition, comes
-- with a later batch, so that an answer for an id is for one message.

\set SHOW_CONTEXT never
CREATE SCHEMA same;
CREATE FUNCTION same.id(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT md5('id ' || n)::uuid $$;
CREATE FUNCTION same.receive(name text, max_messages int DEFAULT 100)
RETURNS TABLE (batch bigint, messages text) LANGUAGE sql AS $$
    SELECT max(batch_id), string_agg(payload::text || ':' || attempt, ' ' ORDER BY place)
      FROM stacksaga.receive_messages(name, 'c', max_messages) WITH ORDINALITY AS m(batch_id, message_id,
           topic, key, type, payload, headers, attempt, published_at, place)
$$;
SELECT stacksaga.create_subscription(name, name, partitions => partitions, stop_on_first_failure => stops,
    retry => stacksaga.retry_policy(initial_interval => '1 minute', jitter => 0))
  FROM (VALUES ('key', 16, true), ('keys', 16, true), ('loose', 1, false)) AS v(name, partitions, stops);

-- In one key: 1 and 3 have the same id. Both can fail, and both are acknowledged.
SELECT count(stacksaga.publish('key', to_jsonb(n), 'k', message_id => same.id(CASE n WHEN 3 THEN 1 ELSE n END)))
  FROM generate_series(1, 5) AS n;
SELECT * FROM same.receive('key') \gset
SELECT :'messages' AS messages, stacksaga.ack_messages(:batch);
SELECT * FROM same.receive('key') \gset
SELECT :'messages' AS messages, stacksaga.fail_message(:batch, same.id(1), 'busy');
SELECT stacksaga.ack_messages(:batch);
SET stacksaga.clock_offset = '2 minutes';
SELECT * FROM same.receive('key') \gset
SELECT :'messages' AS messages, stacksaga.ack_messages(:batch);
SELECT * FROM same.receive('key') \gset
SELECT :'messages' AS messages, stacksaga.ack_messages(:batch);

-- In two keys, of different partitions: one of them waits.
SELECT count(stacksaga.publish('keys', to_jsonb(n), 'k' || n % 2, message_id => same.id(10 + n / 2))) FROM generate_series(2, 5) AS n;
SELECT stacksaga.slot(stacksaga.token('k0'), 16) <> stacksaga.slot(stacksaga.token('k1'), 16) AS differ;
CREATE TABLE same.got (n int, message_id uuid, batch bigint);
CREATE PROCEDURE same.drain(name text) LANGUAGE plpgsql AS $$
DECLARE
    batch bigint;
BEGIN
    LOOP
        WITH got AS (INSERT INTO same.got SELECT payload::int, message_id, batch_id
                       FROM stacksaga.receive_messages(name, 'c') RETURNING *)
        SELECT max(got.batch) INTO batch FROM got;
        EXIT WHEN batch IS NULL;
        PERFORM stacksaga.ack_messages(batch);
        COMMIT;
    END LOOP;
END $$;
CALL same.drain('keys');
SELECT count(*), count(DISTINCT n) AS different, count(DISTINCT message_id) AS ids FROM same.got;
SELECT count(*) AS twice FROM (SELECT FROM same.got GROUP BY batch, message_id HAVING count(*) > 1) AS t;
TRUNCATE same.got;

-- A retry and a message of the log, without order; what is behind the second one waits with it.
SELECT stacksaga.publish('loose', '21', message_id => same.id(21)) IS NOT NULL AS published;
SELECT * FROM same.receive('loose') \gset
SELECT :'messages' AS messages, stacksaga.fail_message(:batch, same.id(21), 'busy', retry_after => '0');
SELECT stacksaga.ack_messages(:batch);
SELECT count(stacksaga.publish('loose', to_jsonb(n), message_id => same.id(CASE n WHEN 23 THEN 21 ELSE n END)))
  FROM generate_series(22, 24) AS n;
SELECT * FROM same.receive('loose') \gset
SELECT :'messages' AS messages, stacksaga.ack_messages(:batch);
SELECT * FROM same.receive('loose') \gset
SELECT :'messages' AS messages, stacksaga.ack_messages(:batch);
SELECT messages FROM same.receive('loose');

-- Many of one id: each comes once.
SELECT count(stacksaga.publish('loose', to_jsonb(n), message_id => same.id(30 + n % 3))) FROM generate_series(1, 60) AS n;
CALL same.drain('loose');
SELECT count(*), count(DISTINCT n) AS different, count(DISTINCT message_id) AS ids FROM same.got;
SELECT count(*) AS twice FROM (SELECT FROM same.got GROUP BY batch, message_id HAVING count(*) > 1) AS t;

SELECT stacksaga.drop_subscription(name) FROM unnest('{key,keys,loose}'::text[]) AS name;
RESET stacksaga.clock_offset;
SET client_min_messages = warning;
DROP SCHEMA same CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
