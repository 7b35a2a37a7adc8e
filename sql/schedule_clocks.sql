-- Schedules on the days on which clocks change: an expression whose minute or hour begins with * keeps its interval,
-- fixed times run once.

SET timezone = 'UTC';
-- The runs between two instants, as the zone's clocks show them, each with its distance from the one before in minutes.
CREATE FUNCTION pg_temp.runs(cron text, zone text, after timestamptz, before timestamptz) RETURNS text
LANGUAGE sql AS $$
    SELECT string_agg(to_char(r.at AT TIME ZONE zone, 'DD HH24:MI') || coalesce(' +' || r.minutes, ''), ', '
                      ORDER BY r.at)
      FROM (SELECT at, (extract(epoch FROM at - lag(at) OVER (ORDER BY at)) / 60)::integer AS minutes
              FROM stacksaga.next_runs(cron, zone, after, 100) AS n(at)) AS r
     WHERE r.at < before $$;

-- Berlin skips 2:00 to 3:00 on 2026-03-29 and repeats it on 2026-10-25.
SELECT cron, pg_temp.runs(cron, 'Europe/Berlin', '2026-03-28 23:00Z', '2026-03-29 02:00Z') AS skipped,
       pg_temp.runs(cron, 'Europe/Berlin', '2026-10-24 22:59Z', '2026-10-25 02:30Z') AS repeated
  FROM unnest(ARRAY['*/20 2 * * *', '0-59/20 2 * * *', '0,20,40 2 * * *', '30 2 * * *', '30 * * * *', '30 0-23 * * *',
                    '30 */2 * * *', '@hourly', '*/30 30 2 * * *']) AS c(cron);

-- Half an hour, Lord Howe: 2:00 to 2:30 on 2026-10-04, 1:30 to 2:00 on 2026-04-05.
SELECT cron, pg_temp.runs(cron, 'Australia/Lord_Howe', '2026-10-03 14:00Z', '2026-10-03 17:00Z') AS skipped,
       pg_temp.runs(cron, 'Australia/Lord_Howe', '2026-04-04 13:59Z', '2026-04-04 16:00Z') AS repeated
  FROM unnest(ARRAY['*/20 1-2 * * *', '0-59/20 1-2 * * *', '0 * * * *', '15 2 * * *', '45 1 * * *']) AS c(cron);

-- Apia skips 2011-12-30.
SELECT cron, pg_temp.runs(cron, 'Pacific/Apia', '2011-12-29 20:00Z', '2011-12-31 11:00Z') AS runs
  FROM unnest(ARRAY['0 */8 * * *', '0 9 * * *', '0 9 30 12 *', '* 9 30 12 *', '*/30 22-23 29 12 *']) AS c(cron);

-- For Ramadan clocks in Morocco go back on 2026-02-15 at 3:00, and forward on 2026-03-22 at 2:00.
SELECT zone, cron, pg_temp.runs(cron, zone, '2026-03-22 00:00Z', '2026-03-22 03:00Z') AS skipped,
       pg_temp.runs(cron, zone, '2026-02-15 00:00Z', '2026-02-15 03:30Z') AS repeated
  FROM unnest(ARRAY['Africa/Casablanca', 'Africa/El_Aaiun']) AS z(zone),
       unnest(ARRAY['*/30 2 * * *', '0,30 2 * * *', '@hourly']) AS c(cron)
 ORDER BY 1, 2;

-- One that is decades away and names an interval.
SELECT * FROM stacksaga.next_runs('*/30 0 29 2 */7', 'Europe/Berlin', '2033-01-01', 3);

-- Both showings start a saga each; what is asked again starts nothing.
SELECT stacksaga.define_saga('clocks', ARRAY[stacksaga.queue_step('write', 'clocks', compensable => false)]);
CREATE FUNCTION pg_temp.set_clock(at timestamptz) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (at - clock_timestamp())::text, false) $$;
SELECT pg_temp.set_clock('2026-10-24 23:50Z');
SELECT stacksaga.create_schedule('interval', 'clocks', '30 */2 * * *', timezone => 'Europe/Berlin', catch_up => 'all');
SELECT stacksaga.create_schedule('fixed', 'clocks', '30 2 * * *', timezone => 'Europe/Berlin', catch_up => 'all');
SELECT pg_temp.set_clock('2026-10-25 02:00Z');
SELECT stacksaga.fire_schedules();
SELECT stacksaga.fire_schedules();
SELECT key, input FROM stacksaga.sagas WHERE saga = 'clocks' ORDER BY key;
SELECT schedule, next_run FROM stacksaga.schedules WHERE schedule IN ('interval', 'fixed') ORDER BY schedule;

SELECT stacksaga.drop_schedule(schedule) FROM stacksaga.schedules WHERE schedule IN ('interval', 'fixed');
