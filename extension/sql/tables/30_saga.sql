-- Definitions: immutable versions. A backend may cache a version by definition_id for ever; only
-- the identity of its functions (oids, search_path) is refreshed when the same content is defined again.

CREATE TABLE stacksaga.saga_definition (
    definition_id           integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    saga                    text NOT NULL,
    version                 integer NOT NULL,
    is_current              boolean NOT NULL,
    content                 text NOT NULL,
    definer                 name NOT NULL,
    deadline                interval,
    compensation_retry      stacksaga.retry_policy NOT NULL,
    on_compensation_failure text NOT NULL CHECK (on_compensation_failure IN ('park', 'continue')),
    defined_at              timestamptz NOT NULL,
    UNIQUE (saga, version)
);
CREATE UNIQUE INDEX saga_definition_current ON stacksaga.saga_definition (saga) WHERE is_current;
COMMENT ON TABLE stacksaga.saga_definition IS
    'One row per version of a saga definition; new sagas take the current one, running sagas stay on theirs';
COMMENT ON COLUMN stacksaga.saga_definition.content IS
    'The definition as text, which decides whether a definition is new';
COMMENT ON COLUMN stacksaga.saga_definition.definer IS 'The role that steps run as';

CREATE TABLE stacksaga.definition_step (
    definition_id    integer NOT NULL,
    step_no          smallint NOT NULL CHECK (step_no > 0),
    step             text NOT NULL,
    kind             text NOT NULL CHECK (kind IN ('sql', 'queue')),
    stage            smallint NOT NULL CHECK (stage > 0),
    action           text,
    action_oid       oid,
    compensation     text,
    compensation_oid oid,
    verify           text,
    verify_oid       oid,
    search_path      text,
    queue            text,
    timeout          interval NOT NULL,
    retry            stacksaga.retry_policy NOT NULL,
    effect           text NOT NULL
                     CHECK (effect IN ('idempotent', 'guarded', 'compensable', 'irreversible')),
    compensate_when  text NOT NULL CHECK (compensate_when IN ('started', 'completed')),
    PRIMARY KEY (definition_id, step_no)
);
COMMENT ON TABLE stacksaga.definition_step IS
    'The steps of each definition; a stage holds the steps that run side by side';
COMMENT ON COLUMN stacksaga.definition_step.action IS
    'The signature of the function that a sql step runs; the oid beside it is checked at each call';
COMMENT ON COLUMN stacksaga.definition_step.search_path IS
    'The search_path of the session that defined the step, in force while its functions run';

-- The saga row is written at its start, at a change of status, and at its end; nothing that changes
-- is indexed, so these updates stay heap-only.
CREATE TABLE stacksaga.saga (
    saga_id          uuid NOT NULL,
    token            stacksaga.ring_token NOT NULL,
    ring_id          integer NOT NULL,
    slot             integer NOT NULL,
    definition_id    integer NOT NULL,
    run              integer NOT NULL DEFAULT 0,
    latest_run       integer NOT NULL DEFAULT 0,
    status           stacksaga.saga_status NOT NULL DEFAULT 'pending',
    direction        stacksaga.step_direction NOT NULL DEFAULT 'act',
    failed_step      smallint,
    parked_step      smallint,
    parked_direction stacksaga.step_direction,
    deadline_at      timestamptz,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    finished_at      timestamptz,
    key              text,
    fingerprint      bytea NOT NULL,
    error            text,
    input            jsonb NOT NULL,
    headers          jsonb NOT NULL,
    PRIMARY KEY (saga_id, token)
) WITH (fillfactor = 80);
COMMENT ON TABLE stacksaga.saga IS
    'One row per saga; the allowed changes of status are those of saga_transitions()';
COMMENT ON COLUMN stacksaga.saga.direction IS
    'act, then compensate, and never back, whatever suspends, parks or resumes the saga';
COMMENT ON COLUMN stacksaga.saga.latest_run IS
    'On the row of run 0 of a keyed saga: which run its key stands for now';
COMMENT ON COLUMN stacksaga.saga.fingerprint IS 'SHA-256 of the input in canonical form';

-- Everything that somebody must look at. Deleted when done: as large as the live work.
-- due_at: not yet claimed: when it may be; claimed: when its lease or its timeout runs out.
CREATE TABLE stacksaga.work (
    saga_id     uuid NOT NULL,
    step_no     smallint NOT NULL,
    direction   stacksaga.step_direction NOT NULL,
    token       stacksaga.ring_token NOT NULL,
    ring_id     integer NOT NULL,
    slot        integer NOT NULL,
    due_at      timestamptz NOT NULL,
    attempt     integer NOT NULL DEFAULT 0,
    lease       bigint,
    lease_until timestamptz,
    started_at  timestamptz,
    verifying   boolean NOT NULL DEFAULT false,
    queue       text COLLATE "C",
    worker      text,
    PRIMARY KEY (saga_id, step_no, direction, token)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX work_for_workers ON stacksaga.work (ring_id, slot, due_at)
    WHERE queue IS NULL OR verifying OR lease_until IS NOT NULL;
CREATE INDEX work_for_services ON stacksaga.work (ring_id, queue, due_at)
    WHERE queue IS NOT NULL AND NOT verifying;
COMMENT ON TABLE stacksaga.work IS
    'One row per thing to look at: a step to run, a pause before a retry, a lease that may run out; step 0 is the deadline of the saga';
COMMENT ON INDEX stacksaga.work_for_workers IS
    'What a worker must do, by slot and instant; rows that only a service may claim are not in it';
COMMENT ON INDEX stacksaga.work_for_services IS 'What a service may claim, by queue and instant';
COMMENT ON COLUMN stacksaga.work.lease IS
    'Fencing token of the latest claim; kept after the lease ran out, since a late answer counts until the next claim';

-- The marker: never one per attempt, or a late first attempt and its successor would both commit.
CREATE TABLE stacksaga.effect (
    saga_id      uuid NOT NULL,
    step_no      smallint NOT NULL,
    direction    stacksaga.step_direction NOT NULL,
    token        stacksaga.ring_token NOT NULL,
    attempt      integer NOT NULL,
    lease        bigint,
    started_at   timestamptz NOT NULL,
    completed_at timestamptz NOT NULL,
    worker       text,
    output       jsonb,
    PRIMARY KEY (saga_id, step_no, direction, token)
);
COMMENT ON TABLE stacksaga.effect IS
    'One row per completed (saga, step, direction), written in the transaction of the effect';

CREATE TABLE stacksaga.failure (
    saga_id       uuid NOT NULL,
    step_no       smallint NOT NULL,
    direction     stacksaga.step_direction NOT NULL,
    attempt       integer NOT NULL,
    token         stacksaga.ring_token NOT NULL,
    lease         bigint,
    error_class   stacksaga.failure_class NOT NULL,
    outcome_known boolean NOT NULL,
    started_at    timestamptz NOT NULL,
    finished_at   timestamptz NOT NULL,
    worker        text,
    sqlstate      text,
    error         text NOT NULL,
    PRIMARY KEY (saga_id, step_no, direction, attempt, token)
);
COMMENT ON TABLE stacksaga.failure IS 'One row per failed attempt';
COMMENT ON COLUMN stacksaga.failure.outcome_known IS
    'False when the effect may have happened all the same: a lost lease, a timeout, an unknown answer';

SELECT pg_catalog.pg_extension_config_dump('stacksaga.saga_definition', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.saga_definition_definition_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.definition_step', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.saga', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.work', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.effect', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.failure', '');
COMMENT ON SEQUENCE stacksaga.saga_definition_definition_id_seq IS 'Numbers saga definitions';
