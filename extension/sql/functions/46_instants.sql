-- What a clock that was ahead has left behind: instants further ahead than any setting explains. A minute between the
-- clocks of two servers is no sign of it. What a caller chose freely, such as run_at, explains any instant.

-- Work that falls due between two instants, by the indexes of those who look for due work.
CREATE OR REPLACE FUNCTION stacksaga_internal.work_due_between(after timestamptz, before timestamptz, enough integer)
RETURNS SETOF stacksaga.work
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 100 SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT w.*
      FROM stacksaga.ring r
     CROSS JOIN generate_series(0, r.slots - 1) AS s(slot)
     CROSS JOIN LATERAL (
           SELECT * FROM stacksaga.work w
            WHERE w.ring_id = r.ring_id AND w.slot = s.slot
              AND (w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL) AND w.rank = 3
              AND w.due_at > after AND w.due_at < before
            LIMIT CASE WHEN enough IS NOT NULL THEN greatest(enough, 0) END) AS w
    UNION ALL
    SELECT w.*
      FROM stacksaga.ring r
     CROSS JOIN generate_series(0, r.slots - 1) AS s(slot)
     CROSS JOIN unnest('{0,1,2,4,5}'::smallint[]) AS k(rank)
     CROSS JOIN LATERAL (
           SELECT * FROM stacksaga.work w
            WHERE w.ring_id = r.ring_id AND w.rank = k.rank AND w.slot = s.slot
              AND (w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL) AND w.rank <> 3
              AND w.due_at > after AND w.due_at < before
            LIMIT CASE WHEN enough IS NOT NULL THEN greatest(enough, 0) END) AS w
    UNION ALL
    SELECT w.*
      FROM stacksaga.ring r
     CROSS JOIN stacksaga_internal.queues_with_work(r.ring_id) AS q(queue)
     CROSS JOIN LATERAL (
           SELECT * FROM stacksaga.work w
            WHERE w.ring_id = r.ring_id AND w.queue = q.queue
              AND w.queue IS NOT NULL AND NOT w.verifying AND w.lease_until IS NULL
              AND w.rank = 3 AND w.group_key = '' AND w.due_at > after AND w.due_at < before
            LIMIT CASE WHEN enough IS NOT NULL THEN greatest(enough, 0) END) AS w
    UNION ALL
    SELECT w.*
      FROM stacksaga.ring r
     CROSS JOIN stacksaga_internal.queues_with_work(r.ring_id) AS q(queue)
     CROSS JOIN generate_series(0, 5) AS k(rank)
     CROSS JOIN LATERAL (
           SELECT * FROM stacksaga.work w
            WHERE w.ring_id = r.ring_id AND w.queue = q.queue AND w.rank = k.rank::smallint
              AND w.queue IS NOT NULL AND NOT w.verifying AND w.lease_until IS NULL
              AND (w.rank <> 3 OR w.group_key <> '') AND w.due_at > after AND w.due_at < before
            LIMIT CASE WHEN enough IS NOT NULL THEN greatest(enough, 0) END) AS w
$$;
COMMENT ON FUNCTION stacksaga_internal.work_due_between IS
    'Internal: returns work that falls due between two instants, of each slot, rank and queue at most `enough` rows';

