-- A message that a consumer left out of its batch comes again, whatever has become of the failure
-- before it; and delayed messages, while batches are lost or no session reads.

\set SHOW_CONTEXT never
CREATE SCHEMA leases;
CREATE TABLE leases.fallen (n int);
CREATE FUNCTION leases.fall(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
    INSERT INTO leases.fallen VALUES ((m.payload -> 'n')::int)
$$;
CREATE FUNCTION leases.receive(subscription text)
RETURNS TABLE (batch bigint, n int, attempt int) LANGUAGE sql AS $$
    SELECT batch_id, (payload -> 'n')::int, attempt
      FROM stacksaga.receive_messages(subscription, 'c') ORDER BY 2
$$;
-- Receives 1 and 2 of a key, of which 1 fails for good.
CREATE FUNCTION leases.fail_first(subscription text) RETURNS bigint LANGUAGE sql AS $$
    SELECT batch_id FROM stacksaga.receive_messages(subscription, 'c') AS m,
           LATERAL (SELECT stacksaga.fail_message(batch_id, message_id, 'no', 'non_retryable')) AS f
     WHERE payload -> 'n' = '1'
$$;
CREATE FUNCTION leases.id_of(n int) RETURNS uuid LANGUAGE sql AS $$
    SELECT message_id FROM stacksaga.outbox_message WHERE payload -> 'n' = to_jsonb($1)
$$;
SELECT stacksaga.create_subscription('fallback', 't', fallback => 'leases.fall(stacksaga.message)'),
       stacksaga.create_subscription('redrive', 't'),
       stacksaga.create_subscription('discard', 't');
SELECT count(stacksaga.publish('t', jsonb_build_object('n', n), 'k')) FROM generate_series(1, 2) AS n;

-- The fallback runs when the batch has been acknowledged.
SELECT leases.fail_first('fallback') AS batch \gset
SELECT stacksaga.run_pending();
SELECT stacksaga.ack_messages(:batch);
SELECT n FROM leases.receive('fallback');
SELECT stacksaga.run_pending();
SELECT n FROM leases.fallen;
SELECT n FROM leases.receive('fallback');

SELECT leases.fail_first('redrive') AS batch \gset
SELECT stacksaga.redrive_message('redrive', leases.id_of(1));
SELECT stacksaga.ack_messages(:batch);
SELECT max(batch) AS batch, array_agg(n) FROM leases.receive('redrive') \gset
\echo :array_agg
SELECT stacksaga.ack_messages(:batch);
SELECT n FROM leases.receive('redrive');

SELECT leases.fail_first('discard') AS batch \gset
SELECT stacksaga.discard_message('discard', leases.id_of(1), 'by order');
SELECT stacksaga.ack_messages(:batch);
SELECT n FROM leases.receive('discard');

-- A late consumer has lost its batch when the fallback has handled the failure meanwhile.
SELECT count(stacksaga.publish('late', jsonb_build_object('n', n), 'k')) FROM generate_series(1, 2) AS n;
SELECT stacksaga.create_subscription('late', 'late', start_at => 'earliest',
    fallback => 'leases.fall(stacksaga.message)', retry => stacksaga.retry_policy(initial_interval => '0'));
SELECT batch_id AS batch, message_id FROM stacksaga.receive_messages('late', 'c') WHERE payload -> 'n' = '1' \gset
SELECT stacksaga.fail_message(:batch, :'message_id', 'busy');
SELECT stacksaga.ack_messages(:batch);
SELECT leases.fail_first('late') AS batch \gset
SET stacksaga.clock_offset = '1 minute';
SELECT stacksaga.run_pending();
\set VERBOSITY sqlstate
SELECT stacksaga.ack_messages(:batch);
\set VERBOSITY default
SELECT n FROM leases.receive('late');

-- A late consumer of a retry has not lost it because the position of the log has moved past it.
SELECT stacksaga.create_subscription('again', 'again', retry => stacksaga.retry_policy(initial_interval => '0'));
SELECT stacksaga.publish('again', '{"n": 1}', 'k') IS NOT NULL AS published;
SELECT batch_id AS batch, message_id FROM stacksaga.receive_messages('again', 'c') \gset
SELECT stacksaga.fail_message(:batch, :'message_id', 'busy'), stacksaga.ack_messages(:batch);
SELECT batch, attempt FROM leases.receive('again') \gset
SELECT stacksaga.publish('nothing', '{}') IS NOT NULL AS published;
SELECT n FROM leases.receive('late'); -- ticks
SET stacksaga.clock_offset = '3 minutes';
SELECT stacksaga.maintain_outbox();
SELECT :attempt AS attempt, stacksaga.ack_messages(:batch);
SELECT n FROM leases.receive('again');
RESET stacksaga.clock_offset;

-- A delayed message that its consumers never acknowledge runs out of attempts like any other.
SELECT stacksaga.create_subscription('delayed', 'delayed', retry => stacksaga.retry_policy(max_attempts => 2));
SELECT stacksaga.publish('delayed', '{"n": 3}', 'k', deliver_at => clock_timestamp() + '3 minutes') IS NOT NULL AS published;
SELECT n, attempt FROM leases.receive('delayed');
SET stacksaga.clock_offset = '4 minutes';
SELECT n, attempt FROM leases.receive('delayed');
SET stacksaga.clock_offset = '5 minutes';
SELECT n, attempt FROM leases.receive('delayed');
SET stacksaga.clock_offset = '6 minutes';
SELECT n, attempt FROM leases.receive('delayed');
SELECT attempts, last_error FROM stacksaga.dead_messages WHERE subscription = 'delayed';

-- It is not delivered early because no session has read the log for longer than the retention.
SELECT stacksaga.publish('delayed', '{"n": 4}', 'k4', deliver_at => clock_timestamp() + '10 days') IS NOT NULL AS published;
SELECT count(*) FROM stacksaga.receive_messages('fallback', 'c');
SET stacksaga.clock_offset = '4 days';
SELECT stacksaga.maintain_outbox();
SELECT n FROM leases.receive('delayed');
SET stacksaga.clock_offset = '11 days';
SELECT n FROM leases.receive('delayed');
RESET stacksaga.clock_offset;

SET stacksaga.clock_offset = '12 days';
SELECT stacksaga.drop_subscription(s, true) FROM unnest(ARRAY['fallback', 'redrive', 'discard', 'late', 'again', 'delayed']) AS s;
RESET stacksaga.clock_offset;
DROP SCHEMA leases CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
