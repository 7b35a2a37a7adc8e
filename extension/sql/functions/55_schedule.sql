-- Schedules (extension/src/schedule/schedule.cpp, firing.cpp, recurrence.cpp).

-- Its caller's rights are those that its sagas are started with, so it is no SECURITY DEFINER.
CREATE OR REPLACE FUNCTION stacksaga.create_schedule(
    schedule text,
    saga     text,
    cron     text,
    input    jsonb DEFAULT '{}',
    timezone text  DEFAULT 'UTC',
    catch_up text  DEFAULT 'last',
    overlap  text  DEFAULT 'allow'
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_create_schedule';
COMMENT ON FUNCTION stacksaga.create_schedule IS
    'Starts a saga at each instant that a cron expression names in a time zone, with the rights of the caller. Raises SG400, SG404 (no such saga), SG409 (it exists with other settings), SG413';

CREATE OR REPLACE FUNCTION stacksaga.drop_schedule(schedule text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_drop_schedule';
COMMENT ON FUNCTION stacksaga.drop_schedule IS
    'Removes a schedule; its sagas stay. Raises SG404';

CREATE OR REPLACE FUNCTION stacksaga.pause_schedule(schedule text, reason text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_pause_schedule';
COMMENT ON FUNCTION stacksaga.pause_schedule IS
    'Stops a schedule until resume_schedule(). Raises SG400, SG404, SG409 (it is paused)';

CREATE OR REPLACE FUNCTION stacksaga.resume_schedule(schedule text, reason text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_resume_schedule';
COMMENT ON FUNCTION stacksaga.resume_schedule IS
    'Lets a paused schedule go on with its next instant from now; those of the pause start nothing. Raises SG400, SG404, SG409 (it is not paused)';

CREATE OR REPLACE FUNCTION stacksaga.fire_schedules(max_runs integer DEFAULT 100) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_fire_schedules';
COMMENT ON FUNCTION stacksaga.fire_schedules IS
    'Starts the sagas of due schedules in the caller''s transaction, for tests and for servers without a worker, and returns how many runs it settled. Raises SG400, SG409 (a handler calls it)';

CREATE OR REPLACE FUNCTION stacksaga.next_runs(
    cron     text,
    timezone text        DEFAULT 'UTC',
    after    timestamptz DEFAULT NULL,
    max_runs integer     DEFAULT 10
) RETURNS SETOF timestamptz
LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 10 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_next_runs';
COMMENT ON FUNCTION stacksaga.next_runs IS
    'Returns the next instants that a cron expression names in a time zone, from now or from an instant on. Raises SG400';
