-- What status(), metrics() and doctor() say of queues, their limits, and schedules; and that they say a bounded lot.

\set SHOW_CONTEXT never
CREATE SCHEMA states;
SELECT stacksaga.define_saga('states', ARRAY[
    stacksaga.queue_step('a', 'states', compensable => true), stacksaga.queue_step('b', 'states b', compensable => true)]);
SELECT stacksaga.define_saga('states plain', ARRAY[stacksaga.queue_step('a', 'states plain', compensable => true)]);
CREATE VIEW states.queue AS
    SELECT q FROM jsonb_array_elements(stacksaga.status() -> 'rings') AS r, jsonb_array_elements(r -> 'queues') AS q
     WHERE r ->> 'cluster' = 'default';
-- The same numbers, as status() and as metrics() give them.
CREATE VIEW states.held_back AS
    SELECT h.key AS limit, h.value::bigint AS steps, m.value = h.value::float8 AS same
      FROM states.queue, jsonb_each(q -> 'held_back') AS h
      LEFT JOIN stacksaga.metrics() AS m ON m.name = 'stacksaga_queue_held_back_steps'
           AND m.labels ->> 'queue' = 'states' AND m.labels ->> 'limit' = h.key
     WHERE q ->> 'queue' = 'states' ORDER BY 1;
CREATE FUNCTION states.claim(n integer) RETURNS bigint LANGUAGE sql AS
    $$ SELECT count(*) FROM stacksaga.claim_steps('states', 'w', n) $$;

-- A queue without limits has no more members than these, and no metric of limits.
SELECT count(*) FROM stacksaga.start_saga('states plain');
SELECT q - '{oldest_due,overdue_seconds}'::text[] FROM states.queue WHERE q ->> 'queue' = 'states plain';
SELECT name FROM stacksaga.metrics() WHERE labels ->> 'queue' = 'states plain' GROUP BY name ORDER BY name;

-- Two groups and none, of two priorities: 3 steps each.
SELECT count(*) FROM generate_series(1, 9) n, LATERAL stacksaga.start_saga(
    'states', key => n::text, priority => 2 + n % 2, group_key => (ARRAY['x', 'y', NULL])[1 + n % 3]);
TABLE states.held_back;
-- Nothing is held back that may be claimed.
SELECT stacksaga.set_queue('states', max_running => 4, max_running_per_group => 2, rate => 6, rate_interval => '1 hour');
TABLE states.held_back;
SELECT q - '{oldest_due,overdue_seconds,held_back}'::text[] FROM states.queue WHERE q ->> 'queue' = 'states';
-- As many run as may.
SELECT states.claim(9);
TABLE states.held_back;
-- As many of a group run as may: what waits of the others does not wait for it.
SELECT stacksaga.set_queue('states', max_running_per_group => 1);
SELECT h.limit, h.same, h.steps > 0 AND h.steps = w.waiting AS as_many_as_wait_in_groups_that_run
  FROM states.held_back h, LATERAL (
       SELECT count(*) AS waiting FROM stacksaga.work w
        WHERE w.queue = 'states' AND w.lease_until IS NULL AND w.group_key IN (
              SELECT l.group_key FROM stacksaga.work l
               WHERE l.queue = 'states' AND l.lease_until IS NOT NULL AND l.group_key <> '')) AS w;
SELECT stacksaga.set_queue('states', max_running_per_group => 9);
TABLE states.held_back;
-- The rate is used up. It had none until now, so what ran before does not count.
SELECT stacksaga.set_queue('states', rate => 3, rate_interval => '1 minute');
SELECT states.claim(9);
TABLE states.held_back;
BEGIN;
SET LOCAL stacksaga.clock_offset = '61 seconds';
TABLE states.held_back;
ROLLBACK;
-- The first limit that holds a step back counts it, and no other one.
SELECT stacksaga.set_queue('states', max_running => 3, max_running_per_group => 1, rate => 3, rate_interval => '1 minute');
TABLE states.held_back;
-- Paused: compensations go on, unless as many run as may.
SELECT count(stacksaga.cancel_saga(w.saga_id, 'a test')) FROM stacksaga.work w
 WHERE w.queue = 'states' AND w.lease_until IS NOT NULL;
SELECT count(stacksaga.complete_step(w.saga_id, 'a', w.lease)) FROM stacksaga.work w
 WHERE w.queue = 'states' AND w.lease_until IS NOT NULL;
SELECT stacksaga.pause_queue('states', 'stocktaking');
SELECT labels ->> 'priority' AS priority, value FROM stacksaga.metrics()
 WHERE name = 'stacksaga_queue_waiting_steps' AND labels ->> 'queue' = 'states' ORDER BY 1;
SELECT stacksaga.set_queue('states', max_running => 2);
TABLE states.held_back;
SELECT states.claim(2);
TABLE states.held_back;
SELECT q -> 'paused' AS paused, q -> 'pause_reason' AS reason, (q ->> 'paused_since')::timestamptz <= now() AS since
  FROM states.queue WHERE q ->> 'queue' = 'states';

-- doctor(): steps wait in a paused queue; limits are of a queue that no definition names.
CREATE VIEW states.problem AS
    SELECT severity, regexp_replace(detail, '\d\d:\d\d:\d\d', 'some time') AS detail, fix FROM stacksaga.doctor()
     WHERE check_name = 'queues' AND detail LIKE '%states%';
