-- Subscriptions of two rings that have the same name: each is received, blocked and counted on its
-- own, and a session of the wrong ring gets an error that says so.

\set SHOW_CONTEXT never
SELECT stacksaga.create_ring('outbox', 'r') > 1 AS created;
SELECT stacksaga.create_subscription('same', 't');
SET stacksaga.region = 'outbox';
SET stacksaga.cluster = 'r';
SELECT stacksaga.receive_messages('same', 'c');
SELECT stacksaga.create_subscription('same', 't');
SELECT stacksaga.publish('t', '{"ring": "r"}', 'k') IS NOT NULL AS published;
RESET stacksaga.region;
RESET stacksaga.cluster;
SELECT stacksaga.publish('t', '{"ring": "default"}', 'k') IS NOT NULL AS published;

-- A message of one of them fails for good, and the other does not change.
SELECT batch_id AS batch, message_id AS id, payload FROM stacksaga.receive_messages('same', 'c') \gset
\echo :payload
SELECT stacksaga.fail_message(:batch, :'id', 'no', 'non_retryable');
SELECT stacksaga.ack_messages(:batch);
SELECT region, cluster, lag_messages, blocked_keys, dead_messages FROM stacksaga.subscriptions
 WHERE subscription = 'same' ORDER BY region;
SELECT region, cluster, subscription, key FROM stacksaga.blocked_keys;
-- What status() walks to is what the view reads.
SELECT count(*) AS differing
  FROM ((TABLE stacksaga.blocked_keys EXCEPT ALL SELECT * FROM stacksaga_internal.first_blocked_keys())
        UNION ALL (SELECT * FROM stacksaga_internal.first_blocked_keys() EXCEPT ALL TABLE stacksaga.blocked_keys)) AS d;
SELECT region, cluster, subscription, key FROM stacksaga.dead_messages;

SET stacksaga.region = 'outbox';
SET stacksaga.cluster = 'r';
SELECT batch_id AS batch, payload FROM stacksaga.receive_messages('same', 'c') \gset
\echo :payload
SELECT stacksaga.ack_messages(:batch);
SELECT stacksaga.drop_subscription('same', true);
SELECT stacksaga.drop_subscription('same', true);
RESET stacksaga.region;
RESET stacksaga.cluster;
SELECT stacksaga.drop_subscription('same', true);
DELETE FROM stacksaga.ring WHERE region = 'outbox';
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick;
