-- What monitoring reads: numbers with names, none of them counted when it asks. What grows with
-- history is counted where it happens (extension/src/common/counters.hpp) or estimated by PostgreSQL's
-- statistics; what is read here is as large as the ring, its nodes and its queues.

CREATE OR REPLACE FUNCTION stacksaga_internal.counters()
RETURNS TABLE (name text, labels jsonb, value double precision)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 20 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_counters';
COMMENT ON FUNCTION stacksaga_internal.counters IS
    'Internal: returns what was counted in this database since its counters began';

CREATE OR REPLACE FUNCTION stacksaga_internal.sagas_by_status()
RETURNS TABLE (status text, sagas bigint)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 7 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_sagas_by_status';
COMMENT ON FUNCTION stacksaga_internal.sagas_by_status IS
    'Internal: returns how many sagas have each status, as committed; no row until this server has counted them';

CREATE OR REPLACE FUNCTION stacksaga_internal.count_sagas() RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_count_sagas';
COMMENT ON FUNCTION stacksaga_internal.count_sagas IS
    'Internal: counts sagas by status, by reading all of them once; false when another session is counting';

CREATE OR REPLACE FUNCTION stacksaga_internal.setting(name text) RETURNS text
LANGUAGE c STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_setting';
COMMENT ON FUNCTION stacksaga_internal.setting IS
    'Internal: returns the value of a setting of stacksaga, also where nothing has loaded its library yet';

-- 0 while nothing is overdue, also for work that is never due by itself.
CREATE OR REPLACE FUNCTION stacksaga_internal.seconds_overdue(due_at timestamptz)
RETURNS double precision
LANGUAGE sql VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN isfinite(due_at)
                THEN greatest(extract(epoch FROM stacksaga.clock_now() - due_at), 0)
                ELSE 0 END::double precision
$$;
COMMENT ON FUNCTION stacksaga_internal.seconds_overdue IS
    'Internal: returns for how long something has been due, 0 when it is not due';

-- Counts at most so many parked sagas: a larger number says no more.
CREATE OR REPLACE FUNCTION stacksaga_internal.parked_count(count_max integer DEFAULT 1000) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT count(*)
      FROM (SELECT FROM stacksaga.saga s
             WHERE s.status = 'parked' LIMIT greatest(count_max, 0)) AS parked
$$;
COMMENT ON FUNCTION stacksaga_internal.parked_count IS
    'Internal: returns how many sagas are parked, and stops counting at a number';

CREATE OR REPLACE FUNCTION stacksaga_internal.ring_metrics()
RETURNS TABLE (name text, labels jsonb, value double precision)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 20
SET search_path = pg_catalog, pg_temp
AS $$
    WITH ring AS (
        SELECT r.*, jsonb_build_object('region', r.region, 'cluster', r.cluster) AS labels,
               i.ring_id
          FROM stacksaga.ring_status r JOIN stacksaga.ring i USING (region, cluster)
    ), state (state) AS (VALUES ('active'), ('suspected'), ('dead'), ('draining'))
    SELECT 'stacksaga_ring_epoch', r.labels, r.epoch::double precision FROM ring r
    UNION ALL
    SELECT 'stacksaga_ring_coverage_ratio', r.labels, r.coverage FROM ring r
    UNION ALL
    SELECT 'stacksaga_ring_overdue_seconds', r.labels, stacksaga_internal.seconds_overdue(r.oldest_due)
      FROM ring r
    UNION ALL
    SELECT 'stacksaga_queue_overdue_seconds', r.labels || jsonb_build_object('queue', q.queue),
           stacksaga_internal.seconds_overdue(q.due_at)
      FROM ring r
     CROSS JOIN LATERAL (
           SELECT * FROM stacksaga_internal.oldest_due_of_queues(r.ring_id) ORDER BY due_at LIMIT 100) AS q
    UNION ALL
    SELECT 'stacksaga_ring_nodes', r.labels || jsonb_build_object('state', s.state),
           count(n.node)::double precision
      FROM ring r CROSS JOIN state s
      LEFT JOIN stacksaga.nodes n
        ON n.region = r.region AND n.cluster = r.cluster AND n.state = s.state
     GROUP BY r.labels, s.state
    UNION ALL
    SELECT 'stacksaga_node_share_ratio', r.labels || jsonb_build_object('node', n.node), n.share
      FROM ring r JOIN stacksaga.nodes n ON n.region = r.region AND n.cluster = r.cluster
