-- A message one of whose attempts may have taken effect: its fallback is not run. What is known of it, and
-- what operators may do.

\set SHOW_CONTEXT never
CREATE SCHEMA doubt;
CREATE TABLE doubt.fallen (n int);
CREATE FUNCTION doubt.fall(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
    INSERT INTO doubt.fallen VALUES ((m.payload -> 'n')::int)
$$;
CREATE FUNCTION doubt.put(first int, last int, key text DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.publish('doubt', jsonb_build_object('n', n), key)) FROM generate_series(first, last) n
$$;
-- Receives what is due; those of `failing` fail with this class. With `is_lost` nothing is acknowledged.
CREATE FUNCTION doubt.receive(failing int[] DEFAULT '{}', class text DEFAULT 'non_retryable',
                              is_lost boolean DEFAULT false, max_messages int DEFAULT 100) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    m stacksaga.message;
    batch bigint;
    got text[];
BEGIN
    FOR m IN SELECT * FROM stacksaga.receive_messages('doubt', 'c', max_messages) LOOP
        batch := m.batch_id;
        got := got || format('%s:%s', m.payload ->> 'n', m.attempt);
        IF (m.payload ->> 'n')::int = ANY (failing) THEN
            PERFORM stacksaga.fail_message(batch, m.message_id, 'refused', class, retry_after => '1 minute');
        END IF;
    END LOOP;
    IF NOT is_lost THEN
        PERFORM stacksaga.ack_messages(batch) WHERE batch IS NOT NULL;
    END IF;
    RETURN array_to_string(got, ' ');
END
$$;
CREATE VIEW doubt.dead AS
    SELECT (payload -> 'n')::int AS n, attempts, last_error FROM stacksaga.dead_messages WHERE subscription = 'doubt' ORDER BY 1;
SELECT stacksaga.create_subscription('doubt', 'doubt', fallback => 'doubt.fall(stacksaga.message)',
    retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '1 minute', jitter => 0), partitions => 1);

-- Known failures: the fallback handles them.
SELECT doubt.put(1, 1);
SELECT doubt.receive('{1}');
SELECT stacksaga.run_pending();
-- A lease ran out with 2 and 3; 4 comes later, in the same batch as 3. All fail for good.
SELECT doubt.put(2, 3);
SELECT doubt.receive(is_lost => true);
SET stacksaga.clock_offset = '1 minute';
SELECT doubt.put(4, 4);
SELECT doubt.receive('{2}', max_messages => 1);
SELECT doubt.receive('{3,4}');
SELECT stacksaga.run_pending(), stacksaga.run_pending();
SELECT * FROM doubt.dead;
-- Reported unknown, and then known to have failed.
SELECT doubt.put(5, 6);
SELECT doubt.receive('{5}', 'unknown');
SET stacksaga.clock_offset = '2 minutes';
SELECT doubt.receive('{5}');
-- A retry whose lease ran out.
SELECT doubt.put(7, 7);
SELECT doubt.receive('{7}', 'retryable');
SET stacksaga.clock_offset = '4 minutes';
SELECT doubt.receive(is_lost => true);
SET stacksaga.clock_offset = '6 minutes';
SELECT doubt.receive('{7}');
-- Attempts used up by leases that ran out.
SELECT doubt.put(8, 8);
SELECT doubt.receive(is_lost => true);
SET stacksaga.clock_offset = '8 minutes';
SELECT doubt.receive(is_lost => true);
SET stacksaga.clock_offset = '10 minutes';
SELECT doubt.receive(is_lost => true);
SET stacksaga.clock_offset = '12 minutes';
SELECT doubt.receive();
-- The fallback of 9, which failed three times, and was never in doubt.
SELECT doubt.put(9, 9);
SELECT doubt.receive('{9}', 'retryable');
SET stacksaga.clock_offset = '14 minutes';
SELECT doubt.receive('{9}', 'retryable');
SET stacksaga.clock_offset = '16 minutes';
SELECT doubt.receive('{9}', 'retryable');
SELECT stacksaga.run_pending(), stacksaga.run_pending();
SELECT * FROM doubt.dead;
SELECT n FROM doubt.fallen ORDER BY n;
SELECT severity, regexp_replace(detail, '[0-9a-f-]{36}', '(id)') AS detail, regexp_replace(fix, '[0-9a-f-]{36}', '(id)') AS fix
  FROM stacksaga.doctor() WHERE check_name = 'dead_messages' AND detail LIKE '%subscription "doubt"%';
-- A redrive does not make it known.
SELECT message_id AS id FROM stacksaga.dead_messages WHERE subscription = 'doubt' AND payload -> 'n' = '5' \gset
SELECT stacksaga.redrive_message('doubt', :'id', 'the provider is back');
SELECT action, role_name = current_user AS mine, reason FROM stacksaga.operator_actions
 WHERE object LIKE 'message % of subscription doubt' ORDER BY at DESC LIMIT 1;
SELECT doubt.receive('{5}');
SELECT stacksaga.run_pending();
SELECT n FROM doubt.dead WHERE n = 5;

-- A lease is never shortened.
SELECT doubt.put(10, 10);
SELECT batch_id AS batch, message_id AS tenth FROM stacksaga.receive_messages('doubt', 'c', lease => '1 hour') \gset
SELECT stacksaga.extend_batch(:batch, '1 minute') > stacksaga.clock_now() + interval '59 minutes' AS kept,
       stacksaga.extend_batch(:batch, '2 hours') > stacksaga.clock_now() + interval '119 minutes' AS longer;
-- The key would be forgotten before the next attempt.
SELECT stacksaga.fail_message(:batch, :'tenth', 'later', 'retryable', '8 days');
\echo :SQLSTATE
SELECT stacksaga.ack_messages(:batch);

-- What is older than what consumers remember is redriven only by somebody who says so.
SET stacksaga.clock_offset = '8 days';
SELECT stacksaga.redrive_message('doubt', :'id');
\echo :SQLSTATE
SELECT count(*) FROM stacksaga.redrive_messages('doubt', reason => 'all');
SELECT count(*) FROM stacksaga.redrive_messages('doubt', reason => 'all', dry_run => false);
\echo :SQLSTATE
SELECT count(*) FROM doubt.dead;
SELECT stacksaga.redrive_message('doubt', :'id', past_dedupe_retention => true);
SELECT count(*) FROM stacksaga.redrive_messages('doubt', reason => 'all', dry_run => false, past_dedupe_retention => true);
SELECT doubt.receive('{2,3}');

-- What was not handled is not dropped without a word.
SELECT doubt.put(11, 11);
SELECT stacksaga.drop_subscription('doubt');
\echo :SQLSTATE
SELECT stacksaga.drop_subscription('doubt', NULL);
\echo :SQLSTATE
SELECT stacksaga.drop_subscription('doubt', discard => true);
SELECT stacksaga.create_subscription('doubt', 'doubt');
SELECT stacksaga.drop_subscription('doubt');
\echo :SQLSTATE
RESET stacksaga.clock_offset;
TRUNCATE stacksaga.outbox_message;
DROP SCHEMA doubt CASCADE;
