-- Nodes: registration, incarnations, heartbeats and states.
CREATE FUNCTION pg_temp.refused(statement text, OUT code text, OUT message text, OUT detail text)
LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE statement;
    message := 'not refused';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    detail := regexp_replace(detail, 'is incarnation \d+, not -?\d+', 'is another incarnation');
    IF hint = '' THEN
        message := message || ' (without a hint)';
    END IF;
END
$$;
-- Moves the extension's clock.
CREATE FUNCTION pg_temp.set_clock(at timestamptz) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (at - clock_timestamp())::text, false) $$;
CREATE VIEW pg_temp.seen AS
    SELECT node, kind, state, load, weight, share, progress FROM stacksaga.nodes
     WHERE region = 'n' ORDER BY node COLLATE "C";

-- What coordinators read says the same as the view; a ring of the view's that it does not, is listed.
CREATE VIEW pg_temp.told_otherwise AS
    SELECT r.cluster, n.*
      FROM stacksaga.ring r,
           LATERAL ((SELECT node, kind, state, weight, agent FROM stacksaga.nodes v
                      WHERE v.region = r.region AND v.cluster = r.cluster
                     EXCEPT SELECT node, kind, state, weight, agent
                              FROM stacksaga.ring_nodes(r.region, r.cluster))
                    UNION ALL
                    (SELECT node, kind, state, weight, agent
                       FROM stacksaga.ring_nodes(r.region, r.cluster)
                     EXCEPT SELECT node, kind, state, weight, agent FROM stacksaga.nodes v
                      WHERE v.region = r.region AND v.cluster = r.cluster)) AS n
     WHERE r.region = 'n';

SET TimeZone = 'UTC';
SELECT * FROM stacksaga.node_transitions();

SELECT stacksaga.create_ring('n', 'one', slots => 64) > 1 AS created;
SELECT pg_temp.set_clock('2031-01-01 00:00:10');
SELECT stacksaga.register_node('n1', 'n', 'one') AS n1 \gset
SELECT stacksaga.register_node('n2', 'n', 'one', kind => 'standard', weight => 0.5) AS n2 \gset
SELECT stacksaga.register_node('n3', 'n', 'one', 'agent') AS n3 \gset
SELECT stacksaga.register_node('n4', 'n', 'one', agent => 'n3') AS n4 \gset
SELECT :n1 < :n2 AND :n2 < :n3 AND :n3 < :n4 AS rising;
SELECT * FROM pg_temp.seen;

-- The state follows from the heartbeat's age: 15 and 30 seconds by default.
SELECT pg_temp.set_clock('2031-01-01 00:00:24');
SELECT * FROM stacksaga.heartbeat_node('n1', :n1, load => 0.75);
SELECT pg_temp.set_clock('2031-01-01 00:00:26');
SELECT stacksaga.drain_node('n4', :n4);
SELECT * FROM pg_temp.seen;
SELECT pg_temp.set_clock('2031-01-01 00:00:41');
SELECT * FROM stacksaga.heartbeat_node('n4', :n4);
SELECT * FROM pg_temp.seen;
SELECT * FROM stacksaga.ring_nodes('n', 'one') ORDER BY node COLLATE "C";
SELECT * FROM pg_temp.told_otherwise;
SELECT active_nodes, total_nodes, coverage, epoch, window_start FROM stacksaga.ring_status
 WHERE region = 'n';
-- Its next heartbeat makes it active again; a clock that is set back keeps no node alive.
SELECT state, epoch FROM stacksaga.heartbeat_node('n2', :n2);
SELECT pg_temp.set_clock('2031-01-01 00:00:00');
SELECT state, epoch FROM stacksaga.heartbeat_node('n1', :n1);
SELECT node, state FROM pg_temp.seen;

SELECT * FROM pg_temp.told_otherwise;

-- A checkpoint is asked for when the last answer is older than checkpoint_interval.
SELECT pg_temp.set_clock('2031-01-01 00:00:15');
SELECT checkpoint_requested FROM stacksaga.heartbeat_node('n1', :n1);
SELECT pg_temp.set_clock('2031-01-01 00:00:21');
SELECT checkpoint_requested FROM stacksaga.heartbeat_node('n1', :n1);
SELECT stacksaga.acknowledge_checkpoint('n1', :n1, '{"done": 7}');
SELECT checkpoint_requested FROM stacksaga.heartbeat_node('n1', :n1);
SELECT progress FROM pg_temp.seen WHERE node = 'n1';

