-- Hand-over: a node that leaves or drains gives its slots to the nodes that its ring's rule says.
CREATE FUNCTION pg_temp.lock_slots(ring_id integer, incarnation bigint, slots integer[],
                                   epochs bigint[] DEFAULT NULL)
RETURNS boolean[] LANGUAGE c AS 'stacksaga_testing', 'stacksaga_lock_slots';
CREATE FUNCTION pg_temp.register_worker(ring_id integer, name text, pid integer) RETURNS bigint
LANGUAGE c AS 'stacksaga_testing', 'stacksaga_register_worker';
SET TimeZone = 'UTC';
CREATE FUNCTION pg_temp.set_clock(at time) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset',
                      (timestamptz '2031-01-01 00:00 UTC' + at - clock_timestamp())::text, false) $$;
CREATE FUNCTION pg_temp.owners(cluster text)
RETURNS TABLE (node text, slots bigint, first integer, last integer) LANGUAGE sql AS $$
    SELECT s.node, count(*), min(slot), max(slot)
      FROM stacksaga.ring_slots('h', cluster) s GROUP BY s.node ORDER BY s.node COLLATE "C" $$;
CREATE FUNCTION pg_temp.coverage(cluster text) RETURNS double precision LANGUAGE sql AS $$
    SELECT r.coverage FROM stacksaga.ring_status r
     WHERE r.region = 'h' AND r.cluster = coverage.cluster $$;
CREATE FUNCTION pg_temp.leave(node text) RETURNS void LANGUAGE sql AS $$
    SELECT stacksaga.leave_ring(n.node, n.incarnation) FROM stacksaga.nodes n WHERE n.node = leave.node $$;
CREATE FUNCTION pg_temp.drain(node text) RETURNS void LANGUAGE sql AS $$
    SELECT stacksaga.drain_node(n.node, n.incarnation) FROM stacksaga.nodes n WHERE n.node = drain.node $$;
-- Gives slot i to node i of the list, round robin or in equal runs.
CREATE FUNCTION pg_temp.give(cluster text, nodes text[], in_runs boolean DEFAULT false) RETURNS void
LANGUAGE sql AS $$
    UPDATE stacksaga.slot s
       SET owner = (SELECT incarnation FROM stacksaga.node n
                     WHERE n.node = nodes[1 + CASE WHEN in_runs THEN s.slot * cardinality(nodes) / r.slots
                                                   ELSE s.slot % cardinality(nodes) END]),
           next_owner = NULL, next_from = NULL
      FROM stacksaga.ring r
     WHERE r.region = 'h' AND r.cluster = give.cluster AND s.ring_id = r.ring_id $$;
SELECT pg_temp.set_clock('10:00:50');

-- consistent: the slots of the leaver alone move, under a new epoch, and all nodes end with their share.
SELECT stacksaga.create_ring('h', 'one', slots => 64) AS one \gset
SELECT count(stacksaga.register_node('h' || i, 'h', 'one')) FROM generate_series(1, 3) i;
SELECT pg_temp.give('one', '{h1,h2,h3}');
SELECT node, slots FROM pg_temp.owners('one');
CREATE TEMP TABLE before AS SELECT * FROM stacksaga.ring_slots('h', 'one');
SELECT pg_temp.leave('h2');
SELECT node, slots FROM pg_temp.owners('one');
SELECT pg_temp.coverage('one'), count(*) FILTER (WHERE b.node <> a.node AND b.node <> 'h2') AS others_moved,
       count(*) FILTER (WHERE b.node = 'h2' AND a.epoch <= b.epoch) AS of_the_old_epoch
  FROM before b JOIN stacksaga.ring_slots('h', 'one') a USING (slot);
