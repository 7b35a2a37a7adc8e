-- Ownership and the fence, as background workers use them: the shared ring of a standalone server,
-- the sweep of a ring without a coordinator, a ring that pauses, and who may work in a slot.
CREATE FUNCTION pg_temp.lock_slots(ring_id integer, incarnation bigint, slots integer[],
                                   epochs bigint[] DEFAULT NULL)
RETURNS boolean[] LANGUAGE c AS 'stacksaga_testing', 'stacksaga_lock_slots';
CREATE FUNCTION pg_temp.register_worker(ring_id integer, name text, pid integer) RETURNS bigint
LANGUAGE c AS 'stacksaga_testing', 'stacksaga_register_worker';
CREATE FUNCTION pg_temp.beat(ring_id integer, incarnation bigint) RETURNS void
LANGUAGE c AS 'stacksaga_testing', 'stacksaga_beat';
CREATE FUNCTION pg_temp.settle(ring_id integer, incarnation bigint, standalone boolean)
RETURNS TABLE (taken integer, contended integer, superseded boolean, more boolean)
LANGUAGE c AS 'stacksaga_testing', 'stacksaga_settle';
CREATE FUNCTION pg_temp.set_clock(at time) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset',
                      (timestamptz '2031-01-01 00:00 UTC' + at - clock_timestamp())::text, false) $$;