$$;
COMMENT ON FUNCTION stacksaga_internal.ring_metrics IS
    'Internal: returns what metrics() says of rings, nodes and queues';

CREATE OR REPLACE FUNCTION stacksaga_internal.queue_metrics()
RETURNS TABLE (name text, labels jsonb, value double precision)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 50
SET search_path = pg_catalog, pg_temp
AS $$
    WITH queue AS (
        SELECT q.*,
               jsonb_build_object('region', r.region, 'cluster', r.cluster, 'queue', q.queue) AS labels
          FROM stacksaga.ring r, stacksaga_internal.queue_states(r.ring_id) AS q
    )
    SELECT 'stacksaga_queue_waiting_steps',
           q.labels || jsonb_build_object('priority', (w.place - 1)::text),
           w.waiting::double precision
      FROM queue q, unnest(q.waiting) WITH ORDINALITY AS w(waiting, place)
    UNION ALL
    SELECT 'stacksaga_queue_held_back_steps', q.labels || jsonb_build_object('limit', h."limit"), h.steps
      FROM queue q, stacksaga_internal.held_back_by_limit(q.settings, q.running, q.waiting, 1000) AS h
     WHERE (q.settings).queue IS NOT NULL
    UNION ALL
    SELECT v.name, q.labels, v.value
      FROM queue q CROSS JOIN LATERAL (VALUES
           ('stacksaga_queue_running_steps', q.running::double precision),
           ('stacksaga_queue_paused', ((q.settings).paused_at IS NOT NULL)::integer)) AS v(name, value)
    UNION ALL
    SELECT 'stacksaga_queue_limit', q.labels || jsonb_build_object('limit', v.name), v.value
      FROM queue q CROSS JOIN LATERAL (VALUES
           ('max_running', (q.settings).max_running::double precision),
           ('max_running_per_group', (q.settings).max_running_per_group),
           ('rate', (q.settings).rate)) AS v(name, value)
     WHERE v.value IS NOT NULL
$$;
COMMENT ON FUNCTION stacksaga_internal.queue_metrics IS
    'Internal: returns what metrics() says of the steps and limits of queues';

-- Counts at most so many messages of a subscription: a larger number says no more.
CREATE OR REPLACE FUNCTION stacksaga_internal.dead_count(
    subscription_id integer, count_max integer DEFAULT 1000
) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(*)
      FROM (SELECT FROM stacksaga.dead_message d
             WHERE d.subscription_id = dead_count.subscription_id AND d.discarded_at IS NULL
             LIMIT greatest(count_max, 0)) AS dead
$$;
COMMENT ON FUNCTION stacksaga_internal.dead_count IS
    'Internal: returns how many messages of a subscription have failed for good, and stops counting at a number';

CREATE OR REPLACE FUNCTION stacksaga_internal.subscription_metrics()
RETURNS TABLE (name text, labels jsonb, value double precision)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT v.name, jsonb_build_object('region', r.region, 'cluster', r.cluster,
                                      'subscription', s.subscription), v.value
      FROM stacksaga.subscription s
      JOIN stacksaga.ring r ON r.ring_id = s.ring_id
     CROSS JOIN LATERAL (VALUES
           ('stacksaga_subscription_dead_messages',
            stacksaga_internal.dead_count(s.subscription_id)::double precision),
           ('stacksaga_subscription_lag_seconds',
            stacksaga_internal.seconds_overdue(stacksaga_internal.outbox_unread_since(s.subscription_id))),
           ('stacksaga_subscription_held_messages', (
                SELECT count(*)
                  FROM (SELECT FROM stacksaga.message_retry m
                         WHERE m.subscription_id = s.subscription_id LIMIT 1000) AS held
                )::double precision),
           ('stacksaga_subscription_paused',
            (s.paused_at IS NOT NULL AND (s.paused_until IS NULL
                                          OR s.paused_until > stacksaga.clock_now()))::integer
           )) AS v(name, value)