-- The same name again is another incarnation, and the older one is out at once.
SELECT stacksaga.register_node('n1', 'n', 'one', weight => 2) AS again \gset
SELECT :again > :n4 AS rising;
SELECT r.* FROM (VALUES
    (format('heartbeat_node(%L, %s)', 'n1', :n1)),
    (format('drain_node(%L, %s)', 'n1', :n1)),
    (format('leave_ring(%L, %s)', 'n1', :n1)),
    (format('acknowledge_checkpoint(%L, %s, %L)', 'n1', :n1, '{}')),
    ('heartbeat_node(''n1'', 9223372036854775807)'),
    ('heartbeat_node(''n1'', -1)'),
    (format('heartbeat_node(%L, %s)', 'n2', :again))
) AS c(call), pg_temp.refused('SELECT * FROM stacksaga.' || c.call) AS r;

-- A node belongs to one ring, until it leaves it.
SELECT stacksaga.create_ring('n', 'two', slots => 64) > 1 AS created;
SELECT * FROM pg_temp.refused($$SELECT stacksaga.register_node('n1', 'n', 'two')$$);
SELECT stacksaga.leave_ring('n1', :again);
SELECT stacksaga.register_node('n1', 'n', 'two') > :again AS moved;
SELECT r.* FROM pg_temp.refused(format('SELECT stacksaga.leave_ring(%L, %s)', 'gone', 1)) AS r;

-- What has been dead ten times as long as it takes is not shown, and removed when somebody registers.
SELECT pg_temp.set_clock('2031-01-01 00:06:00');
SELECT * FROM pg_temp.seen;
SELECT * FROM pg_temp.told_otherwise;
SELECT stacksaga.register_node('n5', 'n', 'one') > 0 AS registered;
SELECT node FROM stacksaga.node n JOIN stacksaga.ring r ON r.ring_id = n.ring_id
 WHERE region = 'n' AND cluster = 'one';
SELECT (pg_temp.refused(format('SELECT stacksaga.heartbeat_node(%L, %s)', 'n2', :n2))).*;

-- Bad input changes nothing.
SELECT c.call, r.* FROM (VALUES
    ($$register_node(NULL)$$),
    ($$register_node('')$$),
    ($$register_node(repeat('n', 256))$$),
    ($$register_node(repeat('n', 1000000))$$),
    ($$register_node('x', NULL)$$),
    ($$register_node('x', 'n', NULL)$$),
    ($$register_node('x', 'n', 'nowhere')$$),
    ($$register_node('x', 'n', 'one', NULL)$$),
    ($$register_node('x', 'n', 'one', 'master')$$),
    ($$register_node('x', 'n', 'one', weight => NULL)$$),
    ($$register_node('x', 'n', 'one', weight => 0)$$),
    ($$register_node('x', 'n', 'one', weight => -1)$$),
    ($$register_node('x', 'n', 'one', weight => 'NaN')$$),
    ($$register_node('x', 'n', 'one', weight => 'Infinity')$$),
    ($$register_node('x', 'n', 'one', weight => 1e300)$$),
    ($$register_node('x', 'n', 'one', agent => 'nobody')$$),
    ($$register_node('x', 'n', 'one', agent => 'n5')$$),
    ($$register_node('x', 'n', 'one', agent => '')$$),
    ($$heartbeat_node(NULL, 1)$$),
    ($$heartbeat_node('n5', NULL)$$),
    ($$heartbeat_node('n5', 1, NULL)$$),
    ($$heartbeat_node('n5', 1, -0.1)$$),
    ($$heartbeat_node('n5', 1, 'NaN')$$),
    ($$heartbeat_node('n5', 1, 'Infinity')$$),
    ($$heartbeat_node('nobody', 1)$$),
    ($$acknowledge_checkpoint('n5', 1, NULL)$$),
    ($$acknowledge_checkpoint('nobody', 1, '{}')$$),
    ($$acknowledge_checkpoint('n5', 1, to_jsonb(repeat('p', 2000000)))$$),
    ($$drain_node('', 1)$$),
    ($$drain_node('nobody', 1)$$),
    ($$leave_ring('n5', NULL)$$),
    ($$node_ranges(NULL)$$),
    ($$node_ranges('nobody')$$),
    ($$node_ranges('')$$)
) AS c(call), pg_temp.refused('SELECT * FROM stacksaga.' || c.call) AS r;
SELECT node, kind, weight, load, progress FROM stacksaga.nodes WHERE region = 'n' ORDER BY node;

