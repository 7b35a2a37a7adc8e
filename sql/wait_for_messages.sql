-- wait_for_messages: when it returns, and when it refuses. (How it waits is in test/tap/wait_for_messages.pl.)

\set SHOW_CONTEXT never
ALTER SEQUENCE stacksaga.message_batch_id_seq RESTART;
CREATE SCHEMA waits;
CREATE FUNCTION waits.handle(m stacksaga.message) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION waits.put(VARIADIC names text[]) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.publish('waits', to_jsonb(name), name)) FROM unnest(names) AS name
$$;
CREATE FUNCTION waits.receive(consumer text DEFAULT 'c', max_messages int DEFAULT 100)
RETURNS TABLE (batch bigint, message text) LANGUAGE sql AS $$
    SELECT batch_id, payload ->> 0 FROM stacksaga.receive_messages('waits', consumer, max_messages) ORDER BY 2
$$;
CREATE TABLE waits.called (at timestamptz);
-- Whether the call that began then came back at once, though it may wait for a minute; or after its time.
CREATE FUNCTION waits.how() RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN clock_timestamp() - at < interval '15 s' THEN 'at once' ELSE 'waited' END FROM waits.called
$$;
CREATE PROCEDURE waits.note() LANGUAGE sql AS $$
    DELETE FROM waits.called; INSERT INTO waits.called VALUES (clock_timestamp()) $$;
SET search_path = waits, public;
SELECT stacksaga.create_subscription('waits', 'waits', partitions => 2, retry => stacksaga.retry_policy(
    initial_interval => '1 hour', max_interval => '1 hour', jitter => 0));

CALL stacksaga.wait_for_messages('waits', '0');
SELECT coalesce(max(tick), 0) AS before FROM stacksaga.outbox_tick \gset
CALL stacksaga.wait_for_messages('waits', '10 milliseconds');
SELECT count(*) FROM stacksaga.outbox_tick WHERE tick > :before;
-- Something is there: it does not wait, and has made the tick, so that a transaction block sees it.
CALL note();
SELECT put('a');
CALL stacksaga.wait_for_messages('waits', '1 minute');
BEGIN;
SELECT * FROM receive();
ROLLBACK;
CALL stacksaga.wait_for_messages(subscription => 'waits', wait => '1 minute', consumer => 'c');
SELECT how();
SELECT max(batch) AS batch, string_agg(message, ' ') AS got FROM receive() \gset
\echo :got
-- The lease of the batch runs out.
CALL stacksaga.wait_for_messages('waits', '10 milliseconds');
SET stacksaga.clock_offset = '31 seconds';
CALL note();
CALL stacksaga.wait_for_messages('waits', '1 minute');
SELECT how();
SELECT max(batch) AS batch, string_agg(message, ' ') AS got FROM receive() \gset
\echo :got
-- A retry falls due.
SELECT count(stacksaga.fail_message(:batch, message_id, 'no')) FROM stacksaga.outbox_message WHERE payload = '"a"';
SELECT stacksaga.ack_messages(:batch);
CALL stacksaga.wait_for_messages('waits', '10 milliseconds');
SELECT * FROM receive();
SET stacksaga.clock_offset = '2 hours';
CALL note();
CALL stacksaga.wait_for_messages('waits', '1 minute');
SELECT how();
SELECT max(batch) AS batch, string_agg(message, ' ') AS got FROM receive() \gset
\echo :got
SELECT stacksaga.ack_messages(:batch);
-- A delayed message: the first call finds a message, which receive_messages() copies out of the log.
SELECT stacksaga.publish('waits', '"delayed"', deliver_at => stacksaga.clock_now() + interval '1 hour') IS NOT NULL;
CALL note();
CALL stacksaga.wait_for_messages('waits', '1 minute');
SELECT * FROM receive();
SELECT how();
CALL stacksaga.wait_for_messages('waits', '10 milliseconds');
SET stacksaga.clock_offset = '4 hours';
CALL stacksaga.wait_for_messages('waits', '1 minute');
SELECT how();
SELECT max(batch) AS batch, string_agg(message, ' ') AS got FROM receive() \gset
\echo :got
SELECT stacksaga.ack_messages(:batch);
-- A pause ends.
SELECT put('c');
SELECT stacksaga.pause_subscription('waits', 'a test', stacksaga.clock_now() + interval '1 hour');
CALL stacksaga.wait_for_messages('waits', '10 milliseconds');
SELECT * FROM receive();
SET stacksaga.clock_offset = '6 hours';
CALL note();
CALL stacksaga.wait_for_messages('waits', '1 minute');
SELECT how();
SELECT max(batch) AS batch, string_agg(message, ' ') AS got FROM receive() \gset
\echo :got
SELECT stacksaga.ack_messages(:batch);
-- Messages of other topics do not end a wait, whatever shares a place with them; a wildcard does not want them either.
SELECT stacksaga.create_subscription('wild', 'wild.*'), stacksaga.create_subscription('all', '*');
SELECT count(stacksaga.publish('other ' || n, 'null')) FROM generate_series(1, 3000) AS n;
CALL note();
CALL stacksaga.wait_for_messages('waits', '1 second');
CALL stacksaga.wait_for_messages('wild', '1 second');
SELECT clock_timestamp() - at > interval '1900 ms' AS waited FROM called;
CALL note();
CALL stacksaga.wait_for_messages('all', '1 minute');
SELECT how();

