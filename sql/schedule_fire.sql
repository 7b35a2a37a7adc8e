-- Runs of schedules: which instants start a saga, what is caught up, skipped, tried again.

SET timezone = 'UTC';
CREATE FUNCTION pg_temp.set_clock(at timestamptz) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (at - clock_timestamp())::text, false) $$;
CREATE FUNCTION pg_temp.runs(schedule text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT substr(s.key, length(schedule) + 2) FROM stacksaga.sagas s
     WHERE s.key LIKE schedule || '@%' ORDER BY s.key $$;
SELECT stacksaga.define_saga('tidy', ARRAY[stacksaga.queue_step('sweep', 'schedule_fire', compensable => true)]);

-- At its instant, once; the saga's key is its identity, and its input says which instant it is.
SELECT pg_temp.set_clock('2032-01-01 11:59:30Z');
SELECT stacksaga.create_schedule('noon', 'tidy', '0 12 * * *', '{"room": "hall"}');
SELECT stacksaga.fire_schedules();
SELECT pg_temp.set_clock('2032-01-01 12:00:01Z');
SELECT stacksaga.fire_schedules();
SELECT stacksaga.fire_schedules();
SELECT s.key, s.input, s.saga_id = v.last_saga_id AS is_last,
       s.saga_id = stacksaga.saga_id_of('tidy', 'noon@2032-01-01T12:00:00Z') AS is_keyed,
       v.last_run, v.next_run
  FROM stacksaga.sagas s, stacksaga.schedules v WHERE s.key LIKE 'noon@%' AND v.schedule = 'noon';

-- A clock that is set back fires nothing twice, neither from the schedule nor from one of its name.
SELECT pg_temp.set_clock('2032-01-01 11:00:00Z');
SELECT stacksaga.fire_schedules();
SELECT next_run FROM stacksaga.schedules WHERE schedule = 'noon';
SELECT stacksaga.drop_schedule('noon');
SELECT stacksaga.create_schedule('noon', 'tidy', '0 12 * * *', '{"room": "attic"}');
SELECT pg_temp.set_clock('2032-01-01 12:00:01Z');
SELECT stacksaga.fire_schedules();
SELECT s.key, s.input, s.saga_id = v.last_saga_id AS is_last, v.next_run, v.failures
  FROM stacksaga.sagas s, stacksaga.schedules v WHERE s.key LIKE 'noon@%' AND v.schedule = 'noon';
SELECT stacksaga.drop_schedule('noon');

-- run_pending() fires what is due as well, and goes on with the sagas that this starts.
BEGIN;
TRUNCATE stacksaga.work; -- of other tests
CREATE SCHEMA sweep;
CREATE FUNCTION sweep.only(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT call.input';
SELECT stacksaga.define_saga('sweep', ARRAY[stacksaga.sql_step('only', 'sweep.only(stacksaga.step_call)')]);
SELECT pg_temp.set_clock('2032-01-02 11:00:00Z');
SELECT stacksaga.create_schedule('swept', 'sweep', '0 12 * * *');
SELECT stacksaga.run_pending();
SELECT pg_temp.set_clock('2032-01-02 12:00:01Z');
SELECT stacksaga.run_pending(1);
SELECT stacksaga.run_pending();
SELECT status, output FROM stacksaga.sagas WHERE key = 'swept@2032-01-02T12:00:00Z';
ROLLBACK;

-- Missed is what is 60 s past: none, the last one, or all are caught up. What is less late always runs.
SELECT pg_temp.set_clock('2032-02-01 00:00:30Z');
SELECT stacksaga.create_schedule('skips', 'tidy', '*/10 * * * *', catch_up => 'skip'),
       stacksaga.create_schedule('lasts', 'tidy', '*/10 * * * *', catch_up => 'last'),
       stacksaga.create_schedule('alls', 'tidy', '*/10 * * * *', catch_up => 'all');
SELECT pg_temp.set_clock('2032-02-01 00:40:58Z');
SELECT stacksaga.fire_schedules();
SELECT pg_temp.runs('skips');
SELECT pg_temp.runs('lasts');
SELECT pg_temp.runs('alls');
SELECT pg_temp.set_clock('2032-02-01 00:51:01Z');
SELECT stacksaga.fire_schedules();
SELECT schedule, last_run, next_run FROM stacksaga.schedules ORDER BY schedule;
SELECT stacksaga.drop_schedule(schedule) FROM stacksaga.schedules;

-- At most the latest 1,000 are caught up, in order, in as many calls as one likes.
BEGIN;
SELECT pg_temp.set_clock('2032-03-01 00:00:00Z');
SELECT stacksaga.create_schedule('many', 'tidy', '* * * * *', catch_up => 'all');
SELECT pg_temp.set_clock('2032-03-02 00:00:30Z');
SELECT stacksaga.fire_schedules(400);
SELECT count(*), min(run), max(run) FROM pg_temp.runs('many') AS run;
SELECT stacksaga.fire_schedules(1000000);
SELECT count(*), min(run), max(run) FROM pg_temp.runs('many') AS run;
-- Years of seconds that were missed cost what is caught up.
SELECT stacksaga.create_schedule('seconds', 'tidy', '* * * * * *', catch_up => 'last');
SELECT stacksaga.drop_schedule('many');
SELECT pg_temp.set_clock('2036-03-02 00:00:30Z');
SELECT stacksaga.fire_schedules(1);
SELECT pg_temp.runs('seconds');
ROLLBACK;

-- overlap skip: no run while the saga of the last one runs.
SELECT stacksaga.define_saga('polish', ARRAY[stacksaga.queue_step('rub', 'schedule_polish', compensable => true)]);
SELECT pg_temp.set_clock('2037-01-01 00:00:30Z');
SELECT stacksaga.create_schedule('single', 'polish', '* * * * *', overlap => 'skip');
SELECT pg_temp.set_clock('2037-01-01 00:01:01Z');
SELECT stacksaga.fire_schedules();
SELECT pg_temp.set_clock('2037-01-01 00:02:01Z');
SELECT stacksaga.fire_schedules();
SELECT pg_temp.runs('single');
SELECT last_run, next_run FROM stacksaga.schedules;
SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('schedule_polish', 'w');
SELECT pg_temp.set_clock('2037-01-01 00:03:01Z');
SELECT stacksaga.fire_schedules();
SELECT pg_temp.runs('single');
SELECT stacksaga.drop_schedule('single');

-- What was skipped in a row is counted until a run starts.
SELECT pg_temp.set_clock('2034-01-01 00:30:00Z');
SELECT stacksaga.create_schedule('counted', 'polish', '0 * * * *', overlap => 'skip');
SELECT pg_temp.set_clock('2034-01-01 01:00:01Z');
SELECT stacksaga.fire_schedules() > 0 AS fired;
SELECT pg_temp.set_clock('2034-01-01 02:00:01Z');
SELECT stacksaga.fire_schedules() > 0 AS fired;
SELECT pg_temp.set_clock('2034-01-01 03:00:01Z');
SELECT stacksaga.fire_schedules() > 0 AS fired;
SELECT skipped, skipped_since FROM stacksaga.schedules WHERE schedule = 'counted';
SELECT count(*) FROM stacksaga.doctor() WHERE detail LIKE '%schedule "counted"%';
SELECT pg_temp.set_clock('2034-01-01 04:00:01Z');
SELECT stacksaga.fire_schedules() > 0 AS fired;
SELECT severity, regexp_replace(detail, '[0-9a-f-]{36}', '(id)') AS detail, regexp_replace(fix, '[0-9a-f-]{36}', '(id)') AS fix
  FROM stacksaga.doctor() WHERE detail LIKE '%schedule "counted"%';
SELECT stacksaga.cancel_saga(last_saga_id, 'too slow') FROM stacksaga.schedules WHERE schedule = 'counted';
-- The run was started again: the key stands for the new saga, which has not ended.
SELECT created FROM stacksaga.start_saga('polish', '{"scheduled_at": "2034-01-01T01:00:00Z"}', 'counted@2034-01-01T01:00:00Z',
                                         'restart_if_failed');
SELECT pg_temp.set_clock('2034-01-01 05:00:01Z');
SELECT stacksaga.fire_schedules() > 0 AS fired;
SELECT skipped FROM stacksaga.schedules WHERE schedule = 'counted';
SELECT stacksaga.cancel_saga(saga_id, 'too slow as well') FROM stacksaga.sagas
 WHERE key = 'counted@2034-01-01T01:00:00Z' AND status <> 'failed';
SELECT pg_temp.set_clock('2034-01-01 06:00:01Z');
SELECT stacksaga.fire_schedules() > 0 AS fired;
SELECT skipped, skipped_since, last_run FROM stacksaga.schedules WHERE schedule = 'counted';
SELECT stacksaga.drop_schedule('counted');

-- Missed runs that are all to be caught up wait for one another.
SELECT stacksaga.create_schedule('waits', 'polish', '0 * * * *', catch_up => 'all', overlap => 'skip');
SELECT pg_temp.set_clock('2034-01-01 09:30:00Z');
SELECT stacksaga.fire_schedules() > 0 AS fired;
SELECT stacksaga.fire_schedules();
SELECT pg_temp.runs('waits');
SELECT next_run, skipped, last_run FROM stacksaga.schedules WHERE schedule = 'waits';
SELECT count(*) FROM stacksaga.doctor() WHERE detail LIKE '%schedule "waits"%';
SELECT stacksaga.cancel_saga(last_saga_id, 'done with it') FROM stacksaga.schedules WHERE schedule = 'waits';
SELECT stacksaga.fire_schedules();
SELECT pg_temp.runs('waits');
SELECT stacksaga.cancel_saga(last_saga_id, 'done with it') FROM stacksaga.schedules WHERE schedule = 'waits';
SELECT stacksaga.fire_schedules();
SELECT pg_temp.runs('waits');
SELECT pg_temp.set_clock('2034-01-03 09:30:00Z');
SELECT stacksaga.fire_schedules() >= 0 AS fired;
SELECT severity, regexp_replace(detail, '[0-9a-f-]{36}', '(id)') AS detail FROM stacksaga.doctor() WHERE detail LIKE '%schedule "waits"%';
SELECT stacksaga.cancel_saga(last_saga_id, 'done with it') FROM stacksaga.schedules WHERE schedule = 'waits';
SELECT stacksaga.drop_schedule('waits');
SELECT pg_temp.set_clock('2032-03-01 00:00:00Z');

-- The days on which clocks change: fixed times run once, intervals whenever the clocks show one of their times.
CREATE FUNCTION pg_temp.run_through(schedule text, cron text, zone text, first timestamptz, hours integer)
RETURNS TABLE (utc text, local timestamp) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_temp.set_clock(first);
    PERFORM stacksaga.create_schedule(schedule, 'tidy', cron, timezone => zone);
    FOR minute IN 1 .. hours * 60 LOOP -- as a worker that is never late
        PERFORM pg_temp.set_clock(first + make_interval(mins => minute, secs => 1));
        PERFORM stacksaga.fire_schedules();
    END LOOP;
    PERFORM stacksaga.drop_schedule(schedule);
    RETURN QUERY SELECT r, r::timestamptz AT TIME ZONE zone FROM pg_temp.runs(schedule) AS r;
END
$$;
SELECT * FROM pg_temp.run_through('berlin forward', '*/30 1-3 * * *', 'Europe/Berlin', '2034-03-25 23:59Z', 5);
SELECT * FROM pg_temp.run_through('berlin back', '*/30 1-3 * * *', 'Europe/Berlin', '2034-10-28 22:59Z', 6);
SELECT * FROM pg_temp.run_through('york forward', '30 1,2,3 * * *', 'America/New_York', '2034-03-12 05:59Z', 3);
SELECT * FROM pg_temp.run_through('york back', '30 0,1,2 * * *', 'America/New_York', '2034-11-05 03:59Z', 5);
SELECT * FROM pg_temp.run_through('howe back', '*/15 1-2 * * *', 'Australia/Lord_Howe', '2034-04-01 13:59Z', 3);
SELECT * FROM pg_temp.run_through('howe forward', '*/15 1-2 * * *', 'Australia/Lord_Howe', '2034-09-30 14:29Z', 2);

-- A schedule that fails is tried again, ever more rarely, and keeps no other from running.
CREATE ROLE schedule_fire_operator;
SELECT stacksaga.grant_usage('schedule_fire_operator', 'operator');
SELECT pg_temp.set_clock('2038-01-01 00:00:30Z');
SELECT stacksaga.define_saga('gone', ARRAY[stacksaga.queue_step('x', 'schedule_fire', compensable => true)]);
SELECT stacksaga.create_schedule('gone', 'gone', '* * * * *');
SET ROLE schedule_fire_operator;
SELECT stacksaga.create_schedule('denied', 'tidy', '* * * * *');
RESET ROLE;
SELECT stacksaga.create_schedule('works', 'tidy', '* * * * *');
REVOKE EXECUTE ON FUNCTION stacksaga.start_saga FROM schedule_fire_operator;
UPDATE stacksaga.saga_definition SET is_current = false WHERE saga = 'gone';
SELECT pg_temp.set_clock('2038-01-01 00:01:01Z');
SET client_min_messages = error;
SELECT stacksaga.fire_schedules();
SELECT stacksaga.fire_schedules();
SELECT schedule, next_run, last_run, failures, date_trunc('minute', failed_since) AS failed_since, last_error,
       extract(epoch FROM next_attempt - timestamptz '2038-01-01 00:01:01Z') BETWEEN 0.7 AND 3 AS soon
  FROM stacksaga.schedules ORDER BY schedule;
SELECT severity, regexp_replace(detail, '(\d\d:\d\d):\d\d', '\1:..') AS detail, fix FROM stacksaga.doctor()
 WHERE check_name = 'schedules' ORDER BY detail;
SELECT labels ->> 'state' AS state, value FROM stacksaga.metrics() WHERE name = 'stacksaga_schedules' ORDER BY 1;
SELECT value BETWEEN 1 AND 30 AS lags FROM stacksaga.metrics() WHERE name = 'stacksaga_schedule_lag_seconds';
SELECT pg_temp.set_clock('2038-01-01 00:01:05Z');
SELECT stacksaga.fire_schedules();
SELECT schedule, failures,
       extract(epoch FROM next_attempt - timestamptz '2038-01-01 00:01:05Z') BETWEEN 1.5 AND 4 AS later
  FROM stacksaga.schedules ORDER BY schedule;
-- Its cause is gone, and so is the failure.
SELECT stacksaga.grant_usage('schedule_fire_operator', 'operator');
UPDATE stacksaga.saga_definition SET is_current = true WHERE saga = 'gone';
SELECT pg_temp.set_clock('2038-01-01 00:01:10Z');
SELECT stacksaga.fire_schedules();
SELECT schedule, last_run, next_run, failures, failed_since, last_error FROM stacksaga.schedules ORDER BY schedule;
-- Another role of the creator's name is not the creator.
DROP OWNED BY schedule_fire_operator;
DELETE FROM stacksaga.usage_grant WHERE role = 'schedule_fire_operator';
SELECT stacksaga.drop_schedule('gone');
DROP ROLE schedule_fire_operator;
SELECT pg_temp.set_clock('2038-01-01 00:02:01Z');
SELECT stacksaga.fire_schedules();
CREATE ROLE schedule_fire_operator;
SELECT stacksaga.grant_usage('schedule_fire_operator', 'operator');
SELECT pg_temp.set_clock('2038-01-01 00:02:10Z');
SELECT stacksaga.fire_schedules();
SELECT schedule, failures, last_error FROM stacksaga.schedules ORDER BY schedule;
SET ROLE schedule_fire_operator;
SELECT stacksaga.create_schedule('denied', 'tidy', '* * * * *');
RESET ROLE;
SELECT severity, regexp_replace(detail, '(\d\d:\d\d):\d\d', '\1:..') AS detail, fix FROM stacksaga.doctor()
 WHERE check_name = 'schedules' ORDER BY detail;
SELECT stacksaga.drop_schedule(schedule) FROM stacksaga.schedules;
RESET client_min_messages;

-- Nobody fires: doctor() says so.
SELECT stacksaga.create_schedule('late', 'tidy', '* * * * *');
SELECT pg_temp.set_clock('2038-01-01 00:10:01Z');
SELECT severity, regexp_replace(detail, '(\d\d:\d\d):\d\d', '\1:..') AS detail, fix FROM stacksaga.doctor()
 WHERE check_name = 'schedules';
SELECT stacksaga.drop_schedule('late');

-- Its saga belongs to the ring of its creator, which alone fires it.
SELECT stacksaga.create_ring('schedule_fire', 'b') > 0 AS made;
SET stacksaga.region = 'schedule_fire';
SET stacksaga.cluster = 'b';
SELECT stacksaga.create_schedule('elsewhere', 'tidy', '* * * * *');
RESET stacksaga.region;
RESET stacksaga.cluster;
SELECT pg_temp.set_clock('2038-01-01 00:11:01Z');
SELECT stacksaga.fire_schedules();
SET stacksaga.region = 'schedule_fire';
SET stacksaga.cluster = 'b';
SELECT stacksaga.fire_schedules();
SELECT region, cluster FROM stacksaga.sagas WHERE key LIKE 'elsewhere@%';
RESET stacksaga.region;
RESET stacksaga.cluster;

-- The schedules of a ring that died go with its work to the ring that adopts it.
SELECT stacksaga.adopt_ring('schedule_fire', 'b', 'default', 'default', 'its server is gone') >= 0 AS adopted;
SELECT pg_temp.set_clock('2038-01-01 00:12:01Z');
SELECT stacksaga.fire_schedules();
SELECT key, region, cluster FROM stacksaga.sagas WHERE key LIKE 'elsewhere@%' ORDER BY key;
SELECT stacksaga.drop_schedule('elsewhere');

DROP OWNED BY schedule_fire_operator;
DELETE FROM stacksaga.usage_grant WHERE role = 'schedule_fire_operator';
DROP ROLE schedule_fire_operator;
