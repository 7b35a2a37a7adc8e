-- stacksaga.batch_bytes: what a batch gives to its consumer ends behind the message or step that passes it, as text. What is left
-- out was not claimed.

\set SHOW_CONTEXT never
CREATE SCHEMA bytes;
CREATE FUNCTION bytes.receive(name text, consumer text DEFAULT 'c', max_messages int DEFAULT 1000) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(format('%s:%s', headers -> 'n', attempt), ' ') FROM stacksaga.receive_messages(name, consumer, max_messages)
$$;
CREATE FUNCTION bytes.batch(name text) RETURNS bigint LANGUAGE sql AS $$
    SELECT max(batch_id) FROM stacksaga.message_batch JOIN stacksaga.subscription USING (subscription_id) WHERE subscription = name
$$;
CREATE FUNCTION bytes.publish(name text, count int, payload jsonb, key text DEFAULT NULL, headers jsonb DEFAULT '{}') RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.publish(name, payload, key, headers => jsonb_build_object('n', n) || headers)) FROM generate_series(1, count) AS n
$$;
CREATE FUNCTION bytes.later(seconds int) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (current_setting('stacksaga.clock_offset')::interval + make_interval(secs => seconds))::text, false)
$$;
-- Random letters, which are not compressed, of that many bytes as text.
CREATE FUNCTION bytes.letters(bytes int) RETURNS jsonb LANGUAGE sql AS $$
    SELECT to_jsonb(left(string_agg(md5(i::text), ''), bytes - 2)) FROM generate_series(1, bytes / 32 + 1) AS i
$$;
SET stacksaga.clock_offset = '0 s';

-- Who may set it, and to what.
LOAD 'stacksaga';
SHOW stacksaga.batch_bytes;
SET stacksaga.batch_bytes = '63 kB';
SET stacksaga.batch_bytes = '1025 MB';
SET stacksaga.batch_bytes = '1 GB';
CREATE ROLE bytes_anybody;
SET ROLE bytes_anybody;
SET stacksaga.batch_bytes = '64 kB';
RESET ROLE;
DROP ROLE bytes_anybody;
SHOW stacksaga.batch_bytes;

SELECT stacksaga.create_subscription(name, name, partitions => 1, retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '1 s', jitter => 0))
  FROM unnest('{plain,kinds,retried,lost}'::text[]) AS name;
SELECT stacksaga.create_subscription('wide', 'wide');

-- Two messages of 30,000 bytes do not pass 65,536 bytes, the third does. It ends the batch.
SELECT bytes.publish('plain', 10, bytes.letters(30000), 'k');
SELECT bytes.receive('plain');
SELECT bytes.receive('plain') AS its_partition_is_held;
SELECT stacksaga.ack_messages(bytes.batch('plain'));
SELECT bytes.receive('plain');
SELECT stacksaga.ack_messages(bytes.batch('plain'));
-- max_messages ends it before.
SELECT bytes.receive('plain', max_messages => 2);
SELECT stacksaga.ack_messages(bytes.batch('plain'));
SET stacksaga.batch_bytes = '1 MB';
SELECT bytes.receive('plain');
SELECT stacksaga.ack_messages(bytes.batch('plain'));
SET stacksaga.batch_bytes = '64 kB';
-- Exactly so many bytes are not passed, one more is: headers count as well.
SELECT bytes.publish('plain', 3, bytes.letters(65536 - length('{"n": 1}')));
SELECT bytes.receive('plain'), stacksaga.ack_messages(bytes.batch('plain'));
SELECT bytes.receive('plain'), stacksaga.ack_messages(bytes.batch('plain'));
SELECT bytes.publish('plain', 3, bytes.letters(65536 - length('{"n": 1}') + 1));
SELECT bytes.receive('plain'), stacksaga.ack_messages(bytes.batch('plain'));
SELECT bytes.receive('plain'), stacksaga.ack_messages(bytes.batch('plain'));
SELECT bytes.receive('plain'), stacksaga.ack_messages(bytes.batch('plain'));
SELECT bytes.receive('plain') AS nothing;