-- A consumer that has its share does not return; any other does.
SELECT put('d', 'e', 'f', 'g', 'h', 'i', 'j', 'k');
SELECT count(*) AS got FROM receive('one', 1);
SELECT count(*) > 0 AS got FROM receive('two', 1);
SELECT stacksaga.ack_messages(max(batch_id)) FROM stacksaga.message_batch WHERE consumer = 'two';
CALL note();
CALL stacksaga.wait_for_messages('waits', '1 second', 'one');
SELECT clock_timestamp() - at > interval '900 ms' AS waited FROM called;
CALL stacksaga.wait_for_messages('waits', '1 minute', 'two');
CALL stacksaga.wait_for_messages('waits', '1 minute');
SELECT how();
SELECT count(*) > 0 AS got FROM receive('two');

-- What is refused.
\set VERBOSITY sqlstate
BEGIN;
CALL stacksaga.wait_for_messages('waits');
ROLLBACK;
\set VERBOSITY default
CREATE FUNCTION in_a_function() RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN CALL stacksaga.wait_for_messages('waits'); END $$;
SELECT in_a_function();
SELECT stacksaga.create_subscription('handled', 'waits', 'handle(stacksaga.message)');
CALL stacksaga.wait_for_messages('handled');
CALL stacksaga.wait_for_messages('nobody');
CALL stacksaga.wait_for_messages(NULL);
CALL stacksaga.wait_for_messages('waits', NULL);
CALL stacksaga.wait_for_messages('waits', '-1 second');
CALL stacksaga.wait_for_messages('waits', '61 seconds');
CALL stacksaga.wait_for_messages('waits', '0', '');
SET default_transaction_isolation = 'repeatable read';
CALL stacksaga.wait_for_messages('waits', '10 milliseconds');
RESET default_transaction_isolation;

-- Who may: services.
CREATE ROLE waits_service;
CREATE ROLE waits_monitor;
SELECT stacksaga.grant_usage('waits_service', 'service'), stacksaga.grant_usage('waits_monitor', 'monitor');
SET ROLE waits_service;
CALL stacksaga.wait_for_messages('wild', '0');
SET ROLE waits_monitor;
CALL stacksaga.wait_for_messages('wild', '0');
RESET ROLE;
RESET stacksaga.clock_offset;
DROP OWNED BY waits_service, waits_monitor;
DROP ROLE waits_service, waits_monitor;
SET client_min_messages = warning;
TRUNCATE stacksaga.subscription, stacksaga.subscription_position, stacksaga.message_retry, stacksaga.message_batch,
    stacksaga.outbox_message;
DROP SCHEMA waits CASCADE;
