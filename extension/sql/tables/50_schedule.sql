-- Schedules: cron expressions that start sagas (extension/src/schedule).

CREATE TABLE stacksaga.schedule (
    schedule     text COLLATE "C" NOT NULL,
    token        stacksaga.ring_token NOT NULL,
    ring_id      integer NOT NULL,
    saga         text COLLATE "C" NOT NULL,
    cron         text NOT NULL,
    timezone     text NOT NULL,
    input        jsonb NOT NULL,
    catch_up     text NOT NULL CHECK (catch_up IN ('skip', 'last', 'all')),
    overlap      text NOT NULL CHECK (overlap IN ('allow', 'skip')),
    definer      name NOT NULL,
    definer_oid  oid,
    created_at   timestamptz NOT NULL,
    paused       boolean NOT NULL DEFAULT false,
    next_run     timestamptz NOT NULL,
    due_at       timestamptz NOT NULL,
    last_run     timestamptz,
    last_saga_id uuid,
    failures     integer NOT NULL DEFAULT 0,
    failed_since timestamptz,
    last_error   text,
    skipped      bigint NOT NULL DEFAULT 0,
    skipped_since timestamptz,
    PRIMARY KEY (schedule, token)
);
CREATE INDEX schedule_due ON stacksaga.schedule (ring_id, due_at);
COMMENT ON TABLE stacksaga.schedule IS
    'One row per schedule; its sagas belong to the ring and are started with the rights of the definer';
COMMENT ON COLUMN stacksaga.schedule.schedule IS 'The name of the schedule';
COMMENT ON COLUMN stacksaga.schedule.token IS 'Its place on the ring: the token of its name';
COMMENT ON COLUMN stacksaga.schedule.ring_id IS 'The ring that its sagas belong to';
COMMENT ON COLUMN stacksaga.schedule.saga IS 'The saga that it starts';
COMMENT ON COLUMN stacksaga.schedule.cron IS 'The instants, as a cron expression';
COMMENT ON COLUMN stacksaga.schedule.timezone IS 'The time zone of the expression';
COMMENT ON COLUMN stacksaga.schedule.input IS 'The input of its sagas';
COMMENT ON COLUMN stacksaga.schedule.catch_up IS 'Which missed runs start their sagas: skip, last or all';
COMMENT ON COLUMN stacksaga.schedule.overlap IS 'Whether a run starts while the last one runs: allow or skip';
COMMENT ON COLUMN stacksaga.schedule.definer IS 'The role whose rights its sagas are started with';
COMMENT ON COLUMN stacksaga.schedule.created_at IS 'When it was created';
COMMENT ON COLUMN stacksaga.schedule.paused IS 'Whether it starts nothing';
COMMENT ON COLUMN stacksaga.schedule.last_saga_id IS 'The saga of that instant';
COMMENT ON COLUMN stacksaga.schedule.failed_since IS 'Since when that is so';
COMMENT ON COLUMN stacksaga.schedule.last_error IS 'Why';
COMMENT ON COLUMN stacksaga.schedule.definer_oid IS
    'The role that had the name of the definer when the row was written: another one is not the definer';
COMMENT ON COLUMN stacksaga.schedule.next_run IS
    'The first instant that is not settled; infinity: there is none';
COMMENT ON COLUMN stacksaga.schedule.due_at IS
    'When a worker looks at it: next_run, later after a failure, infinity while it is paused';
COMMENT ON COLUMN stacksaga.schedule.last_run IS 'The latest instant that has started a saga';
COMMENT ON COLUMN stacksaga.schedule.failures IS
    'How often in a row its next run could not start a saga';
COMMENT ON COLUMN stacksaga.schedule.skipped IS
    'How many runs in a row overlap has skipped since the last one that started';
COMMENT ON COLUMN stacksaga.schedule.skipped_since IS 'The instant of the first one of these';
COMMENT ON INDEX stacksaga.schedule_due IS 'Which schedule of a ring is next';

CREATE TABLE stacksaga.schedule_action (
    schedule  text COLLATE "C" NOT NULL,
    action_no integer NOT NULL,
    token     stacksaga.ring_token NOT NULL,
    action    text NOT NULL CHECK (action IN ('create', 'drop', 'pause', 'resume')),
    role      name NOT NULL,
    acted_at  timestamptz NOT NULL,
    reason    text,
    on_behalf_of text,
    handler   text,
    PRIMARY KEY (schedule, action_no, token)
);
CREATE INDEX schedule_action_acted ON stacksaga.schedule_action (acted_at);
COMMENT ON TABLE stacksaga.schedule_action IS
    'What operators did to a schedule: who, when and why; it outlasts the schedule';
COMMENT ON COLUMN stacksaga.schedule_action.schedule IS 'The name of the schedule';
COMMENT ON COLUMN stacksaga.schedule_action.action_no IS 'Counts the actions on the schedule';
COMMENT ON COLUMN stacksaga.schedule_action.token IS 'Its place on the ring: the token of the name of the schedule';
COMMENT ON COLUMN stacksaga.schedule_action.action IS 'create, drop, pause or resume';
COMMENT ON COLUMN stacksaga.schedule_action.role IS 'The role that acted';
COMMENT ON COLUMN stacksaga.schedule_action.acted_at IS 'When it was';
COMMENT ON COLUMN stacksaga.schedule_action.reason IS 'The reason that it gave';
COMMENT ON COLUMN stacksaga.schedule_action.on_behalf_of IS 'Whom the role acted for, by its own account';
COMMENT ON COLUMN stacksaga.schedule_action.handler IS 'The step or the subscription whose handler acted, if one did';
COMMENT ON INDEX stacksaga.schedule_action_acted IS 'The newest actions';

SELECT pg_catalog.pg_extension_config_dump('stacksaga.schedule', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.schedule_action', '');
