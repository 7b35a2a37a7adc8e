-- Everything that a page about this database shows, and who owns a key.

CREATE OR REPLACE FUNCTION stacksaga.locate(key text)
RETURNS TABLE (token bigint, slot integer, node text, valid_until timestamptz, next_node text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 1 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_locate';
COMMENT ON FUNCTION stacksaga.locate IS
    'Returns the token and the slot of a key in the session''s ring, who owns the slot, until when that cannot change by plan, and who owns it then. Raises SG400, SG404 (no such ring)';

-- Runs of slots that are owned by one node and proposed to one. Tokens are text: JavaScript's numbers
-- do not hold them.
CREATE OR REPLACE FUNCTION stacksaga_internal.status_ranges(ring_id integer) RETURNS jsonb
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
COMMENT ON FUNCTION stacksaga_internal.status_ranges IS
    'Internal: returns what status() says of the ranges of a ring: who owns each, and to whom the next window gives it';

-- Of all rings at once: asked of one ring after the other, the view would list all nodes each time.
CREATE OR REPLACE FUNCTION stacksaga_internal.status_nodes()
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
COMMENT ON FUNCTION stacksaga_internal.status_nodes IS
    'Internal: returns what status() says of the nodes of each ring that has any';

-- A queue's limits are members only where it has any or is paused.
CREATE OR REPLACE FUNCTION stacksaga_internal.status_queues(ring_id integer) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'queue', q.queue, 'oldest_due', q.oldest_due,
               'overdue_seconds', coalesce(stacksaga_internal.seconds_overdue(q.oldest_due), 0),
               'waiting', (SELECT sum(n) FROM unnest(q.waiting) AS n), 'running', q.running,
               'paused', (q.settings).paused_at IS NOT NULL,
               'max_running', (q.settings).max_running)
           || CASE WHEN (q.settings).queue IS NULL THEN '{}' ELSE jsonb_build_object(
               'paused_since', (q.settings).paused_at, 'pause_reason', (q.settings).pause_reason,
               'paused_until', (q.settings).paused_until,
               'max_running_per_group', (q.settings).max_running_per_group,
               'rate', (q.settings).rate,
               'rate_interval_seconds', extract(epoch FROM (q.settings).rate_interval),
               'held_back', (SELECT jsonb_object_agg(h."limit", h.steps)
                               FROM stacksaga_internal.held_back_by_limit(
                                        q.settings, q.running, q.waiting, 1000) AS h)) END
               ORDER BY q.queue), '[]')
      FROM stacksaga_internal.queue_states(status_queues.ring_id) AS q
$$;
COMMENT ON FUNCTION stacksaga_internal.status_queues IS
    'Internal: returns what status() says of the queues of a ring: a hundred at most, those with limits first';

CREATE OR REPLACE FUNCTION stacksaga_internal.status_rings() RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_agg(jsonb_build_object(
               'region', r.region, 'cluster', r.cluster, 'epoch', r.epoch, 'slots', i.slots,
               'window_start', r.window_start, 'window_end', r.window_end,
               'publisher', r.publisher, 'coverage', r.coverage,
               'active_nodes', r.active_nodes, 'total_nodes', r.total_nodes,
               'oldest_due', r.oldest_due,
               'overdue_seconds', stacksaga_internal.seconds_overdue(r.oldest_due),
               'queues', stacksaga_internal.status_queues(i.ring_id),
               'nodes', coalesce(n.nodes, '[]'),
               'ranges', stacksaga_internal.status_ranges(i.ring_id)) ORDER BY i.ring_id)
      FROM stacksaga.ring_status r JOIN stacksaga.ring i USING (region, cluster)
      LEFT JOIN stacksaga_internal.status_nodes() AS n USING (region, cluster)
$$;
COMMENT ON FUNCTION stacksaga_internal.status_rings IS
    'Internal: returns what status() says of rings';

