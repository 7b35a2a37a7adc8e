-- A subscription serves as many consumers at once as it has partitions, each key in its order.

SELECT stacksaga.create_subscription('odd', 'p', partitions => 3);
SELECT stacksaga.create_subscription('many', 'p', partitions => 512);
SELECT stacksaga.create_subscription('none', 'p', partitions => 0);
SELECT stacksaga.create_subscription('null', 'p', partitions => NULL);

SELECT p AS partitions, stacksaga.create_subscription('p' || p, 'p', partitions => p)
  FROM unnest('{1,2,4,16,64,256}'::int[]) AS p;
SELECT stacksaga.create_subscription('p64', 'p', partitions => 64); -- the same again
SELECT stacksaga.create_subscription('p64', 'p');
SELECT subscription, partitions,
       (SELECT count(DISTINCT partition) FROM stacksaga.subscription_position AS p
          JOIN stacksaga.subscription AS s USING (subscription_id) WHERE s.subscription = v.subscription)
         AS positions
  FROM stacksaga.subscriptions AS v ORDER BY partitions;
-- Altering keeps them, and create_subscription() with what it has now is a repetition.
SELECT stacksaga.alter_subscription('p64', stop_on_first_failure => false),
       stacksaga.create_subscription('p64', 'p', stop_on_first_failure => false, partitions => 64);

-- 2000 keys fill each of 256 partitions; three messages of each.
SELECT count(stacksaga.publish('p', to_jsonb(n), 'key-' || k))
  FROM generate_series(1, 3) AS n, generate_series(1, 2000) AS k;

-- Each consumer takes one message, so one partition: as many get one as there are partitions, and all
-- of them a different one. The next one finds nothing.
CREATE FUNCTION consumers(subscription text, tries int) RETURNS TABLE (served bigint, keys bigint, first boolean)
LANGUAGE sql AS $$
    SELECT count(m.message_id), count(DISTINCT m.key), bool_and(m.payload = '1')
      FROM generate_series(1, tries) AS n,
           LATERAL stacksaga.receive_messages(subscription, 'consumer ' || n, 1) AS m
$$;
SELECT p AS partitions, c.* FROM unnest('{1,2,4,16,64,256}'::int[]) AS p, LATERAL consumers('p' || p, p + 3) AS c;

-- A partition is where the token of a key says.
SELECT s.partitions, count(*) AS leased,
       bool_and(p.partition = b.partitions[1] AND cardinality(b.partitions) = 1) AS one_each
  FROM stacksaga.subscription AS s
  JOIN stacksaga.message_batch AS b USING (subscription_id)
  JOIN (SELECT DISTINCT ON (subscription_id, partition) * FROM stacksaga.subscription_position
         ORDER BY subscription_id, partition, version DESC) AS p
    ON p.subscription_id = s.subscription_id AND p.batch_id = b.batch_id
 GROUP BY 1 ORDER BY 1;

-- One consumer alone gets all of them, each key in its order, however many partitions it reads.
SELECT count(stacksaga.ack_messages(batch_id)) AS acknowledged FROM stacksaga.message_batch;
CREATE TABLE got (subscription text, place bigserial, key text, n int);
CREATE PROCEDURE drain(name text, room int) LANGUAGE plpgsql AS $$
DECLARE batch bigint;
BEGIN
    LOOP
        INSERT INTO got (subscription, key, n)
        SELECT name, key, payload::int FROM stacksaga.receive_messages(name, 'alone', room) AS m;
        EXIT WHEN NOT FOUND;
        SELECT max(batch_id) INTO batch FROM stacksaga.message_batch;
        PERFORM stacksaga.ack_messages(batch);
        COMMIT;
    END LOOP;
END
$$;
CALL drain('p1', 700);
CALL drain('p2', 700);
CALL drain('p4', 700);
CALL drain('p16', 700);
CALL drain('p64', 700);
CALL drain('p256', 700);
SELECT subscription, count(*), count(DISTINCT (key, n)) AS different,
       (SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY key ORDER BY place) AS before
                                FROM got AS o WHERE o.subscription = g.subscription) AS x
         WHERE before IS NOT NULL AND n <> before + 1) AS out_of_order
  FROM got AS g GROUP BY 1 ORDER BY length(subscription), subscription;