-- It counts what is sent, not what is stored: a number of few bytes, text that is compressed, numbers that are larger as they are
-- stored, headers.
SELECT bytes.publish('kinds', 3, '[1e65000]');
SELECT bytes.receive('kinds'), stacksaga.ack_messages(bytes.batch('kinds'));
SELECT bytes.receive('kinds'), stacksaga.ack_messages(bytes.batch('kinds'));
SELECT bytes.publish('kinds', 3, to_jsonb(repeat('x', 70000)));
SELECT bytes.receive('kinds'), stacksaga.ack_messages(bytes.batch('kinds'));
SELECT bytes.receive('kinds'), stacksaga.ack_messages(bytes.batch('kinds'));
SELECT bytes.receive('kinds'), stacksaga.ack_messages(bytes.batch('kinds'));
SELECT bytes.publish('kinds', 4, (SELECT jsonb_agg(i % 10) FROM generate_series(1, 10000) AS i));
SELECT bytes.receive('kinds'), stacksaga.ack_messages(bytes.batch('kinds'));
SELECT bytes.receive('kinds'), stacksaga.ack_messages(bytes.batch('kinds'));
SELECT bytes.publish('kinds', 3, '1', headers => jsonb_build_object('h', bytes.letters(40000)));
SELECT bytes.receive('kinds'), stacksaga.ack_messages(bytes.batch('kinds'));
SELECT bytes.receive('kinds'), stacksaga.ack_messages(bytes.batch('kinds'));
-- Control characters have six bytes each, and many small messages add up.
SELECT bytes.publish('kinds', 200, to_jsonb(repeat(E'\u0001', 100)));
SELECT count(*) AS first FROM stacksaga.receive_messages('kinds', 'c', 1000);
SELECT stacksaga.ack_messages(bytes.batch('kinds'));
SELECT count(*) AS rest FROM stacksaga.receive_messages('kinds', 'c', 1000);
SELECT stacksaga.ack_messages(bytes.batch('kinds'));

-- Partitions that the batch has not reached are not held: another consumer gets them.
SELECT count(stacksaga.publish('wide', bytes.letters(30000), headers => jsonb_build_object('n', n), message_id => (
           SELECT id FROM (SELECT md5('wide' || i)::uuid AS id FROM generate_series(1, 1000) AS i) AS m
            WHERE stacksaga.slot(stacksaga.token_uuid(id), 16) = n - 1 LIMIT 1))) FROM generate_series(1, 16) AS n;
SELECT consumer, count(*) FROM generate_series(1, 6) AS consumer, stacksaga.receive_messages('wide', consumer::text, 1000)
 GROUP BY consumer ORDER BY consumer;
SELECT count(stacksaga.ack_messages(batch_id)) FROM stacksaga.message_batch JOIN stacksaga.subscription USING (subscription_id) WHERE subscription = 'wide';
SELECT lag_messages FROM stacksaga.subscriptions WHERE subscription = 'wide';

-- Retries count like others; what was left out keeps its attempt and its turn.
SELECT bytes.publish('retried', 6, bytes.letters(30000), 'k');
SELECT bytes.receive('retried');
SELECT stacksaga.fail_message(bytes.batch('retried'), message_id, 'busy', retry_after => '0') FROM stacksaga.outbox_message
 WHERE topic = 'retried' AND headers -> 'n' <@ '[1, 2, 3]' AND key = 'k';
SELECT stacksaga.ack_messages(bytes.batch('retried'));
SELECT state, attempt FROM stacksaga.message_retries WHERE subscription = 'retried' ORDER BY due_at, message_id;
SET stacksaga.batch_bytes = '1 MB';
SELECT bytes.receive('retried');
SELECT stacksaga.release_batch(bytes.batch('retried'));
SET stacksaga.batch_bytes = '64 kB';
SELECT bytes.receive('retried');
SELECT stacksaga.ack_messages(bytes.batch('retried'));
SELECT bytes.receive('retried');
SELECT stacksaga.ack_messages(bytes.batch('retried'));
SELECT bytes.receive('retried') AS nothing;
-- Delayed ones that fall due together with one of the log between them, of several keys.
SELECT count(stacksaga.publish('retried', bytes.letters(20000), headers => jsonb_build_object('n', n), deliver_at => CASE WHEN n <> 4 THEN stacksaga.clock_now() + '1 min' END))
  FROM generate_series(1, 7) AS n;
SELECT bytes.receive('retried', max_messages => 3);
SELECT stacksaga.release_batch(bytes.batch('retried')), bytes.later(61);
SELECT bytes.receive('retried');
SELECT stacksaga.ack_messages(bytes.batch('retried'));
SELECT bytes.receive('retried');
SELECT stacksaga.ack_messages(bytes.batch('retried'));
SELECT bytes.receive('retried') AS nothing;

-- A consumer that dies with a batch that bytes have ended gets fewer messages: the one that it dies of is dead in the end, and no
-- other.
SELECT bytes.publish('lost', 12, bytes.letters(12000));
CREATE PROCEDURE bytes.consume(name text, killer int) LANGUAGE plpgsql AS $$
DECLARE
    got text;
    sizes text := '';