$$;
COMMENT ON FUNCTION stacksaga_internal.subscription_metrics IS
    'Internal: returns what metrics() says of subscriptions';

-- Looks at no more schedules of a ring than so many: those that are due first.
CREATE OR REPLACE FUNCTION stacksaga_internal.schedule_metrics()
RETURNS TABLE (name text, labels jsonb, value double precision)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 5
SET search_path = pg_catalog, pg_temp
AS $$
    WITH ring AS (
        SELECT jsonb_build_object('region', r.region, 'cluster', r.cluster) AS labels,
               count(*) FILTER (WHERE NOT s.paused AND s.failures = 0) AS active,
               count(*) FILTER (WHERE NOT s.paused AND s.failures > 0) AS failing,
               count(*) FILTER (WHERE s.paused) AS paused,
               max(stacksaga_internal.seconds_overdue(s.next_run)) FILTER (WHERE NOT s.paused) AS lag
          FROM stacksaga.ring r
         CROSS JOIN LATERAL (
               SELECT paused, failures, next_run FROM stacksaga.schedule s
                WHERE s.ring_id = r.ring_id ORDER BY s.due_at LIMIT 1000) AS s
         GROUP BY r.region, r.cluster
    )
    SELECT 'stacksaga_schedules', r.labels || jsonb_build_object('state', v.state), v.value
      FROM ring r CROSS JOIN LATERAL (VALUES
           ('active', r.active::double precision), ('failing', r.failing), ('paused', r.paused))
               AS v(state, value)
    UNION ALL
    SELECT 'stacksaga_schedule_lag_seconds', r.labels, coalesce(r.lag, 0) FROM ring r
$$;
COMMENT ON FUNCTION stacksaga_internal.schedule_metrics IS
    'Internal: returns what metrics() says of schedules';

CREATE OR REPLACE FUNCTION stacksaga_internal.worker_metrics()
RETURNS TABLE (name text, labels jsonb, value double precision)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
    WITH running AS (
        SELECT w.*, jsonb_build_object('worker', w.worker::text) AS labels
          FROM stacksaga.worker w JOIN stacksaga.worker_stats s USING (pid)
    )
    SELECT 'stacksaga_workers', '{}'::jsonb, count(*)::double precision FROM running
    UNION ALL
    SELECT v.name, r.labels, v.value
      FROM running r CROSS JOIN LATERAL (VALUES
           ('stacksaga_worker_turns_total', r.turns::double precision),
           ('stacksaga_worker_items_total', r.items::double precision),
           ('stacksaga_worker_failures_total', r.failures::double precision),
           ('stacksaga_worker_deferred_total', r.deferred::double precision),
           ('stacksaga_worker_last_turn_seconds', r.last_turn_ms / 1000)) AS v(name, value)
$$;
COMMENT ON FUNCTION stacksaga_internal.worker_metrics IS
    'Internal: returns what metrics() says of background workers';

CREATE OR REPLACE FUNCTION stacksaga_internal.table_metrics()
RETURNS TABLE (name text, labels jsonb, value double precision)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 60
SET search_path = pg_catalog, pg_temp
AS $$
    WITH member AS (
        SELECT c.oid, c.relname, c.reltoastrelid
          FROM pg_depend d
          JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
          JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
         WHERE e.extname = 'stacksaga' AND d.deptype = 'e' AND c.relkind = 'r'
    )
    SELECT v.name, jsonb_build_object('table', m.relname), v.value
      FROM member m CROSS JOIN LATERAL (VALUES
           ('stacksaga_table_live_rows', pg_stat_get_live_tuples(m.oid)::double precision),
           ('stacksaga_table_dead_rows', pg_stat_get_dead_tuples(m.oid)::double precision),
           ('stacksaga_table_bytes', (
                SELECT sum(c.relpages) * current_setting('block_size')::integer
                  FROM pg_class c
                 WHERE c.oid = m.oid OR c.oid = m.reltoastrelid
                    OR c.oid IN (SELECT i.indexrelid FROM pg_index i
                                  WHERE i.indrelid IN (m.oid, m.reltoastrelid))
                )::double precision)) AS v(name, value)