-- A node that beats again is assigned slots as soon as another one leaves, though no window was published.
SELECT stacksaga.register_node('h2', 'h', 'one') AS h2 \gset
SELECT node, slots FROM pg_temp.owners('one');
SELECT pg_temp.leave('h3');
SELECT node, slots FROM pg_temp.owners('one');
SELECT pg_temp.coverage('one');
-- The last but one gives all to the last.
SELECT pg_temp.leave('h1');
SELECT node, slots FROM pg_temp.owners('one');
-- The last node keeps its slots while it drains; when it leaves, they have no owner.
SELECT pg_temp.drain('h2');
SELECT node, slots FROM pg_temp.owners('one');
SELECT pg_temp.coverage('one');
SELECT pg_temp.leave('h2');
SELECT node, slots FROM pg_temp.owners('one');
SELECT pg_temp.coverage('one');

-- A node that drains hands its slots over, and no window assigns them to it again.
SELECT count(stacksaga.register_node('h' || i, 'h', 'one')) FROM generate_series(1, 3) i;
SELECT pg_temp.give('one', '{h1,h2,h3}');
UPDATE stacksaga.slot SET next_owner = (SELECT incarnation FROM stacksaga.node WHERE node = 'h2'),
       next_from = '2031-01-01 10:01'
 WHERE ring_id = :one AND slot % 3 = 0;
UPDATE stacksaga.slot SET next_owner = (SELECT incarnation FROM stacksaga.node WHERE node = 'h3'),
       next_from = '2031-01-01 10:01'
 WHERE ring_id = :one AND slot % 3 = 1;
SELECT pg_temp.drain('h2');
SELECT node, slots FROM pg_temp.owners('one');
SELECT count(*) FROM stacksaga.slot WHERE ring_id = :one AND next_owner IS NOT NULL;
SELECT state FROM stacksaga.nodes WHERE node = 'h2';
SELECT stacksaga.publish_window('h', 'one', '2031-01-01 10:01 UTC', '{h2}', ARRAY[(-2)::numeric ^ 63]::bigint[],
                                ARRAY[9223372036854775807], 'it has not seen the drain') > 0 AS published;
SELECT count(*) FROM stacksaga.slot WHERE ring_id = :one AND next_owner IS NOT NULL;
SELECT pg_temp.leave('h2');
SELECT pg_temp.coverage('one');
-- Nodes that are suspected, dead or of kind standard get no slots.
SELECT stacksaga.register_node('h2', 'h', 'one') AS h2 \gset
SELECT count(stacksaga.register_node('h standard', 'h', 'one', 'standard'));
SELECT pg_temp.set_clock('10:01:10');
SELECT n.node, h.state FROM stacksaga.nodes n, stacksaga.heartbeat_node(n.node, n.incarnation) AS h
 WHERE n.node IN ('h1', 'h standard') ORDER BY n.node COLLATE "C";
SELECT pg_temp.leave('h3');
SELECT node, slots FROM pg_temp.owners('one');

-- contiguous: runs in the order of the names, of which the leaver's slots alone are given away.
SELECT stacksaga.create_ring('h', 'two', strategy => 'contiguous', slots => 64) AS two \gset
SELECT count(stacksaga.register_node('i' || i, 'h', 'two')) FROM generate_series(1, 3) i;
SELECT pg_temp.give('two', '{i1,i2,i3}', true);
SELECT * FROM pg_temp.owners('two');
SELECT pg_temp.leave('i2');
SELECT * FROM pg_temp.owners('two');

-- An agent's worker gives its slots to the agent's others, the last one to the workers of other agents.
SELECT stacksaga.create_ring('h', 'agents', slots => 64) AS agents \gset
SELECT count(stacksaga.register_node(a, 'h', 'agents', 'agent')) FROM unnest('{hx,hy}'::text[]) a;
SELECT count(stacksaga.register_node('x' || i, 'h', 'agents', agent => 'hx')) FROM generate_series(1, 3) i;
SELECT count(stacksaga.register_node('y' || i, 'h', 'agents', agent => 'hy')) FROM generate_series(1, 2) i;
SELECT pg_temp.give('agents', '{x1,x2,x3,y1,y2}');
SELECT node, slots FROM pg_temp.owners('agents');
SELECT pg_temp.leave('x1');
SELECT node, slots FROM pg_temp.owners('agents');
SELECT pg_temp.drain('x2');
SELECT node, slots FROM pg_temp.owners('agents');
SELECT pg_temp.leave('x3');
SELECT node, slots FROM pg_temp.owners('agents');
-- What a window was to give to an agent that leaves stays where it is.
UPDATE stacksaga.slot SET next_owner = (SELECT incarnation FROM stacksaga.node WHERE node = 'hx'),
       next_from = '2031-01-01 10:01'
 WHERE ring_id = :agents AND slot < 8;
