-- Schedules: what is created, refused, paused, resumed, dropped, and who may.

SET timezone = 'UTC';
CREATE FUNCTION pg_temp.set_clock(at timestamptz) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (at - clock_timestamp())::text, false) $$;
SELECT stacksaga.define_saga('report', ARRAY[stacksaga.queue_step('write', 'schedule', compensable => true)]);
SELECT pg_temp.set_clock('2031-05-06 07:08:09Z');

-- The same settings again are the same schedule, others are refused.
SELECT stacksaga.create_schedule('nightly', 'report', '30 2 * * *', '{"kind": "day"}', 'Europe/Berlin');
SELECT stacksaga.create_schedule('nightly', 'report', '30 2 * * *', '{"kind": "day"}', 'europe/berlin');
SELECT schedule, saga, cron, timezone, paused, next_run, last_run, last_saga_id, catch_up, overlap, input
  FROM stacksaga.schedules;
SELECT stacksaga.create_schedule('nightly', 'report', '31 2 * * *', '{"kind": "week"}', 'Europe/Berlin',
    'all', 'skip');
SELECT stacksaga.create_ring('schedule', 'other') > 0 AS made;
SET stacksaga.region = 'schedule';
SET stacksaga.cluster = 'other';
SELECT stacksaga.create_schedule('nightly', 'report', '30 2 * * *', '{"kind": "day"}', 'Europe/Berlin');
RESET stacksaga.region;
RESET stacksaga.cluster;

-- Named arguments, and literals of no type, resolve.
SELECT stacksaga.create_schedule(schedule => 'named', saga => 'report', cron => '@daily', input => '{}',
    timezone => 'UTC', catch_up => 'skip', overlap => 'skip');
SELECT schedule, next_run FROM stacksaga.schedules ORDER BY schedule;

-- What is refused says which value and what to do.
SELECT stacksaga.create_schedule(NULL, 'report', '@daily');
SELECT stacksaga.create_schedule('', 'report', '@daily');
SELECT stacksaga.create_schedule(repeat('x', 64), 'report', '@daily');
SELECT stacksaga.create_schedule('bad', 'nobody', '@daily');
\echo :LAST_ERROR_SQLSTATE
SELECT stacksaga.create_schedule('bad', 'report', '');
SELECT stacksaga.create_schedule('bad', 'report', repeat('1,', 200));
SELECT stacksaga.create_schedule('bad', 'report', '* * * *');
\echo :LAST_ERROR_SQLSTATE
SELECT stacksaga.create_schedule('bad', 'report', '@reboot');
SELECT stacksaga.create_schedule('bad', 'report', '0 24 * * *');
SELECT stacksaga.create_schedule('bad', 'report', '0 0 * * L');
SELECT stacksaga.create_schedule('bad', 'report', '0 0 * foo *');
SELECT stacksaga.create_schedule('bad', 'report', '1, * * * *');
SELECT stacksaga.create_schedule('bad', 'report', '0 0 * * fri-mon');
SELECT stacksaga.create_schedule('bad', 'report', '*/90 * * * *');
SELECT stacksaga.create_schedule('bad', 'report', '5/15 * * * *');
SELECT stacksaga.create_schedule('bad', 'report', '0 0 31 feb *');
SELECT stacksaga.create_schedule('bad', 'report', '0 0 31 4,6,9,11 */2');
SELECT stacksaga.next_runs('0 0 30 2 */7');
\echo :LAST_ERROR_SQLSTATE
-- A 29th of February that is a Sunday comes after 28 years, and across 2100 after 40.
SELECT * FROM stacksaga.next_runs('0 0 29 2 */7', after => '2031-01-01', max_runs => 4);
SELECT stacksaga.create_schedule('bad', 'report', '@daily', timezone => 'UTC+3');
\echo :LAST_ERROR_SQLSTATE
SELECT stacksaga.create_schedule('bad', 'report', '@daily', timezone => 'Mars/Olympus');
SELECT stacksaga.create_schedule('bad', 'report', '@daily', timezone => NULL);
SELECT stacksaga.create_schedule('bad', 'report', '@daily', '[1]');
SELECT stacksaga.create_schedule('bad', 'report', '@daily', '1');
SELECT stacksaga.create_schedule('bad', 'report', '@daily', '{"scheduled_at": 1}');
-- (With its instant it would be too large for a saga.)
SET stacksaga.max_payload = 1024;
SELECT stacksaga.create_schedule('bad', 'report', '@daily', jsonb_build_object('x', repeat('y', 1000)));
RESET stacksaga.max_payload;
SELECT stacksaga.create_schedule('bad', 'report', '@daily', catch_up => 'some');
SELECT stacksaga.create_schedule('bad', 'report', '@daily', overlap => 'queue');
SELECT stacksaga.next_runs('@daily', max_runs => 0);
SELECT stacksaga.fire_schedules(0);
SELECT count(*) FROM stacksaga.schedules WHERE schedule = 'bad';