$$;
COMMENT ON FUNCTION stacksaga_internal.table_metrics IS
    'Internal: returns what metrics() says of tables, as PostgreSQL''s statistics have it';

CREATE OR REPLACE FUNCTION stacksaga.metrics()
RETURNS TABLE (name text, labels jsonb, value double precision)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 100
SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT 'stacksaga_build_info',
           jsonb_build_object('version', e.extversion, 'library', stacksaga_internal.library_version(),
                              'postgresql', current_setting('server_version')),
           1::double precision
      FROM pg_extension e WHERE e.extname = 'stacksaga'
    UNION ALL SELECT * FROM stacksaga_internal.counters()
    UNION ALL
    SELECT 'stacksaga_sagas', jsonb_build_object('status', s.status), s.sagas::double precision
      FROM stacksaga_internal.sagas_by_status() AS s
    UNION ALL SELECT 'stacksaga_sagas_parked', '{}', stacksaga_internal.parked_count()::double precision
    UNION ALL
    SELECT v.name, jsonb_build_object('saga', p.saga), v.value
      FROM (SELECT p.saga FROM stacksaga_internal.definition_pauses() AS p ORDER BY p.saga LIMIT 100) AS p
     CROSS JOIN LATERAL (VALUES
           ('stacksaga_definition_paused', 1::double precision),
           ('stacksaga_definition_held_back_steps', stacksaga_internal.held_back_steps(p.saga, 1000))) AS v(name, value)
    UNION ALL
    SELECT 'stacksaga_definitions', '{}', count(*)::double precision
      FROM (SELECT FROM stacksaga.saga_definition d WHERE d.is_current LIMIT 1000) AS current
    UNION ALL
    SELECT 'stacksaga_clock_offset_seconds', '{}',
           round(extract(epoch FROM stacksaga.clock_now() - clock_timestamp()))::double precision
    UNION ALL SELECT * FROM stacksaga_internal.ring_metrics()
    UNION ALL SELECT * FROM stacksaga_internal.queue_metrics()
    UNION ALL SELECT * FROM stacksaga_internal.subscription_metrics()
    UNION ALL SELECT * FROM stacksaga_internal.schedule_metrics()
    UNION ALL SELECT * FROM stacksaga_internal.worker_metrics()
    UNION ALL SELECT * FROM stacksaga_internal.table_metrics()
$$;
COMMENT ON FUNCTION stacksaga.metrics IS
    'Returns numbers for monitoring under Prometheus names, as this session''s database has them now; metric_descriptions() says what each means';

