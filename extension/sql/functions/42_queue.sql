-- Limits of queues (extension/src/queue/queue.cpp, queue_limits.cpp).

CREATE OR REPLACE FUNCTION stacksaga.set_queue(
    queue                 text,
    max_running           integer  DEFAULT NULL,
    max_running_per_group integer  DEFAULT NULL,
    rate                  integer  DEFAULT NULL,
    rate_interval         interval DEFAULT '1 second'
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_set_queue';
COMMENT ON FUNCTION stacksaga.set_queue IS
    'Sets the limits of a queue of the session''s ring, all at once, NULL for none: how many steps may be leased, of all groups and of each, and how many may be claimed in any window of an interval. Waits for transactions that have claimed from the queue. Raises SG400';

CREATE OR REPLACE FUNCTION stacksaga.drop_queue(queue text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_drop_queue';
COMMENT ON FUNCTION stacksaga.drop_queue IS
    'Forgets the limits of a queue; a pause stays. Raises SG400, SG404 (it has none)';

CREATE OR REPLACE FUNCTION stacksaga.pause_queue(
    queue  text,
    reason text,
    until  timestamptz DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_pause_queue';
COMMENT ON FUNCTION stacksaga.pause_queue IS
    'From its commit on nothing but compensations is claimed from a queue, until an instant or resume_queue(); leases stay valid. Raises SG400, SG409 (it is paused)';

CREATE OR REPLACE FUNCTION stacksaga.resume_queue(queue text, reason text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_resume_queue';
COMMENT ON FUNCTION stacksaga.resume_queue IS
    'Ends the pause of a queue. Raises SG400, SG409 (it is not paused)';

CREATE OR REPLACE FUNCTION stacksaga_internal.is_paused(paused_at timestamptz, paused_until timestamptz)
RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT paused_at IS NOT NULL AND coalesce(paused_until > stacksaga.clock_now(), true)
$$;
COMMENT ON FUNCTION stacksaga_internal.is_paused IS
    'Internal: returns whether a pause that began and may have an end is in force';

-- A row whose pause has ended is left until the next change of the queue.
CREATE OR REPLACE FUNCTION stacksaga_internal.queue_settings()
RETURNS SETOF stacksaga.queue
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT q.ring_id, q.queue, q.max_running, q.max_running_per_group, q.rate, q.rate_interval,
           CASE WHEN p.is_paused THEN q.paused_at END, CASE WHEN p.is_paused THEN q.pause_reason END,
           CASE WHEN p.is_paused THEN q.paused_until END
      FROM stacksaga.queue q
     CROSS JOIN LATERAL stacksaga_internal.is_paused(q.paused_at, q.paused_until) AS p(is_paused)
     WHERE p.is_paused OR coalesce(q.max_running, q.max_running_per_group, q.rate) IS NOT NULL
$$;
COMMENT ON FUNCTION stacksaga_internal.queue_settings IS
    'Internal: returns the queues that have limits or are paused now, without pauses that have ended';

CREATE OR REPLACE FUNCTION stacksaga_internal.queue_names()
RETURNS TABLE (ring_id integer, region text, cluster text, queue text)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT r.ring_id, r.region, r.cluster, q.queue
      FROM stacksaga.ring r, stacksaga.definition_step d
     CROSS JOIN LATERAL (
           VALUES (d.queue), (d.compensation_queue), (CASE WHEN d.kind NOT IN ('sql', 'message') THEN d.fallback END)) AS q(queue)
     WHERE r.region = stacksaga_internal.setting('region') AND r.cluster = stacksaga_internal.setting('cluster')
       AND q.queue IS NOT NULL
    UNION
    SELECT r.ring_id, r.region, r.cluster, q.queue
      FROM stacksaga.ring r JOIN stacksaga_internal.queue_settings() AS q USING (ring_id)
    UNION
    SELECT r.ring_id, r.region, r.cluster, w.queue
      FROM stacksaga.ring r, stacksaga_internal.queues_with_work(r.ring_id) AS w(queue)
$$;
COMMENT ON FUNCTION stacksaga_internal.queue_names IS
    'Internal: returns the queues that a definition names, of the session''s ring, and those of all rings that have work or limits';

-- By rank, so that each count reads an index up to the instant, and at most so many rows.
CREATE OR REPLACE FUNCTION stacksaga_internal.waiting_by_rank(ring_id integer, queue text, enough integer)
RETURNS TABLE (rank integer, waiting bigint, oldest_due timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 6 SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT r.rank, least(u.n + t.n, enough), least(u.oldest, t.oldest)
      FROM (SELECT generate_series(0, 5), stacksaga.clock_now()) AS r(rank, instant)
     CROSS JOIN LATERAL (
           SELECT count(*) AS n, min(u.due_at) AS oldest
             FROM (SELECT w.due_at FROM stacksaga.work w
                    WHERE w.ring_id = waiting_by_rank.ring_id
                      AND w.queue = waiting_by_rank.queue AND r.rank = 3
                      AND w.queue IS NOT NULL AND NOT w.verifying AND w.lease_until IS NULL
                      AND w.rank = 3 AND w.group_key = '' AND w.due_at <= r.instant
                    ORDER BY w.due_at LIMIT greatest(enough, 0)) AS u) AS u
     CROSS JOIN LATERAL (
           SELECT count(*) AS n, min(t.due_at) AS oldest
             FROM (SELECT w.due_at FROM stacksaga.work w
                    WHERE w.ring_id = waiting_by_rank.ring_id
                      AND w.queue = waiting_by_rank.queue AND w.rank = r.rank::smallint
                      AND w.queue IS NOT NULL AND NOT w.verifying AND w.lease_until IS NULL
                      AND (w.rank <> 3 OR w.group_key <> '') AND w.due_at <= r.instant
                    ORDER BY w.due_at LIMIT greatest(enough, 0)) AS t) AS t
$$;
COMMENT ON FUNCTION stacksaga_internal.waiting_by_rank IS
    'Internal: returns how many steps of each rank are due in a queue, counted up to a number, and since when';

CREATE OR REPLACE FUNCTION stacksaga_internal.running_in_queue(ring_id integer, queue text, enough integer)
RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT count(*)
      FROM (SELECT FROM stacksaga.work w
             WHERE w.ring_id = running_in_queue.ring_id AND w.queue = running_in_queue.queue
               AND w.queue IS NOT NULL AND w.lease_until IS NOT NULL LIMIT greatest(enough, 0)) AS leased
$$;
COMMENT ON FUNCTION stacksaga_internal.running_in_queue IS
    'Internal: returns how many steps of a queue are leased, counted up to a number';

-- Suspending a saga moves the ends of its leases out of reach. Those under a suspended ancestor run out.
CREATE OR REPLACE FUNCTION stacksaga_internal.suspended_leases(ring_id integer, queue text, enough integer)
RETURNS TABLE (saga_id uuid, worker text, since timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 1 SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT s.saga_id, w.worker, s.suspended_at
      FROM stacksaga.work w
      JOIN stacksaga.saga s ON s.saga_id = w.saga_id AND s.token OPERATOR(stacksaga.=) w.token
     WHERE w.ring_id = suspended_leases.ring_id AND w.queue = suspended_leases.queue AND w.queue IS NOT NULL
       AND w.lease_until IS NOT NULL AND w.due_at = 'infinity' AND s.suspended_at IS NOT NULL
     LIMIT greatest(enough, 0)
$$;
COMMENT ON FUNCTION stacksaga_internal.suspended_leases IS
    'Internal: returns the leases of a queue that do not run out, as their saga is suspended, and since when';

-- Its own lease, where it is suspended, or the oldest that keeps its due steps waiting.
CREATE OR REPLACE FUNCTION stacksaga_internal.suspended_leases_of(saga_id uuid, at_least interval)
RETURNS TABLE (queue text, suspended_saga uuid, since timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 1 SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT w.queue, l.saga_id, l.since
      FROM stacksaga.work w JOIN stacksaga.queue q ON q.ring_id = w.ring_id AND q.queue = w.queue
     CROSS JOIN LATERAL (
           SELECT s.saga_id, s.since FROM stacksaga_internal.suspended_leases(w.ring_id, w.queue, 1000) AS s
            WHERE (w.lease_until IS NULL OR s.saga_id = w.saga_id)
              AND s.since <= stacksaga.clock_now() - at_least
            ORDER BY s.since LIMIT 1) AS l
     WHERE w.saga_id = suspended_leases_of.saga_id
       AND coalesce(q.max_running, q.max_running_per_group) IS NOT NULL
       AND (w.lease_until IS NOT NULL OR w.due_at <= stacksaga.clock_now())
$$;
COMMENT ON FUNCTION stacksaga_internal.suspended_leases_of IS
    'Internal: returns the lease of a suspended saga that counts for a limit of a queue that a saga has leased from or waits in';

-- Looks at the first 10,000 leases and at a thousand groups that are full.
CREATE OR REPLACE FUNCTION stacksaga_internal.waiting_in_full_groups(
    ring_id integer, queue text, max_running_per_group integer, ranks smallint[], enough integer
) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), full_group AS MATERIALIZED (
        SELECT l.group_key
          FROM (SELECT w.group_key FROM stacksaga.work w
                 WHERE w.ring_id = waiting_in_full_groups.ring_id
                   AND w.queue = waiting_in_full_groups.queue AND w.queue IS NOT NULL
                   AND w.lease_until IS NOT NULL AND w.group_key <> ''
                 ORDER BY w.group_key LIMIT 10000) AS l
         GROUP BY l.group_key
        HAVING count(*) >= waiting_in_full_groups.max_running_per_group LIMIT 1000
    )
    SELECT count(*)
      FROM (SELECT FROM full_group g
             CROSS JOIN unnest(waiting_in_full_groups.ranks) AS r(rank)
             CROSS JOIN LATERAL (
                   SELECT FROM stacksaga.work w
                    WHERE w.ring_id = waiting_in_full_groups.ring_id
                      AND w.queue = waiting_in_full_groups.queue
                      AND w.rank = r.rank AND w.group_key = g.group_key
                      AND w.queue IS NOT NULL AND NOT w.verifying AND w.lease_until IS NULL
                      AND (w.rank <> 3 OR w.group_key <> '') AND w.due_at <= stacksaga.clock_now()
                    ORDER BY w.due_at LIMIT greatest(enough, 0)) AS w
             LIMIT greatest(enough, 0)) AS waiting
$$;
COMMENT ON FUNCTION stacksaga_internal.waiting_in_full_groups IS
    'Internal: returns how many due steps of a queue wait because as many of their group run as may, counted up to a number';

-- Each step counts for one limit: the first that holds it back.
CREATE OR REPLACE FUNCTION stacksaga_internal.held_back_by_limit(
    of_queue stacksaga.queue, running bigint, waiting bigint[], enough integer
) RETURNS TABLE ("limit" text, steps bigint)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 4 SET search_path = pg_catalog, pg_temp
AS $$
    WITH now AS (
        SELECT s.steps, s.is_paused,
               coalesce(running >= (of_queue).max_running, false) AS is_full,
               (of_queue).rate IS NOT NULL AND (of_queue).rate <= (
                   SELECT coalesce(sum(c.claims), 0)
                     FROM stacksaga.queue_claims q
                    CROSS JOIN unnest(q.claimed_at, q.claims) AS c(claimed_at, claims)
                    WHERE q.ring_id = (of_queue).ring_id AND q.queue = (of_queue).queue
                      AND c.claimed_at > stacksaga.clock_now() - (of_queue).rate_interval) AS is_used_up
          FROM (SELECT (of_queue).paused_at IS NOT NULL AS is_paused,
                       CASE WHEN (of_queue).paused_at IS NOT NULL THEN waiting[1]
                            ELSE (SELECT sum(n) FROM unnest(waiting) AS n) END AS steps) AS s
    )
    SELECT 'paused', CASE WHEN is_paused
                          THEN (SELECT coalesce(sum(n), 0) FROM unnest(waiting[2:]) AS n) ELSE 0 END::bigint
      FROM now
    UNION ALL
    SELECT 'max_running', CASE WHEN is_full THEN steps ELSE 0 END
      FROM now WHERE (of_queue).max_running IS NOT NULL
    UNION ALL
    SELECT 'rate', CASE WHEN is_used_up AND NOT is_full THEN steps ELSE 0 END
      FROM now WHERE (of_queue).rate IS NOT NULL
    UNION ALL
    SELECT 'max_running_per_group',
           CASE WHEN is_full OR is_used_up THEN 0
                ELSE stacksaga_internal.waiting_in_full_groups(
                         (of_queue).ring_id, (of_queue).queue, (of_queue).max_running_per_group,
                         ARRAY(SELECT (r.place - 1)::smallint
                                 FROM unnest(waiting) WITH ORDINALITY AS r(n, place)
                                WHERE r.n > 0 AND (r.place = 1 OR NOT is_paused)), enough) END
      FROM now WHERE (of_queue).max_running_per_group IS NOT NULL
$$;
COMMENT ON FUNCTION stacksaga_internal.held_back_by_limit IS
    'Internal: returns how many due steps of a queue each of its limits holds back now, and its pause; 0 where none';

-- A hundred queues of a ring: those that have limits or are paused, then those whose work waits longest. Counts
-- stop at 1000, and what runs at the limit where that is larger, and at 10,000: a larger number says no more.
CREATE OR REPLACE FUNCTION stacksaga_internal.queue_states(ring_id integer)
RETURNS TABLE (queue text, settings stacksaga.queue, oldest_due timestamptz, running bigint,
               waiting bigint[])
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT n.queue, q, n.due_at,
           stacksaga_internal.running_in_queue(queue_states.ring_id, n.queue,
                                      greatest(1000, least(coalesce(q.max_running, 0), 10000))),
           ARRAY(SELECT w.waiting
                   FROM stacksaga_internal.waiting_by_rank(queue_states.ring_id, n.queue, 1000) AS w
                  ORDER BY w.rank)
      FROM (SELECT coalesce(w.queue, q.queue) AS queue, w.due_at
              FROM stacksaga_internal.oldest_due_of_queues(queue_states.ring_id) AS w
              FULL JOIN (SELECT q.queue FROM stacksaga_internal.queue_settings() AS q
                          WHERE q.ring_id = queue_states.ring_id) AS q ON q.queue = w.queue
             ORDER BY q.queue IS NULL, w.due_at, 1 LIMIT 100) AS n
      LEFT JOIN stacksaga_internal.queue_settings() AS q
        ON q.ring_id = queue_states.ring_id AND q.queue = n.queue
$$;
COMMENT ON FUNCTION stacksaga_internal.queue_states IS
    'Internal: returns the queues of a ring that status() and metrics() name: their settings, what runs, and what waits of each rank';

CREATE OR REPLACE FUNCTION stacksaga_internal.queue_counts(ring_id integer, queue text)
RETURNS TABLE (completed bigint, failed bigint)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_queue_counts';
COMMENT ON FUNCTION stacksaga_internal.queue_counts IS
    'Internal: returns how many steps of a queue were completed and how many attempts failed since the counters of this database began; NULL for a queue that has no counters';
