-- As many consumers as partitions: each may hold an even share of the partitions, however many messages wait
-- and however large its batches are.

\set SHOW_CONTEXT never
CREATE SCHEMA shares;
-- Each of so many consumers receives once, in the default size, and holds what it got; then all of them
-- acknowledge. Of the second round, when each is known.
CREATE TABLE shares.got (round int, consumer int, messages bigint, batch_id bigint, partitions int DEFAULT 0);
CREATE PROCEDURE shares.rounds(name text, consumers int, rounds int, each int DEFAULT 0) LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE shares.got;
    FOR r IN 1..rounds LOOP
        PERFORM stacksaga.publish(name, '{}') FROM generate_series(1, each);
        COMMIT;
        FOR c IN 1..consumers LOOP
            INSERT INTO shares.got (round, consumer, messages, batch_id)
            SELECT r, c, count(*), max(batch_id) FROM stacksaga.receive_messages(name, 'consumer ' || c);
            COMMIT;
        END LOOP;
        PERFORM stacksaga.ack_messages(batch_id) FROM shares.got WHERE round = r AND batch_id IS NOT NULL;
        COMMIT;
    END LOOP;
    UPDATE shares.got AS g SET partitions = cardinality(b.partitions)
      FROM stacksaga.message_batch AS b WHERE b.batch_id = g.batch_id;
END $$;
SELECT stacksaga.create_subscription('p' || p, 'p*', partitions => p) FROM unnest('{16,64,256}'::int[]) AS p;
SELECT count(stacksaga.publish('p', '{}')) FROM generate_series(1, 30000);

-- In a backlog.
CREATE VIEW shares.outcome AS
SELECT count(DISTINCT consumer) FILTER (WHERE messages > 0) AS served, max(partitions) AS partitions_at_most
  FROM shares.got WHERE round = (SELECT max(round) FROM shares.got);
CALL shares.rounds('p16', 16, 2);
TABLE shares.outcome;
CALL shares.rounds('p64', 64, 2);
TABLE shares.outcome;
CALL shares.rounds('p256', 16, 2);
TABLE shares.outcome;
SELECT min(messages) > 50 AS are_batches_full, max(messages) FROM shares.got WHERE round = 2;
SELECT count(stacksaga.publish('p', '{}')) FROM generate_series(1, 20000);
CALL shares.rounds('p256', 100, 2);
TABLE shares.outcome;
SELECT count(stacksaga.publish('p', '{}')) FROM generate_series(1, 60000);
CALL shares.rounds('p256', 256, 2);
TABLE shares.outcome;

-- In a steady state, where each round finds a few messages: they are spread over the consumers, and none is left.
SELECT stacksaga.create_subscription('steady', 'steady', partitions => 256);
CALL shares.rounds('steady', 100, 5, 600);
SELECT count(DISTINCT consumer) >= 75 AS many_served, max(partitions) AS partitions FROM shares.got WHERE round > 1 AND messages > 0;
CALL shares.rounds('steady', 16, 3, 600);
SELECT count(DISTINCT consumer) AS served FROM shares.got WHERE messages > 0;
SELECT count(*) < 100 AS hardly_any_left FROM stacksaga.receive_messages('steady', 'last', 10000);

-- A consumer that is alone takes all; when another one has asked within the last second it keeps to its share,
-- less what it holds; those of one name share one share. Thirty seconds later the other one counts no longer.
SELECT stacksaga.create_subscription('few', 'few', partitions => 16);
SELECT count(stacksaga.publish('few', '{}')) FROM generate_series(1, 1000);
CREATE FUNCTION shares.receive(consumer text, max_messages int DEFAULT 10000) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    batch bigint := max(batch_id) FROM stacksaga.receive_messages('few', consumer, max_messages);
BEGIN
    RETURN coalesce((SELECT cardinality(partitions) FROM stacksaga.message_batch WHERE batch_id = batch), 0);
END $$;
SELECT shares.receive('a');
SELECT count(stacksaga.ack_messages(batch_id)) FROM stacksaga.message_batch AS b WHERE b.consumer = 'a';
SELECT count(stacksaga.publish('few', '{}')) FROM generate_series(1, 1000);
-- In one statement, within a second.
SELECT shares.receive('b', 1) AS b, shares.receive('a') AS a, shares.receive('a') AS a_again, shares.receive('b') AS b_again,
       shares.receive('c') AS c;
SELECT count(stacksaga.ack_messages(batch_id)) FROM stacksaga.message_batch AS b
  JOIN stacksaga.subscription AS s USING (subscription_id) WHERE s.subscription = 'few' AND b.consumer IN ('a', 'b')
   AND b.batch_id > (SELECT min(batch_id) FROM stacksaga.message_batch AS m WHERE m.consumer = 'a');
SELECT count(stacksaga.publish('few', '{}')) FROM generate_series(1, 1000);
SET stacksaga.clock_offset = '10 seconds';
SELECT shares.receive('a') AS nobody_else_asks;
SELECT stacksaga.ack_messages(max(batch_id)) > 0 AS acknowledged FROM stacksaga.message_batch WHERE consumer = 'a';
SELECT count(stacksaga.publish('few', '{}')) FROM generate_series(1, 1000);
SET stacksaga.clock_offset = '5 minutes';
SELECT shares.receive('c') AS c;

SET stacksaga.clock_offset = '1 hour';
SELECT stacksaga.drop_subscription(s, true) FROM unnest('{p16,p64,p256,steady,few}'::text[]) AS s;
RESET stacksaga.clock_offset;
SET client_min_messages = warning;
DROP SCHEMA shares CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
