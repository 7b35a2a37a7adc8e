-- The order of a key when a service loses batches in which a message failed: earlier messages arrive
-- before the failed one, whatever the size of the next batch.

\set SHOW_CONTEXT never
CREATE SCHEMA outbox;
CREATE FUNCTION outbox.receive(max_messages int DEFAULT 100)
RETURNS TABLE (batch bigint, key text, n int, attempt int) LANGUAGE sql AS $$
    SELECT batch_id, key, (payload -> 'n')::int, attempt
      FROM stacksaga.receive_messages('s', 'c', max_messages)
$$;
CREATE FUNCTION outbox.id_of(n int) RETURNS uuid LANGUAGE sql AS $$
    SELECT message_id FROM stacksaga.outbox_message WHERE payload -> 'n' = to_jsonb($1)
$$;
CREATE FUNCTION outbox.put(first int, last int, key text) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.publish('orders', jsonb_build_object('n', n), key))
      FROM generate_series(first, last) n
$$;
CREATE PROCEDURE outbox.drain(max_messages int) LANGUAGE plpgsql AS $$
DECLARE
    got record;
BEGIN
    LOOP
        SELECT max(r.batch) AS batch, array_agg(r.n) AS numbers INTO got
          FROM outbox.receive(max_messages) r;
        EXIT WHEN got.batch IS NULL;
        RAISE NOTICE '%', got.numbers;
        PERFORM stacksaga.ack_messages(got.batch);
        COMMIT;
    END LOOP;
END
$$;
-- Answered batches double the room that a lost one has halved.
CREATE PROCEDURE outbox.restore_room() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..4 LOOP
        PERFORM stacksaga.publish('orders', '{"n": 0}', 'k');
        COMMIT;
        PERFORM stacksaga.ack_messages(batch) FROM outbox.receive();
        COMMIT;
    END LOOP;
END
$$;
SELECT stacksaga.create_subscription('s', 'orders',
    retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '1 s', jitter => 0));

-- One in the middle fails, and the batch is lost: all of it is delivered again, in order.
SELECT outbox.put(1, 4, 'k');
SELECT max(batch) AS batch FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(3), 'busy');
SET stacksaga.clock_offset = '2 minutes';
CALL outbox.drain(100);

-- The same where a batch has room for one message.
CALL outbox.restore_room();
SELECT outbox.put(11, 14, 'k');
SELECT max(batch) AS batch FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(13), 'busy');
SET stacksaga.clock_offset = '4 minutes';
CALL outbox.drain(1);

-- A later one has failed before, in a lost batch; now an earlier one does, and takes longer.
CALL outbox.restore_room();
SELECT outbox.put(21, 28, 'k');
SELECT max(batch) AS batch FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(23), 'busy');
SET stacksaga.clock_offset = '6 minutes';
SELECT max(batch) AS batch, array_agg(n) FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(22), 'busy', retry_after => '1 minute');
SELECT stacksaga.ack_messages(:batch);
CALL outbox.drain(100);
SELECT key, message_id = outbox.id_of(22) AS known, waiting FROM stacksaga.blocked_keys;
-- What status() walks to is what the view reads.
SELECT count(*) AS differing
  FROM ((TABLE stacksaga.blocked_keys EXCEPT ALL SELECT * FROM stacksaga_internal.first_blocked_keys())
        UNION ALL (SELECT * FROM stacksaga_internal.first_blocked_keys() EXCEPT ALL TABLE stacksaga.blocked_keys)) AS d;
SET stacksaga.clock_offset = '8 minutes';
CALL outbox.drain(100);

-- The same for good: a dead message waits for an operator, the ones before it do not, and when it is
-- redriven it is held behind them.
CALL outbox.restore_room();
SELECT outbox.put(31, 35, 'k');
SELECT max(batch) AS batch FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(34), 'never', 'non_retryable');
SELECT stacksaga.fail_message(:batch, outbox.id_of(32), 'never', 'non_retryable');
SET stacksaga.clock_offset = '10 minutes';
CALL outbox.drain(100);
SELECT stacksaga.redrive_message('s', outbox.id_of(34));
CALL outbox.drain(100);
SELECT stacksaga.discard_message('s', outbox.id_of(32), 'not needed');
CALL outbox.drain(1);

-- A batch smaller than the lost one is acknowledged in between: the failure still comes in its turn.
CALL outbox.restore_room();
SELECT outbox.put(41, 46, 'k');
SELECT max(batch) AS batch FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(45), 'busy');
SET stacksaga.clock_offset = '12 minutes';
CALL outbox.drain(2);

-- A message is delayed until then: it comes in its place, before the one that failed behind it.
CALL outbox.restore_room();
SELECT stacksaga.publish('orders', '{"n": 51}', 'k',
    deliver_at => stacksaga.clock_now() + interval '1 minute') IS NOT NULL;
SELECT outbox.put(52, 54, 'k');
SELECT max(batch) AS batch, array_agg(n) FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(53), 'busy', retry_after => '1 hour');
SELECT stacksaga.ack_messages(:batch);
SET stacksaga.clock_offset = '14 minutes';
CALL outbox.drain(100);
SET stacksaga.clock_offset = '100 minutes';
CALL outbox.drain(100);

