-- Regions and virtual clusters: whatever the nodes, agents, coordinators, services and subscriptions of one
-- ring do, no row of another ring changes. Three rings share region or cluster by twos.
CREATE FUNCTION pg_temp.refused(statement text, OUT code text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    message := 'not refused';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END
$$;
CREATE FUNCTION pg_temp.set_clock(at timestamptz) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (at - clock_timestamp())::text, false) $$;
CREATE FUNCTION pg_temp.be_in(region text, cluster text) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.region', region, false), set_config('stacksaga.cluster', cluster, false);
    SELECT NULL $$;
CREATE SCHEMA isolation;
CREATE TABLE isolation.done (saga_id uuid, message_id uuid);
CREATE FUNCTION isolation.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    INSERT INTO isolation.done VALUES (call.saga_id, NULL) RETURNING '{}'::jsonb $$;
CREATE FUNCTION isolation.handle(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
    INSERT INTO isolation.done VALUES (NULL, m.message_id) $$;
SELECT stacksaga.define_saga('isolated', ARRAY[
    stacksaga.sql_step('act', 'isolation.act(stacksaga.step_call)'),
    stacksaga.queue_step('ask', 'isolation_questions', compensable => false)]);

-- Every row that belongs to a ring, but for the ages that time alone changes.
CREATE FUNCTION isolation.content(region text, cluster text) RETURNS SETOF text LANGUAGE sql AS $$
    WITH ring AS (SELECT r.ring_id FROM stacksaga.ring r
                   WHERE r.region = content.region AND r.cluster = content.cluster),
    saga AS (SELECT s.* FROM stacksaga.saga s JOIN ring USING (ring_id)),
    subscription AS (SELECT s.* FROM stacksaga.subscription s JOIN ring USING (ring_id))
    SELECT concat('ring ', to_jsonb(t)) FROM stacksaga.ring t JOIN ring USING (ring_id)
    UNION ALL SELECT concat('setting ', to_jsonb(t)) FROM stacksaga.ring_setting t JOIN ring USING (ring_id)
    UNION ALL SELECT concat('epoch ', to_jsonb(t)) FROM stacksaga.ring_epoch t JOIN ring USING (ring_id)
    UNION ALL SELECT concat('node ', to_jsonb(t)) FROM stacksaga.node t JOIN ring USING (ring_id)
    UNION ALL SELECT concat('slot ', to_jsonb(t)) FROM stacksaga.slot t JOIN ring USING (ring_id)
    UNION ALL SELECT concat('window ', to_jsonb(t)) FROM stacksaga.token_window t JOIN ring USING (ring_id)
    UNION ALL SELECT concat('saga ', to_jsonb(t)) FROM saga t
    UNION ALL SELECT concat('work ', to_jsonb(t)) FROM stacksaga.work t JOIN ring USING (ring_id)
    UNION ALL SELECT concat('effect ', to_jsonb(t)) FROM stacksaga.effect t
               WHERE t.saga_id IN (SELECT saga_id FROM saga)
    UNION ALL SELECT concat('failure ', to_jsonb(t)) FROM stacksaga.failure t
               WHERE t.saga_id IN (SELECT saga_id FROM saga)
    UNION ALL SELECT concat('message ', to_jsonb(t)) FROM stacksaga.outbox_message t JOIN ring USING (ring_id)
    UNION ALL SELECT concat('subscription ', to_jsonb(t)) FROM subscription t
    UNION ALL SELECT concat('position ', to_jsonb(t)) FROM stacksaga.subscription_position t
               WHERE t.subscription_id IN (SELECT subscription_id FROM subscription)
    UNION ALL SELECT concat('retry ', to_jsonb(t)) FROM stacksaga.message_retry t
               WHERE t.subscription_id IN (SELECT subscription_id FROM subscription)
$$;
CREATE TABLE isolation.before (cluster text, content text);
CREATE VIEW isolation.changed AS
    SELECT r.region, r.cluster, count(c.*) AS changes
      FROM stacksaga.ring r LEFT JOIN LATERAL (
           (SELECT isolation.content(r.region, r.cluster)
            EXCEPT ALL SELECT content FROM isolation.before b WHERE b.cluster = r.region || '/' || r.cluster)
           UNION ALL
           (SELECT content FROM isolation.before b WHERE b.cluster = r.region || '/' || r.cluster
            EXCEPT ALL SELECT isolation.content(r.region, r.cluster))) AS c ON true
     WHERE r.region IN ('iso-eu', 'iso-us') GROUP BY r.ring_id ORDER BY r.ring_id;

-- The same in each: two workers, an agent with a worker of its own, sagas, a subscription of either kind and
-- messages; the window of 00:00 is published and taken.
CREATE FUNCTION isolation.populate(region text, cluster text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    prefix text := region || '/' || cluster || '/';
BEGIN
    PERFORM stacksaga.create_ring(region, cluster, slots => 64);
    PERFORM pg_temp.be_in(region, cluster);
    PERFORM stacksaga.register_node(prefix || 'w1', region, cluster);
    PERFORM stacksaga.register_node(prefix || 'w2', region, cluster);
    PERFORM stacksaga.register_node(prefix || 'agent', region, cluster, 'agent');
    PERFORM stacksaga.register_node(prefix || 'w3', region, cluster, agent => prefix || 'agent');
    PERFORM stacksaga.start_sagas('isolated', array_fill('{}'::jsonb, ARRAY[8]));
    PERFORM stacksaga.create_subscription('handled', 'isolation', 'isolation.handle(stacksaga.message)');
    PERFORM stacksaga.create_subscription('fetched', 'isolation');
    PERFORM stacksaga.publish('isolation', to_jsonb(prefix || n), 'key') FROM generate_series(1, 3) AS n;
END
$$;
SELECT pg_temp.set_clock('2031-01-01 00:00:00 UTC');
SELECT isolation.populate('iso-eu', 'a');
SELECT isolation.populate('iso-us', 'a');
SELECT isolation.populate('iso-eu', 'b');
CREATE FUNCTION isolation.publish(region text, cluster text, at timestamptz) RETURNS boolean LANGUAGE sql AS $$
    SELECT stacksaga.publish_window(region, cluster, at, ARRAY[p || 'w1', p || 'agent'],
               ARRAY[-9223372036854775808, 0], ARRAY[-1, 9223372036854775807], 'test') > 0
       AND stacksaga.publish_window(region, cluster, at, ARRAY[p || 'w3'],
               ARRAY[0], ARRAY[9223372036854775807], 'test', p || 'agent') > 0
      FROM concat(region, '/', cluster, '/') AS p $$;
SELECT r.cluster, isolation.publish(r.region, r.cluster, '2031-01-01 00:00:00 UTC') AS published
  FROM (VALUES ('iso-eu', 'a'), ('iso-us', 'a'), ('iso-eu', 'b')) AS r(region, cluster);
SELECT n.node, h.state FROM stacksaga.node n JOIN stacksaga.ring r ON r.ring_id = n.ring_id,
       LATERAL stacksaga.heartbeat_node(n.node, n.incarnation) AS h
 WHERE r.region IN ('iso-eu', 'iso-us') ORDER BY n.node COLLATE "C";
SELECT region, cluster, node, share FROM stacksaga.nodes WHERE region IN ('iso-eu', 'iso-us')
 ORDER BY node COLLATE "C";
INSERT INTO isolation.before
SELECT r.region || '/' || r.cluster, isolation.content(r.region, r.cluster) FROM stacksaga.ring r
 WHERE r.region IN ('iso-eu', 'iso-us');
SELECT * FROM isolation.changed;

-- Now everything happens in iso-eu/a. Due work and messages for handlers:
SELECT pg_temp.be_in('iso-eu', 'a');
SELECT stacksaga.run_pending(1000) > 0 AS ran;
SELECT region, cluster, count(*) FROM isolation.done d
  JOIN stacksaga.saga s USING (saga_id) JOIN stacksaga.ring r ON r.ring_id = s.ring_id GROUP BY 1, 2;
SELECT count(*), count(DISTINCT m.ring_id) FROM isolation.done d
  JOIN stacksaga.outbox_message m ON m.message_id = d.message_id;
-- Claims and answers, by a node of this ring, by one of another, and by a stranger:
CREATE TABLE isolation.claimed AS
SELECT w.worker, c.* FROM (VALUES ('iso-eu/a/w1'), ('iso-us/a/w1'), ('stranger')) AS w(worker),
       LATERAL stacksaga.claim_steps('isolation_questions', w.worker, 3) AS c;
SELECT c.worker, r.region, r.cluster, count(*)
  FROM isolation.claimed c JOIN stacksaga.saga s USING (saga_id) JOIN stacksaga.ring r USING (ring_id)
 GROUP BY 1, 2, 3 ORDER BY 1;
SELECT DISTINCT stacksaga.complete_step(saga_id, step, lease) FROM isolation.claimed;
-- Messages that a service fetches:
SELECT payload #>> '{}' AS payload FROM stacksaga.receive_messages('fetched', 'someone');
-- Windows, take-overs, a node that leaves, one that joins, one that dies and is swept up:
SELECT pg_temp.set_clock('2031-01-01 00:01:10 UTC');
SELECT stacksaga.publish_window('iso-eu', 'a', '2031-01-01 00:01:00 UTC', ARRAY['iso-eu/a/w2'],
    ARRAY[-9223372036854775808], ARRAY[9223372036854775807], 'test') > 0 AS published;
SELECT h.state FROM stacksaga.node n, LATERAL stacksaga.heartbeat_node(n.node, n.incarnation) AS h
 WHERE n.node = 'iso-eu/a/w2';
SELECT stacksaga.leave_ring(node, incarnation) FROM stacksaga.node WHERE node = 'iso-eu/a/w1';
SELECT stacksaga.register_node('iso-eu/a/w4', 'iso-eu', 'a') > 0 AS joined;
SELECT pg_temp.set_clock('2031-01-01 01:00:00 UTC');
CREATE FUNCTION isolation.beat_often(name text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 1 .. 10 LOOP
        PERFORM h.state FROM stacksaga.node, stacksaga.heartbeat_node(node, incarnation) AS h WHERE node = name;
    END LOOP;
    RETURN (SELECT share * 64 FROM stacksaga.nodes WHERE node = name);
END
$$;
SELECT stacksaga.register_node('iso-eu/a/w5', 'iso-eu', 'a') > 0 AS joined;
SELECT pg_temp.set_clock('2031-01-01 01:05:00 UTC');
SELECT isolation.beat_often('iso-eu/a/w5') AS swept;
SELECT stacksaga.alter_ring('iso-eu', 'a', 'window_length', '10 seconds');
-- The others know nothing of it.
SELECT cluster, region, changes > 0 AS changed FROM isolation.changed;

-- Nobody of another ring can be named: as a node of a window, as an agent, as the owner of a name.
SELECT pg_temp.set_clock('2031-01-01 00:01:10 UTC');
SELECT c.call, r.* FROM (VALUES
    ($$publish_window('iso-us', 'a', '2031-01-01 00:02Z', '{iso-eu/b/w1}', '{-9223372036854775808}', '{9223372036854775807}', 'x')$$),
    ($$publish_window('iso-us', 'a', '2031-01-01 00:02Z', '{iso-us/a/w1,iso-eu/b/agent}', '{-9223372036854775808,0}', '{-1,9223372036854775807}', 'x')$$),
    ($$publish_window('iso-us', 'a', '2031-01-01 00:02Z', '{iso-eu/b/w3}', '{0}', '{9223372036854775807}', 'x', 'iso-eu/b/agent')$$),
    ($$publish_window('iso-us', 'a', '2031-01-01 00:02Z', '{iso-eu/b/w3}', '{0}', '{9223372036854775807}', 'x', 'iso-us/a/agent')$$),
    ($$register_node('iso-us/a/new', 'iso-us', 'a', agent => 'iso-eu/b/agent')$$),
    ($$register_node('iso-eu/b/w1', 'iso-us', 'a')$$)
) AS c(call), pg_temp.refused('SELECT stacksaga.' || c.call) AS r;
-- A subscription is known in its own ring only, and work in the ring of the session.
SELECT pg_temp.be_in('iso-eu', 'nowhere');
SELECT c.call, r.* FROM (VALUES ('run_pending()'), ($$claim_steps('isolation_questions', 'x')$$),
    ($$receive_messages('fetched', 'x')$$), ($$start_saga('isolated')$$), ($$publish('isolation', '1')$$)
) AS c(call), pg_temp.refused('SELECT count(*) FROM stacksaga.' || c.call) AS r;
SELECT cluster, region, changes > 0 AS changed FROM isolation.changed;

-- What the view of each shows is its own.
SELECT region, cluster, count(*) AS sagas, count(*) FILTER (WHERE status = 'pending') AS pending
  FROM stacksaga.sagas WHERE region IN ('iso-eu', 'iso-us') GROUP BY 1, 2 ORDER BY 1, 2;
-- The other rings work as ever.
SELECT pg_temp.be_in('iso-us', 'a');
SELECT stacksaga.run_pending(1000) > 0 AS ran;
SELECT region, cluster, count(*) FROM isolation.done d
  JOIN stacksaga.saga s USING (saga_id) JOIN stacksaga.ring r ON r.ring_id = s.ring_id GROUP BY 1, 2 ORDER BY 1, 2;
SELECT payload #>> '{}' AS payload FROM stacksaga.receive_messages('fetched', 'someone');

RESET stacksaga.region;
RESET stacksaga.cluster;
RESET stacksaga.clock_offset;
SELECT count(stacksaga.leave_ring(node, incarnation)) FROM stacksaga.node JOIN stacksaga.ring USING (ring_id)
 WHERE region IN ('iso-eu', 'iso-us');
-- Nothing of it stays in the way of what runs next.
SELECT count(stacksaga.ack_messages(batch_id)) FROM stacksaga.message_batch WHERE consumer = 'someone';
SELECT r.region, r.cluster, count(set_config('stacksaga.region', r.region, false)
           || set_config('stacksaga.cluster', r.cluster, false)
           || stacksaga.drop_subscription(s.subscription, true)::text) AS dropped
  FROM stacksaga.subscription s JOIN stacksaga.ring r USING (ring_id)
 WHERE r.region IN ('iso-eu', 'iso-us') GROUP BY 1, 2 ORDER BY 1, 2;
RESET stacksaga.region;
RESET stacksaga.cluster;
SELECT count(*) FROM stacksaga.subscription WHERE topic = 'isolation';
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
