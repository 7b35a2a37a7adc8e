-- Windows: what publish_window proposes, when it is taken over, and every bad input.
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
    IF hint = '' THEN
        message := message || ' (without a hint)';
    END IF;
END
$$;
-- Moves the extension's clock to a time of day.
CREATE FUNCTION pg_temp.set_clock(at time) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset',
                      (timestamptz '2031-01-01 00:00 UTC' + at - clock_timestamp())::text, false) $$;
-- Publishes the window that starts at a time of day, the ring cut into equal parts for `nodes`.
CREATE FUNCTION pg_temp.publish(cluster text, at time, nodes text[], agent text DEFAULT NULL)
RETURNS bigint LANGUAGE sql AS $$
    SELECT stacksaga.publish_window('w', cluster, timestamptz '2031-01-01 00:00 UTC' + at, nodes,
               array_agg(range_start ORDER BY part), array_agg(range_end ORDER BY part), 'test',
               agent)
      FROM stacksaga.split_ring(cardinality(nodes)) $$;
CREATE FUNCTION pg_temp.beat(VARIADIC names text[])
RETURNS TABLE (node text, state text, epoch bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOREACH node IN ARRAY names LOOP
        SELECT h.state, h.epoch INTO state, epoch
          FROM stacksaga.nodes n, stacksaga.heartbeat_node(n.node, n.incarnation) AS h
         WHERE n.node = beat.node;
        RETURN NEXT;
    END LOOP;
END
$$;
CREATE FUNCTION pg_temp.owners(cluster text)
RETURNS TABLE (node text, slots text, epoch bigint) LANGUAGE sql AS $$
    SELECT s.node, count(*) || ': ' || min(slot) || '-' || max(slot), s.epoch
      FROM stacksaga.ring_slots('w', cluster) s GROUP BY s.node, s.epoch ORDER BY min(slot) $$;
SET TimeZone = 'UTC';

SELECT stacksaga.create_ring('w', 'one', slots => 64) > 1 AS created;
SELECT pg_temp.set_clock('10:00:05');
SELECT count(stacksaga.register_node(node, 'w', 'one')) FROM unnest(ARRAY['wa', 'wb', 'wc']) AS node;

-- A window is published once, and opens at its start.
SELECT pg_temp.publish('one', '10:01', '{wa,wb}');
SELECT pg_temp.publish('one', '10:01', '{wb,wa}');
SELECT * FROM pg_temp.beat('wa', 'wb');
SELECT * FROM pg_temp.owners('one');
SELECT pg_temp.set_clock('10:01:00');
SELECT * FROM pg_temp.beat('wa', 'wb', 'wc');
SELECT * FROM pg_temp.owners('one');
SELECT node, r.* FROM unnest(ARRAY['wa', 'wb', 'wc']) AS node, stacksaga.node_ranges(node) AS r;
SELECT node, share FROM stacksaga.nodes WHERE region = 'w' ORDER BY node;
SELECT epoch, window_start, window_end, active_nodes, total_nodes, coverage, oldest_due, publisher
  FROM stacksaga.ring_status WHERE region = 'w';
SELECT window_length, epoch, last_window FROM stacksaga.ring_state('w', 'one');

-- Ownership is sticky: no window of 10:02 was published, nothing changes.
SELECT pg_temp.set_clock('10:02:10');
SELECT * FROM pg_temp.beat('wa', 'wb', 'wc');
SELECT node, r.* FROM unnest(ARRAY['wa', 'wb', 'wc']) AS node, stacksaga.node_ranges(node) AS r;

-- A slot that stays where it is is not written; the others change hands when their new owner comes.
CREATE TEMP TABLE earlier AS SELECT ring_id, slot, ctid AS place FROM stacksaga.slot;
SELECT pg_temp.publish('one', '10:03', '{wa,wc}');
SELECT count(*) FROM earlier e JOIN stacksaga.slot s USING (ring_id, slot) WHERE e.place <> s.ctid;
SELECT pg_temp.set_clock('10:03:10');
SELECT * FROM pg_temp.beat('wa', 'wb');
SELECT * FROM pg_temp.owners('one');
SELECT * FROM pg_temp.beat('wc');
SELECT * FROM pg_temp.owners('one');

-- A window that opens before all its slots are taken does not lose them to the next publication,
-- nor do windows published several ahead.
SELECT pg_temp.publish('one', '10:04', '{wb,wb}');
SELECT pg_temp.publish('one', '10:05', '{wb,wb}');
SELECT pg_temp.set_clock('10:04:40');
SELECT pg_temp.publish('one', '10:06', '{wb,wb}');
SELECT * FROM pg_temp.beat('wb');
SELECT * FROM pg_temp.owners('one');

-- A proposal that a later window withdraws is not carried out.
SELECT pg_temp.publish('one', '10:07', '{wa,wc}');
SELECT pg_temp.publish('one', '10:08', '{wb,wc}');
SELECT pg_temp.set_clock('10:07:10');
SELECT * FROM pg_temp.beat('wa', 'wb', 'wc');
SELECT * FROM pg_temp.owners('one');

-- A window may be late, as long as it is not over.
SELECT pg_temp.set_clock('10:09:30');
SELECT pg_temp.publish('one', '10:09', '{wa}');
SELECT * FROM pg_temp.beat('wa');
SELECT * FROM pg_temp.owners('one');

-- A node that registers again has what its name owned, under another epoch.
SELECT count(stacksaga.register_node('wa', 'w', 'one'));
SELECT * FROM pg_temp.owners('one');
-- What a window was to give it, it has from that window on.
SELECT pg_temp.publish('one', '10:10', '{wa,wb}');
SELECT pg_temp.publish('one', '10:11', '{wb,wa}');
SELECT count(stacksaga.register_node('wb', 'w', 'one'));
SELECT * FROM pg_temp.owners('one');
SELECT node, next_node, count(*) FROM stacksaga.ring_slots('w', 'one') GROUP BY node, next_node ORDER BY min(slot);
SELECT pg_temp.set_clock('10:11:00');
SELECT * FROM pg_temp.beat('wa', 'wb');
SELECT * FROM pg_temp.owners('one');

-- A draining node takes nothing new and gives away what it has; a window changes nothing for it.
SELECT stacksaga.drain_node(node, incarnation) FROM stacksaga.nodes WHERE node = 'wb';
SELECT pg_temp.publish('one', '10:12', '{wa,wb,wb,wb}');
SELECT pg_temp.set_clock('10:12:00');
SELECT * FROM pg_temp.beat('wb');
SELECT * FROM pg_temp.owners('one');
SELECT stacksaga.leave_ring(node, incarnation) FROM stacksaga.nodes WHERE node = 'wb';
SELECT * FROM pg_temp.owners('one');

-- Slot rows of a ring that has none, as after a restore, are made when they are needed.
DELETE FROM stacksaga.slot WHERE ring_id = (SELECT ring_id FROM stacksaga.ring WHERE region = 'w');
SELECT count(*), count(node) FROM stacksaga.ring_slots('w', 'one');
SELECT pg_temp.publish('one', '10:13', '{wa}') > 0 AS published;
SELECT count(*) FROM stacksaga.slot s JOIN stacksaga.ring r USING (ring_id) WHERE r.region = 'w';
SELECT bool_and((range_start, range_end) = (s.range_start, s.range_end)) AS same
  FROM stacksaga.slot s JOIN stacksaga.ring r USING (ring_id) WHERE r.region = 'w';

-- An agent assigns what it was assigned, among its own workers.
SELECT stacksaga.create_ring('w', 'two', slots => 64) > 1 AS created;
SELECT count(stacksaga.register_node(node, 'w', 'two', 'agent')) FROM unnest(ARRAY['ax', 'ay']) AS node;
SELECT count(stacksaga.register_node(node, 'w', 'two', agent => left(node, 2)))
  FROM unnest(ARRAY['ax1', 'ax2', 'ay1']) AS node;
CREATE FUNCTION pg_temp.assigned_to(agent text, at time)
RETURNS TABLE (node text, slots text) LANGUAGE sql AS $$
    SELECT a.node, count(*) || ': ' || min(slot) || '-' || max(slot)
      FROM stacksaga.agent_slots(agent, timestamptz '2031-01-01 00:00 UTC' + at) AS a
     GROUP BY a.node ORDER BY min(slot) $$;
SELECT * FROM pg_temp.assigned_to('ax', '10:13');
SELECT pg_temp.publish('two', '10:13', '{ax,ay}');
SELECT * FROM pg_temp.assigned_to('ax', '10:13');
SELECT * FROM pg_temp.assigned_to('ax', '10:12');
SELECT stacksaga.publish_window('w', 'two', '2031-01-01 10:13Z', '{ax1,ax2}',
           '{-9223372036854775808,-4611686018427387904}', '{-4611686018427387905,-1}', 'ax', 'ax');
SELECT stacksaga.publish_window('w', 'two', '2031-01-01 10:13Z', '{ax1}',
           '{-9223372036854775808}', '{-1}', 'ax', 'ax');
SELECT pg_temp.set_clock('10:13:00');
SELECT * FROM pg_temp.beat('ax', 'ay', 'ax1', 'ax2', 'ay1');
SELECT * FROM pg_temp.owners('two');
SELECT * FROM pg_temp.assigned_to('ax', '10:14');
SELECT * FROM pg_temp.assigned_to('ay', '10:14');
SELECT count(*) FILTER (WHERE (a.range_start, a.range_end) = (s.range_start, s.range_end)) AS same
  FROM stacksaga.agent_slots('ax', '2031-01-01 10:14Z') a
  JOIN stacksaga.ring_slots('w', 'two') s USING (slot);
-- The master assigns to agents: what an agent's worker owns stays. The agent assigns again.
SELECT pg_temp.publish('two', '10:14', '{ax,ay}');
SELECT stacksaga.publish_window('w', 'two', '2031-01-01 10:14Z', '{ax2}',
           '{-9223372036854775808}', '{-1}', 'ax', 'ax');
SELECT stacksaga.publish_window('w', 'two', '2031-01-01 10:14Z', '{ay1}',
           '{0}', '{9223372036854775807}', 'ay', 'ay');
-- A window that is published before the previous one opens withdraws nothing that the agent assigned.
SELECT pg_temp.publish('two', '10:15', '{ax,ay}');
SELECT pg_temp.set_clock('10:14:00');
SELECT * FROM pg_temp.beat('ax1', 'ax2', 'ay1');
SELECT * FROM pg_temp.owners('two');
SELECT c.call, r.* FROM (VALUES
    ($$'{ax1}', '{-9223372036854775808}', '{9223372036854775807}', 'ax', 'ax'$$),
    ($$'{ax1}', '{0}', '{9223372036854775807}', 'ax', 'ax'$$),
    ($$'{ax1}', '{-9223372036854775808}', '{-4611686018427387905}', 'ax', 'ax'$$),
    ($$'{ay1}', '{-9223372036854775808}', '{-1}', 'ax', 'ax'$$),
    ($$'{ay}', '{-9223372036854775808}', '{-1}', 'ax', 'ax'$$),
    ($$'{ax1}', '{-9223372036854775808}', '{-1}', 'ax', 'ax1'$$),
    ($$'{ax1}', '{-9223372036854775808}', '{-1}', 'ax', 'nobody'$$),
    ($$'{ax1}', '{-9223372036854775808}', '{-1}', 'ax', ''$$)
) AS c(call),
     pg_temp.refused('SELECT stacksaga.publish_window(''w'', ''two'', ''2031-01-01 10:15Z'', '
                     || c.call || ')') AS r;

SELECT c.call, r.* FROM (VALUES ($$'nobody', '2031-01-01 10:15Z'$$), ($$'ax1', '2031-01-01 10:15Z'$$),
    ($$NULL, '2031-01-01 10:15Z'$$), ($$'', '2031-01-01 10:15Z'$$), ($$'ax', NULL$$)) AS c(call),
     pg_temp.refused('SELECT slot FROM stacksaga.agent_slots(' || c.call || ')') AS r;

-- Bad input changes nothing.
SELECT count(stacksaga.register_node('ws', 'w', 'one', 'standard'));
CREATE TEMP TABLE unharmed AS
    SELECT (SELECT count(*) FROM stacksaga.token_window) AS windows,
           (SELECT sum(epoch) FROM stacksaga.ring_epoch) AS epochs,
           (SELECT count(next_owner) FROM stacksaga.slot) AS proposals;
SELECT c.call, r.* FROM (VALUES
    ($$NULL, 'one', '2031-01-01 10:16Z', '{wa}', '{1}', '{2}', 'test'$$),
    ($$'w', NULL, '2031-01-01 10:16Z', '{wa}', '{1}', '{2}', 'test'$$),
    ($$'w', 'nowhere', '2031-01-01 10:16Z', '{wa}', '{1}', '{2}', 'test'$$),
    ($$'w', 'one', NULL, '{wa}', '{1}', '{2}', 'test'$$),
    ($$'w', 'one', 'infinity', '{wa}', '{1}', '{2}', 'test'$$),
    ($$'w', 'one', '-infinity', '{wa}', '{1}', '{2}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16:01Z', '{wa}', '{1}', '{2}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:15:59.999999Z', '{wa}', '{1}', '{2}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:13Z', '{wa}', '{1}', '{2}', 'test'$$),
    ($$'w', 'one', '4713-01-01 00:00Z BC', '{wa}', '{1}', '{2}', 'test'$$),
    ($$'w', 'one', '2032-01-03 00:00Z', '{wa}', '{1}', '{2}', 'test'$$),
    ($$'w', 'one', '294276-12-31 23:59Z', '{wa}', '{1}', '{2}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', NULL, '{1}', '{2}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{}', '{}', '{}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa}', NULL, '{2}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa}', '{1}', NULL, 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa,wc}', '{1}', '{2}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa}', '{1,2}', '{2}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa}', '{1}', '{}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa,NULL}', '{1,2}', '{1,2}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa}', '{NULL}', '{2}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa}', '{1}', '{NULL}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{{wa},{wc}}', '{1,2}', '{1,2}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa,wc}', '{{1},{2}}', '{1,2}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa}', '{-9223372036854775808}', '{9223372036854775807}', NULL$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa}', '{-9223372036854775808}', '{9223372036854775807}', ''$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{nobody}', '{-9223372036854775808}', '{9223372036854775807}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{ax1}', '{-9223372036854775808}', '{9223372036854775807}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{ws}', '{-9223372036854775808}', '{9223372036854775807}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa}', '{9223372036854775807}', '{-9223372036854775808}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa}', '{-9223372036854775808}', '{9223372036854775806}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa}', '{-9223372036854775807}', '{9223372036854775807}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa}', '{-9223372036854775808}', '{-1}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa,wc}', '{-9223372036854775808,-1}', '{-2,9223372036854775807}', 'test'$$),
    ($$'w', 'one', '2031-01-01 10:16Z', '{wa,wc}', '{-9223372036854775808,0}', '{9223372036854775807,9223372036854775807}', 'test'$$)
) AS c(call), pg_temp.refused(format('SELECT stacksaga.publish_window(%s)', c.call)) AS r;
SELECT r.* FROM pg_temp.refused($$
    SELECT stacksaga.publish_window('w', 'one', '2031-01-01 10:16Z', array_agg('wa'::text),
               array_agg(n), array_agg(n), 'test') FROM generate_series(1::bigint, 1000000) AS n $$) AS r;
