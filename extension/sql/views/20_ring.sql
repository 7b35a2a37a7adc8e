-- What people and coordinators read of rings and nodes.

CREATE OR REPLACE VIEW stacksaga.ring_settings AS
SELECT r.region, r.cluster, d.setting,
       CASE WHEN d.is_interval
            THEN ((coalesce(s.value, d.value) || ' us')::interval)::text
            ELSE coalesce(s.value, d.value) END AS value,
       r.ring_id
  FROM stacksaga.ring r
 CROSS JOIN stacksaga_internal.ring_setting_defaults() AS d
  LEFT JOIN stacksaga.ring_setting s ON s.ring_id = r.ring_id AND s.setting = d.setting;
COMMENT ON VIEW stacksaga.ring_settings IS
    'Shows every setting of every ring, altered or not';

CREATE OR REPLACE VIEW stacksaga.nodes AS
WITH timing AS (
    SELECT ring_id,
           max(value) FILTER (WHERE setting = 'suspect_after')::interval AS suspect_after,
           max(value) FILTER (WHERE setting = 'dead_after')::interval AS dead_after,
           max(value) FILTER (WHERE setting = 'checkpoint_interval')::interval AS checkpoint_interval
      FROM stacksaga.ring_settings
     GROUP BY ring_id
), owned AS (
    SELECT owner, count(*) AS slots FROM stacksaga.slot WHERE owner IS NOT NULL GROUP BY owner
), listed AS (
    SELECT n.*, r.region, r.cluster, r.slots, c.at, c.at - n.heartbeat_at AS heartbeat_age,
           -- Only a node that has reported progress before can be seen to hang.
           stacksaga_internal.node_state(
               n.heartbeat_at, CASE WHEN n.progress IS NULL THEN c.at ELSE n.checkpoint_at END,
               c.at, n.draining, t.checkpoint_interval, t.suspect_after, t.dead_after) AS state
      FROM stacksaga.node n
      JOIN stacksaga.ring r ON r.ring_id = n.ring_id
      JOIN timing t ON t.ring_id = n.ring_id
     CROSS JOIN stacksaga.clock_now() AS c(at)
)
SELECT l.node, l.region, l.cluster, l.kind, l.state, l.load, l.weight, l.heartbeat_age,
       coalesce(o.slots, 0)::double precision / l.slots AS share,
       l.progress, l.incarnation, l.agent, l.pid,
       CASE WHEN l.progress IS NOT NULL THEN l.at - l.checkpoint_at END AS checkpoint_age
  FROM listed l
  LEFT JOIN owned o ON o.owner = l.incarnation
 WHERE l.state <> 'removed';
COMMENT ON VIEW stacksaga.nodes IS
    'Shows the nodes of every ring, their state, and which share of the ring they own';

CREATE OR REPLACE VIEW stacksaga.ring_status AS
SELECT r.region, r.cluster,
       coalesce(e.epoch, 0) AS epoch,
       w.window_start, w.window_end,
       coalesce(n.active, 0) AS active_nodes,
       coalesce(n.total, 0) AS total_nodes,
       coalesce(n.share, 0) AS coverage,
       stacksaga_internal.oldest_due(r.ring_id) AS oldest_due,
       w.publisher
  FROM stacksaga.ring r
  LEFT JOIN stacksaga.ring_epoch e ON e.ring_id = r.ring_id
  LEFT JOIN LATERAL (
       SELECT t.window_start, t.window_end, t.publisher FROM stacksaga.token_window t
        WHERE t.ring_id = r.ring_id AND t.agent = '' AND t.window_start <= stacksaga.clock_now()
        ORDER BY t.window_start DESC LIMIT 1) AS w ON true
  LEFT JOIN (
       SELECT region, cluster, count(*) FILTER (WHERE state = 'active') AS active,
              count(*) AS total, sum(share) FILTER (WHERE state <> 'dead') AS share
         FROM stacksaga.nodes GROUP BY region, cluster) AS n
    ON n.region = r.region AND n.cluster = r.cluster;
COMMENT ON VIEW stacksaga.ring_status IS
    'Shows each ring: its epoch, the window that is open, its nodes, the share of it that live nodes own, and the oldest work';

CREATE OR REPLACE VIEW stacksaga.ring_adoptions AS
SELECT f.region AS from_region, f.cluster AS from_cluster, t.region AS to_region,
       t.cluster AS to_cluster, a.sagas, a.role::text AS role, a.reason, a.adopted_at
  FROM stacksaga.ring_adoption a
  JOIN stacksaga.ring f ON f.ring_id = a.from_ring_id
  JOIN stacksaga.ring t ON t.ring_id = a.to_ring_id;
COMMENT ON VIEW stacksaga.ring_adoptions IS
    'Shows which rings took over the work of others: how many sagas, which role did it and why';