BEGIN
    FOR i IN 1 .. 40 LOOP
        got := bytes.receive(name);
        COMMIT;
        EXIT WHEN got IS NULL;
        sizes := sizes || ' ' || cardinality(string_to_array(got, ' '));
        IF ' ' || got ~ format(' %s:', killer) THEN
            PERFORM bytes.later(31);
        ELSE
            PERFORM stacksaga.ack_messages(bytes.batch(name));
        END IF;
        COMMIT;
    END LOOP;
    RAISE NOTICE 'batches of%', sizes;
END $$;
CALL bytes.consume('lost', 8);
SELECT headers -> 'n' AS n, attempts, last_error FROM stacksaga.dead_message JOIN stacksaga.subscription USING (subscription_id) WHERE subscription = 'lost';
SELECT lag_messages FROM stacksaga.subscriptions WHERE subscription = 'lost';

-- A handler's batch ends as a service's does.
CREATE TABLE bytes.handled (call bigint GENERATED ALWAYS AS IDENTITY, messages int);
CREATE FUNCTION bytes.handle(m stacksaga.message[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO bytes.handled (messages) VALUES (cardinality(m))
$$;
SELECT stacksaga.create_subscription('handled', 'handled', 'bytes.handle(stacksaga.message[])', partitions => 1);
SELECT bytes.publish('handled', 8, bytes.letters(30000));
SELECT stacksaga.run_pending();
SELECT array_agg(messages ORDER BY call) FROM bytes.handled;

-- Claims: input, results and headers of a step together.
SELECT stacksaga.set_queue('bytes', max_running => 50, rate => 100, rate_interval => '1 hour', max_running_per_group => 20);
SELECT stacksaga.define_saga('bytes', ARRAY[stacksaga.queue_step('a', 'bytes', compensable => false), stacksaga.queue_step('b', 'bytes', compensable => false)]);
CREATE FUNCTION bytes.claim(max_steps int DEFAULT 1000) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s: %s bytes', count(*), sum(length(input::text) + length(results::text) + length(headers::text)))
      FROM stacksaga.claim_steps('bytes', 'w', max_steps)
$$;
SELECT count(*) FROM generate_series(1, 8) AS n, stacksaga.start_saga('bytes', bytes.letters(30000), key => n::text, group_key => (n % 2)::text);
SELECT bytes.claim();
-- What was left out has no attempt, no lease, no permit, and does not count for the rate.
SELECT count(*) FILTER (WHERE lease_until IS NOT NULL) AS leased, sum(attempt) AS attempts, count(*) FROM stacksaga.work WHERE queue = 'bytes';
SELECT running FROM stacksaga.queues WHERE queue = 'bytes';
SELECT claims FROM stacksaga.queue_claims WHERE queue = 'bytes';
SELECT bytes.claim(2);
SELECT bytes.claim();
SELECT bytes.claim();
-- Results count, and one that alone passes is given.
SELECT count(stacksaga.complete_step(saga_id, 'a', lease, bytes.letters(40000))) FROM stacksaga.work WHERE queue = 'bytes' AND step_no = 1;
SELECT bytes.claim();
SELECT bytes.claim(1);
SELECT count(*) FILTER (WHERE lease_until IS NOT NULL) AS leased, sum(attempt) AS attempts, count(*) FROM stacksaga.work WHERE queue = 'bytes';
SET stacksaga.batch_bytes = '1 MB';
SELECT bytes.claim();
SELECT count(stacksaga.complete_step(saga_id, 'b', lease)) FROM stacksaga.work WHERE queue = 'bytes' AND step_no = 2;
SELECT status, count(*) FROM stacksaga.sagas WHERE saga = 'bytes' GROUP BY 1;
-- Small ones are not cut, as many as they are.
SET stacksaga.batch_bytes = '64 kB';
SELECT stacksaga.set_queue('bytes', max_running => 500);
SELECT count(*) FROM stacksaga.start_sagas('bytes', (SELECT array_agg('{"n": 1}'::jsonb) FROM generate_series(1, 200)));
SELECT bytes.claim();
SELECT count(stacksaga.complete_step(saga_id, 'a', lease)) FROM stacksaga.work WHERE queue = 'bytes';
SELECT bytes.claim();
SELECT count(stacksaga.complete_step(saga_id, 'b', lease)) FROM stacksaga.work WHERE queue = 'bytes';

RESET stacksaga.batch_bytes;
SELECT stacksaga.drop_subscription(name, true) FROM unnest('{plain,kinds,retried,lost,wide,handled}'::text[]) AS name;
RESET stacksaga.clock_offset;
DELETE FROM stacksaga.queue WHERE queue = 'bytes';
SET client_min_messages = warning;
DROP SCHEMA bytes CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
