-- A consumer that crashes loses all the batches that it holds. A message that is lost in company is not charged for it: it
-- comes again to a consumer that has nothing else, so that only the message that ends its consumers dies.

\set SHOW_CONTEXT never
CREATE SCHEMA company;
CREATE TABLE company.got (n int, attempt int);
CREATE FUNCTION company.later(seconds int) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (current_setting('stacksaga.clock_offset')::interval + make_interval(secs => seconds))::text, false)
$$;
CREATE FUNCTION company.receive(name text, consumer text, max_messages int DEFAULT 1) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(format('%s:%s', payload -> 'n', attempt), ' ') FROM stacksaga.receive_messages(name, consumer, max_messages)
$$;
CREATE FUNCTION company.batch_of(consumer text) RETURNS bigint LANGUAGE sql AS $$
    SELECT max(batch_id) FROM stacksaga.message_batch AS b WHERE b.consumer = batch_of.consumer
$$;
-- Publishes each to a partition of its own.
CREATE FUNCTION company.publish(name text, count int, partitions int) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.publish(name, jsonb_build_object('n', n), message_id => (
               SELECT id FROM (SELECT md5(name || i)::uuid AS id FROM generate_series(1, 1000) AS i) AS m
                WHERE stacksaga.slot(stacksaga.token_uuid(id), 16) = (n - 1) * (16 / partitions) LIMIT 1)))
      FROM generate_series(1, count) AS n
$$;
-- Processes receive until nothing is left, each several batches at once. Of those that hold a message of `killers` no batch is
-- answered: a minute later the leases are over.
CREATE PROCEDURE company.consume(name text, killers int[], processes text[], batches int, max_messages int) LANGUAGE plpgsql AS $$
DECLARE
    held bigint[];
    numbers int[];
    batch record;
    crashes int := 0;
    idle int := 0;
BEGIN
    WHILE idle < 3 LOOP
        idle := idle + 1;
        FOR p IN 1..cardinality(processes) LOOP
            held := '{}';
            numbers := '{}';
            FOR i IN 1..batches LOOP
                SELECT max(batch_id) AS id, array_agg((payload -> 'n')::int) AS numbers INTO batch
                  FROM stacksaga.receive_messages(name, processes[p], max_messages);
                COMMIT;
                CONTINUE WHEN batch.id IS NULL;
                held := held || batch.id;
                numbers := numbers || batch.numbers;
                idle := 0;
            END LOOP;
            IF numbers && killers THEN
                crashes := crashes + 1;
                IF crashes > 100 THEN
                    RAISE '% crashes', crashes;
                END IF;
            ELSE
                PERFORM stacksaga.ack_messages(b) FROM unnest(held) AS b;
                INSERT INTO company.got SELECT unnest(numbers);
            END IF;
            COMMIT;
        END LOOP;
        PERFORM company.later(60);
    END LOOP;
END $$;
CREATE VIEW company.outcome AS
    SELECT (SELECT count(*) FROM company.got) AS delivered, (SELECT count(DISTINCT n) FROM company.got) AS different,
           (SELECT array_agg(ARRAY[(payload -> 'n')::int, attempts] ORDER BY payload) FROM stacksaga.dead_messages) AS dead,
           (SELECT sum(lag_messages) FROM stacksaga.subscriptions) AS left;
SET stacksaga.clock_offset = '0 s';
SELECT stacksaga.create_subscription(name, name, partitions => 2, retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '1 s', jitter => 0))
  FROM unnest('{two,one name}'::text[]) AS name;
SELECT stacksaga.create_subscription(name, name, retry => stacksaga.retry_policy(max_attempts => 5, initial_interval => '1 s', jitter => 0))
  FROM unnest('{single,many}'::text[]) AS name;

-- Two messages, each alone in its batch and lost with the other one: none is charged.
SELECT company.publish('two', 2, 2);
SELECT company.receive('two', 'c') IS NOT NULL AND company.receive('two', 'c') IS NOT NULL AS has_both;
SELECT company.later(31);
-- This call finds that they were lost; from the next one on they come one at a time to a consumer.
SELECT company.receive('two', 'c');
SELECT company.receive('two', 'c') IN ('1:1', '2:1') AS one, company.receive('two', 'c') AS no_other, company.receive('two', 'd') IN ('1:1', '2:1') AS for_another;
-- What is lost now was alone.
SELECT stacksaga.ack_messages(company.batch_of('d')), company.later(31);
SELECT right(company.receive('two', 'c'), 1) AS attempt, stacksaga.ack_messages(company.batch_of('c'));
TABLE company.outcome;

