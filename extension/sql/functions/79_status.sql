-- Everything that a page about this database shows, and who owns a key.

CREATE OR REPLACE FUNCTION stacksaga.locate(key text)
RETURNS TABLE (token bigint, slot integer, node text, valid_until timestamptz, next_node text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 1 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_locate';
COMMENT ON FUNCTION stacksaga.locate IS
    'Returns the token and the slot of a key in the session''s ring, who owns the slot, until when that cannot change by plan, and who owns it then. Raises SG400, SG404 (no such ring)';

-- Runs of slots that are owned by one node and proposed to one. Tokens are text: JavaScript's numbers
-- do not hold them.
CREATE OR REPLACE FUNCTION stacksaga.status_ranges(ring_id integer) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH slot AS (
        SELECT s.slot, s.range_start, s.range_end, s.epoch, s.next_from, o.node, n.node AS next_node
          FROM stacksaga.slot s
          LEFT JOIN stacksaga.node o ON o.incarnation = s.owner
          LEFT JOIN stacksaga.node n ON n.incarnation = s.next_owner
         WHERE s.ring_id = status_ranges.ring_id
    ), numbered AS (
        SELECT s.*, s.slot - row_number() OVER (
                   PARTITION BY s.node, s.next_node, s.next_from ORDER BY s.slot) AS run
          FROM slot s
    ), merged AS (
        SELECT min(slot) AS slot, min(range_start) AS range_start, max(range_end) AS range_end,
               count(*) AS slots, max(epoch) AS epoch, node, next_node, next_from
          FROM numbered GROUP BY node, next_node, next_from, run
    )
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'range_start', range_start::text, 'range_end', range_end::text, 'slot', slot,
               'slots', slots, 'epoch', epoch, 'node', node, 'next_node', next_node,
               'next_from', next_from) ORDER BY slot), '[]')
      FROM merged
$$;
COMMENT ON FUNCTION stacksaga.status_ranges IS
    'Internal: returns what status() says of the ranges of a ring: who owns each, and to whom the next window gives it';

-- Of all rings at once: asked of one ring after the other, the view would list all nodes each time.
CREATE OR REPLACE FUNCTION stacksaga.status_nodes()
RETURNS TABLE (region text, cluster text, nodes jsonb)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT n.region, n.cluster, jsonb_agg(jsonb_build_object(
               'node', n.node, 'kind', n.kind, 'state', n.state, 'agent', n.agent, 'load', n.load,
               'weight', n.weight, 'share', n.share, 'incarnation', n.incarnation::text,
               'heartbeat_age_seconds', extract(epoch FROM n.heartbeat_age), 'progress', n.progress,
               'checkpoint_age_seconds', extract(epoch FROM n.checkpoint_age))
               ORDER BY n.node)
      FROM stacksaga.nodes n GROUP BY n.region, n.cluster
$$;
COMMENT ON FUNCTION stacksaga.status_nodes IS
    'Internal: returns what status() says of the nodes of each ring that has any';

CREATE OR REPLACE FUNCTION stacksaga.status_rings() RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_agg(jsonb_build_object(
               'region', r.region, 'cluster', r.cluster, 'epoch', r.epoch, 'slots', i.slots,
               'window_start', r.window_start, 'window_end', r.window_end,
               'publisher', r.publisher, 'coverage', r.coverage,
               'active_nodes', r.active_nodes, 'total_nodes', r.total_nodes,
               'oldest_due', r.oldest_due,
               'overdue_seconds', stacksaga.seconds_overdue(r.oldest_due),
               'queues', (SELECT coalesce(jsonb_agg(jsonb_build_object(
                              'queue', q.queue, 'oldest_due', q.due_at,
                              'overdue_seconds', stacksaga.seconds_overdue(q.due_at),
                              'running', stacksaga.running_in_queue(i.ring_id, q.queue, 1000),
                              'max_running', l.max_running, 'paused', l.paused_at IS NOT NULL)
                              ORDER BY q.queue), '[]')
                            FROM stacksaga.oldest_due_of_queues(i.ring_id) AS q
                            LEFT JOIN stacksaga.queue l
                              ON l.ring_id = i.ring_id AND l.queue = q.queue),
               'nodes', coalesce(n.nodes, '[]'),
               'ranges', stacksaga.status_ranges(i.ring_id)) ORDER BY i.ring_id)
      FROM stacksaga.ring_status r JOIN stacksaga.ring i USING (region, cluster)
      LEFT JOIN stacksaga.status_nodes() AS n USING (region, cluster)
$$;
COMMENT ON FUNCTION stacksaga.status_rings IS
    'Internal: returns what status() says of rings';