-- becomes is NULL where reset_instants() only lists it.
CREATE OR REPLACE FUNCTION stacksaga_internal.far_work(enough integer)
RETURNS TABLE (
    kind text, object text, instant timestamptz, becomes timestamptz,
    saga_id uuid, token stacksaga.ring_token, purpose stacksaga.work_purpose, step_no smallint,
    direction stacksaga.step_direction
)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 100 SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), clock AS (
        SELECT n AS now, n + interval '1 minute' AS soon,
               n + interval '1 minute' + make_interval(secs => stacksaga_internal.setting('dedupe_retention')::bigint) AS kept
          FROM stacksaga.clock_now() AS n
    ), work AS (
        SELECT w.*, s.created_at, s.updated_at, d.step, d.kind AS step_kind, d.stage, d.timeout, d.delay,
               (d.retry).max_interval * (1 + coalesce((d.retry).jitter, 0)) AS longest_pause
          FROM stacksaga_internal.work_due_between((SELECT c.soon FROM clock c), 'infinity', enough) AS w
          JOIN stacksaga.saga s ON s.saga_id = w.saga_id AND s.token OPERATOR(stacksaga.=) w.token
          LEFT JOIN stacksaga.definition_step d ON d.definition_id = s.definition_id AND d.step_no = w.step_no
    ), judged AS (
        SELECT w.*, c.now,
               CASE WHEN w.purpose = 'deadline' THEN CASE WHEN w.created_at > c.soon THEN 'deadline' END
                    WHEN w.purpose <> 'step' THEN 'due'
                    WHEN w.lease_until IS NOT NULL
                    THEN CASE WHEN w.started_at > c.soon OR w.due_at > c.soon + w.timeout THEN 'lease' END
                    WHEN w.step_kind = 'signal' AND w.started_at IS NOT NULL
                    THEN CASE WHEN w.started_at > c.soon OR w.due_at > c.soon + w.timeout THEN 'deadline' END
                    WHEN w.attempt > w.attempt_base
                    THEN CASE WHEN w.due_at > greatest(c.kept, c.soon + w.longest_pause,
                                                       CASE WHEN w.releases > 0 THEN c.soon + interval '7 days' END)
                              THEN 'due' END
                    WHEN w.step_kind = 'timer' AND w.direction = 'act'
                    THEN CASE WHEN w.due_at > c.soon + w.delay THEN 'due' END
                    -- A first step that is to run after its saga was made: run_at.
                    WHEN w.updated_at > c.soon AND NOT (w.stage = 1 AND w.due_at > w.created_at) THEN 'due'
                    END AS far
          FROM work w, clock c
    )
    SELECT j.far,
           CASE j.purpose WHEN 'deadline' THEN format('saga %s', j.saga_id)
                          ELSE format('step "%s" of saga %s', j.step, j.saga_id) END,
           j.due_at,
           CASE WHEN j.far = 'deadline' THEN NULL
                WHEN j.step_kind = 'timer' AND j.lease_until IS NULL AND j.attempt = j.attempt_base
                     AND j.direction = 'act' AND j.purpose = 'step' THEN j.now + j.delay
                ELSE j.now END,
           j.saga_id, j.token, j.purpose, j.step_no, j.direction
      FROM judged j WHERE j.far IS NOT NULL
$$;
COMMENT ON FUNCTION stacksaga_internal.far_work IS
    'Internal: returns the instants of work that no setting explains, and what reset_instants() makes of them';

