-- doctor(), continued: rings, subscriptions, schedules and vacuum.

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_rings()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH ring AS (
        SELECT r.*, i.ring_id, i.slots, format('ring (%s, %s)', r.region, r.cluster) AS name,
               round((1 - r.coverage) * i.slots)::integer AS unowned,
               coalesce(r.window_end > stacksaga.clock_now(), false) AS is_open,
               -- A coordinator publishes each window before it opens, and none for a ring without
               -- nodes that take slots.
               (SELECT min(t.window_start) FROM stacksaga.token_window t
                 WHERE t.ring_id = i.ring_id AND t.agent = ''
                   AND t.window_start > stacksaga.clock_now()) AS next_window,
               EXISTS (SELECT FROM stacksaga.nodes n
                        WHERE n.region = r.region AND n.cluster = r.cluster AND n.state = 'active'
                          AND n.kind IN ('worker', 'agent')) AS has_owners
          FROM stacksaga.ring_status r JOIN stacksaga.ring i USING (region, cluster)
    ), due AS (
        SELECT r.name, 'work of ' || r.name AS what,
               stacksaga_internal.seconds_overdue(stacksaga_internal.oldest_due_of_workers(r.ring_id)) AS overdue,
               'SELECT stacksaga.worker_ensure(); -- or stacksaga.run_pending()' AS fix
          FROM ring r
        UNION ALL
        SELECT r.name, format('work in queue "%s" of %s', q.queue, r.name),
               stacksaga_internal.seconds_overdue(q.due_at),
               CASE WHEN l.paused_at IS NOT NULL
                    THEN format('SELECT stacksaga.resume_queue(%L, ''...''); -- it is paused', q.queue)
                    WHEN l.max_running IS NOT NULL
                         AND stacksaga_internal.running_in_queue(r.ring_id, q.queue, l.max_running) >= l.max_running
                    THEN format('It waits for its limit: SELECT stacksaga.set_queue(%L, max_running => '
                                '...); -- or have the running steps answered', q.queue)
                    WHEN q.is_retry AND EXISTS (
                         SELECT FROM stacksaga.nodes n
                          WHERE n.region = r.region AND n.cluster = r.cluster AND n.pid IS NULL
                            AND n.state = 'active' AND n.kind IN ('standard', 'worker'))
                    THEN format('It is a retry, which a registered service claims only in ranges that '
                                'it owns: see stacksaga.nodes; or call stacksaga.claim_steps(%L, ...) '
                                'under a name that is not registered.', q.queue)
                    ELSE format('Start a service that calls stacksaga.claim_steps(%L, ...).', q.queue)
               END
          FROM ring r
         CROSS JOIN stacksaga_internal.oldest_due_of_queues(r.ring_id) AS q
          LEFT JOIN stacksaga_internal.queue_settings() AS l ON l.ring_id = r.ring_id AND l.queue = q.queue
    )
    SELECT CASE WHEN overdue < 600 THEN 'warning' ELSE 'error' END, 'overdue',
           format('%s has been due for %s', what, date_trunc('second', make_interval(secs => overdue))),
           fix
      FROM due WHERE overdue > 60
    UNION ALL
    SELECT 'warning', 'nodes', format('node "%s" of ring (%s, %s) is dead: it beat last %s ago', n.node,
               n.region, n.cluster, date_trunc('second', n.heartbeat_age)),
           format('SELECT stacksaga.leave_ring(%L, %s); -- or start it again', n.node, n.incarnation)
      FROM stacksaga.nodes n WHERE n.state = 'dead'
    UNION ALL
    SELECT 'warning', 'nodes', format('node "%s" of ring (%s, %s) holds no token range: it gets no '
                                      'retries', n.node, n.region, n.cluster),
           format(CASE WHEN r.is_open OR r.next_window IS NOT NULL
                       THEN 'Wait for the next window, which assigns ranges to it'
                       ELSE 'Start stacksaga-coordinator' END ||
                  '; or SELECT stacksaga.leave_ring(%L, %s); -- a claimer that is not registered gets '
                  'retries too', n.node, n.incarnation)
      FROM stacksaga.nodes n JOIN ring r ON r.region = n.region AND r.cluster = n.cluster
     WHERE n.kind = 'worker' AND n.pid IS NULL AND n.state = 'active' AND n.share = 0
       AND NOT EXISTS (SELECT FROM stacksaga.slot s WHERE s.next_owner = n.incarnation)
    UNION ALL
    SELECT 'warning', 'coverage', format(
               '%s has no live owner for %s of its %s slots: what is due there waits', r.name,
               r.unowned, r.slots),
           CASE WHEN stacksaga_internal.setting('coordination') <> 'coordinator' OR NOT r.has_owners
                THEN 'SELECT stacksaga.worker_ensure(); -- or start another node'
                WHEN r.is_open OR r.next_window IS NOT NULL
                THEN 'Wait for the next window, which assigns them to the live nodes. Where no master '
                     'runs any more, start stacksaga-coordinator master; or, without one, set '
                     'stacksaga.coordination to standalone.'
                ELSE 'Start stacksaga-coordinator master; or, without one, set stacksaga.coordination to '
                     'standalone.' END
      FROM ring r WHERE r.total_nodes > 0 AND r.unowned > 0
    UNION ALL
    SELECT 'warning', 'windows', format(
               'no window of %s is open: no coordinator assigns its slots', r.name),
           CASE WHEN r.has_owners
                THEN 'Start stacksaga-coordinator; or, without one, set stacksaga.coordination to '
                     'standalone.'
                ELSE 'SELECT stacksaga.worker_ensure(); -- or start another node: a coordinator '
                     'publishes no window for a ring without nodes' END
      FROM ring r
     WHERE stacksaga_internal.setting('coordination') = 'coordinator'
       AND r.region = stacksaga_internal.setting('region')
       AND r.cluster = stacksaga_internal.setting('cluster')
       AND NOT r.is_open AND r.next_window IS NULL
    UNION ALL
    SELECT 'error', 'windows', format(
               'no window of %s is open, and its on_missing_window is pause: workers do nothing in it',
               r.name),
           format(CASE WHEN r.next_window IS NOT NULL
                       THEN 'Wait for the next window, which is published'
                       WHEN r.has_owners THEN 'Start stacksaga-coordinator'
                       ELSE 'Start a node, since a coordinator publishes no window without one' END ||
                  '; or SELECT stacksaga.alter_ring(%L, %L, ''on_missing_window'', ''keep'');',
                  r.region, r.cluster)
      FROM ring r
      JOIN stacksaga.ring_setting s
        ON s.ring_id = r.ring_id AND s.setting = 'on_missing_window' AND s.value = 'pause'
     WHERE NOT r.is_open
    UNION ALL
    SELECT 'error', 'parked',
           format('%s sagas are parked %s step "%s" of saga "%s" since %s, which need a person: %s', e.sagas,
                  CASE e.direction WHEN 'act' THEN 'at' ELSE 'at the compensation of' END, e.step, e.saga,
                  date_trunc('second', e.since), coalesce(e.error, 'no error')),
           format('SELECT saga_id, hint FROM stacksaga.parked_sagas WHERE saga = %L AND step = %L ORDER BY since;', e.saga, e.step)
      FROM stacksaga_internal.parked_errors() AS e
    UNION ALL
    SELECT 'error', 'parked', 'more than 1000 sagas are parked: the others are not counted here',
           'SELECT saga_id, step, error, hint FROM stacksaga.parked_sagas ORDER BY since;'
      FROM stacksaga_internal.parked_count(1001) AS n WHERE n > 1000
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_rings IS
    'Internal: returns what doctor() says of work, nodes and windows';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_sagas()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), kept AS (
        SELECT c.saga_id, c.step_no, c.direction::text AS direction, c.answer, c.answered_at
          FROM stacksaga.saga_contradiction c WHERE c.acknowledged_at IS NULL
        UNION ALL
        SELECT k.saga_id, k.step_no, k.direction, k.answer, k.answered_at
          FROM stacksaga_internal.kept_contradictions() AS k
         WHERE NOT EXISTS (
               SELECT FROM stacksaga.saga_contradiction c
                WHERE c.saga_id = k.saga_id AND c.step_no = k.step_no AND c.direction = k.direction
                  AND c.lease = k.lease AND c.answer = k.answer)
    )
    SELECT 'error', 'contradictions', format(
               'a refused answer says %s of %sstep "%s" of saga %s ("%s"), which was settled otherwise',
               replace(k.answer, '_', '-'), CASE k.direction WHEN 'act' THEN '' ELSE 'the compensation of ' END,
               ds.step, k.saga_id, d.saga),
           format('Find out what is true (saga_timeline() shows what settled it), put it right outside, then '
                  'SELECT stacksaga.acknowledge_contradiction(%L, %L, ''why'');', k.saga_id, ds.step)
      FROM (SELECT * FROM kept ORDER BY answered_at LIMIT 100) AS k
      JOIN stacksaga.saga s ON s.saga_id = k.saga_id
      JOIN stacksaga.saga_definition d ON d.definition_id = s.definition_id
      JOIN stacksaga.definition_step ds ON ds.definition_id = s.definition_id AND ds.step_no = k.step_no
    UNION ALL
    SELECT 'warning', 'signals', format(
               '%s signals "%s" arrived for sagas "%s" that ended before a step took them, the latest for saga %s',
               count(*), g.signal, d.saga, (array_agg(g.saga_id ORDER BY g.arrived_at DESC))[1]),
           'What they say did not reach the sagas: act on it elsewhere. saga_timeline() lists them until the sagas are removed.'
      FROM (SELECT * FROM stacksaga.saga_signal WHERE step_no IS NULL ORDER BY arrived_at DESC LIMIT 1000) AS g
      JOIN stacksaga.saga s ON s.saga_id = g.saga_id AND s.token OPERATOR(stacksaga.=) g.token
      JOIN stacksaga.saga_definition d ON d.definition_id = s.definition_id
     WHERE s.status IN ('completed', 'failed')
     GROUP BY d.saga, g.signal
    UNION ALL
    -- The saga's row may be what cannot be read. What was put off is due within 72 seconds (core/common/put_off.hpp).
    SELECT 'error', 'put_off', format('%s of saga %s has been put off %s times: it can be neither done nor settled',
               CASE w.purpose WHEN 'deadline' THEN 'the deadline'
                              WHEN 'compensation_request' THEN 'the request of its parent to compensate'
                              WHEN 'child_settled' THEN format('the end of the child of step %s', w.step_no)
                              ELSE format('step %s', w.step_no) END,
               w.saga_id, CASE WHEN w.postponed < 100 THEN w.postponed::text ELSE '100 or more' END),
           'The log of the server has the error. It is tried once a minute, and goes on once it can be read; until then '
           'what waits for it waits.'
      FROM (SELECT b.* FROM stacksaga.clock_now() AS now,
                   stacksaga_internal.work_due_between(now, now + interval '72 seconds', NULL) AS b
             WHERE b.postponed > 3 ORDER BY b.postponed DESC, b.saga_id LIMIT 20) AS w
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_sagas IS
    'Internal: returns what doctor() says of answers that contradict others, of signals that no step took and of what can be neither done nor settled';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_subscriptions()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH named AS (
        SELECT s.*, stacksaga_internal.role_objection(s.definer, s.definer_oid) AS objection,
               format('subscription "%s"%s', s.subscription,
                           CASE WHEN r.region <> stacksaga_internal.setting('region')
                                  OR r.cluster <> stacksaga_internal.setting('cluster')
                                THEN format(' of ring (%s, %s)', r.region, r.cluster) END) AS name
          FROM stacksaga.subscription s JOIN stacksaga.ring r USING (ring_id)
    )
    SELECT 'error', 'dead_messages', format('%s messages of %s have failed for good',
               CASE WHEN n < 1000 THEN n::text ELSE '1000 or more' END, s.name),
           format('SELECT message_id, key, last_error FROM stacksaga.dead_messages WHERE '
                  'subscription = %L; -- then redrive_message() or discard_message()', s.subscription)
      FROM named s, stacksaga_internal.dead_count(s.subscription_id) AS n
     WHERE n > 0
    UNION ALL
    SELECT 'error', 'dead_messages',
           format('the fallback of %s was not run for message %s%s: an attempt may have taken effect',
                  s.name, d.message_id, CASE WHEN d.n > 1 THEN format(' and %s others',
                      CASE WHEN d.n < 1000 THEN (d.n - 1)::text ELSE '999 or more' END) END),
           format('Look whether it took effect; then SELECT stacksaga.discard_message(%L, %L, ''...'');'
                  ' -- or redrive_message()', s.subscription, d.message_id)
      FROM named s, LATERAL (
           SELECT (array_agg(f.message_id ORDER BY f.dead_since, f.tick, f.number))[1] AS message_id,
                  count(*) AS n
             FROM (SELECT message_id, dead_since, tick, number FROM stacksaga.dead_message AS f
                    WHERE f.subscription_id = s.subscription_id AND f.discarded_at IS NULL
                      AND f.in_doubt
                    ORDER BY dead_since, tick, number LIMIT 1000) AS f) AS d
     WHERE s.fallback IS NOT NULL AND d.n > 0
    UNION ALL
    SELECT CASE WHEN lag < 600 THEN 'warning' ELSE 'error' END, 'lag',
           format('%s has not read messages that are %s old; after '
                  'stacksaga.outbox_retention (%s) they are copied out of the log for it', s.name,
                  date_trunc('second', make_interval(secs => lag)),
                  current_setting('stacksaga.outbox_retention')),
           CASE WHEN s.paused_at IS NOT NULL
                     AND (s.paused_until IS NULL OR s.paused_until > stacksaga.clock_now())
                THEN format('SELECT stacksaga.resume_subscription(%L, ''...''); -- it is paused',
                            s.subscription)
                WHEN s.handler IS NULL
                THEN format('Start a service that calls stacksaga.receive_messages(%L, ...); or '
                            'stacksaga.drop_subscription(%1$L, discard => true);', s.subscription)
                ELSE 'SELECT stacksaga.worker_ensure(); -- or stacksaga.run_pending()' END
      FROM named s,
           stacksaga_internal.seconds_overdue(stacksaga_internal.outbox_unread_since(s.subscription_id)) AS lag
     WHERE lag > 60
    UNION ALL
    SELECT 'error', 'handlers', format('the %s of %s cannot run %s: %s', h.what, s.name, h.signature,
               CASE WHEN f.oid IS NULL THEN 'there is no such function'
                    WHEN NOT u.may_use THEN 'the defining role lacks USAGE on its schema'
                    ELSE 'the defining role may not execute it' END),
           CASE WHEN f.oid IS NULL
                THEN format('CREATE FUNCTION %s ...; or create the subscription again', h.signature)
                WHEN NOT u.may_use THEN format('GRANT USAGE ON SCHEMA %s TO %I;', u.schema, s.definer)
                ELSE format('GRANT EXECUTE ON FUNCTION %s TO %I;', h.signature, s.definer) END
      FROM named s
     CROSS JOIN LATERAL (VALUES ('handler', s.handler), ('fallback', s.fallback))
                AS h(what, signature)
     CROSS JOIN LATERAL to_regprocedure(h.signature) AS f(oid)
      LEFT JOIN LATERAL (SELECT p.pronamespace::regnamespace AS schema,
                                has_schema_privilege(s.definer, p.pronamespace, 'USAGE') AS may_use
                           FROM pg_proc p WHERE p.oid = f.oid) AS u ON true
     WHERE h.signature IS NOT NULL AND s.objection IS NULL
       AND (f.oid IS NULL OR NOT u.may_use OR NOT has_function_privilege(s.definer, f.oid, 'EXECUTE'))
    UNION ALL
    SELECT 'error', 'definers', format('%s was created by role "%s", which %s: its handler cannot run',
                                       s.name, s.definer, s.objection),
           format('SET ROLE ...; SELECT stacksaga.create_subscription(%L, ...); -- as a superuser, with '
                  'the same settings, as the role that its handler is to run as', s.subscription)
      FROM named s
     WHERE coalesce(s.handler, s.fallback) IS NOT NULL AND s.objection IS NOT NULL
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_subscriptions IS
    'Internal: returns what doctor() says of subscriptions';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_schedules()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), schedule AS (
        SELECT s.*, stacksaga_internal.role_objection(s.definer, s.definer_oid) AS objection,
               stacksaga_internal.seconds_overdue(s.next_run) AS overdue,
               n.of_ring, n.in_ring,
               n.in_ring || format('SELECT stacksaga.drop_schedule(%L); -- ', s.schedule) AS drop_it
          FROM stacksaga.schedule s
          JOIN stacksaga.ring r ON r.ring_id = s.ring_id
         CROSS JOIN LATERAL (
               SELECT CASE WHEN r.region = 'default' AND r.cluster = 'default' THEN ''
                           ELSE format(' of ring (%s, %s)', r.region, r.cluster) END AS of_ring,
                      CASE WHEN r.region = 'default' AND r.cluster = 'default' THEN ''
                           ELSE format('SET stacksaga.region = %L; SET stacksaga.cluster = %L; ',
                                       r.region, r.cluster) END AS in_ring) AS n
         WHERE NOT s.paused
    )
    SELECT 'error', 'schedules', format('schedule "%s"%s has failed since %s (attempts: %s): %s',
               s.schedule, s.of_ring, date_trunc('second', s.failed_since), s.failures, s.last_error),
           CASE WHEN NOT EXISTS (SELECT FROM stacksaga.saga_definition d
                                  WHERE d.saga = s.saga AND d.is_current)
                THEN format('SELECT stacksaga.define_saga(%L, ...); or ', s.saga) || s.drop_it
                     || 'if it is not wanted any more'
                WHEN s.objection IS NOT NULL
                THEN s.drop_it || 'and create it again as the role that is to start its sagas'
                WHEN NOT has_function_privilege(s.definer, f.oid, 'EXECUTE')
                THEN format('SELECT stacksaga.grant_usage(%L, ''service'');', s.definer)
                ELSE s.drop_it || 'and create it again with settings that work' END
      FROM schedule s
     CROSS JOIN (SELECT p.oid FROM pg_proc p
                  WHERE p.proname = 'start_saga'
                    AND p.pronamespace = 'stacksaga'::regnamespace) AS f
     WHERE s.failures > 0
    UNION ALL
    SELECT CASE WHEN overdue < 600 THEN 'warning' ELSE 'error' END, 'schedules',
           format('schedule "%s"%s has been due for %s', s.schedule, s.of_ring,
                  date_trunc('second', make_interval(secs => overdue))),
           s.in_ring || 'SELECT stacksaga.worker_ensure(); -- or stacksaga.fire_schedules()'
      FROM schedule s WHERE s.failures = 0 AND overdue > 60 AND s.due_at = s.next_run
    UNION ALL
    SELECT 'warning', 'schedules',
           CASE WHEN s.skipped > 0
                THEN format('schedule "%s" has skipped %s runs in a row since %s, since saga %s has not ended',
                            s.schedule, s.skipped, date_trunc('second', s.skipped_since), s.last_saga_id)
                ELSE format('missed runs of schedule "%s" wait, since %s, for saga %s to end',
                            s.schedule, date_trunc('second', s.next_run), s.last_saga_id) END,
           format('SELECT * FROM stacksaga.saga_timeline(%L); -- says what it waits for', s.last_saga_id)
      FROM schedule s
     WHERE s.failures = 0
       AND (s.skipped >= 3 OR s.skipped_since < stacksaga.clock_now() - interval '1 day'
            OR (s.due_at > s.next_run AND overdue > 86400))
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_schedules IS
    'Internal: returns what doctor() says of schedules';