SELECT (SELECT count(*) FROM stacksaga.token_window) = windows AS windows,
       (SELECT sum(epoch) FROM stacksaga.ring_epoch) = epochs AS epochs,
       (SELECT count(next_owner) FROM stacksaga.slot) = proposals AS proposals FROM unharmed;

-- Arrays may have any lower bound, ranges any order.
SELECT count(stacksaga.register_node('wc', 'w', 'one'));
SELECT stacksaga.publish_window('w', 'one', '2031-01-01 10:16Z', '[5:6]={wa,wc}',
           '[-3:-2]={0,-9223372036854775808}', '{9223372036854775807,-1}', 'test') > 0 AS published;
-- Another length of windows counts from its next start on.
SELECT stacksaga.alter_ring('w', 'one', 'window_length', '11 seconds');
SELECT (pg_temp.refused($$SELECT pg_temp.publish('one', '10:17', '{wa}')$$)).code;
SELECT stacksaga.publish_window('w', 'one', date_bin('11 s', '2031-01-01 10:17Z', '2000-01-01Z'),
           '{wa}', '{-9223372036854775808}', '{9223372036854775807}', 'test') > 0 AS published;
-- Windows of long ago are forgotten.
SELECT pg_temp.set_clock('20:00:00');
SELECT count(stacksaga.register_node('wa', 'w', 'one'));
SELECT stacksaga.publish_window('w', 'one', date_bin('11 s', '2031-01-01 20:00Z', '2000-01-01Z'),
           '{wa}', '{-9223372036854775808}', '{9223372036854775807}', 'test') > 0 AS published;
SELECT count(*) FROM stacksaga.token_window JOIN stacksaga.ring r USING (ring_id)
 WHERE region = 'w' AND cluster = 'one';