SELECT subscription, lag_messages, lag_seconds FROM stacksaga.subscriptions ORDER BY partitions;

-- A partition that lags far behind the others it is read with: they go on, and it loses nothing.
CREATE FUNCTION key_of(p int) RETURNS text LANGUAGE sql AS $$
    SELECT 'lag-' || n FROM generate_series(1, 10000) AS n
     WHERE stacksaga.slot(stacksaga.token('lag-' || n), 256) = p LIMIT 1 $$;
SELECT key_of(32) AS slow, key_of(33) AS quick \gset
SELECT count(stacksaga.publish('p', '1', :'slow'));
SELECT batch_id AS held FROM stacksaga.receive_messages('p256', 'slow', 1) \gset
SELECT count(stacksaga.publish('p', to_jsonb(n), k))
  FROM generate_series(1, 30) AS n, unnest(ARRAY[:'slow', :'quick']) AS k;
TRUNCATE got;
CALL drain('p256', 7);
SELECT key = :'quick' AS quick, count(*), array_agg(n ORDER BY place) = array_agg(n ORDER BY n) AS in_order
  FROM got GROUP BY 1;
SELECT stacksaga.ack_messages(:held);
CALL drain('p256', 7);
SELECT key = :'quick' AS quick, count(*), array_agg(n ORDER BY place) = array_agg(n ORDER BY n) AS in_order
  FROM got GROUP BY 1 ORDER BY 1;

-- Failures: a blocked key, and a dead message that is redriven, belong to a partition of 256.
SELECT stacksaga.publish('p', '1', :'slow') IS NOT NULL, stacksaga.publish('p', '2', :'slow') IS NOT NULL;
SELECT batch_id AS batch, message_id AS message FROM stacksaga.receive_messages('p256', 'c', 1) \gset
SELECT stacksaga.fail_message(:batch, :'message', 'no', 'non_retryable'), stacksaga.ack_messages(:batch);
SELECT count(*) FROM stacksaga.receive_messages('p256', 'c');
SELECT subscription, key = :'slow' AS slow, waiting FROM stacksaga.blocked_keys;
SELECT partition FROM stacksaga.dead_message UNION ALL SELECT partition FROM stacksaga.message_retry;
SELECT count(*) FROM stacksaga.redrive_messages('p256', dry_run => false);
SELECT payload, batch_id AS batch FROM stacksaga.receive_messages('p256', 'c') \gset
SELECT :'payload' AS redriven, stacksaga.ack_messages(:batch);

-- A handler: run_pending() and, in other tests, workers deliver from all partitions.
CREATE TABLE handled (n int, key text, place bigserial);
CREATE FUNCTION handle(m stacksaga.message) RETURNS void LANGUAGE sql AS
    $$ INSERT INTO handled (n, key) VALUES (m.payload::int, m.key) $$;
SELECT stacksaga.create_subscription('handled', 'q', 'handle(stacksaga.message)', partitions => 256),
       stacksaga.create_subscription('serial', 'q', 'handle(stacksaga.message)', partitions => 1);
SELECT count(stacksaga.publish('q', to_jsonb(n), 'key-' || k))
  FROM generate_series(1, 3) AS n, generate_series(1, 100) AS k;
SELECT stacksaga.run_pending(1000) + stacksaga.run_pending(1000) + stacksaga.run_pending(1000) AS delivered;
SELECT count(*), count(DISTINCT (key, n)) AS different FROM handled;
SELECT count(*) AS out_of_order
  FROM (SELECT n, lag(n, 2) OVER (PARTITION BY key ORDER BY n, place) AS before,
               lag(place, 2) OVER (PARTITION BY key ORDER BY n, place) AS place_before, place FROM handled) AS x
 WHERE place_before > place;

SELECT count(stacksaga.drop_subscription(subscription, true)) FROM stacksaga.subscriptions;
SELECT count(*) FROM stacksaga.subscription_position;
DROP PROCEDURE drain;
DROP FUNCTION consumers, key_of, handle;
DROP TABLE got, handled;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