-- A node that has reported progress and then only beats hangs: it is suspected 15 seconds after it was
-- asked, gets no slots, and is never dead; its next report makes it active again. A node that never
-- reported any is not asked for it.
SELECT stacksaga.create_ring('n', 'hung', slots => 64) > 1 AS created;
SELECT pg_temp.set_clock('2031-01-02 00:00:00 UTC');
SELECT stacksaga.register_node('h1', 'n', 'hung') AS h1 \gset
SELECT stacksaga.register_node('h2', 'n', 'hung') AS h2 \gset
SELECT stacksaga.acknowledge_checkpoint('h1', :h1, '{"done": 1}');
CREATE FUNCTION pg_temp.beat_at(at timestamptz, h1 bigint, h2 bigint)
RETURNS TABLE (node text, told text, seen text) LANGUAGE plpgsql AS $$
DECLARE
    told_h1 text;
    told_h2 text;
BEGIN
    PERFORM pg_temp.set_clock(at);
    SELECT h.state INTO told_h1 FROM stacksaga.heartbeat_node('h1', beat_at.h1) AS h;
    SELECT h.state INTO told_h2 FROM stacksaga.heartbeat_node('h2', beat_at.h2) AS h;
    RETURN QUERY SELECT n.node, CASE n.node WHEN 'h1' THEN told_h1 ELSE told_h2 END, n.state
                   FROM stacksaga.nodes n WHERE n.node IN ('h1', 'h2') ORDER BY n.node;
END
$$;
SELECT * FROM pg_temp.beat_at('2031-01-02 00:00:24 UTC', :h1, :h2);
SELECT * FROM pg_temp.beat_at('2031-01-02 00:00:26 UTC', :h1, :h2);
SELECT * FROM pg_temp.beat_at('2031-01-02 01:00:00 UTC', :h1, :h2);
SELECT node, state FROM stacksaga.ring_nodes('n', 'hung') ORDER BY node;
SELECT * FROM pg_temp.told_otherwise;
-- The ring has no owner and no window for an hour: the sweep leaves the hung node out.
SELECT * FROM pg_temp.beat_at('2031-01-02 01:00:05 UTC', :h1, :h2);
SELECT node, share FROM stacksaga.nodes WHERE node IN ('h1', 'h2') ORDER BY node;
SELECT stacksaga.acknowledge_checkpoint('h1', :h1, '{"done": 2}');
SELECT * FROM pg_temp.beat_at('2031-01-02 01:00:09 UTC', :h1, :h2);

-- The slots of a suspected agent wait for it, from suspect_after (15 s) on, as long as rebalance_delay.
SELECT stacksaga.create_ring('n', 'frozen', slots => 64) > 1 AS created;
SELECT stacksaga.alter_ring('n', 'frozen', 'rebalance_delay', '20 seconds');
SELECT pg_temp.set_clock('2031-01-03 00:00:00 UTC');
SELECT stacksaga.register_node('n-agent', 'n', 'frozen', 'agent') > 0 AS agent,
       stacksaga.register_node('n-worker', 'n', 'frozen') > 0 AS worker;
CREATE FUNCTION pg_temp.frozen_after(silence interval)
RETURNS TABLE (node text, state text, frozen boolean) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_temp.set_clock('2031-01-03 00:00:00 UTC'::timestamptz + silence);
    RETURN QUERY SELECT n.node, n.state, n.frozen
                   FROM stacksaga.ring_nodes('n', 'frozen') AS n ORDER BY n.node;
END
$$;
SELECT silence, f.*
  FROM (VALUES (interval '14 seconds'), ('16 seconds'), ('34 seconds'), ('36 seconds')) AS s(silence),
       pg_temp.frozen_after(silence) AS f;
SELECT stacksaga.leave_ring(node, incarnation) FROM stacksaga.node WHERE node IN ('n-agent', 'n-worker');