CREATE OR REPLACE FUNCTION stacksaga.metric_descriptions()
RETURNS TABLE (name text, type text, help text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 40 SET search_path = pg_catalog, pg_temp
AS $$
    VALUES
    ('stacksaga_build_info', 'gauge', '1; the versions of the extension, the library and the server'),
    ('stacksaga_sagas', 'gauge', 'sagas by status; absent until a worker has counted them'),
    ('stacksaga_sagas_started_total', 'counter', 'sagas started'),
    ('stacksaga_sagas_finished_total', 'counter', 'sagas completed, and sagas failed after compensation'),
    ('stacksaga_sagas_compensated_total', 'counter', 'sagas that began to compensate'),
    ('stacksaga_sagas_parked_total', 'counter', 'times a saga was parked'),
    ('stacksaga_sagas_parked', 'gauge', 'sagas that are parked now; 1000 stands for more'),
    ('stacksaga_steps_completed_total', 'counter', 'steps completed, and steps compensated'),
    ('stacksaga_attempts_failed_total', 'counter', 'attempts that failed, by error class'),
    ('stacksaga_retries_total', 'counter', 'pauses before another attempt'),
    ('stacksaga_releases_total', 'counter', 'attempts that services gave back by release_step()'),
    ('stacksaga_contradictions_total', 'counter', 'refused answers of services that contradict what settled their step'),
    ('stacksaga_definitions', 'gauge', 'sagas that are defined; 1000 stands for more'),
    ('stacksaga_definition_paused', 'gauge', '1 while a definition is paused; at most 100 of them'),
    ('stacksaga_definition_held_back_steps', 'gauge', 'steps that the pause of a definition has held back; 1000 stands for more'),
    ('stacksaga_clock_offset_seconds', 'gauge', 'by how much stacksaga.clock_offset moves the clock'),
    ('stacksaga_ring_epoch', 'gauge', 'the epoch of the ring: rises with each change of owner'),
    ('stacksaga_ring_coverage_ratio', 'gauge', 'the share of the ring that live nodes own'),
    ('stacksaga_ring_overdue_seconds', 'gauge', 'for how long the oldest work of the ring has been due'),
    ('stacksaga_ring_nodes', 'gauge', 'nodes of the ring by state'),
    ('stacksaga_node_share_ratio', 'gauge', 'the share of its ring that a node owns'),
    ('stacksaga_queue_overdue_seconds', 'gauge', 'for how long the oldest work of a queue has been due'),
    ('stacksaga_queue_waiting_steps', 'gauge', 'due steps of a queue that nobody has claimed, by priority, 0 for compensations; 1000 stands for more'),
    ('stacksaga_queue_held_back_steps', 'gauge', 'those of them that a limit of the queue holds back, or its pause; absent without one'),
    ('stacksaga_queue_running_steps', 'gauge', 'steps of a queue that services have claimed; 1000 stands for more'),
    ('stacksaga_queue_paused', 'gauge', '1 while a queue is paused, else 0'),
    ('stacksaga_queue_limit', 'gauge', 'the limits of a queue; absent without one'),
    ('stacksaga_subscription_dead_messages', 'gauge', 'messages that failed for good; 1000 stands for more'),
    ('stacksaga_subscription_held_messages', 'gauge', 'messages that wait for their time, another attempt or their key; 1000 stands for more'),
    ('stacksaga_subscription_lag_seconds', 'gauge', 'for how long the oldest messages have waited that a subscription has not read'),
    ('stacksaga_subscription_paused', 'gauge', '1 while a subscription is paused, else 0'),
    ('stacksaga_schedules', 'gauge', 'schedules by state: active, failing, paused; 1000 stands for more'),
    ('stacksaga_schedule_lag_seconds', 'gauge', 'for how long the oldest run of a schedule has been due'),
    ('stacksaga_schedule_runs_total', 'counter', 'runs of schedules that started a saga, were skipped for the one before, or failed'),
    ('stacksaga_workers', 'gauge', 'background workers of this database'),
    ('stacksaga_worker_turns_total', 'counter', 'turns that a worker took since it started'),
    ('stacksaga_worker_items_total', 'counter', 'items that a worker did since it started'),
    ('stacksaga_worker_failures_total', 'counter', 'handlers that failed in a worker since it started'),
    ('stacksaga_worker_deferred_total', 'counter', 'retries that a worker deferred since it started'),
    ('stacksaga_worker_last_turn_seconds', 'gauge', 'how long a worker''s last turn took'),
    ('stacksaga_table_live_rows', 'gauge', 'rows of a table, as PostgreSQL estimates'),
    ('stacksaga_table_dead_rows', 'gauge', 'dead rows of a table, as PostgreSQL estimates'),
    ('stacksaga_table_bytes', 'gauge', 'size of a table and its indexes when it was last vacuumed')
$$;
COMMENT ON FUNCTION stacksaga.metric_descriptions IS
    'Returns the name, the type and the meaning of everything that metrics() returns';