-- Where sagas have not been counted yet: of those that live, and of those that ended well and not, at
-- most so many are looked at. Live ones are found by their work, the oldest first.
CREATE OR REPLACE FUNCTION stacksaga.status_sagas_seen(count_max integer DEFAULT 1000) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH live AS MATERIALIZED (
        SELECT s.status::text AS status
          FROM (SELECT DISTINCT w.saga_id, w.token FROM stacksaga.work w
                 ORDER BY w.saga_id LIMIT greatest(count_max, 0)) AS w
          JOIN stacksaga.saga s
            ON s.saga_id = w.saga_id AND s.token OPERATOR(stacksaga.=) w.token
    ), counted AS (
        SELECT v.place, v.status, (SELECT count(*) FROM live l WHERE l.status = v.status) AS sagas,
               (SELECT count(*) >= count_max FROM live) AS more
          FROM (VALUES (1, 'pending'), (2, 'running'), (3, 'compensating'), (4, 'suspended'))
               AS v(place, status)
        UNION ALL
        SELECT 5, 'parked', p.sagas, p.sagas >= count_max
          FROM (SELECT stacksaga.parked_count(count_max) AS sagas) AS p
        UNION ALL
        SELECT v.place, v.status, f.sagas, f.sagas >= count_max
          FROM (VALUES (6, 'completed', 'act'), (7, 'failed', 'compensate'))
               AS v(place, status, direction),
               -- Slot by slot: each is one place in the index saga_finished.
               LATERAL (SELECT count(*) AS sagas
                          FROM (SELECT FROM stacksaga.ring r
                                 CROSS JOIN LATERAL generate_series(0, r.slots - 1) AS g(slot)
                                 CROSS JOIN LATERAL (
                                       SELECT FROM stacksaga.saga s
                                        WHERE s.ring_id = r.ring_id AND s.slot = g.slot
                                          AND s.direction = v.direction
                                          AND s.finished_at IS NOT NULL
                                        LIMIT greatest(count_max, 0)) AS s
                                 LIMIT greatest(count_max, 0)) AS ended) AS f
    )
    SELECT jsonb_agg(jsonb_build_object(
               'status', status, 'sagas', least(sagas, count_max), 'more', more) ORDER BY place)
      FROM counted
$$;
COMMENT ON FUNCTION stacksaga.status_sagas_seen IS
    'Internal: returns how many sagas are in each status among those that were read, and whether there are more';

CREATE OR REPLACE FUNCTION stacksaga.status_sagas(count_max integer DEFAULT 1000) RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(
        (SELECT jsonb_agg(jsonb_build_object('status', s.status, 'sagas', s.sagas, 'more', false)
                          ORDER BY s.place)
           FROM stacksaga.sagas_by_status() WITH ORDINALITY AS s(status, sagas, place)),
        stacksaga.status_sagas_seen(count_max))
$$;
COMMENT ON FUNCTION stacksaga.status_sagas IS
    'Internal: returns what status() says of sagas: how many are in each status, and whether there are more than were read';

CREATE OR REPLACE FUNCTION stacksaga.status_subscriptions() RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'subscription', s.subscription, 'topic', s.topic, 'handler', s.handler,
               'region', r.region, 'cluster', r.cluster,
               'lag_seconds', stacksaga.seconds_overdue(
                   stacksaga.outbox_unread_since(s.subscription_id)),
               'held', (SELECT count(*)
                          FROM (SELECT FROM stacksaga.message_retry m
                                 WHERE m.subscription_id = s.subscription_id LIMIT 1000) AS held),
               'dead', stacksaga.dead_count(s.subscription_id)) ORDER BY s.subscription), '[]')
      FROM stacksaga.subscription s JOIN stacksaga.ring r USING (ring_id)
$$;
COMMENT ON FUNCTION stacksaga.status_subscriptions IS
    'Internal: returns what status() says of subscriptions: for how long messages have waited, how many are held and dead (1000 stands for more)';

-- Without JIT: compiling takes a second, what is compiled runs for a millisecond.
CREATE OR REPLACE FUNCTION stacksaga.status() RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
    SELECT jsonb_build_object(
        'time', stacksaga.clock_now(),
        'database', current_database(),
        'version', e.extversion,
        'library', stacksaga.library_version(),
        'coordination', stacksaga.setting('coordination'),
        'is_standby', pg_is_in_recovery(),
        'rings', stacksaga.status_rings(),
        'sagas', stacksaga.status_sagas(),
        'subscriptions', stacksaga.status_subscriptions(),
        'workers', (SELECT coalesce(jsonb_agg(to_jsonb(w) - 'database' ORDER BY w.pid), '[]')
                      FROM stacksaga.worker_stats w),
        'counters', (SELECT jsonb_agg(to_jsonb(c) ORDER BY c.name, c.labels)
                       FROM stacksaga.counters() AS c),
        'parked', stacksaga.parked_count(),
        'parked_sagas', (SELECT coalesce(jsonb_agg(to_jsonb(p) ORDER BY p.since), '[]')
                           FROM (SELECT * FROM stacksaga.parked_sagas LIMIT 20) AS p),
        'blocked_keys', (SELECT coalesce(jsonb_agg(to_jsonb(b) ORDER BY b.blocked_since), '[]')
                           FROM (SELECT * FROM stacksaga.blocked_keys
                                  ORDER BY blocked_since LIMIT 20) AS b),
        'problems', (SELECT coalesce(jsonb_agg(to_jsonb(p) ORDER BY p.place), '[]')
                       FROM (SELECT d.*, row_number() OVER () AS place
                               FROM stacksaga.doctor() AS d) AS p))
      FROM pg_extension e WHERE e.extname = 'stacksaga'
$$;
COMMENT ON FUNCTION stacksaga.status IS
    'Returns everything that a page about this database shows, as one object: rings, nodes, ranges, queues, workers, sagas by status, subscriptions, parked sagas, blocked keys (20 of each of these at most) and what doctor() says; tokens are text';