-- Who waits for steps holds a lock whose tag has the hash of the queue's name
-- (extension/src/queue/queue_waiters.hpp).
CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_queues()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT), defined AS (
        SELECT DISTINCT n.queue
          FROM stacksaga.definition_step d
         CROSS JOIN LATERAL (
               SELECT d.queue
               UNION ALL
               SELECT d.compensation_queue
               UNION ALL
               SELECT d.fallback WHERE d.kind NOT IN ('sql', 'message')) AS n(queue)
         WHERE n.queue IS NOT NULL
    ), limited AS (
        SELECT q.*, format('queue "%s"%s', q.queue,
                           CASE WHEN r.region <> stacksaga_internal.setting('region')
                                  OR r.cluster <> stacksaga_internal.setting('cluster')
                                THEN format(' of ring (%s, %s)', r.region, r.cluster) END) AS name
          FROM stacksaga_internal.queue_settings() AS q JOIN stacksaga.ring r USING (ring_id)
    )
    SELECT 'warning', 'queues', format(
               '%s has been paused for %s ("%s"): %s steps wait', l.name,
               date_trunc('second', stacksaga.clock_now() - l.paused_at), l.pause_reason,
               CASE WHEN w.waiting < 1000 THEN w.waiting::text ELSE '1000 or more' END),
           format('SELECT stacksaga.resume_queue(%L, ''...'');', l.queue)
      FROM limited l
     CROSS JOIN LATERAL (
           SELECT sum(b.waiting) AS waiting
             FROM stacksaga_internal.waiting_by_rank(l.ring_id, l.queue, 1000) AS b WHERE b.rank > 0) AS w
     WHERE l.paused_at IS NOT NULL AND w.waiting > 0
    UNION ALL
    SELECT 'warning', 'definitions', format(
               'definition "%s" has been paused for %s ("%s"): %s steps wait', p.saga,
               date_trunc('second', stacksaga.clock_now() - p.paused_at), p.pause_reason,
               CASE WHEN w.waiting < 1000 THEN w.waiting::text ELSE '1000 or more' END),
           format('SELECT stacksaga.resume_definition(%L, ''...'');', p.saga)
      FROM stacksaga_internal.definition_pauses() AS p
     CROSS JOIN LATERAL stacksaga_internal.held_back_steps(p.saga, 1000) AS w(waiting)
     WHERE w.waiting > 0
    UNION ALL
    SELECT 'warning', 'queues', format('no definition names %s, which has limits or is paused', l.name),
           format(CASE WHEN l.paused_at IS NULL THEN 'SELECT stacksaga.drop_queue(%L);'
                       ELSE 'SELECT stacksaga.resume_queue(%L, ''...'');' END
                  || ' -- or define a saga whose steps use it', l.queue)
      FROM limited l WHERE l.queue NOT IN (SELECT d.queue FROM defined d)
    UNION ALL
    SELECT 'warning', 'queues', format(
               'suspended saga %s has kept a lease of %s for %s, which counts for its limits', s.saga_id, l.name,
               date_trunc('second', stacksaga.clock_now() - s.since)),
           format('SELECT stacksaga.resume_saga(%L, ''...''); -- or cancel_saga(); its worker "%s" may still be at work',
                  s.saga_id, s.worker)
      FROM limited l
     CROSS JOIN LATERAL (
           SELECT * FROM stacksaga_internal.suspended_leases(l.ring_id, l.queue, 1000) AS s
            WHERE s.since <= stacksaga.clock_now() - interval '1 hour' ORDER BY s.since LIMIT 20) AS s
     WHERE coalesce(l.max_running, l.max_running_per_group) IS NOT NULL
    UNION ALL
    SELECT 'warning', 'queues', format(
               'process %s (%s, role "%s") %s a queue that no definition names',
               a.pid, coalesce(nullif(a.application_name, ''), a.backend_type), a.usename,
               CASE w.objsubid WHEN x'534c'::integer THEN 'waits for steps of' ELSE 'asks for steps of' END),
           format('SELECT query FROM pg_stat_activity WHERE pid = %s; -- look for a misspelt name',
                  a.pid)
      FROM pg_locks w JOIN pg_stat_activity a USING (pid)
     WHERE w.locktype = 'userlock' AND w.objsubid IN (x'534c'::integer, x'554c'::integer) AND w.mode = 'ShareLock'
       AND w.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
       AND w.objid::bigint NOT IN (
           SELECT hashtext(d.queue COLLATE "C")::bigint & 4294967295 FROM defined d)
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_queues IS
    'Internal: returns what doctor() says of definitions that are paused, and of queues that are paused, misspelt or held by suspended sagas';

CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_instants()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT 'warning', 'instants',
           format('%s%s of kind %s further ahead than any setting explains, until %s, such as %s: a clock was ahead',
                  count(*), CASE WHEN count(*) < 1000 THEN '' ELSE ' or more' END,
                  quote_literal(f.kind) || CASE count(*) WHEN 1 THEN ' is' ELSE ' are' END,
                  date_trunc('second', max(f.instant)), min(f.object)),
           'SELECT * FROM stacksaga.reset_instants(''...''); -- lists them, and with dry_run => false brings due times and '
           'leases back'
      FROM (SELECT w.kind, w.object, w.instant FROM stacksaga_internal.far_work(1000) AS w
            UNION ALL SELECT o.kind, o.object, o.instant FROM stacksaga_internal.far_instants(1000) AS o) AS f
     GROUP BY f.kind
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_instants IS
    'Internal: returns what doctor() says of instants that a clock which was ahead has left behind';

-- A transaction of another database holds nothing back here.
CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_vacuum()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'error', 'autovacuum', format('autovacuum is off for table stacksaga.%I', c.relname),
           format('ALTER TABLE stacksaga.%I RESET (autovacuum_enabled);', c.relname)
      FROM pg_class c, pg_options_to_table(c.reloptions) AS o
     WHERE c.relnamespace = 'stacksaga'::regnamespace AND o.option_name = 'autovacuum_enabled'
       AND NOT o.option_value::boolean
    UNION ALL
    SELECT 'warning', 'long_transaction', format(
               'process %s (%s, role "%s") has been in a transaction for %s: vacuum cannot clean '
               'behind it', a.pid, coalesce(nullif(a.application_name, ''), a.backend_type),
               a.usename, date_trunc('second', stacksaga.clock_now() - a.xact_start)),
           format('SELECT pg_terminate_backend(%s);', a.pid)
      FROM pg_stat_activity a
     WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
       AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
       AND a.backend_type <> 'autovacuum worker'
       AND a.xact_start < stacksaga.clock_now() - interval '10 minutes'
    UNION ALL
    SELECT 'warning', 'prepared_transaction', format(
               'transaction %L has been prepared for %s: vacuum cannot clean behind it, and the '
               'sagas that it holds wait', p.gid,
               date_trunc('second', stacksaga.clock_now() - p.prepared)),
           format('COMMIT PREPARED %L; -- or ROLLBACK PREPARED', p.gid)
      FROM pg_prepared_xacts p
     WHERE p.database = current_database()
       AND p.prepared < stacksaga.clock_now() - interval '5 minutes'
    UNION ALL
    SELECT 'warning', 'replication_slot', format(
               'replication slot %L is not in use and holds vacuum back by %s transactions',
               s.slot_name, age(s.xmin)),
           format('SELECT pg_drop_replication_slot(%L); -- or start its consumer', s.slot_name)
      FROM pg_replication_slots s
     WHERE NOT s.active AND age(s.xmin) > 100000
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_vacuum IS
    'Internal: returns what doctor() says of what keeps vacuum from cleaning';

