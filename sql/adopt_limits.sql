-- adopt_ring and the limits of queues: those of a ring stay with it; leases that move count for the limits of
-- the new ring until they end, and nothing more is claimed than these let through.
CREATE FUNCTION pg_temp.set_clock(at timestamptz) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (at - clock_timestamp())::text, false) $$;
CREATE TEMP VIEW leases AS
    SELECT r.cluster, w.saga_id, w.group_key, w.lease, w.worker FROM stacksaga.work w JOIN stacksaga.ring r USING (ring_id)
     WHERE r.region = 'limits' AND w.lease_until IS NOT NULL;
-- Completes so many steps that a service has claimed.
CREATE FUNCTION pg_temp.complete(service text, steps integer) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.complete_step(saga_id, 'a', lease))
      FROM (SELECT * FROM leases WHERE worker = service ORDER BY saga_id LIMIT steps) AS l $$;
SELECT stacksaga.define_saga('adopted step', ARRAY[stacksaga.queue_step('a', 'adopted steps', compensable => true, timeout => '2 hours',
    retry => stacksaga.retry_policy(max_attempts => 5, initial_interval => '1 hour', max_interval => '1 hour', jitter => 0))]);
SELECT stacksaga.create_ring('limits', 'old', slots => 64) > 1 AS created;
SELECT stacksaga.create_ring('limits', 'new', slots => 256) > 1 AS created;
SELECT pg_temp.set_clock('2031-01-01 00:00:00 UTC');
SET stacksaga.region = 'limits';

-- The old ring runs five of its limit of five, two of them for a minute; the new one runs two of three.
SET stacksaga.cluster = 'old';
SELECT stacksaga.set_queue('adopted steps', max_running => 5, rate => 100, rate_interval => '1 hour');
SELECT count(*) FROM generate_series(1, 20) AS n, LATERAL stacksaga.start_saga('adopted step', key => 'old ' || n,
    group_key => 'group ' || n % 2);
SELECT count(*) FROM stacksaga.claim_steps('adopted steps', 'short', 2, '1 minute');
SELECT count(*) FROM stacksaga.claim_steps('adopted steps', 'long', 10, '1 hour');
SET stacksaga.cluster = 'new';
SELECT stacksaga.set_queue('adopted steps', max_running => 3);
SELECT count(*) FROM generate_series(1, 2) AS n, LATERAL stacksaga.start_saga('adopted step', key => 'new ' || n);
SELECT count(*) FROM stacksaga.claim_steps('adopted steps', 'own', 10, '1 hour');

SELECT pg_temp.set_clock('2031-01-01 00:00:31 UTC');
SELECT stacksaga.adopt_ring('limits', 'old', 'limits', 'new', 'its machine burnt');
SELECT cluster, count(*) FROM leases GROUP BY cluster;
SELECT cluster, waiting, running, max_running, rate FROM stacksaga.queues
 WHERE region = 'limits' AND queue = 'adopted steps' ORDER BY cluster;

-- Seven run where three may: nothing is claimed until fewer than three do.
SELECT count(*) FROM stacksaga.claim_steps('adopted steps', 'next', 10, '1 hour');
SELECT pg_temp.complete('long', 3), pg_temp.complete('own', 1);
SELECT count(*) FROM stacksaga.claim_steps('adopted steps', 'next', 10, '1 hour');
SELECT count(*) AS running FROM leases;
-- A lease that moved ends as it would have, and makes room.
SELECT pg_temp.set_clock('2031-01-01 00:01:01 UTC');
SELECT count(*) FROM stacksaga.claim_steps('adopted steps', 'next', 10, '1 hour');
SELECT worker, count(*) FROM leases GROUP BY worker ORDER BY worker;
SELECT count(*) FROM stacksaga.claim_steps('adopted steps', 'next', 10, '1 hour');
SELECT pg_temp.complete('next', 2), pg_temp.complete('own', 1);

-- The limit of a group counts leases that moved, too.
SET stacksaga.cluster = 'old';
SELECT stacksaga.pause_queue('adopted steps', 'the ring is dead');
SELECT count(*) FROM generate_series(1, 6) AS n, LATERAL stacksaga.start_saga('adopted step', key => 'later ' || n,
    group_key => 'group ' || n % 2, priority => 1);
SELECT stacksaga.resume_queue('adopted steps', 'for a claim');
SELECT count(*) FROM stacksaga.claim_steps('adopted steps', 'moved', 2, '1 hour');
SELECT stacksaga.pause_queue('adopted steps', 'the ring is dead');
SET stacksaga.cluster = 'new';
SELECT stacksaga.set_queue('adopted steps', max_running_per_group => 1);
SELECT stacksaga.adopt_ring('limits', 'old', 'limits', 'new', 'what came late');
SELECT group_key, count(*) FROM leases WHERE worker = 'moved' GROUP BY group_key ORDER BY group_key;
SELECT count(*) FROM stacksaga.claim_steps('adopted steps', 'next', 10, '1 hour');
SELECT pg_temp.complete('moved', 1);
SELECT count(*) FROM stacksaga.claim_steps('adopted steps', 'next', 10, '1 hour');
-- The pause of the old ring has stayed there.
SELECT cluster, paused, pause_reason FROM stacksaga.queues WHERE region = 'limits' AND queue = 'adopted steps' ORDER BY cluster;
-- Where the new ring has no limits there are none.
SELECT stacksaga.drop_queue('adopted steps');
SELECT count(*) FROM stacksaga.claim_steps('adopted steps', 'next', 100, '1 hour');

SET stacksaga.cluster = 'old';
SELECT stacksaga.drop_queue('adopted steps');
SELECT stacksaga.resume_queue('adopted steps', 'the end');
RESET stacksaga.region;
RESET stacksaga.cluster;
SELECT set_config('stacksaga.clock_offset', '0', false);
-- The tests that come after this one count what they find.
DELETE FROM stacksaga.work w USING stacksaga.ring r WHERE w.ring_id = r.ring_id AND r.region = 'limits';
DELETE FROM stacksaga.effect e USING stacksaga.saga s, stacksaga.ring r
 WHERE e.saga_id = s.saga_id AND s.ring_id = r.ring_id AND r.region = 'limits';
DELETE FROM stacksaga.failure f USING stacksaga.saga s, stacksaga.ring r
 WHERE f.saga_id = s.saga_id AND s.ring_id = r.ring_id AND r.region = 'limits';
DELETE FROM stacksaga.saga s USING stacksaga.ring r WHERE s.ring_id = r.ring_id AND r.region = 'limits';
