-- The outbox as people read it. Columns may be added at the end only.

CREATE OR REPLACE VIEW stacksaga.blocked_keys AS
SELECT s.subscription,
       b.topic,
       b.key,
       b.message_id,
       b.since AS blocked_since,
       b.attempts,
       b.last_error,
       (SELECT count(*) FROM stacksaga.message_retry w
         WHERE w.subscription_id = b.subscription_id AND w.token OPERATOR(stacksaga.=) b.token
           AND w.key IS NOT NULL AND w.state IN ('held', 'held_fallback')) AS waiting,
       r.region,
       r.cluster
  FROM (SELECT DISTINCT ON (subscription_id, key) *
          FROM (SELECT subscription_id, token, tick, number, topic, key, message_id, since, attempts,
                       last_error, 0 AS rank
                  FROM stacksaga.dead_message
                 WHERE key IS NOT NULL AND discarded_at IS NULL
                UNION ALL
                SELECT subscription_id, token, tick, number, topic, key, message_id, failed_since,
                       attempt, last_error, 1
                  FROM stacksaga.message_retry
                 WHERE key IS NOT NULL AND failed_since IS NOT NULL
                   AND state NOT IN ('held', 'held_fallback')) AS blockers
         ORDER BY subscription_id, key, rank, tick, number) AS b
  JOIN stacksaga.subscription s ON s.subscription_id = b.subscription_id
  JOIN stacksaga.ring r ON r.ring_id = s.ring_id
 WHERE s.stop_on_first_failure;
COMMENT ON VIEW stacksaga.blocked_keys IS
    'One row per key that a failed message holds, in subscriptions that stop on the first failure: which message, since when, and how many are held behind it';

CREATE OR REPLACE VIEW stacksaga.dead_messages AS
SELECT s.subscription,
       d.topic,
       d.key,
       d.message_id,
       d.dead_since,
       d.attempts,
       d.last_error,
       d.payload,
       r.region,
       r.cluster
  FROM stacksaga.dead_message d
  JOIN stacksaga.subscription s ON s.subscription_id = d.subscription_id
  JOIN stacksaga.ring r ON r.ring_id = s.ring_id
 WHERE d.discarded_at IS NULL;
COMMENT ON VIEW stacksaga.dead_messages IS
    'Messages that have failed for good: redrive_message() or discard_message() them';

CREATE OR REPLACE VIEW stacksaga.discarded_messages AS
SELECT s.subscription, d.topic, d.key, d.message_id, d.dead_since, d.attempts, d.last_error,
       d.discarded_at, d.discarded_by::text AS discarded_by, d.discard_reason, r.region, r.cluster
  FROM stacksaga.dead_message d
  JOIN stacksaga.subscription s ON s.subscription_id = d.subscription_id
  JOIN stacksaga.ring r ON r.ring_id = s.ring_id
 WHERE d.discarded_at IS NOT NULL;
COMMENT ON VIEW stacksaga.discarded_messages IS
    'Messages that discard_message() has ended, for as long as they are kept: who did it, when and why';

CREATE OR REPLACE VIEW stacksaga.message_retries AS
SELECT s.subscription, m.topic, m.key, m.message_id, m.state::text AS state, m.attempt,
       nullif(m.due_at, 'infinity') AS due_at, m.failed_since, m.last_error, r.region, r.cluster
  FROM stacksaga.message_retry m
  JOIN stacksaga.subscription s ON s.subscription_id = m.subscription_id
  JOIN stacksaga.ring r ON r.ring_id = s.ring_id;
COMMENT ON VIEW stacksaga.message_retries IS
    'Messages that are delivered on their own: delayed ones, those that have failed, and those that wait behind one';

CREATE OR REPLACE VIEW stacksaga.subscriptions AS
SELECT s.subscription,
       s.topic,
       s.handler,
       s.stop_on_first_failure,
       b.messages AS lag_messages,
       b.seconds AS lag_seconds,
       (SELECT count(*) FROM stacksaga.blocked_keys k
         WHERE (k.subscription, k.region, k.cluster) = (s.subscription, r.region, r.cluster))
           AS blocked_keys,
       (SELECT count(*) FROM stacksaga.dead_message d
         WHERE d.subscription_id = s.subscription_id AND d.discarded_at IS NULL) AS dead_messages,
       r.region,
       r.cluster,
       s.partitions,
       p.paused_at IS NOT NULL AS paused,
       p.paused_at AS paused_since,
       p.paused_until,
       p.pause_reason,
       a.released_until,
       a.release_reason
  FROM stacksaga.subscription s
  JOIN stacksaga.ring r ON r.ring_id = s.ring_id
 CROSS JOIN LATERAL stacksaga_internal.outbox_backlog(s.subscription_id) AS b
  LEFT JOIN LATERAL (
       SELECT s.paused_at, s.paused_until, s.pause_reason
        WHERE s.paused_at IS NOT NULL
          AND (s.paused_until IS NULL OR s.paused_until > stacksaga.clock_now())) AS p ON true
  LEFT JOIN LATERAL stacksaga_internal.last_release(s.subscription_id, s.partitions) AS a ON true;
COMMENT ON VIEW stacksaga.subscriptions IS
    'One row per subscription; its lag counts messages that are published and not handled, without dead ones';