-- What DROP EXTENSION ... CASCADE takes along and is no handler: views, foreign keys, columns of its types. Handlers,
-- which take its types, are expected. A publication of the log loses nothing of the user's: it stays.
CREATE OR REPLACE FUNCTION stacksaga_internal.doctor_dependents()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH member AS (
        SELECT d.classid, d.objid
          FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid AND e.extname = 'stacksaga'
         WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
    ), dependent AS (
        SELECT d.classid, d.objid, d.objsubid,
               CASE d.classid
               WHEN 'pg_rewrite'::regclass THEN (SELECT w.ev_class FROM pg_rewrite w WHERE w.oid = d.objid)
               WHEN 'pg_constraint'::regclass THEN (SELECT c.conrelid FROM pg_constraint c WHERE c.oid = d.objid)
               ELSE d.objid END AS relation
          FROM member m JOIN pg_depend d ON d.refclassid = m.classid AND d.refobjid = m.objid
         WHERE d.deptype = 'n'
           AND d.classid IN ('pg_rewrite'::regclass, 'pg_constraint'::regclass, 'pg_class'::regclass)
           AND (d.classid <> 'pg_class'::regclass OR d.objsubid > 0)
    )
    SELECT DISTINCT 'info', 'dependents', format(
               'DROP EXTENSION is refused, and with CASCADE drops %s',
               CASE d.classid WHEN 'pg_rewrite'::regclass THEN pg_describe_object('pg_class'::regclass, d.relation, 0)
                              ELSE pg_describe_object(d.classid, d.objid, d.objsubid) END),
           'Nothing to do unless you drop the extension.'
      FROM dependent d
      JOIN pg_class c ON c.oid = d.relation -- a domain's constraint has none
     WHERE c.relnamespace NOT IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace)