CREATE FUNCTION pg_temp.beat_often(node text, incarnation bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..10 LOOP
        PERFORM stacksaga.heartbeat_node(node, incarnation);
    END LOOP;
END
$$;
CREATE FUNCTION pg_temp.owners(cluster text)
RETURNS TABLE (node text, slots text) LANGUAGE sql AS $$
    SELECT s.node, count(*) || ': ' || min(slot) || '-' || max(slot)
      FROM stacksaga.ring_slots('o', cluster) s GROUP BY s.node ORDER BY min(slot) $$;
SET TimeZone = 'UTC';

-- A standalone server's workers share the ring in equal runs, in the order of their names.
SELECT stacksaga.create_ring('o', 'alone', slots => 64) AS ring \gset
SELECT pg_temp.set_clock('10:00:05');
SELECT pg_temp.register_worker(:ring, 'o2', pg_backend_pid()) AS o2 \gset
SELECT * FROM pg_temp.settle(:ring, :o2, true);
SELECT * FROM pg_temp.owners('alone');
SELECT * FROM pg_temp.settle(:ring, :o2, true);
SELECT pg_temp.register_worker(:ring, 'o1', pg_backend_pid()) AS o1 \gset
SELECT pg_temp.register_worker(:ring, 'o3', pg_backend_pid()) AS o3 \gset
SELECT * FROM pg_temp.settle(:ring, :o1, true);
SELECT * FROM pg_temp.settle(:ring, :o3, true);
SELECT * FROM pg_temp.settle(:ring, :o2, true);
SELECT * FROM pg_temp.owners('alone');
-- Services take no part in it, whatever they register as.
SELECT count(stacksaga.register_node('o0', 'o', 'alone'));
SELECT * FROM pg_temp.settle(:ring, :o1, true);
-- A worker whose process has ended loses its share at once, one without heartbeats when it is suspected.
UPDATE stacksaga.node SET pid = 0 WHERE node = 'o3';
SELECT * FROM pg_temp.settle(:ring, :o1, true);
SELECT * FROM pg_temp.settle(:ring, :o2, true);
SELECT * FROM pg_temp.owners('alone');
SELECT pg_temp.set_clock('10:00:21');
SELECT pg_temp.beat(:ring, :o2);
SELECT * FROM pg_temp.settle(:ring, :o2, true);
SELECT * FROM pg_temp.owners('alone');
-- An older incarnation is out.
SELECT pg_temp.register_worker(:ring, 'o2', pg_backend_pid()) > :o2 AS rising;
SELECT * FROM pg_temp.settle(:ring, :o2, true);
SELECT pg_temp.lock_slots(:ring, :o2, '{0,63}');
-- The incarnation's number depends on the tests before this one.
\set VERBOSITY terse
SELECT pg_temp.beat(:ring, :o2);
\set VERBOSITY default
-- More workers than slots: some have none, the others one each.
SELECT count(pg_temp.register_worker(:ring, 'o' || n, pg_backend_pid())) FROM generate_series(100, 199) AS n;
SELECT sum(s.taken) > 0 AS taken
  FROM stacksaga.node n, pg_temp.settle(:ring, n.incarnation, true) AS s WHERE n.ring_id = :ring;
SELECT max(slots) AS most, count(*) AS holders
  FROM (SELECT count(*) AS slots FROM stacksaga.ring_slots('o', 'alone') GROUP BY node) AS held;

-- Who may work in a slot: the incarnation that owns it, under the epoch that it knows of.
SELECT stacksaga.create_ring('o', 'fence', slots => 64) AS ring \gset
SELECT pg_temp.register_worker(:ring, 'f1', pg_backend_pid()) AS f1 \gset
SELECT pg_temp.lock_slots(:ring, :f1, '{0,1,63}');
SELECT * FROM pg_temp.settle(:ring, :f1, true);
SELECT pg_temp.lock_slots(:ring, :f1, '{0,1,63}');
SELECT epoch FROM stacksaga.ring_slots('o', 'fence') WHERE slot = 1 \gset
SELECT pg_temp.lock_slots(:ring, :f1, '{0,1,63}', ARRAY[:epoch - 1, :epoch, :epoch + 1]);
SELECT pg_temp.lock_slots(:ring, :f1 + 1, '{0,1,63}');
SELECT pg_temp.lock_slots(:ring + 1, :f1, '{0,1,63}');
SELECT pg_temp.lock_slots(:ring, :f1, '{64,99999}');
SELECT pg_temp.lock_slots(:ring, :f1, '{}');
-- The locks last to the end of the transaction, which cannot be prepared.
BEGIN;
SELECT pg_temp.lock_slots(:ring, :f1, '{0,1,63}');
SELECT locktype, mode, objid, granted FROM pg_locks
 WHERE locktype = 'userlock' AND pid = pg_backend_pid() ORDER BY objid;
SELECT pg_advisory_unlock_all();
SELECT count(*) FROM pg_locks WHERE locktype = 'userlock' AND pid = pg_backend_pid();
SAVEPOINT before;
PREPARE TRANSACTION 'fenced';
SELECT count(*) FROM pg_locks WHERE locktype = 'userlock' AND pid = pg_backend_pid();
-- A node that left may not begin anything.
SELECT stacksaga.leave_ring('f1', :f1);
SELECT pg_temp.lock_slots(:ring, :f1, '{0,1,63}');

-- Without a coordinator live nodes sweep up the slots of dead owners, a few at a time, up to their
-- equal shares; not before two windows have passed.
SELECT stacksaga.create_ring('o', 'sweep') AS ring \gset
SELECT pg_temp.set_clock('11:00:00');
SELECT stacksaga.register_node('s1', 'o', 'sweep') AS s1, stacksaga.register_node('s2', 'o', 'sweep') AS s2 \gset
SELECT pg_temp.set_clock('11:01:30');
SELECT state FROM stacksaga.heartbeat_node('s1', :s1);
SELECT state FROM stacksaga.heartbeat_node('s2', :s2);
SELECT node, count(*) FROM stacksaga.ring_slots('o', 'sweep') GROUP BY node;
SELECT pg_temp.set_clock('11:02:01');
SELECT state FROM stacksaga.heartbeat_node('s1', :s1);
SELECT state FROM stacksaga.heartbeat_node('s2', :s2);
SELECT node, count(*) FROM stacksaga.ring_slots('o', 'sweep') GROUP BY node ORDER BY node;
SELECT pg_temp.beat_often('s1', :s1);
SELECT node, count(*) FROM stacksaga.ring_slots('o', 'sweep') GROUP BY node ORDER BY node;
SELECT pg_temp.beat_often('s2', :s2);
SELECT node, count(*) FROM stacksaga.ring_slots('o', 'sweep') GROUP BY node ORDER BY node;
-- s2 stops its heartbeats: its slots come free when it is dead, and not while it is suspected.
SELECT pg_temp.set_clock('11:02:25');
SELECT state FROM stacksaga.heartbeat_node('s1', :s1);
SELECT node, count(*) FROM stacksaga.ring_slots('o', 'sweep') GROUP BY node ORDER BY node;
SELECT pg_temp.set_clock('11:02:35');
SELECT state FROM stacksaga.heartbeat_node('s1', :s1);
SELECT node, count(*) FROM stacksaga.ring_slots('o', 'sweep') GROUP BY node ORDER BY node;
-- A ring may keep them a while longer.
SELECT stacksaga.alter_ring('o', 'sweep', 'rebalance_delay', '1 minute');
SELECT state FROM stacksaga.heartbeat_node('s1', :s1);
SELECT node, count(*) FROM stacksaga.ring_slots('o', 'sweep') GROUP BY node ORDER BY node;
-- A window that opens ends the sweep for two windows.
SELECT stacksaga.alter_ring('o', 'sweep', 'rebalance_delay', '0');
SELECT stacksaga.publish_window('o', 'sweep', '2031-01-01 11:02Z', '{s2}', '{-9223372036854775808}',
                                '{9223372036854775807}', 'test') > 0 AS published;
SELECT state FROM stacksaga.heartbeat_node('s1', :s1);
SELECT node, count(*) FROM stacksaga.ring_slots('o', 'sweep') GROUP BY node ORDER BY node;

-- A ring that pauses: what is owned counts in published windows only, and only what they leave.
SELECT stacksaga.create_ring('o', 'pause', slots => 64, on_missing_window => 'pause') AS ring \gset
SELECT pg_temp.set_clock('12:00:30');
SELECT stacksaga.register_node('p1', 'o', 'pause') AS p1, stacksaga.register_node('p2', 'o', 'pause') AS p2 \gset
SELECT stacksaga.publish_window('o', 'pause', '2031-01-01 12:00Z', '{p1}', '{-9223372036854775808}',
                                '{9223372036854775807}', 'test') > 0 AS published;
SELECT state FROM stacksaga.heartbeat_node('p1', :p1);
SELECT pg_temp.lock_slots(:ring, :p1, '{0,63}');
SELECT range_start, range_end FROM stacksaga.node_ranges('p1');
-- So it is with the retries that its owner claims: those of the ranges that it is told.
SELECT stacksaga.define_saga('paused', ARRAY[stacksaga.queue_step('a', 'paused', compensable => true, retry => stacksaga.retry_policy(0))]);
SET stacksaga.region = 'o';
SET stacksaga.cluster = 'pause';
SELECT count(*) FROM stacksaga.start_sagas('paused', array_fill('{}'::jsonb, ARRAY[40]));
SELECT count(stacksaga.fail_step(saga_id, step, lease, 'no', 'retryable', retry_after => '0'))
  FROM stacksaga.claim_steps('paused', 'p1', 40);
CREATE FUNCTION pg_temp.claimed_as_told() RETURNS TABLE (any_claimed boolean, as_told boolean) LANGUAGE plpgsql AS $$
DECLARE
    told bigint;
    claimed bigint[];
BEGIN
    SELECT count(*) INTO told FROM stacksaga.sagas s, stacksaga.node_ranges('p1') r
     WHERE s.saga = 'paused' AND s.token BETWEEN r.range_start AND r.range_end;
    BEGIN
        SELECT array_agg(stacksaga.token_uuid(saga_id)) INTO claimed FROM stacksaga.claim_steps('paused', 'p1', 40);
        RAISE EXCEPTION USING ERRCODE = 'ZZ000';
    EXCEPTION WHEN SQLSTATE 'ZZ000' THEN NULL; -- they are due again
    END;
    RETURN QUERY SELECT cardinality(claimed) > 0, coalesce(cardinality(claimed), 0) = told;
END
$$;
SET stacksaga.retry_budget = -1;
SELECT * FROM pg_temp.claimed_as_told();
SELECT pg_temp.set_clock('12:01:30');
SELECT pg_temp.lock_slots(:ring, :p1, '{0,63}');
SELECT range_start, range_end FROM stacksaga.node_ranges('p1');
SELECT * FROM pg_temp.claimed_as_told();
SELECT stacksaga.publish_window('o', 'pause', '2031-01-01 12:01Z', '{p1,p2}',
                                '{-9223372036854775808,0}', '{-1,9223372036854775807}', 'test') > 0 AS published;
SELECT pg_temp.lock_slots(:ring, :p1, '{0,63}');
SELECT range_start, range_end FROM stacksaga.node_ranges('p1');
SELECT * FROM pg_temp.claimed_as_told();
RESET stacksaga.retry_budget;
RESET stacksaga.region;
RESET stacksaga.cluster;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
SELECT state FROM stacksaga.heartbeat_node('p2', :p2);
SELECT pg_temp.lock_slots(:ring, :p2, '{0,63}');

-- An agent's part is no window: without a master such a ring pauses, whatever agents publish.
SELECT stacksaga.create_ring('o', 'relayed', slots => 64, on_missing_window => 'pause') AS ring \gset
SELECT stacksaga.register_node('pa', 'o', 'relayed', 'agent') AS pa,
       stacksaga.register_node('p3', 'o', 'relayed', agent => 'pa') AS p3 \gset
SELECT stacksaga.publish_window('o', 'relayed', '2031-01-01 12:01Z', '{pa}', '{-9223372036854775808}',
                                '{9223372036854775807}', 'test') > 0 AS published;
SELECT stacksaga.publish_window('o', 'relayed', at, '{p3}', '{-9223372036854775808}',
                                '{9223372036854775807}', 'pa', 'pa') > 0 AS published
  FROM unnest('{2031-01-01 12:01Z,2031-01-01 12:02Z}'::timestamptz[]) AS at;
SELECT state FROM stacksaga.heartbeat_node('p3', :p3);
SELECT pg_temp.lock_slots(:ring, :p3, '{0,63}');
SELECT pg_temp.set_clock('12:02:30');
SELECT pg_temp.lock_slots(:ring, :p3, '{0,63}');
SELECT range_start, range_end FROM stacksaga.node_ranges('p3');

-- In a slot that a service owns, who claims from queues, background workers do what only they can:
-- run functions, settle leases. Other services do not.
SELECT stacksaga.create_ring('o', 'served', slots => 64) AS ring \gset
SELECT pg_temp.set_clock('12:00:05');
SELECT stacksaga.register_node('service-a', 'o', 'served') AS a \gset
SELECT stacksaga.register_node('service-b', 'o', 'served') AS b \gset
SELECT pg_temp.register_worker(:ring, 'process', pg_backend_pid()) AS w \gset
SELECT pg_temp.lock_slots(:ring, :w, '{0,63}') AS unowned;
SELECT stacksaga.publish_window('o', 'served', '2031-01-01 12:01Z', '{service-a}',
                                '{-9223372036854775808}', '{9223372036854775807}', 'test') IS NOT NULL
    AS published;
SELECT pg_temp.set_clock('12:01:01');
SELECT pg_temp.beat_often('service-a', :a);
SELECT * FROM pg_temp.owners('served');
SELECT pg_temp.lock_slots(:ring, :a, '{0,63}') AS owner,
       pg_temp.lock_slots(:ring, :b, '{0,63}') AS another_service,
       pg_temp.lock_slots(:ring, :w, '{0,63}') AS worker;

-- A background worker reports its progress with its first heartbeat, and then each checkpoint_interval
-- (10 s); a checkpoint in the future, from before the clock was set back, is as old as one in the past.
SELECT stacksaga.create_ring('o', 'told', slots => 64) AS ring \gset
CREATE FUNCTION pg_temp.told_at(clock time, ring integer, worker bigint)
RETURNS TABLE (at time, state text, progress jsonb, checkpoint_age interval) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_temp.set_clock(clock), pg_temp.beat(ring, worker);
    RETURN QUERY SELECT clock, n.state, n.progress, date_trunc('second', n.checkpoint_age + interval '0.1 s')
                   FROM stacksaga.nodes n WHERE n.incarnation = worker;
END
$$;
SELECT pg_temp.set_clock('13:00:00');
SELECT pg_temp.register_worker(:ring, 'told', pg_backend_pid()) AS t1 \gset
SELECT t.* FROM unnest('{13:00:00,13:00:09,13:00:11,12:00:00}'::time[]) AS c(clock), pg_temp.told_at(c.clock, :ring, :t1) AS t;
SELECT stacksaga.leave_ring('told', :t1);