-- Consumers of one name: what another process has answered was no company. While it has not yet, the partition waits, but no
-- longer than the lease was.
SELECT company.publish('one name', 2, 2);
SELECT company.receive('one name', 'c') IS NOT NULL AS for_one;
SELECT company.later(20);
SELECT company.receive('one name', 'c') IS NOT NULL AS for_another;
SELECT company.later(11);
SELECT company.receive('one name', 'c') AS waits;
SELECT stacksaga.ack_messages(company.batch_of('c'));
SELECT right(company.receive('one name', 'c'), 1) AS attempt;
SELECT stacksaga.ack_messages(company.batch_of('c'));
SELECT company.publish('one name', 2, 2);
SELECT company.receive('one name', 'c') IS NOT NULL AS for_one, company.receive('one name', 'c') IS NOT NULL AS for_another;
SELECT stacksaga.extend_batch(company.batch_of('c'), '10 min') IS NOT NULL AS extended, company.later(31);
SELECT company.receive('one name', 'c') AS waits, company.later(31);
SELECT company.receive('one name', 'd') AS no_longer;
SELECT right(company.receive('one name', 'd'), 1) AS attempt;
SELECT stacksaga.ack_messages(company.batch_of('c')), stacksaga.ack_messages(company.batch_of('d'));
TABLE company.outcome;

-- A consumer that holds something gets nothing while such a message waits: else it might be busy for ever.
SELECT company.publish('single', 16, 16);
SELECT count(*) FROM stacksaga.receive_messages('single', 'busy', 1, '1 hour');
SELECT company.receive('single', 'c') IS NOT NULL AND company.receive('single', 'c') IS NOT NULL AS has_both, company.later(31);
-- Without those that were lost; then they wait.
SELECT count(*) FROM stacksaga.receive_messages('single', 'd', 100, '1 hour');
SELECT company.receive('single', 'busy') AS nothing;
SELECT company.receive('single', 'c') IS NOT NULL AS one, company.receive('single', 'busy') AS nothing;
SELECT company.receive('single', 'e') IS NOT NULL AS the_other;
SELECT company.publish('single', 16, 16);
SELECT company.receive('single', 'c') AS nothing, company.receive('single', 'e') AS nothing;
SELECT count(stacksaga.ack_messages(company.batch_of(c))) FROM unnest('{busy,c,d,e}'::text[]) AS c;
CALL company.consume('single', '{}', '{c}', 1, 100);
TABLE company.outcome;
TRUNCATE company.got;

-- Sixteen messages in as many partitions, which a consumer gets one by one and holds all.
SELECT company.publish('single', 16, 16);
CALL company.consume('single', '{11}', '{c}', 16, 1);
TABLE company.outcome;
SELECT stacksaga.discard_message('single', message_id, 'it kills') FROM stacksaga.dead_messages;
TRUNCATE company.got;

-- Many, of which two end their consumers: processes of different names and of one name.
SELECT count(stacksaga.publish('many', jsonb_build_object('n', n))) FROM generate_series(1, 200) AS n;
CALL company.consume('many', '{7,150}', '{a,b,c}', 3, 20);
TABLE company.outcome;
SELECT stacksaga.discard_message('many', message_id, 'it kills') FROM stacksaga.dead_messages;
TRUNCATE company.got;
SELECT count(stacksaga.publish('many', jsonb_build_object('n', n))) FROM generate_series(1, 200) AS n;
CALL company.consume('many', '{7,150}', '{a,a,a}', 3, 20);
TABLE company.outcome;
SELECT stacksaga.discard_message('many', message_id, 'it kills') FROM stacksaga.dead_messages;

-- What was lost is remembered as long as batches are.
SELECT count(*) > 0 AS remembered FROM stacksaga.lost_batch;
SELECT company.later(400 * 86400);
SELECT stacksaga.maintain_outbox(true) IS NOT NULL AS maintained;
SELECT count(*) AS remembered FROM stacksaga.lost_batch;
SELECT stacksaga.drop_subscription(name, true) FROM unnest('{two,one name,single,many}'::text[]) AS name;
RESET stacksaga.clock_offset;
SET client_min_messages = warning;
DROP SCHEMA company CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
