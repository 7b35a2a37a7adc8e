-- Rings, nodes and windows (extension/src/ring).

CREATE OR REPLACE FUNCTION stacksaga.create_ring(
    region            text,
    cluster           text,
    window_length     interval DEFAULT '60 seconds',
    publish_lead      interval DEFAULT '30 seconds',
    strategy          text     DEFAULT 'consistent',
    slots             integer  DEFAULT 256,
    on_missing_window text     DEFAULT 'keep'
) RETURNS integer
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_create_ring';
COMMENT ON FUNCTION stacksaga.create_ring IS
    'Creates a ring, or returns the one that exists with the same settings. Raises SG400, SG409 (it exists with others)';

CREATE OR REPLACE FUNCTION stacksaga.alter_ring(
    region text, cluster text, setting text, value text
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_alter_ring';
COMMENT ON FUNCTION stacksaga.alter_ring IS
    'Changes a setting of a ring, for windows and heartbeats from now on. Raises SG400, SG404';

CREATE OR REPLACE FUNCTION stacksaga.register_node(
    node    text,
    region  text             DEFAULT 'default',
    cluster text             DEFAULT 'default',
    kind    text             DEFAULT 'worker',
    weight  double precision DEFAULT 1,
    agent   text             DEFAULT NULL
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_register_node';
COMMENT ON FUNCTION stacksaga.register_node IS
    'Registers a node and returns its incarnation; an older holder of the name is fenced, and its slots pass to the new one. Raises SG400, SG404 (no such ring or agent), SG409 (the name is a node of another ring)';

CREATE OR REPLACE FUNCTION stacksaga.heartbeat_node(
    node text, incarnation bigint, load double precision DEFAULT 0
) RETURNS TABLE (state text, epoch bigint, checkpoint_requested boolean)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
ROWS 1
AS 'MODULE_PATHNAME', 'stacksaga_heartbeat_node';
COMMENT ON FUNCTION stacksaga.heartbeat_node IS
    'Records that a node is alive, and takes over the slots that the open window assigns to it. Call it in a transaction of its own: slots taken over are locked to its end. Raises SG400, SG404, SG412 (superseded)';

CREATE OR REPLACE FUNCTION stacksaga.acknowledge_checkpoint(
    node text, incarnation bigint, progress jsonb
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_acknowledge_checkpoint';
COMMENT ON FUNCTION stacksaga.acknowledge_checkpoint IS
    'Records the progress of a node, which heartbeat_node() asks for. Raises SG400, SG404, SG412 (superseded), SG413';

CREATE OR REPLACE FUNCTION stacksaga.node_agent(node text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_node_agent';
COMMENT ON FUNCTION stacksaga.node_agent IS
    'Returns the agent that a node was assigned to when it registered, round robin; NULL where the ring had none. Raises SG400, SG404';

CREATE OR REPLACE FUNCTION stacksaga.adopt_ring(
    from_region text, from_cluster text, to_region text, to_cluster text, reason text
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_adopt_ring';
COMMENT ON FUNCTION stacksaga.adopt_ring IS
    'Moves the sagas of a ring that died to another and returns how many; the old ring is fenced by a new epoch. Raises SG400, SG404, SG409 (it has a node that lives)';

CREATE OR REPLACE FUNCTION stacksaga.drain_node(node text, incarnation bigint) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_drain_node';
COMMENT ON FUNCTION stacksaga.drain_node IS
    'Lets a node finish its work, passes its slots to the other nodes and leaves it out of the next windows. Raises SG400, SG404, SG412 (superseded)';

CREATE OR REPLACE FUNCTION stacksaga.leave_ring(node text, incarnation bigint) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_leave_ring';
COMMENT ON FUNCTION stacksaga.leave_ring IS
    'Removes a node from its ring; its slots pass to the other nodes. Raises SG400, SG404, SG412 (superseded)';

CREATE OR REPLACE FUNCTION stacksaga.publish_window(
    region       text,
    cluster      text,
    window_start timestamptz,
    nodes        text[],
    range_starts bigint[],
    range_ends   bigint[],
    publisher    text,
    agent        text DEFAULT NULL
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_publish_window';
COMMENT ON FUNCTION stacksaga.publish_window IS
    'Proposes who owns what from the start of a window on and returns its epoch; NULL when that window was already published. Raises SG400, SG404 (no such ring or node), SG416 (the ranges do not tile the ring at slot borders)';

CREATE OR REPLACE FUNCTION stacksaga.node_ranges(node text)
RETURNS TABLE (range_start bigint, range_end bigint, epoch bigint, valid_from timestamptz,
               valid_until timestamptz)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
ROWS 10
AS 'MODULE_PATHNAME', 'stacksaga_node_ranges';
COMMENT ON FUNCTION stacksaga.node_ranges IS
    'Returns what a node may work on now; ownership changes by plan only at valid_until, where the next window starts. Raises SG400, SG404';

CREATE OR REPLACE FUNCTION stacksaga.ring_state(region text, cluster text)
RETURNS TABLE (database_time timestamptz, window_length interval, publish_lead interval,
               strategy text, slots integer, epoch bigint, last_window timestamptz,
               virtual_nodes integer)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
ROWS 1
AS 'MODULE_PATHNAME', 'stacksaga_ring_state';
COMMENT ON FUNCTION stacksaga.ring_state IS
    'Returns what a coordinator plans with: the time, the settings of the ring and the start of the latest published window. Raises SG400, SG404';

CREATE OR REPLACE FUNCTION stacksaga.ring_slots(region text, cluster text)
RETURNS TABLE (slot integer, range_start bigint, range_end bigint, node text, epoch bigint,
               next_node text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
ROWS 256
AS 'MODULE_PATHNAME', 'stacksaga_ring_slots';
COMMENT ON FUNCTION stacksaga.ring_slots IS
    'Returns every slot of a ring, its range, its owner, and the node that is to take it over. Raises SG400, SG404';

CREATE OR REPLACE FUNCTION stacksaga.ring_nodes(region text, cluster text)
RETURNS TABLE (node text, kind text, state text, weight double precision, agent text,
               frozen boolean)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
ROWS 50
AS 'MODULE_PATHNAME', 'stacksaga_ring_nodes';
COMMENT ON FUNCTION stacksaga.ring_nodes IS
    'Returns the nodes of a ring that a coordinator assigns slots to; frozen: an unresponsive agent whose slots wait for it (rebalance_delay). Raises SG400, SG404';

CREATE OR REPLACE FUNCTION stacksaga.agent_slots(agent text, window_start timestamptz)
RETURNS TABLE (slot integer, range_start bigint, range_end bigint, node text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
ROWS 64
AS 'MODULE_PATHNAME', 'stacksaga_agent_slots';
COMMENT ON FUNCTION stacksaga.agent_slots IS
    'Returns the slots that an agent assigns in a window, each with the one of its nodes that owns it or is to own it; NULL where none does. Raises SG400, SG404 (no such agent)';

CREATE OR REPLACE FUNCTION stacksaga_internal.ring_setting_defaults()
RETURNS TABLE (setting text, value text, is_interval boolean)
LANGUAGE c IMMUTABLE PARALLEL SAFE ROWS 9
AS 'MODULE_PATHNAME', 'stacksaga_ring_setting_defaults';
COMMENT ON FUNCTION stacksaga_internal.ring_setting_defaults IS
    'Internal: returns the settings of a ring and their defaults, intervals in microseconds';

CREATE OR REPLACE FUNCTION stacksaga_internal.node_state(
    heartbeat_at timestamptz, reported_at timestamptz, at timestamptz, draining boolean,
    checkpoint_interval interval, suspect_after interval, dead_after interval
) RETURNS text
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'stacksaga_node_state';
COMMENT ON FUNCTION stacksaga_internal.node_state IS
    'Internal: returns the state that a node has at an instant. Raises SG400';

CREATE OR REPLACE FUNCTION stacksaga.node_transitions()
RETURNS TABLE (from_state text, to_state text, sentence text)
LANGUAGE c IMMUTABLE PARALLEL SAFE ROWS 12
AS 'MODULE_PATHNAME', 'stacksaga_node_transitions';
COMMENT ON FUNCTION stacksaga.node_transitions IS
    'Returns the changes of state that can happen to a node, with a sentence for each';

-- Some probes for each queue, whatever the backlog.
CREATE OR REPLACE FUNCTION stacksaga_internal.queues_with_work(ring_id integer) RETURNS SETOF text
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE stacksaga_this_node AS (SELECT), named (queue) AS (
        SELECT ''::text COLLATE "C"
        UNION ALL
        SELECT least(
               (SELECT w.queue FROM stacksaga.work w
                 WHERE w.ring_id = queues_with_work.ring_id AND w.queue > n.queue
                   AND w.queue IS NOT NULL AND NOT w.verifying AND w.lease_until IS NULL
                   AND w.rank = 3 AND w.group_key = ''
                 ORDER BY w.queue LIMIT 1),
               (SELECT w.queue FROM stacksaga.work w
                 WHERE w.ring_id = queues_with_work.ring_id AND w.queue > n.queue
                   AND w.queue IS NOT NULL AND NOT w.verifying AND w.lease_until IS NULL
                   AND (w.rank <> 3 OR w.group_key <> '')
                 ORDER BY w.queue LIMIT 1),
               (SELECT w.queue FROM stacksaga.work w
                 WHERE w.ring_id = queues_with_work.ring_id AND w.queue > n.queue
                   AND w.queue IS NOT NULL AND w.lease_until IS NOT NULL
                 ORDER BY w.queue LIMIT 1))
          FROM named n WHERE n.queue IS NOT NULL
    )
    SELECT named.queue FROM named WHERE named.queue <> ''
$$;
COMMENT ON FUNCTION stacksaga_internal.queues_with_work IS
    'Internal: returns the queues of a ring in which steps wait or run';

-- Some probes for each queue, whatever the backlog.
CREATE OR REPLACE FUNCTION stacksaga_internal.oldest_due_of_queues(ring_id integer)
RETURNS TABLE (queue text, due_at timestamptz, is_retry boolean)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT DISTINCT ON (n.queue) n.queue, first.due_at, first.is_retry
      FROM stacksaga_internal.queues_with_work(oldest_due_of_queues.ring_id) AS n(queue)
     CROSS JOIN LATERAL (
           (SELECT w.due_at, w.attempt > w.attempt_base AS is_retry FROM stacksaga.work w
             WHERE w.ring_id = oldest_due_of_queues.ring_id AND w.queue = n.queue
               AND w.queue IS NOT NULL AND NOT w.verifying AND w.lease_until IS NULL
               AND w.rank = 3 AND w.group_key = ''
             ORDER BY w.due_at LIMIT 1)
           UNION ALL
           (SELECT w.due_at, w.is_retry
              FROM generate_series(0, 5) AS r(rank)
             CROSS JOIN LATERAL (
                   SELECT w.due_at, w.attempt > w.attempt_base AS is_retry FROM stacksaga.work w
                    WHERE w.ring_id = oldest_due_of_queues.ring_id AND w.queue = n.queue
                      AND w.rank = r.rank::smallint
                      AND w.queue IS NOT NULL AND NOT w.verifying AND w.lease_until IS NULL
                      AND (w.rank <> 3 OR w.group_key <> '')
                    ORDER BY w.due_at LIMIT 1) AS w)
           UNION ALL
           (SELECT w.due_at, w.attempt > w.attempt_base FROM stacksaga.work w
             WHERE w.ring_id = oldest_due_of_queues.ring_id AND w.queue = n.queue
               AND w.queue IS NOT NULL AND w.lease_until IS NOT NULL
             ORDER BY w.due_at LIMIT 1)) AS first
     ORDER BY n.queue, first.due_at
$$;
COMMENT ON FUNCTION stacksaga_internal.oldest_due_of_queues IS
    'Internal: returns for each queue of a ring when the work that waits longest was or will be due, or its lease runs out, and whether it is a retry';

-- One probe for each slot and each rank that is in use, whatever the backlog.
CREATE OR REPLACE FUNCTION stacksaga_internal.oldest_due_of_workers(ring_id integer) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH stacksaga_this_node AS (SELECT)
    SELECT least(
        (SELECT min(first.due_at)
           FROM stacksaga.ring r
          CROSS JOIN generate_series(0, r.slots - 1) AS s(slot)
          CROSS JOIN LATERAL (
                SELECT w.due_at FROM stacksaga.work w
                 WHERE w.ring_id = r.ring_id AND w.slot = s.slot AND w.rank = 3
                   AND (w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL)
                 ORDER BY w.due_at LIMIT 1) AS first
          WHERE r.ring_id = oldest_due_of_workers.ring_id),
        (SELECT min(first.due_at)
           FROM stacksaga.ring r
          CROSS JOIN generate_series(0, 5) AS k(rank)
          CROSS JOIN LATERAL (
                SELECT FROM stacksaga.work w
                 WHERE w.ring_id = r.ring_id AND w.rank = k.rank::smallint AND w.rank <> 3
                   AND (w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL) LIMIT 1) AS used
          CROSS JOIN generate_series(0, r.slots - 1) AS s(slot)
          CROSS JOIN LATERAL (
                SELECT w.due_at FROM stacksaga.work w
                 WHERE w.ring_id = r.ring_id AND w.slot = s.slot AND w.rank = k.rank::smallint AND w.rank <> 3
                   AND (w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL)
                 ORDER BY w.due_at LIMIT 1) AS first
          WHERE r.ring_id = oldest_due_of_workers.ring_id))
$$;
COMMENT ON FUNCTION stacksaga_internal.oldest_due_of_workers IS
    'Internal: returns when the work of a ring that workers do and that waits longest was or will be due; NULL where there is none';

-- A function of its own keeps the planner from estimating the view ring_status so high that it would
-- be compiled.
CREATE OR REPLACE FUNCTION stacksaga_internal.oldest_due(ring_id integer) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT least(
        (SELECT min(q.due_at) FROM stacksaga_internal.oldest_due_of_queues(oldest_due.ring_id) AS q),
        stacksaga_internal.oldest_due_of_workers(oldest_due.ring_id))
$$;
COMMENT ON FUNCTION stacksaga_internal.oldest_due IS
    'Internal: returns when the work of a ring that waits longest was or will be due, or its lease runs out; NULL where there is none';

CREATE OR REPLACE FUNCTION stacksaga_internal.ring_region(ring_id integer) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT r.region FROM stacksaga.ring r WHERE r.ring_id = $1 $$;
COMMENT ON FUNCTION stacksaga_internal.ring_region IS
    'Internal: returns the region of a ring';

CREATE OR REPLACE FUNCTION stacksaga_internal.ring_cluster(ring_id integer) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT r.cluster FROM stacksaga.ring r WHERE r.ring_id = $1 $$;
COMMENT ON FUNCTION stacksaga_internal.ring_cluster IS
    'Internal: returns the cluster of a ring';
