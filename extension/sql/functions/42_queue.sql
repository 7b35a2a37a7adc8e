-- Limits of queues (extension/src/saga/queue.cpp, queue_limits.cpp).

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

CREATE OR REPLACE FUNCTION stacksaga.pause_queue(queue text, reason text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_pause_queue';
COMMENT ON FUNCTION stacksaga.pause_queue IS
    'From its commit on nothing but compensations is claimed from a queue, until resume_queue(); leases stay valid. Raises SG400, SG409 (it is paused)';

CREATE OR REPLACE FUNCTION stacksaga.resume_queue(queue text, reason text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_resume_queue';
COMMENT ON FUNCTION stacksaga.resume_queue IS
    'Ends the pause of a queue. Raises SG400, SG409 (it is not paused)';

CREATE OR REPLACE FUNCTION stacksaga.queue_names()
RETURNS TABLE (ring_id integer, region text, cluster text, queue text)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.ring_id, r.region, r.cluster, d.queue
      FROM stacksaga.ring r, stacksaga.definition_step d
     WHERE r.region = stacksaga.setting('region') AND r.cluster = stacksaga.setting('cluster')
       AND d.kind = 'queue'
    UNION
    SELECT r.ring_id, r.region, r.cluster, q.queue
      FROM stacksaga.ring r JOIN stacksaga.queue q USING (ring_id)
    UNION
    SELECT r.ring_id, r.region, r.cluster, w.queue
      FROM stacksaga.ring r, stacksaga.queues_with_work(r.ring_id) AS w(queue)
$$;
COMMENT ON FUNCTION stacksaga.queue_names IS
    'Internal: returns the queues that a definition names, of the session''s ring, and those of all rings that have work or limits';

-- By rank, so that each count reads an index up to the instant, and at most so many rows.
CREATE OR REPLACE FUNCTION stacksaga.waiting_by_rank(ring_id integer, queue text, enough integer)
RETURNS TABLE (rank integer, waiting bigint, oldest_due timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 6 SET search_path = pg_catalog, pg_temp
AS $$
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
COMMENT ON FUNCTION stacksaga.waiting_by_rank IS
    'Internal: returns how many steps of each rank are due in a queue, counted up to a number, and since when';

CREATE OR REPLACE FUNCTION stacksaga.running_in_queue(ring_id integer, queue text, enough integer)
RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(*)
      FROM (SELECT FROM stacksaga.work w
             WHERE w.ring_id = running_in_queue.ring_id AND w.queue = running_in_queue.queue
               AND w.queue IS NOT NULL AND w.lease_until IS NOT NULL LIMIT greatest(enough, 0)) AS leased
$$;
COMMENT ON FUNCTION stacksaga.running_in_queue IS
    'Internal: returns how many steps of a queue are leased, counted up to a number';