-- Where sagas have not been counted yet: of those that ended well and not at most so many are looked at, and of
-- those that live the ones that so many rows of work belong to, the oldest first.
CREATE OR REPLACE FUNCTION stacksaga_internal.status_sagas_seen(count_max integer DEFAULT 1000) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), first AS MATERIALIZED (
        SELECT w.saga_id, w.token FROM stacksaga.work w ORDER BY w.saga_id LIMIT greatest(count_max, 0)
    ), live AS MATERIALIZED (
        SELECT s.status
          FROM (SELECT DISTINCT f.saga_id, f.token FROM first f) AS w
         CROSS JOIN LATERAL ( -- the limit keeps the planner from reading all sagas
               SELECT s.status::text AS status FROM stacksaga.saga s
                WHERE s.saga_id = w.saga_id AND s.token OPERATOR(stacksaga.=) w.token LIMIT 1) AS s
    ), counted AS (
        SELECT v.place, v.status, (SELECT count(*) FROM live l WHERE l.status = v.status) AS sagas,
               (SELECT count(*) >= count_max FROM first) AS more
          FROM (VALUES (1, 'pending'), (2, 'running'), (3, 'compensating'), (4, 'suspended'))
               AS v(place, status)
        UNION ALL
        SELECT 5, 'parked', p.sagas, p.sagas >= count_max
          FROM (SELECT stacksaga_internal.parked_count(count_max) AS sagas) AS p
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
COMMENT ON FUNCTION stacksaga_internal.status_sagas_seen IS
    'Internal: returns how many sagas are in each status among those that were read, and whether there are more';

CREATE OR REPLACE FUNCTION stacksaga_internal.status_sagas(count_max integer DEFAULT 1000) RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(
        (SELECT jsonb_agg(jsonb_build_object('status', s.status, 'sagas', s.sagas, 'more', false)
                          ORDER BY s.place)
           FROM stacksaga_internal.sagas_by_status() WITH ORDINALITY AS s(status, sagas, place)),
        stacksaga_internal.status_sagas_seen(count_max))
$$;
COMMENT ON FUNCTION stacksaga_internal.status_sagas IS
    'Internal: returns what status() says of sagas: how many are in each status, and whether there are more than were read';

CREATE OR REPLACE FUNCTION stacksaga_internal.status_subscriptions() RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'subscription', s.subscription, 'topic', s.topic, 'handler', s.handler,
               'region', r.region, 'cluster', r.cluster,
               'lag_seconds', stacksaga_internal.seconds_overdue(
                   stacksaga_internal.outbox_unread_since(s.subscription_id)),
               'held', (SELECT count(*)
                          FROM (SELECT FROM stacksaga.message_retry m
                                 WHERE m.subscription_id = s.subscription_id LIMIT 1000) AS held),
               'dead', stacksaga_internal.dead_count(s.subscription_id), 'paused', p.is_paused)
           || coalesce((SELECT jsonb_build_object('released_until', l.released_until,
                                                  'release_reason', l.release_reason)
                          FROM stacksaga_internal.last_release(s.subscription_id, s.partitions) AS l
                         WHERE l.released_until IS NOT NULL), '{}')
           || CASE WHEN NOT p.is_paused THEN '{}' ELSE jsonb_build_object(
               'paused_since', s.paused_at, 'paused_until', s.paused_until,
               'pause_reason', s.pause_reason,
               'paused_by', (SELECT coalesce(a.on_behalf_of, a.role)
                               FROM stacksaga.operator_action a
                              WHERE a.acted_at BETWEEN s.paused_at AND s.paused_at + interval '10 seconds'
                                AND a.action = 'pause' AND a.object = 'subscription ' || s.subscription
                              ORDER BY a.acted_at LIMIT 1)) END
               ORDER BY s.subscription), '[]')
      FROM stacksaga.subscription s JOIN stacksaga.ring r USING (ring_id)
     CROSS JOIN LATERAL stacksaga_internal.is_paused(s.paused_at, s.paused_until) AS p(is_paused)
$$;
COMMENT ON FUNCTION stacksaga_internal.status_subscriptions IS
    'Internal: returns what status() says of subscriptions: for how long messages have waited, how many are held and dead (1000 stands for more)';