CREATE OR REPLACE FUNCTION stacksaga_internal.far_instants(enough integer)
RETURNS TABLE (kind text, object text, instant timestamptz, becomes timestamptz, id bigint, name text)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 100 SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), clock AS (
        SELECT n AS now, n + interval '1 minute' AS soon,
               n + interval '1 minute' + make_interval(secs => stacksaga_internal.setting('dedupe_retention')::bigint) AS kept
          FROM stacksaga.clock_now() AS n
    )
    -- A run that could not start is tried again within five minutes.
    SELECT 'schedule', format('schedule "%s"', s.schedule), i.far, i.becomes, s.ring_id::bigint, s.schedule
      FROM clock c, stacksaga.schedule s
     CROSS JOIN LATERAL (SELECT min(r) AS run FROM stacksaga.next_runs(s.cron, s.timezone, c.now, 1) AS r) AS n
     CROSS JOIN LATERAL (
           SELECT s.next_run, n.run WHERE s.next_run > n.run AND s.next_run > c.soon
           UNION ALL
           SELECT s.due_at, greatest(s.next_run, c.now)
            WHERE s.failures > 0 AND NOT s.paused AND s.next_run <= greatest(n.run, c.soon)
              AND s.due_at > greatest(n.run, c.soon) + interval '5 minutes') AS i(far, becomes)
    UNION ALL
    SELECT 'node', format('heartbeat of node "%s"', n.node), n.heartbeat_at, c.now, n.incarnation, n.node
      FROM clock c, stacksaga.node n WHERE n.heartbeat_at > c.soon
    UNION ALL
    SELECT CASE WHEN p.batch_id IS NULL THEN 'due' ELSE 'lease' END,
           format('batch %s of subscription "%s"', coalesce(p.batch_id, p.released_batch), s.subscription),
           CASE WHEN p.batch_id IS NULL THEN p.released_until ELSE p.lease_until END, c.now,
           coalesce(p.batch_id, p.released_batch), NULL
      FROM clock c, stacksaga.subscription s
     CROSS JOIN generate_series(0, s.partitions - 1) AS n(partition)
     CROSS JOIN LATERAL (
           SELECT * FROM stacksaga.subscription_position p
            WHERE p.subscription_id = s.subscription_id AND p.partition = n.partition::smallint
            ORDER BY p.version DESC LIMIT 1) AS p
     WHERE p.batch_id IS NOT NULL AND p.lease_until > c.soon AND p.written_at > c.soon
        OR p.batch_id IS NULL AND p.released_until > c.soon + interval '1 hour'
    UNION ALL
    SELECT 'due', format('message %s of subscription "%s"', m.message_id, s.subscription), m.due_at, c.now,
           m.subscription_id::bigint, m.message_id::text
      FROM clock c, stacksaga.subscription s
     CROSS JOIN LATERAL (
           SELECT * FROM stacksaga.message_retry m
            WHERE m.subscription_id = s.subscription_id AND m.state NOT IN ('delayed', 'held', 'held_fallback')
              AND m.due_at > greatest(c.kept, c.soon + (s.retry).max_interval * (1 + coalesce((s.retry).jitter, 0)))
              AND m.due_at < 'infinity'
            LIMIT CASE WHEN enough IS NOT NULL THEN greatest(enough, 0) END) AS m
    UNION ALL
    (SELECT 'retention', format('saga %s', s.saga_id), s.finished_at, NULL, NULL, NULL
       FROM clock c, stacksaga.saga s WHERE s.created_at > c.soon AND s.finished_at > c.soon
      LIMIT CASE WHEN enough IS NOT NULL THEN greatest(enough, 0) END)
    UNION ALL
    (SELECT 'retention', format('discarded message %s', d.message_id), d.discarded_at, NULL, NULL, NULL
       FROM clock c, stacksaga.dead_message d WHERE d.discarded_at > c.soon
      LIMIT CASE WHEN enough IS NOT NULL THEN greatest(enough, 0) END)
    UNION ALL
    (SELECT 'key', format('key of the removed saga %s', r.saga_id), r.kept_since, NULL, NULL, NULL
       FROM clock c, stacksaga.removed_saga r WHERE r.kept_since > c.soon AND r.kept_since < 'infinity'
      LIMIT CASE WHEN enough IS NOT NULL THEN greatest(enough, 0) END)
    UNION ALL
    -- The lease of a key is its own: who begins the key again gets the next one.
    (SELECT f.kind, format('key "%s" of scope "%s"', k.key, k.scope), f.instant, f.becomes, k.token::bigint, k.key
       FROM (SELECT * FROM stacksaga.idempotency_key k ORDER BY k.sweep_at DESC LIMIT CASE WHEN enough IS NOT NULL THEN greatest(enough, 0) END) AS k
      CROSS JOIN clock c
      CROSS JOIN LATERAL (
            SELECT 'key', k.sweep_at, NULL::timestamptz WHERE k.created_at > c.soon
            UNION ALL
            SELECT 'lease', k.lease_until, c.now
             WHERE k.completed_at IS NULL AND k.lease_until > c.soon + k.lease_length) AS f(kind, instant, becomes))
    UNION ALL
    (SELECT 'key', format('message "%s" of consumer "%s"', a.message_id, a.consumer), a.expires_at, NULL, NULL, NULL
       FROM (SELECT * FROM stacksaga.accepted_message a ORDER BY a.expires_at DESC LIMIT CASE WHEN enough IS NOT NULL THEN greatest(enough, 0) END) AS a, clock c
      WHERE a.created_at > c.soon)
    UNION ALL
    SELECT 'rate', format('claims of queue "%s"', q.queue), f.latest, c.now, q.ring_id::bigint, q.queue
      FROM clock c, stacksaga.queue_claims q
     CROSS JOIN LATERAL (SELECT max(a) AS latest FROM unnest(q.claimed_at) AS a) AS f
     WHERE f.latest > c.soon
    UNION ALL
    -- keep_row() tries again an hour later.
    SELECT 'due', format('row %s of table %s, which retention removes', k.row_key, k.relation), k.retry_at, c.now,
           NULL, NULL
      FROM clock c, stacksaga.kept_row k WHERE k.retry_at > c.soon + interval '1 hour'
$$;
COMMENT ON FUNCTION stacksaga_internal.far_instants IS
    'Internal: returns the instants of other things than work that no setting explains, and what reset_instants() makes of them';