TABLE states.problem;
SELECT stacksaga.set_queue('states''s', max_running => 1);
SELECT stacksaga.pause_queue('states c', 'a test');
TABLE states.problem;
SELECT stacksaga.drop_queue('states''s'), stacksaga.resume_queue('states c', 'a test'), stacksaga.resume_queue('states', 'a test');
TABLE states.problem;
-- A paused queue in which nothing waits is nobody's problem, nor is one with limits that a fallback names.
SELECT stacksaga.define_saga('states fallback', ARRAY[stacksaga.queue_step('a', 'states b', compensable => true, fallback => 'states f')]);
SELECT stacksaga.pause_queue('states b', 'a test'), stacksaga.set_queue('states f', 1);
TABLE states.problem;
SELECT stacksaga.resume_queue('states b', 'a test'), stacksaga.drop_queue('states f');

-- A hundred queues at most, those with limits first, whatever their names; and as many schedules.
BEGIN;
SELECT stacksaga.create_ring('default', 'states') > 0 AS created;
SET LOCAL stacksaga.cluster = 'states';
SELECT count(stacksaga.define_saga('states ' || n, ARRAY[stacksaga.queue_step('a', 'states ' || n, compensable => true)])) FROM generate_series(1, 110) n;
SELECT count(*) FROM generate_series(1, 110) n, LATERAL stacksaga.start_saga('states ' || n);
SELECT stacksaga.pause_queue('states zz', 'a test');
SELECT jsonb_array_length(r -> 'queues') AS queues, r -> 'queues' -> 99 ->> 'queue' AS last
  FROM jsonb_array_elements(stacksaga.status() -> 'rings') AS r WHERE r ->> 'cluster' = 'states';
SELECT name, count(DISTINCT labels ->> 'queue') AS queues, bool_or(labels ->> 'queue' = 'states zz') AS with_the_paused_one
  FROM stacksaga.metrics()
 WHERE labels ->> 'cluster' = 'states' AND labels ? 'queue' GROUP BY name ORDER BY name;
SELECT count(stacksaga.create_schedule('states ' || n, 'states plain', '@hourly')) FROM generate_series(1, 110) n;
SELECT jsonb_array_length(stacksaga.status() -> 'schedules') AS schedules;
ROLLBACK;

-- Schedules: those that fail first, then the latest, then the next; paused ones last. One that is due every minute is
-- late by one to two minutes here.
CREATE VIEW states.schedule AS
    SELECT s ->> 'schedule' AS schedule, s -> 'paused' AS paused, s -> 'pause_reason' AS reason,
           s -> 'failures' AS failures, s -> 'last_error' AS last_error, width_bucket((s ->> 'lag_seconds')::numeric, ARRAY[1, 60, 180]) AS lateness,
           s ->> 'next_run' IS NOT NULL AS has_next
      FROM jsonb_array_elements(stacksaga.status() -> 'schedules') WITH ORDINALITY AS l(s, place) ORDER BY place;
SELECT stacksaga.create_schedule('states paused', 'states plain', '* * * * *');
SELECT stacksaga.create_schedule('states next', 'states plain', '0 0 1 1 *');
SELECT stacksaga.create_schedule('states late', 'states plain', '* * * * *', '{"secret": 1}');
SELECT stacksaga.create_schedule('states fails', 'states fallback', '* * * * *');
SELECT stacksaga.pause_schedule('states paused', 'a test');
BEGIN;
UPDATE stacksaga.saga_definition SET is_current = false WHERE saga = 'states fallback';
UPDATE stacksaga.schedule SET next_run = stacksaga.clock_now() - interval '150 seconds', due_at = stacksaga.clock_now() - interval '150 seconds'
 WHERE schedule = 'states fails';
SET LOCAL client_min_messages = error;
SELECT stacksaga.fire_schedules();
UPDATE stacksaga.schedule SET next_run = stacksaga.clock_now() - interval '270 seconds', due_at = stacksaga.clock_now() - interval '270 seconds'
 WHERE schedule = 'states late';
TABLE states.schedule;
SELECT labels ->> 'state' AS state, value FROM stacksaga.metrics()
 WHERE name = 'stacksaga_schedules' AND labels ->> 'cluster' = 'default' ORDER BY 1;
SELECT floor(value / 60) AS minutes_late FROM stacksaga.metrics()
 WHERE name = 'stacksaga_schedule_lag_seconds' AND labels ->> 'cluster' = 'default';
-- What it gives its sagas is not a monitor's to see.
SELECT count(*) FROM regexp_matches(stacksaga.status()::text, 'secret', 'g');
SELECT key, jsonb_typeof(value) FROM jsonb_each(stacksaga.status() -> 'schedules' -> 0) ORDER BY key COLLATE "C";
ROLLBACK;
SELECT count(stacksaga.drop_schedule(schedule)) FROM stacksaga.schedules;
SELECT stacksaga.status() -> 'schedules' AS schedules;

SET client_min_messages = warning;
SELECT stacksaga.drop_queue('states');
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
DELETE FROM stacksaga.saga_definition WHERE saga LIKE 'states%';
DELETE FROM stacksaga.schedule_action WHERE schedule LIKE 'states%';
DROP SCHEMA states CASCADE;