-- The view blocked_keys reads every message that is dead. This walks to the first keys of each subscription.
CREATE OR REPLACE FUNCTION stacksaga_internal.first_blocked_keys(subscription text DEFAULT NULL, enough integer DEFAULT 100)
RETURNS TABLE (subscription text, topic text, key text, message_id uuid, blocked_since timestamptz, attempts integer,
               last_error text, waiting bigint, region text, cluster text)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 20 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.subscription, b.topic, b.key, b.message_id, b.since, b.attempts, b.last_error,
           (SELECT count(*)
              FROM (SELECT FROM stacksaga.message_retry w
                     WHERE w.subscription_id = s.subscription_id AND w.token OPERATOR(stacksaga.=) c.token
                       AND w.key IS NOT NULL AND w.state IN ('held', 'held_fallback') LIMIT 10000) AS held),
           r.region, r.cluster
      FROM stacksaga.subscription s
      JOIN stacksaga.ring r ON r.ring_id = s.ring_id
     CROSS JOIN LATERAL (
           SELECT DISTINCT f.token, f.key
             FROM ((SELECT d.token, d.key FROM stacksaga.dead_message d
                     WHERE d.subscription_id = s.subscription_id AND d.discarded_at IS NULL AND d.key IS NOT NULL
                     ORDER BY d.since LIMIT greatest(enough, 0))
                   UNION ALL
                   (SELECT m.token, m.key FROM stacksaga.message_retry m
                     WHERE m.subscription_id = s.subscription_id
                       AND m.state NOT IN ('delayed', 'held', 'held_fallback')
                       AND m.key IS NOT NULL AND m.failed_since IS NOT NULL
                     LIMIT greatest(enough, 0))) AS f) AS c
     CROSS JOIN LATERAL (
           SELECT * FROM (
               (SELECT d.topic, d.key, d.message_id, d.since, d.attempts, d.last_error, 0 AS rank
                  FROM stacksaga.dead_message d
                 WHERE d.subscription_id = s.subscription_id AND d.token OPERATOR(stacksaga.=) c.token
                   AND d.key = c.key AND d.discarded_at IS NULL
                 ORDER BY d.tick, d.number LIMIT 1)
               UNION ALL
               (SELECT m.topic, m.key, m.message_id, m.failed_since, m.attempt, m.last_error, 1
                  FROM stacksaga.message_retry m
                 WHERE m.subscription_id = s.subscription_id AND m.token OPERATOR(stacksaga.=) c.token
                   AND m.key = c.key AND m.failed_since IS NOT NULL
                   AND m.state NOT IN ('delayed', 'held', 'held_fallback')
                 ORDER BY m.tick, m.number LIMIT 1)) AS blockers
            ORDER BY rank LIMIT 1) AS b
     WHERE s.stop_on_first_failure
       AND (first_blocked_keys.subscription IS NULL OR s.subscription = first_blocked_keys.subscription)
$$;
COMMENT ON FUNCTION stacksaga_internal.first_blocked_keys IS
    'Internal: returns rows of blocked_keys, no more than a few hundred of each subscription: those that have waited longest for a dead message, and some that wait for a retry';

-- Looks at no more schedules of a ring than a thousand: those that are due first.
CREATE OR REPLACE FUNCTION stacksaga_internal.status_schedules(count_max integer DEFAULT 100) RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH looked_at AS (
        SELECT s.*, r.region, r.cluster, s.failures > 0 AND NOT s.paused AS is_failing,
               CASE WHEN s.paused THEN 0 ELSE stacksaga_internal.seconds_overdue(s.next_run) END AS lag
          FROM stacksaga.ring r
         CROSS JOIN LATERAL (SELECT * FROM stacksaga.schedule s
                              WHERE s.ring_id = r.ring_id ORDER BY s.due_at LIMIT 1000) AS s
    ), worst AS (
        SELECT *, row_number() OVER (ORDER BY is_failing DESC, lag DESC, due_at, schedule) AS place
          FROM looked_at ORDER BY place LIMIT greatest(count_max, 0)
    )
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'schedule', s.schedule, 'saga', s.saga, 'region', s.region, 'cluster', s.cluster,
               'cron', s.cron, 'timezone', s.timezone, 'paused', s.paused,
               'next_run', CASE WHEN NOT s.paused AND isfinite(s.next_run) THEN s.next_run END,
               'lag_seconds', s.lag, 'last_run', s.last_run, 'failures', s.failures,
               'failed_since', s.failed_since, 'last_error', left(s.last_error, 500),
               'paused_since', p.acted_at, 'pause_reason', p.reason) ORDER BY s.place), '[]')
      FROM worst s
      LEFT JOIN LATERAL (
           SELECT a.acted_at, a.reason FROM stacksaga.schedule_action a
            WHERE a.schedule = s.schedule AND a.token OPERATOR(stacksaga.=) s.token
            ORDER BY a.action_no DESC LIMIT 1) AS p ON s.paused
