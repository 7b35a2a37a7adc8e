-- A subscription that takes over from another one, with other partitions: each message is delivered by one of
-- them. And commands of message steps, which are delivered while their attempt has its lease.

\set SHOW_CONTEXT never
CREATE SCHEMA successor;
CREATE TABLE successor.got (subscription text, n int);
CREATE FUNCTION successor.put(first int, last int) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.publish('successor', jsonb_build_object('n', n), 'k' || n % 50)) FROM generate_series(first, last) n
$$;
-- Receives one batch; acknowledges it unless it is to be lost.
CREATE FUNCTION successor.receive(subscription text, max_messages int DEFAULT 1000, is_lost boolean DEFAULT false)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ns int[];
    batch bigint;
BEGIN
    SELECT array_agg((payload -> 'n')::int), max(batch_id) INTO ns, batch
      FROM stacksaga.receive_messages(subscription, 'c', max_messages, '1 minute');
    IF batch IS NOT NULL AND NOT is_lost THEN
        INSERT INTO successor.got SELECT subscription, n FROM unnest(ns) n;
        PERFORM stacksaga.ack_messages(batch);
    END IF;
    RETURN coalesce(cardinality(ns), 0);
END
$$;
CREATE VIEW successor.twice AS SELECT n, count(*) FROM successor.got GROUP BY n HAVING count(*) <> 1;

SELECT stacksaga.create_subscription('first', 'successor', partitions => 16);
SELECT successor.put(1, 200);
SELECT successor.receive('first', 30);
-- A consumer holds a batch: it has to end first.
SELECT successor.receive('first', 20, true);
\set VERBOSITY sqlstate
SELECT stacksaga.create_subscription('second', 'successor', partitions => 4, successor_of => 'first');
\set VERBOSITY default
SET stacksaga.clock_offset = '2 minutes';
SELECT stacksaga.create_subscription('second', 'successor', partitions => 4, successor_of => 'first');
-- The same again changes nothing, another successor is refused, and so is start_at.
SELECT stacksaga.create_subscription('second', 'successor', partitions => 4, successor_of => 'first');
SELECT stacksaga.create_subscription('second', 'successor', partitions => 4);
SELECT stacksaga.create_subscription('third', 'successor', successor_of => 'first');
SELECT stacksaga.create_subscription('third', 'successor', successor_of => 'none');
SELECT stacksaga.create_subscription('third', 'successor', start_at => 'earliest', successor_of => 'second');
\echo :SQLSTATE
-- What the lost batch held stays with the first one, as retries; all else is the second one's.
SELECT subscription, lag_messages FROM stacksaga.subscriptions WHERE subscription IN ('first', 'second') ORDER BY 1;
SELECT successor.put(201, 220);
SELECT successor.receive('first') + successor.receive('first') + successor.receive('first') AS received;
SELECT successor.receive('second', 40) > 0 AS some;
-- On to more partitions, from the middle of it.
SELECT stacksaga.create_subscription('third', 'successor', partitions => 64, successor_of => 'second');
SELECT successor.put(221, 230);
SELECT successor.receive('third') + successor.receive('third') + successor.receive('third') AS received;
SELECT successor.receive('second'), successor.receive('first');
SELECT subscription, count(*) > 0 AS some FROM successor.got GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM successor.got;
SELECT * FROM successor.twice;
SELECT subscription, lag_messages FROM stacksaga.subscriptions
 WHERE subscription IN ('first', 'second', 'third') ORDER BY 1;
-- Nothing of it is lost by dropping those before.
SELECT stacksaga.drop_subscription(s) FROM unnest(ARRAY['first', 'second', 'third']) AS s;
RESET stacksaga.clock_offset;

-- Commands.
SELECT stacksaga.define_saga('successor command', ARRAY[
    stacksaga.message_step('charge', 'successor.commands', timeout => '1 minute')]);
SELECT stacksaga.create_subscription('commands', 'successor.commands');
SELECT saga_id AS one FROM stacksaga.start_saga('successor command') \gset
SELECT saga_id AS two FROM stacksaga.start_saga('successor command') \gset
SELECT stacksaga.run_pending() > 0 AS published;
-- The first one is answered before its command is read.
SELECT stacksaga.complete_step(:'one', 'charge', (payload ->> 'lease')::bigint) AS status
  FROM stacksaga.outbox_message WHERE payload ->> 'saga_id' = :'one';
SELECT payload ->> 'saga_id' = :'two' AS is_second, payload ->> 'attempt' AS attempt, batch_id AS batch
  FROM stacksaga.receive_messages('commands', 'c', lease => '5 seconds') \gset
\echo :is_second :attempt
-- The lease of its attempt ended while the batch was lost: the next attempt has a command of its own.
SET stacksaga.clock_offset = '61 seconds';
SELECT stacksaga.run_pending() > 0 AS ran;
SET stacksaga.clock_offset = '70 seconds';
SELECT stacksaga.run_pending() >= 0 AS ran;
SELECT payload ->> 'saga_id' = :'two' AS is_second, payload ->> 'attempt' AS attempt, batch_id AS batch,
       payload ->> 'lease' AS lease
  FROM stacksaga.receive_messages('commands', 'c') \gset
\echo :is_second :attempt
-- Copied by a service to a topic of its own, and a message that resembles a command, are delivered as others are.
SELECT stacksaga.complete_step(:'two', 'charge', :lease) AS status;
SELECT stacksaga.ack_messages(:batch);
SELECT stacksaga.publish('successor.commands', jsonb_build_object('lease', '1'), 'not a saga', message_id => '6ba7b810-9dad-81d1-80b4-00c04fd430c8') IS NOT NULL AS published;
SELECT batch_id AS batch FROM stacksaga.receive_messages('commands', 'c') \gset
SELECT stacksaga.ack_messages(:batch);
SELECT stacksaga.drop_subscription('commands');
RESET stacksaga.clock_offset;
TRUNCATE stacksaga.outbox_message;
DROP SCHEMA successor CASCADE;