$$;
COMMENT ON FUNCTION stacksaga_internal.doctor_dependents IS
    'Internal: returns what doctor() says of what DROP EXTENSION takes along';

-- The planner overestimates these views so far that it would compile them, which takes seconds.
CREATE OR REPLACE FUNCTION stacksaga.doctor()
RETURNS TABLE (severity text, check_name text, detail text, fix text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres' SET jit = off
AS $$
    SELECT f.severity, f.check_name, stacksaga_internal.printable(f.detail), f.fix
      FROM (SELECT * FROM stacksaga_internal.doctor_settings()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_workers()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_definitions()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_effects()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_grants()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_rings()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_sagas()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_locked_sagas()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_retention()
            -- It would raise the error that doctor_tables() is about.
            UNION ALL SELECT * FROM stacksaga_internal.doctor_subscriptions()
             WHERE (SELECT NOT EXISTS (
                    SELECT FROM stacksaga_internal.table_obstacles() AS o WHERE o.is_read_only))
            UNION ALL SELECT * FROM stacksaga_internal.doctor_queues()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_schedules()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_instants()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_values()
             WHERE (SELECT NOT EXISTS (
                    SELECT FROM stacksaga_internal.table_obstacles() AS o WHERE o.is_read_only))
            UNION ALL SELECT * FROM stacksaga_internal.doctor_vacuum()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_tables()
            UNION ALL SELECT * FROM stacksaga_internal.doctor_dependents())
           AS f(severity, check_name, detail, fix)
     ORDER BY array_position('{error,warning,info}', f.severity), f.check_name, f.detail
$$;
COMMENT ON FUNCTION stacksaga.doctor IS
    'Returns what is wrong with stacksaga in this database and on this server, the worst first, and what fixes it; no row: nothing';