-- A paused schedule has no next run; one that goes on begins with the next instant from now.
SELECT stacksaga.pause_schedule('nightly', 'the printer burns');
SELECT schedule, paused, next_run, paused_since IS NOT NULL AS since, pause_reason
  FROM stacksaga.schedules ORDER BY schedule;
SELECT stacksaga.pause_schedule('nightly', 'again');
\echo :LAST_ERROR_SQLSTATE
SELECT pg_temp.set_clock('2031-05-09 07:08:09Z');
SELECT stacksaga.fire_schedules();
SELECT stacksaga.resume_schedule('nightly', 'it was only smoke');
SELECT stacksaga.fire_schedules();
SELECT schedule, paused, next_run, last_run, pause_reason FROM stacksaga.schedules ORDER BY schedule;
SELECT stacksaga.resume_schedule('nightly', 'again');
SELECT stacksaga.pause_schedule('nightly', '');
SELECT stacksaga.resume_schedule('nightly', NULL);
SELECT stacksaga.pause_schedule('nobody', 'reason');
SELECT stacksaga.drop_schedule('nobody');
\echo :LAST_ERROR_SQLSTATE

-- Every action is kept with its role and reason, also of a schedule that is gone.
SELECT stacksaga.drop_schedule('nightly');
SELECT schedule, action_no, action, role = current_user AS by_me, reason FROM stacksaga.schedule_action
 ORDER BY schedule, action_no;
SELECT stacksaga.create_schedule('nightly', 'report', '@hourly');
SELECT action_no, action FROM stacksaga.schedule_action WHERE schedule = 'nightly' ORDER BY action_no;

-- An operator creates schedules, which are another role's to nobody; a monitor reads them.
CREATE ROLE schedule_operator;
CREATE ROLE schedule_monitor;
SELECT stacksaga.grant_usage('schedule_operator', 'operator'), stacksaga.grant_usage('schedule_monitor', 'monitor');
SET ROLE schedule_operator;
SELECT stacksaga.create_schedule('theirs', 'report', '@hourly');
SELECT stacksaga.create_schedule('nightly', 'report', '@hourly');
SELECT schedule, role = 'schedule_operator' AS is_mine FROM stacksaga.schedules
 WHERE schedule IN ('nightly', 'theirs') ORDER BY schedule;
SELECT * FROM stacksaga.schedule;
SET ROLE schedule_monitor;
SELECT schedule, role FROM stacksaga.schedules WHERE schedule = 'theirs';
SELECT * FROM stacksaga.next_runs('@hourly', after => '2031-01-01', max_runs => 2);
SELECT stacksaga.drop_schedule('theirs');
SELECT stacksaga.pause_schedule('theirs', 'no');
SELECT stacksaga.fire_schedules();
RESET ROLE;

SELECT stacksaga.drop_schedule(schedule) FROM stacksaga.schedules;
DROP OWNED BY schedule_operator, schedule_monitor;
DELETE FROM stacksaga.usage_grant WHERE role IN ('schedule_operator', 'schedule_monitor');
DROP ROLE schedule_operator, schedule_monitor;