$$;
COMMENT ON FUNCTION stacksaga_internal.status_schedules IS
    'Internal: returns what status() says of schedules: a hundred at most, those that fail first, then the latest, then the next';

CREATE OR REPLACE FUNCTION stacksaga_internal.status_parked_errors(count_max integer DEFAULT 1000) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'saga', e.saga, 'step', e.step, 'direction', e.direction, 'error', e.error,
               'sagas', e.sagas, 'since', e.since, 'saga_ids', e.saga_ids,
               'first', (SELECT jsonb_agg(to_jsonb(p) || jsonb_build_object('error', left(p.error, 2000))
                                          ORDER BY p.since, p.saga_id)
                           FROM unnest(e.saga_ids[1:5]) AS f(saga_id)
                           JOIN stacksaga.parked_sagas p ON p.saga_id = f.saga_id))
               ORDER BY e.sagas DESC, e.since), '[]')
      FROM stacksaga_internal.parked_errors(count_max) AS e
$$;
COMMENT ON FUNCTION stacksaga_internal.status_parked_errors IS
    'Internal: returns what status() says of the errors of parked sagas: of each saga, step and error how many there are, which, and the first of them';

-- Without JIT and parallel workers: compiling takes a second and starting workers ten milliseconds, for what
-- runs one millisecond.
CREATE OR REPLACE FUNCTION stacksaga.status() RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET max_parallel_workers_per_gather = 0
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT jsonb_build_object(
        'time', stacksaga.clock_now(),
        'database', current_database(),
        'version', e.extversion,
        'library', stacksaga_internal.library_version(),
        'coordination', stacksaga_internal.setting('coordination'),
        'is_standby', pg_is_in_recovery(),
        'rings', stacksaga_internal.status_rings(),
        'sagas', stacksaga_internal.status_sagas(),
        'subscriptions', stacksaga_internal.status_subscriptions(),
        'schedules', stacksaga_internal.status_schedules(),
        'workers', (SELECT coalesce(jsonb_agg(to_jsonb(w) - 'database' ORDER BY w.pid), '[]')
                      FROM stacksaga.worker_stats w),
        'handlers', (SELECT coalesce(jsonb_agg(to_jsonb(h) ORDER BY h.since), '[]')
                       FROM stacksaga_internal.handlers_at_work() AS h),
        'counters', (SELECT jsonb_agg(to_jsonb(c) ORDER BY c.name, c.labels)
                       FROM stacksaga_internal.counters() AS c),
        'parked', stacksaga_internal.parked_count(),
        'parked_sagas', (SELECT coalesce(jsonb_agg(to_jsonb(p) ORDER BY p.since), '[]')
                           FROM (SELECT * FROM stacksaga.parked_sagas LIMIT 20) AS p),
        'parked_errors', stacksaga_internal.status_parked_errors(),
        'blocked_keys', (SELECT coalesce(jsonb_agg(to_jsonb(b) ORDER BY b.blocked_since), '[]')
                           FROM (SELECT * FROM stacksaga_internal.first_blocked_keys()
                                  ORDER BY blocked_since LIMIT 20) AS b),
        'problems', (SELECT coalesce(jsonb_agg(to_jsonb(p) ORDER BY p.place), '[]')
                       FROM (SELECT d.*, row_number() OVER () AS place
                               FROM stacksaga.doctor() AS d) AS p))
      FROM pg_extension e WHERE e.extname = 'stacksaga'
$$;
COMMENT ON FUNCTION stacksaga.status IS
    'Returns everything that a page about this database shows, as one object: rings, nodes, ranges, queues and schedules (100 of each at most), workers, sagas by status, subscriptions, parked sagas, their errors, blocked keys (20 of each of these at most) and what doctor() says; tokens are text';