-- Several of a key fail in one batch: the later one waits for the first, however short its pause.
CALL outbox.restore_room();
SELECT outbox.put(61, 63, 'k');
SELECT max(batch) AS batch FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(61), 'busy', retry_after => '10 minutes');
SELECT stacksaga.fail_message(:batch, outbox.id_of(62), 'busy', retry_after => '1 second');
SELECT stacksaga.ack_messages(:batch);
SET stacksaga.clock_offset = '105 minutes';
CALL outbox.drain(100);
SET stacksaga.clock_offset = '120 minutes';
CALL outbox.drain(100);

-- A message that came together with one that is given up on, in lost batches, is held behind it.
SELECT stacksaga.alter_subscription('s', retry => stacksaga.retry_policy(max_attempts => 3));
CALL outbox.restore_room();
SELECT outbox.put(71, 73, 'k');
SELECT max(batch) AS batch FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(71), 'busy', retry_after => '5 minutes'),
       stacksaga.fail_message(:batch, outbox.id_of(72), 'busy', retry_after => '0');
SELECT stacksaga.ack_messages(:batch);
SELECT n, attempt FROM outbox.receive();
SELECT payload, state FROM stacksaga.message_retry ORDER BY number;
SET stacksaga.clock_offset = '130 minutes';
SELECT stacksaga.ack_messages(max(batch)) FROM outbox.receive();
SELECT n, attempt FROM outbox.receive();
SET stacksaga.clock_offset = '140 minutes';
SELECT n, attempt FROM outbox.receive();
SET stacksaga.clock_offset = '150 minutes';
SELECT n, attempt FROM outbox.receive();
SET stacksaga.clock_offset = '152 minutes';
SELECT n, attempt FROM outbox.receive();
SELECT payload, attempts FROM stacksaga.dead_messages;
SELECT stacksaga.discard_message('s', outbox.id_of(72), 'not needed');
SELECT n, attempt, stacksaga.ack_messages(batch) FROM outbox.receive();

-- So it is when they were retries already: their consumer may fail those in any order, too.
CALL outbox.restore_room();
SELECT outbox.put(81, 84, 'k');
SELECT max(batch) AS batch FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(81), 'busy'), stacksaga.ack_messages(:batch);
SET stacksaga.clock_offset = '160 minutes';
SELECT stacksaga.ack_messages(max(batch)) FROM outbox.receive();
SELECT max(batch) AS batch, array_agg(n) FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(n), 'busy', retry_after => n * interval '1 s')
  FROM unnest(ARRAY[83, 82, 84]) AS n;
SELECT stacksaga.ack_messages(:batch);
SELECT payload, state, attempt, last_error FROM stacksaga.message_retry ORDER BY number;
SET stacksaga.clock_offset = '170 minutes';
CALL outbox.drain(100);

-- Several failed in a batch that was lost, and a call reads only a part of those between them.
CALL outbox.restore_room();
SELECT outbox.put(91, 98, 'k');
SELECT max(batch) AS batch FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(n), 'busy') FROM unnest(ARRAY[93, 97, 91]) AS n;
SET stacksaga.clock_offset = '180 minutes';
SELECT stacksaga.ack_messages(max(batch)), array_agg(n) FROM outbox.receive(4);
CALL outbox.drain(100);

-- Nothing shortens the pause of a retry: no earlier message that fails, in its batch or in the next
-- one, and no alteration of the subscription.
CALL outbox.restore_room();
SELECT outbox.put(101, 104, 'k');
SELECT max(batch) AS batch FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(103), 'busy', retry_after => '1 hour');
SET stacksaga.clock_offset = '182 minutes';
SELECT max(batch) AS batch, array_agg(n) FROM outbox.receive() \gset
SELECT stacksaga.fail_message(:batch, outbox.id_of(101), 'busy', retry_after => '1 minute'),
       stacksaga.fail_message(:batch, outbox.id_of(102), 'busy', retry_after => '30 minutes');
SELECT stacksaga.ack_messages(:batch);
SELECT payload, state FROM stacksaga.message_retry ORDER BY number;
SELECT stacksaga.alter_subscription('s', stop_on_first_failure => false);
SELECT stacksaga.alter_subscription('s', stop_on_first_failure => true);
SELECT key, message_id = outbox.id_of(101) AS known FROM stacksaga.blocked_keys;
SELECT count(*) AS differing
  FROM ((TABLE stacksaga.blocked_keys EXCEPT ALL SELECT * FROM stacksaga_internal.first_blocked_keys())
        UNION ALL (SELECT * FROM stacksaga_internal.first_blocked_keys() EXCEPT ALL TABLE stacksaga.blocked_keys)) AS d;
SET stacksaga.clock_offset = '184 minutes';
CALL outbox.drain(100);
SET stacksaga.clock_offset = '214 minutes';
CALL outbox.drain(100);
SET stacksaga.clock_offset = '250 minutes';
CALL outbox.drain(100);

SELECT count(*) FROM stacksaga.message_retry;
SELECT stacksaga.drop_subscription('s', true);
TRUNCATE stacksaga.outbox_message;
SET client_min_messages = warning;
DROP SCHEMA outbox CASCADE;