CREATE OR REPLACE FUNCTION stacksaga_internal.record_reset(reason text, detail text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_record_reset';
COMMENT ON FUNCTION stacksaga_internal.record_reset IS
    'Internal: checks the reason of reset_instants() and records what it did; a detail of NULL: only checks';

-- The sagas are locked before their work is read again, as everybody does who changes it.
CREATE OR REPLACE FUNCTION stacksaga.reset_instants(reason text, dry_run boolean DEFAULT true)
RETURNS TABLE (kind text, object text, instant timestamptz, becomes timestamptz)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
#variable_conflict use_variable
BEGIN
    PERFORM stacksaga_internal.record_reset(reason, NULL);
    IF NOT dry_run THEN
        PERFORM FROM stacksaga.saga s
          WHERE s.saga_id IN (SELECT w.saga_id FROM stacksaga_internal.far_work(NULL) AS w WHERE w.becomes IS NOT NULL)
          ORDER BY s.saga_id FOR UPDATE;
    END IF;
    RETURN QUERY
    WITH far AS MATERIALIZED (
        SELECT * FROM stacksaga_internal.far_work(NULL)
    ), other AS MATERIALIZED (
        SELECT * FROM stacksaga_internal.far_instants(NULL)
    ), work AS (
        UPDATE stacksaga.work w
           SET due_at = f.becomes, lease_until = CASE WHEN w.lease_until IS NOT NULL THEN f.becomes END
          FROM far f
         WHERE w.saga_id = f.saga_id AND w.token OPERATOR(stacksaga.=) f.token AND w.purpose = f.purpose
           AND w.step_no = f.step_no AND w.direction = f.direction AND w.due_at = f.instant
           AND f.becomes IS NOT NULL AND NOT dry_run
    ), schedule AS (
        UPDATE stacksaga.schedule s SET next_run = least(s.next_run, o.becomes), due_at = o.becomes
          FROM other o WHERE o.kind = 'schedule' AND s.schedule = o.name AND s.ring_id = o.id AND NOT dry_run
    ), node AS (
        UPDATE stacksaga.node n SET heartbeat_at = o.becomes
          FROM other o WHERE o.kind = 'node' AND n.node = o.name AND n.incarnation = o.id AND NOT dry_run
    ), batch AS (
        UPDATE stacksaga.subscription_position p SET lease_until = o.becomes
          FROM other o WHERE o.kind = 'lease' AND o.name IS NULL AND p.batch_id = o.id AND NOT dry_run
    ), release AS (
        UPDATE stacksaga.subscription_position p SET released_until = o.becomes
          FROM other o WHERE o.kind = 'due' AND o.name IS NULL AND p.released_batch = o.id AND NOT dry_run
    ), retry AS (
        UPDATE stacksaga.message_retry m SET due_at = o.becomes
          FROM other o
         WHERE o.kind = 'due' AND m.subscription_id = o.id AND m.message_id::text = o.name AND m.due_at = o.instant
           AND NOT dry_run
    ), key AS (
        UPDATE stacksaga.idempotency_key k SET lease_until = o.becomes
          FROM other o
         WHERE o.kind = 'lease' AND k.token OPERATOR(stacksaga.=) o.id::stacksaga.ring_token AND k.key = o.name
           AND k.lease_until = o.instant AND k.completed_at IS NULL AND NOT dry_run
    ), rate AS (
        UPDATE stacksaga.queue_claims q
           SET claimed_at = ARRAY(SELECT least(a, o.becomes) FROM unnest(q.claimed_at) WITH ORDINALITY AS n(a, place)
                                   ORDER BY n.place)
          FROM other o WHERE o.kind = 'rate' AND q.ring_id = o.id AND q.queue = o.name AND NOT dry_run
    ), kept AS (
        UPDATE stacksaga.kept_row k SET retry_at = o.becomes
          FROM other o WHERE o.kind = 'due' AND o.name IS NULL AND k.retry_at = o.instant AND NOT dry_run
    )
    SELECT f.kind, f.object, f.instant, f.becomes FROM far f
    UNION ALL SELECT o.kind, o.object, o.instant, o.becomes FROM other o
     ORDER BY 1, 3, 2;
    IF NOT dry_run THEN
        PERFORM stacksaga_internal.record_reset(reason, 'due times, leases, rates, schedules and heartbeats');
    END IF;
END
$$;
COMMENT ON FUNCTION stacksaga.reset_instants IS
    'Lists the instants that a clock which was ahead has left behind, further ahead than any setting explains; unless dry_run, makes what is due or leased then due now, a timer after its whole delay, a schedule at its next run. Deadlines, retentions and keys are only listed, with becomes NULL. Raises SG400';
