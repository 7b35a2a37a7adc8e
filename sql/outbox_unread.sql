-- A subscription that nobody has read, and no tick since: no worker runs. The metric, doctor() and the view
-- say for how long its first message has waited.

SELECT stacksaga.create_subscription('unread', 'unread'), stacksaga.create_subscription('idle', 'idle');
SELECT stacksaga.publish('unread', '{}') IS NOT NULL AS published;
SET stacksaga.clock_offset = '5 minutes';
CREATE VIEW lags AS
SELECT s.subscription, s.lag_messages, s.lag_seconds::int / 60 AS view,
       (SELECT m.value::int / 60 FROM stacksaga.metrics() AS m
         WHERE m.name = 'stacksaga_subscription_lag_seconds' AND m.labels ->> 'subscription' = s.subscription) AS metric,
       (SELECT array_agg(d.severity) FROM stacksaga.doctor() AS d
         WHERE d.check_name = 'lag' AND d.detail LIKE '%"' || s.subscription || '"%') AS doctor
  FROM stacksaga.subscriptions AS s WHERE s.subscription IN ('unread', 'idle') ORDER BY 1;
TABLE lags;
-- Behind a tick that another subscription has made, and of a transaction that was running then.
SELECT count(*) FROM stacksaga.receive_messages('idle', 'c');
TABLE lags;
SELECT stacksaga.publish('idle', '{}') IS NOT NULL AS published;
SET stacksaga.clock_offset = '10 minutes';
TABLE lags;
SELECT count(*), stacksaga.ack_messages(max(batch_id)) FROM stacksaga.receive_messages('unread', 'c');
SELECT count(*), stacksaga.ack_messages(max(batch_id)) FROM stacksaga.receive_messages('idle', 'c');
TABLE lags;
DROP VIEW lags;
SELECT stacksaga.drop_subscription('unread'), stacksaga.drop_subscription('idle');
RESET stacksaga.clock_offset;

-- What its consumer was lost with is copied out of the log when the retention has passed: a message that was alone in the
-- batch has used up an attempt, one that was not has not.
SELECT stacksaga.create_subscription('lost', 'lost', partitions => 1);
SELECT stacksaga.publish('lost', '"alone"') IS NOT NULL AS published;
SELECT payload, attempt FROM stacksaga.receive_messages('lost', 'c');
SET stacksaga.clock_offset = '4 days';
SELECT stacksaga.maintain_outbox(true) IS NOT NULL AS maintained;
SELECT state, attempt, last_error FROM stacksaga.message_retry WHERE topic = 'lost';
SELECT payload, attempt, stacksaga.ack_messages(batch_id) FROM stacksaga.receive_messages('lost', 'c');
SELECT count(stacksaga.publish('lost', to_jsonb(n))) FROM generate_series(1, 2) AS n;
SELECT payload, attempt FROM stacksaga.receive_messages('lost', 'c');
SET stacksaga.clock_offset = '8 days';
SELECT stacksaga.maintain_outbox(true) IS NOT NULL AS maintained;
SELECT payload, state, attempt FROM stacksaga.message_retry WHERE topic = 'lost' ORDER BY number;
SELECT payload, attempt FROM stacksaga.receive_messages('lost', 'c');
SET stacksaga.clock_offset = '9 days';
SELECT stacksaga.drop_subscription('lost', discard => true);
RESET stacksaga.clock_offset;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
