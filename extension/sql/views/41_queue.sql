-- Queues as people read them. Columns may be added at the end only.

CREATE OR REPLACE VIEW stacksaga.queues AS
SELECT n.queue,
       coalesce(w.waiting, 0) AS waiting,
       stacksaga_internal.running_in_queue(n.ring_id, n.queue, 10000) AS running,
       w.oldest_due,
       q.paused_at IS NOT NULL AS paused,
       q.max_running,
       q.max_running_per_group,
       q.rate,
       q.rate_interval,
       q.paused_at AS paused_since,
       q.pause_reason,
       n.region,
       n.cluster,
       c.completed,
       c.failed,
       (SELECT count(*) FROM stacksaga_internal.suspended_leases(n.ring_id, n.queue, 10000)) AS suspended_leases,
       q.paused_until
  FROM stacksaga_internal.queue_names() AS n
  LEFT JOIN stacksaga_internal.queue_settings() AS q ON q.ring_id = n.ring_id AND q.queue = n.queue
 CROSS JOIN LATERAL (
       SELECT least(sum(b.waiting), 10000)::bigint AS waiting, min(b.oldest_due) AS oldest_due
         FROM stacksaga_internal.waiting_by_rank(n.ring_id, n.queue, 10000) AS b) AS w
 CROSS JOIN LATERAL stacksaga_internal.queue_counts(n.ring_id, n.queue) AS c;
COMMENT ON VIEW stacksaga.queues IS
    'Queues of the session''s ring, and those of other rings that have work or limits: what is due and not claimed, what is leased, and the limits; counts stop at 10,000, but for the attempts that this server has seen completed and failed';
