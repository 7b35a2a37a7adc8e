-- Agents: which agent a new worker is assigned to.
SELECT stacksaga.create_ring('agents', 'one', slots => 64) > 1 AS created;
SELECT stacksaga.create_ring('agents', 'two', slots => 64) > 1 AS created;
CREATE FUNCTION pg_temp.set_clock(at timestamptz) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (at - clock_timestamp())::text, false) $$;
SELECT pg_temp.set_clock('2031-01-01 00:00:00 UTC');

-- A ring without agents assigns workers to none.
SELECT stacksaga.register_node('ag-w0', 'agents', 'one') > 0 AS registered;
SELECT stacksaga.node_agent('ag-w0') IS NULL AS none;

-- Round robin, in the order of the agents' names; standard nodes and agents belong to none.
SELECT count(stacksaga.register_node('ag-' || a, 'agents', 'one', 'agent')) FROM unnest('{c,a,b}'::text[]) AS a;
SELECT count(stacksaga.register_node('ag-w' || i, 'agents', 'one')) FROM generate_series(1, 7) AS i;
SELECT count(stacksaga.register_node('ag-s', 'agents', 'one', 'standard'));
SELECT node, stacksaga.node_agent(node) FROM stacksaga.nodes WHERE region = 'agents' ORDER BY node COLLATE "C";

-- A worker that names an agent gets it; one that registers again keeps the agent that it had.
SELECT stacksaga.register_node('ag-w8', 'agents', 'one', agent => 'ag-c') > 0 AS registered;
SELECT stacksaga.register_node('ag-w2', 'agents', 'one') > 0 AS registered;
SELECT stacksaga.node_agent('ag-w8') AS w8, stacksaga.node_agent('ag-w2') AS w2;

-- The agent with the fewest nodes is next: ag-b lost one of its two.
SELECT count(stacksaga.leave_ring(node, incarnation)) FROM stacksaga.nodes WHERE agent = 'ag-b' AND node <> 'ag-w2';
SELECT count(stacksaga.register_node('ag-w9', 'agents', 'one'));
SELECT stacksaga.node_agent('ag-w9');

-- Agents that drain or are suspected get no new workers.
SELECT stacksaga.drain_node(node, incarnation) FROM stacksaga.nodes WHERE node = 'ag-a';
SELECT pg_temp.set_clock('2031-01-01 00:00:20 UTC');
SELECT n.node, h.state FROM stacksaga.nodes n, stacksaga.heartbeat_node(n.node, n.incarnation) AS h
 WHERE n.node IN ('ag-a', 'ag-c') ORDER BY n.node;
SELECT count(stacksaga.register_node('ag-w' || i, 'agents', 'one')) FROM generate_series(10, 11) AS i;
SELECT count(stacksaga.register_node('ag-w2', 'agents', 'one'));
SELECT node, agent FROM stacksaga.nodes WHERE node IN ('ag-w10', 'ag-w11', 'ag-w2') ORDER BY node;
SELECT pg_temp.set_clock('2031-01-01 00:01:00 UTC');
SELECT count(stacksaga.register_node('ag-w12', 'agents', 'one'));
SELECT stacksaga.node_agent('ag-w12') IS NULL AS none;

-- Another ring's agents are not ours.
SELECT count(stacksaga.register_node('ag-w13', 'agents', 'two'));
SELECT stacksaga.node_agent('ag-w13') IS NULL AS none;

SELECT stacksaga.node_agent('nobody');
SELECT stacksaga.node_agent(NULL);
SELECT stacksaga.node_agent('');

SELECT set_config('stacksaga.clock_offset', '0', false);