SELECT pg_temp.leave('hx');
SELECT count(*) FROM stacksaga.slot WHERE ring_id = :agents AND next_owner IS NOT NULL;

-- A ring that pauses: the new owner works in the window that is open, and in no other.
SELECT stacksaga.create_ring('h', 'pause', slots => 64, on_missing_window => 'pause') AS pause \gset
SELECT stacksaga.alter_ring('h', 'pause', s, '10 minutes') FROM unnest('{dead_after,suspect_after}'::text[]) s;
SELECT count(stacksaga.register_node('p' || i, 'h', 'pause')) FROM generate_series(1, 2) i;
SELECT stacksaga.publish_window('h', 'pause', '2031-01-01 10:02 UTC', '{p1}', ARRAY[(-2)::numeric ^ 63]::bigint[],
                                ARRAY[9223372036854775807], 'p') > 0 AS published;
SELECT pg_temp.set_clock('10:02:01');
SELECT n.node, h.state FROM stacksaga.nodes n, stacksaga.heartbeat_node(n.node, n.incarnation) AS h
 WHERE n.node IN ('p1', 'p2') ORDER BY n.node;
SELECT node, slots FROM pg_temp.owners('pause');
SELECT pg_temp.leave('p1');
SELECT node, slots FROM pg_temp.owners('pause');
SELECT pg_temp.lock_slots(:pause, incarnation, '{0,63}') FROM stacksaga.node WHERE node = 'p2';
SELECT pg_temp.set_clock('10:03:01');
SELECT pg_temp.lock_slots(:pause, incarnation, '{0,63}') FROM stacksaga.node WHERE node = 'p2';

-- The background workers of a standalone server share among themselves.
SELECT stacksaga.create_ring('h', 'alone', slots => 64) AS alone \gset
SELECT count(pg_temp.register_worker(:alone, 'a' || i, pg_backend_pid())) FROM generate_series(1, 3) i;
SELECT count(stacksaga.register_node('a service', 'h', 'alone'));
SELECT pg_temp.give('alone', '{a1,a2,a3}', true);
SELECT pg_temp.leave('a2');
SELECT * FROM pg_temp.owners('alone');
-- One whose process has ended gets no slots.
UPDATE stacksaga.node SET pid = 0 WHERE node = 'a3';
SELECT pg_temp.leave('a1');
SELECT * FROM pg_temp.owners('alone');

-- Who is not the current holder of the name gives nothing away.
SELECT incarnation AS old FROM stacksaga.nodes WHERE node = 'h1' \gset
SELECT stacksaga.register_node('h1', 'h', 'one') > :old AS again;
\set VERBOSITY sqlstate
SELECT stacksaga.leave_ring('h1', :old);
SELECT stacksaga.drain_node('h1', :old);
SELECT stacksaga.leave_ring('h4', 1);
\set VERBOSITY default

RESET stacksaga.clock_offset;
DELETE FROM stacksaga.node WHERE ring_id IN (:one, :two, :agents, :pause, :alone);
DELETE FROM stacksaga.slot WHERE ring_id IN (:one, :two, :agents, :pause, :alone);
DELETE FROM stacksaga.token_window WHERE ring_id IN (:one, :two, :agents, :pause, :alone);
DELETE FROM stacksaga.ring_epoch WHERE ring_id IN (:one, :two, :agents, :pause, :alone);
DELETE FROM stacksaga.ring_setting WHERE ring_id IN (:one, :two, :agents, :pause, :alone);
DELETE FROM stacksaga.ring WHERE ring_id IN (:one, :two, :agents, :pause, :alone);
