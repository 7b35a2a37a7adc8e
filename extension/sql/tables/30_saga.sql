-- Definitions: immutable versions. A backend may cache a version by definition_id for ever; only
-- the identity of its functions (oids, search_path) is refreshed when the same content is defined again.

CREATE TABLE stacksaga.saga_definition (
    definition_id           integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    saga                    text NOT NULL,
    version                 integer NOT NULL,
    is_current              boolean NOT NULL,
    content                 text NOT NULL,
    definer                 name NOT NULL,
    definer_oid             oid,
    deadline                interval,
    compensation_retry      stacksaga.retry_policy NOT NULL,
    on_compensation_failure text NOT NULL CHECK (on_compensation_failure IN ('park', 'continue')),
    defined_at              timestamptz NOT NULL,
    on_failure              text NOT NULL CHECK (on_failure IN ('compensate', 'park')),
    events_topic            text,
    keep                    interval,
    UNIQUE (saga, version)
);
CREATE UNIQUE INDEX saga_definition_current ON stacksaga.saga_definition (saga) WHERE is_current;
COMMENT ON TABLE stacksaga.saga_definition IS
    'One row per version of a saga definition; new sagas take the current one, running sagas stay on theirs';
COMMENT ON COLUMN stacksaga.saga_definition.definition_id IS 'Numbers the versions of all sagas';
COMMENT ON COLUMN stacksaga.saga_definition.saga IS 'The name of the saga';
COMMENT ON COLUMN stacksaga.saga_definition.version IS 'Counts from 1 for each saga';
COMMENT ON COLUMN stacksaga.saga_definition.is_current IS 'Whether new sagas take this version';
COMMENT ON COLUMN stacksaga.saga_definition.deadline IS 'How long a saga may take; null: as long as it wants';
COMMENT ON COLUMN stacksaga.saga_definition.compensation_retry IS 'The retry policy of compensations';
COMMENT ON COLUMN stacksaga.saga_definition.on_compensation_failure IS
    'What follows a compensation that failed for good: park, or continue with the others and park then';
COMMENT ON COLUMN stacksaga.saga_definition.on_failure IS
    'What follows a step that failed for good before an irreversible one is done, and a deadline: compensate, or park';
COMMENT ON COLUMN stacksaga.saga_definition.events_topic IS
    'The topic that changes of the status of its sagas are published to; null: none';
COMMENT ON COLUMN stacksaga.saga_definition.keep IS
    'How long its finished sagas stay, negative: for ever; null: as the settings say';
COMMENT ON COLUMN stacksaga.saga_definition.defined_at IS 'When it was defined';
COMMENT ON COLUMN stacksaga.saga_definition.content IS
    'The definition as text, which decides whether a definition is new';
COMMENT ON COLUMN stacksaga.saga_definition.definer IS 'The role that steps run as';
COMMENT ON COLUMN stacksaga.saga_definition.definer_oid IS
    'The role that had that name when the row was written: another role of the name is not the definer';

CREATE TABLE stacksaga.definition_step (
    definition_id    integer NOT NULL,
    step_no          smallint NOT NULL CHECK (step_no > 0),
    step             text NOT NULL,
    kind             text NOT NULL
                     CHECK (kind IN ('sql', 'queue', 'signal', 'timer', 'child', 'message')),
    stage            smallint NOT NULL CHECK (stage > 0),
    action           text,
    action_oid       oid,
    compensation     text,
    compensation_oid oid,
    verify           text,
    verify_oid       oid,
    search_path      text,
    queue            text,
    signal           text,
    delay            interval,
    child_saga       text,
    topic            text,
    compensation_topic text,
    fallback         text,
    fallback_oid     oid,
    timeout          interval,
    retry            stacksaga.retry_policy NOT NULL,
    effect           text NOT NULL
                     CHECK (effect IN ('idempotent', 'guarded', 'compensable', 'irreversible')),
    compensate_when  text NOT NULL CHECK (compensate_when IN ('started', 'completed')),
    compensation_queue text,
    fallback_compensation_topic text,
    on_failure       text NOT NULL CHECK (on_failure IN ('compensate', 'park')),
    PRIMARY KEY (definition_id, step_no)
);
COMMENT ON TABLE stacksaga.definition_step IS
    'The steps of each definition; the steps of one stage run at the same time';
COMMENT ON COLUMN stacksaga.definition_step.definition_id IS 'The version of a saga';
COMMENT ON COLUMN stacksaga.definition_step.step_no IS 'Counts from 1, in the order of the definition';
COMMENT ON COLUMN stacksaga.definition_step.step IS 'The name of the step';
COMMENT ON COLUMN stacksaga.definition_step.kind IS 'sql, queue, message, signal, timer or child';
COMMENT ON COLUMN stacksaga.definition_step.stage IS
    'Steps of one stage run at the same time, and stages follow each other';
COMMENT ON COLUMN stacksaga.definition_step.action_oid IS 'That function, as the definer found it';
COMMENT ON COLUMN stacksaga.definition_step.compensation IS
    'The signature of the function that undoes a sql step; null: none';
COMMENT ON COLUMN stacksaga.definition_step.compensation_oid IS 'That function, as the definer found it';
COMMENT ON COLUMN stacksaga.definition_step.verify IS
    'The signature of the function that is asked for an unknown outcome; null: none';
COMMENT ON COLUMN stacksaga.definition_step.verify_oid IS 'That function, as the definer found it';
COMMENT ON COLUMN stacksaga.definition_step.queue IS 'The queue of a queue step';
COMMENT ON COLUMN stacksaga.definition_step.signal IS 'The signal that a signal step waits for';
COMMENT ON COLUMN stacksaga.definition_step.delay IS 'How long a timer step waits';
COMMENT ON COLUMN stacksaga.definition_step.child_saga IS 'The saga that a child step starts';
COMMENT ON COLUMN stacksaga.definition_step.topic IS 'The topic that a message step publishes its call to';
COMMENT ON COLUMN stacksaga.definition_step.compensation_topic IS
    'The topic that it publishes its compensation to; null: none';
COMMENT ON COLUMN stacksaga.definition_step.on_failure IS
    'compensate, or park: what follows when the step has failed for good';
COMMENT ON COLUMN stacksaga.definition_step.compensation_queue IS
    'The queue that the compensation of a queue step is claimed from; null: its own';
COMMENT ON COLUMN stacksaga.definition_step.fallback_compensation_topic IS
    'The topic of the compensation of a message step that its fallback did; null: compensation_topic';
COMMENT ON COLUMN stacksaga.definition_step.fallback_oid IS 'The function that is the fallback of a sql step';
COMMENT ON COLUMN stacksaga.definition_step.retry IS 'The retry policy of the step';
COMMENT ON COLUMN stacksaga.definition_step.effect IS
    'What may be done about the effect of the step; the view effects says what follows';
COMMENT ON COLUMN stacksaga.definition_step.compensate_when IS
    'started: undone also when its outcome is not known; completed: only when it is known to be done';
COMMENT ON COLUMN stacksaga.definition_step.action IS
    'The signature of the function that a sql step runs; the oid beside it is checked at each call';
COMMENT ON COLUMN stacksaga.definition_step.fallback IS
    'What is tried when the action has failed for good: the signature of a function for a sql step, a queue for the others';
COMMENT ON COLUMN stacksaga.definition_step.timeout IS
    'How long an attempt may take; NULL for a signal step that waits without bound';
COMMENT ON COLUMN stacksaga.definition_step.search_path IS
    'The search_path of the session that defined the step, in force while its functions run';

-- The saga row is written at its start, at a change of status, and at its end. A saga whose steps run
-- in one transaction of a worker changes its status once. Each change leaves an entry of an index behind
-- that searches by status step over until vacuum removes it, so autovacuum comes early.
CREATE TABLE stacksaga.saga (
    saga_id          uuid NOT NULL,
    token            stacksaga.ring_token NOT NULL,
    ring_id          integer NOT NULL,
    slot             integer NOT NULL,
    definition_id    integer NOT NULL,
    run              integer NOT NULL DEFAULT 0,
    latest_run       integer NOT NULL DEFAULT 0,
    priority         smallint NOT NULL DEFAULT 3,
    status           stacksaga.saga_status NOT NULL DEFAULT 'pending',
    direction        stacksaga.step_direction NOT NULL DEFAULT 'act',
    failed_step      smallint,
    parked_step      smallint,
    parked_direction stacksaga.step_direction,
    compensation_requested stacksaga.compensation_request,
    deadline_at      timestamptz,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    finished_at      timestamptz,
    suspended_at     timestamptz,
    parent_id        uuid,
    parent_step      smallint,
    key              text,
    fingerprint      bytea NOT NULL,
    error            text,
    group_key        text COLLATE "C",
    attributes       jsonb,
    input            jsonb NOT NULL,
    headers          jsonb NOT NULL,
    parked_at        timestamptz,
    deadline         interval,
    remove_at        timestamptz,
    PRIMARY KEY (saga_id, token)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);
CREATE INDEX saga_finished ON stacksaga.saga (ring_id, slot, direction, remove_at, finished_at)
    WHERE finished_at IS NOT NULL;
CREATE INDEX saga_created ON stacksaga.saga (created_at, saga_id);
CREATE INDEX saga_listed ON stacksaga.saga (status, definition_id, created_at, saga_id);
CREATE INDEX saga_key ON stacksaga.saga (key text_pattern_ops, created_at, saga_id)
    WHERE key IS NOT NULL;
CREATE INDEX saga_traced ON stacksaga.saga (finished_at, saga_id)
    WHERE finished_at IS NOT NULL AND headers ? 'traceparent';
CREATE INDEX saga_children ON stacksaga.saga (parent_id, parent_step, run)
    WHERE parent_id IS NOT NULL;
COMMENT ON TABLE stacksaga.saga IS
    'One row per saga; the allowed changes of status are those of saga_transitions()';
COMMENT ON COLUMN stacksaga.saga.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.saga.token IS 'Its place on the ring: the token of its id';
COMMENT ON COLUMN stacksaga.saga.ring_id IS 'The ring that it belongs to';
COMMENT ON COLUMN stacksaga.saga.slot IS 'The slot of the ring that its token lies in';
COMMENT ON COLUMN stacksaga.saga.definition_id IS 'The version of the definition that it began with';
COMMENT ON COLUMN stacksaga.saga.run IS
    'Counts the runs of its key from 0; of a child, the sagas that its step has started';
COMMENT ON COLUMN stacksaga.saga.status IS 'pending, running, suspended, compensating, parked, completed or failed';
COMMENT ON COLUMN stacksaga.saga.failed_step IS 'The step whose failure made the saga compensate';
COMMENT ON COLUMN stacksaga.saga.parked_step IS 'The step that parked the saga';
COMMENT ON COLUMN stacksaga.saga.parked_direction IS 'Whether its act or its compensation did';
COMMENT ON COLUMN stacksaga.saga.compensation_requested IS
    'What waits for an irreversible step that is in flight or in doubt: compensation starts unless that step is done; null: nothing';
COMMENT ON COLUMN stacksaga.saga.suspended_at IS
    'Since when it is suspended, also while it is parked: its deadline does not run; null: it is not suspended';
COMMENT ON COLUMN stacksaga.saga.deadline_at IS
    'When it compensates, or parks where its definition says so, unless it has ended; null: it has no deadline';
COMMENT ON COLUMN stacksaga.saga.parked_at IS
    'Since when its deadline does not run since it is parked in direction act; null: it is not';
COMMENT ON COLUMN stacksaga.saga.deadline IS
    'How long it may take, where its start said so; null: what its definition says';
COMMENT ON COLUMN stacksaga.saga.remove_at IS
    'When it may be removed, of one that has finished: written at its end where its definition says how long it is kept, infinity: never; infinity also for a child, which goes with its parent; null: as the settings say';
COMMENT ON COLUMN stacksaga.saga.created_at IS 'When it was started';
COMMENT ON COLUMN stacksaga.saga.updated_at IS 'When the row was last changed';
COMMENT ON COLUMN stacksaga.saga.finished_at IS 'When it completed or failed; null: not yet';
COMMENT ON COLUMN stacksaga.saga.parent_step IS 'The step of that saga that started this one';
COMMENT ON COLUMN stacksaga.saga.key IS 'The key that it was started with; null: none';
COMMENT ON COLUMN stacksaga.saga.error IS 'Why it compensates or has failed';
COMMENT ON COLUMN stacksaga.saga.input IS 'What it was started with';
COMMENT ON COLUMN stacksaga.saga.headers IS 'Headers of its calls and messages, such as a traceparent';
COMMENT ON COLUMN stacksaga.saga.direction IS
    'act, then compensate, and never act again, whatever suspends, parks or resumes the saga';
COMMENT ON COLUMN stacksaga.saga.latest_run IS
    'On the row of run 0 of a keyed saga: which run its key stands for now';
COMMENT ON COLUMN stacksaga.saga.priority IS '1 (first) to 5: which due steps of a queue go first';
COMMENT ON COLUMN stacksaga.saga.group_key IS
    'Sagas of one group share limits and take turns with other groups';
COMMENT ON COLUMN stacksaga.saga.attributes IS
    'What the saga can be found by, a flat object; NULL without any';
COMMENT ON COLUMN stacksaga.saga.parent_id IS
    'The saga that this one is a step of; run counts the sagas that the step has started';
COMMENT ON INDEX stacksaga.saga_finished IS
    'What retention removes, in order: completed sagas have direction act, failed ones compensate';
COMMENT ON INDEX stacksaga.saga_created IS 'The newest sagas';
COMMENT ON INDEX stacksaga.saga_listed IS 'The newest sagas of a status and definition';
COMMENT ON INDEX stacksaga.saga_key IS
    'The sagas of a key, of every name and run, and of keys that begin alike, bytewise';
COMMENT ON INDEX stacksaga.saga_traced IS
    'Sagas of distributed traces, as they finish: those without a traceparent are not in it';
COMMENT ON INDEX stacksaga.saga_children IS 'The sagas that a step has started';
COMMENT ON COLUMN stacksaga.saga.fingerprint IS 'SHA-256 of the input in canonical form';

-- What find_sagas() finds sagas by that have attributes: others have no row here.
CREATE TABLE stacksaga.saga_attribute (
    saga_id       uuid NOT NULL,
    token         stacksaga.ring_token NOT NULL,
    attribute     bigint NOT NULL,
    definition_id integer NOT NULL,
    status        stacksaga.saga_status NOT NULL,
    created_at    timestamptz NOT NULL,
    PRIMARY KEY (saga_id, attribute, token)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);
CREATE INDEX saga_attribute_listed
    ON stacksaga.saga_attribute (attribute, status, definition_id, created_at, saga_id);
COMMENT ON TABLE stacksaga.saga_attribute IS
    'One row per attribute of a saga, written with the saga''s row; a row whose saga was removed means nothing';
COMMENT ON COLUMN stacksaga.saga_attribute.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.saga_attribute.token IS 'Its place on the ring: the token of the saga';
COMMENT ON COLUMN stacksaga.saga_attribute.definition_id IS 'The version of the definition that the saga began with';
COMMENT ON COLUMN stacksaga.saga_attribute.status IS 'The status of the saga';
COMMENT ON COLUMN stacksaga.saga_attribute.created_at IS 'When the saga was started';
COMMENT ON COLUMN stacksaga.saga_attribute.attribute IS
    'Hash of the name and the value, which are in the saga''s row';
COMMENT ON INDEX stacksaga.saga_attribute_listed IS
    'The newest sagas of an attribute, status and definition';

-- The key itself is not kept: it is in the id.
CREATE TABLE stacksaga.removed_saga (
    saga_id       uuid NOT NULL,
    token         stacksaga.ring_token NOT NULL,
    kept_since    timestamptz NOT NULL,
    finished_at   timestamptz NOT NULL,
    definition_id integer NOT NULL,
    latest_run    integer NOT NULL,
    status        stacksaga.saga_status NOT NULL,
    fingerprint   bytea NOT NULL,
    PRIMARY KEY (saga_id, token)
);
CREATE INDEX removed_saga_kept ON stacksaga.removed_saga (kept_since);
COMMENT ON TABLE stacksaga.removed_saga IS
    'One row per saga with a key that was removed: its key starts no other one until stacksaga.key_retention has passed';
COMMENT ON COLUMN stacksaga.removed_saga.saga_id IS 'The id that the saga had, which is made from its name, key and run';
COMMENT ON COLUMN stacksaga.removed_saga.token IS 'Its place on the ring: the token of the saga';
COMMENT ON COLUMN stacksaga.removed_saga.kept_since IS
    'When its retention began: at its end; of a key with several runs when the latest was removed; infinity: not yet';
COMMENT ON COLUMN stacksaga.removed_saga.finished_at IS 'When it completed or failed';
COMMENT ON COLUMN stacksaga.removed_saga.definition_id IS 'The version of the definition that it began with';
COMMENT ON COLUMN stacksaga.removed_saga.latest_run IS
    'Of the first run of a key: the latest one, which may still be there';
COMMENT ON COLUMN stacksaga.removed_saga.status IS 'completed or failed';
COMMENT ON COLUMN stacksaga.removed_saga.fingerprint IS 'Hash of its input';
COMMENT ON INDEX stacksaga.removed_saga_kept IS 'Which keys are to be forgotten next';

-- Everything that is due now or later, and for whom. Deleted when done: as large as the live work.
-- due_at: not yet claimed: when it may be; claimed: when its lease or its timeout runs out.
-- The columns stand in an order that wastes no bytes on alignment.
CREATE TABLE stacksaga.work (
    saga_id      uuid NOT NULL,
    step_no      smallint NOT NULL,
    rank         smallint NOT NULL DEFAULT 3,
    direction    stacksaga.step_direction NOT NULL,
    token        stacksaga.ring_token NOT NULL,
    ring_id      integer NOT NULL,
    slot         integer NOT NULL,
    due_at       timestamptz NOT NULL,
    attempt      integer NOT NULL DEFAULT 0,
    attempt_base integer NOT NULL DEFAULT 0,
    verify_attempts integer,
    lease        bigint,
    lease_until  timestamptz,
    started_at   timestamptz,
    resume_at    timestamptz,
    purpose      stacksaga.work_purpose NOT NULL,
    verifying    boolean NOT NULL DEFAULT false,
    falling_back boolean NOT NULL DEFAULT false,
    deferred     boolean NOT NULL DEFAULT false,
    queue        text COLLATE "C",
    group_key    text COLLATE "C" NOT NULL DEFAULT '',
    worker       text,
    postponed    smallint,
    place_at     timestamptz,
    releases     integer,
    paused_saga  text COLLATE "C",
    progress     jsonb,
    PRIMARY KEY (saga_id, purpose, step_no, direction, token)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
-- What workers do: most of it has the usual rank.
CREATE INDEX work_for_workers ON stacksaga.work (ring_id, slot, due_at)
    WHERE (queue IS NULL OR verifying OR lease_until IS NOT NULL) AND rank = 3;
CREATE INDEX work_for_workers_by_rank ON stacksaga.work (ring_id, rank, slot, due_at)
    WHERE (queue IS NULL OR verifying OR lease_until IS NOT NULL) AND rank <> 3;
-- What services may claim: most of it has the usual rank and no group, and costs one entry.
CREATE INDEX work_for_services ON stacksaga.work (ring_id, queue, due_at)
    WHERE queue IS NOT NULL AND NOT verifying AND lease_until IS NULL
      AND rank = 3 AND group_key = '';
CREATE INDEX work_by_rank ON stacksaga.work (ring_id, queue, rank, due_at)
    WHERE queue IS NOT NULL AND NOT verifying AND lease_until IS NULL
      AND (rank <> 3 OR group_key <> '');
CREATE INDEX work_by_group ON stacksaga.work (ring_id, queue, rank, group_key, due_at)
    WHERE queue IS NOT NULL AND NOT verifying AND lease_until IS NULL
      AND (rank <> 3 OR group_key <> '');
-- What services have claimed.
CREATE INDEX work_leased ON stacksaga.work (ring_id, queue, due_at)
    WHERE queue IS NOT NULL AND lease_until IS NOT NULL;
CREATE INDEX work_leased_by_group ON stacksaga.work (ring_id, queue, group_key)
    WHERE queue IS NOT NULL AND lease_until IS NOT NULL AND group_key <> '';
-- What the pause of a definition has held back, until it ends.
CREATE INDEX work_held_back ON stacksaga.work (paused_saga, ring_id, queue, resume_at)
    WHERE paused_saga IS NOT NULL;
COMMENT ON TABLE stacksaga.work IS
    'One row for everything that is or may become due: a step to run, a pause before a retry, a lease that may run out, a signal or a child that a step waits for, a deadline';
COMMENT ON COLUMN stacksaga.work.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.work.token IS 'Its place on the ring: the token of the saga';
COMMENT ON COLUMN stacksaga.work.ring_id IS 'The ring of the saga';
COMMENT ON COLUMN stacksaga.work.slot IS 'The slot of the ring that the token lies in';
COMMENT ON COLUMN stacksaga.work.due_at IS
    'When it may be claimed or done; while it is claimed, when its lease or its timeout runs out';
COMMENT ON COLUMN stacksaga.work.attempt IS 'Counts the attempts of the step and direction';
COMMENT ON COLUMN stacksaga.work.lease_until IS
    'When the lease of the latest claim runs out; null: it is not claimed';
COMMENT ON COLUMN stacksaga.work.started_at IS 'When that attempt began, or a signal step began to wait';
COMMENT ON COLUMN stacksaga.work.purpose IS 'Why the row is there';
COMMENT ON COLUMN stacksaga.work.verifying IS 'Whether the verify function of the step is to be asked';
COMMENT ON COLUMN stacksaga.work.verify_attempts IS
    'How often in a row the verify function did not decide; null: never';
COMMENT ON COLUMN stacksaga.work.queue IS 'The queue that services claim it from; null: a worker does it';
COMMENT ON COLUMN stacksaga.work.worker IS 'Who claimed it last';
COMMENT ON COLUMN stacksaga.work.postponed IS
    'How often in a row it was due and was postponed, since it could not be read or done; null: never';
COMMENT ON COLUMN stacksaga.work.place_at IS
    'When it was due before its latest claim: its place among others, which release_step() gives back; null: never claimed';
COMMENT ON COLUMN stacksaga.work.progress IS
    'What its service has said last of the attempt that holds the lease, with extend_step(); null: nothing';
COMMENT ON COLUMN stacksaga.work.releases IS
    'How many of its latest claims, in a row, were released; null: none';
COMMENT ON COLUMN stacksaga.work.paused_saga IS
    'The saga whose definition is paused, which alone holds the row back; null: nothing does, or something else';
COMMENT ON INDEX stacksaga.work_held_back IS
    'What waits for the end of the pause of a definition, as it is brought back';
COMMENT ON INDEX stacksaga.work_for_workers IS
    'What a worker must do of the usual rank, by slot and instant; rows that only a service may claim are not in it';
COMMENT ON INDEX stacksaga.work_for_workers_by_rank IS
    'What else a worker must do: compensations and other ranks';
COMMENT ON INDEX stacksaga.work_for_services IS
    'What a service may claim of the usual rank and of no group, by queue and instant';
COMMENT ON INDEX stacksaga.work_by_rank IS
    'What else a service may claim: compensations, other ranks, groups; the oldest of each rank first';
COMMENT ON INDEX stacksaga.work_by_group IS 'The same, by group: where groups take turns';
COMMENT ON INDEX stacksaga.work_leased IS
    'What services have claimed: whose lease runs out next, and how many run in a queue';
COMMENT ON INDEX stacksaga.work_leased_by_group IS 'How many run of a group in a queue';
COMMENT ON COLUMN stacksaga.work.rank IS
    'What goes first: 0 for a compensation, else the priority of the saga';
COMMENT ON COLUMN stacksaga.work.group_key IS 'The group of the saga; empty without one';
COMMENT ON COLUMN stacksaga.work.step_no IS
    'The step that is due, or whose child has settled; 0 for the purposes that concern the whole saga';
COMMENT ON COLUMN stacksaga.work.direction IS 'Of a step; act for every other purpose';
COMMENT ON COLUMN stacksaga.work.attempt_base IS
    'Attempts before the present count: a fallback, and an operator who retries a step, start a new one';
COMMENT ON COLUMN stacksaga.work.resume_at IS
    'While the saga is suspended or its definition is paused, and due_at infinite: when it would be due';
COMMENT ON COLUMN stacksaga.work.deferred IS
    'The retry budget of the queue or definition was empty: this pause is not the policy''s';
COMMENT ON COLUMN stacksaga.work.falling_back IS 'The fallback of the step is tried, or undone: it acted';
COMMENT ON COLUMN stacksaga.work.lease IS
    'Fencing token of the latest claim; kept after the lease ran out, since a late answer counts until the next claim';

-- The marker: never one per attempt, or a stale first attempt and its successor would both commit.
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
    by_fallback  boolean,
    settled_by   stacksaga.settled_by,
    output       jsonb,
    published    jsonb,
    PRIMARY KEY (saga_id, step_no, direction, token)
);
COMMENT ON TABLE stacksaga.effect IS
    'One row per completed (saga, step, direction), written in the transaction of the effect';
COMMENT ON COLUMN stacksaga.effect.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.effect.step_no IS 'The step';
COMMENT ON COLUMN stacksaga.effect.direction IS 'act or compensate';
COMMENT ON COLUMN stacksaga.effect.token IS 'Its place on the ring: the token of the saga';
COMMENT ON COLUMN stacksaga.effect.attempt IS 'The attempt that completed it';
COMMENT ON COLUMN stacksaga.effect.lease IS 'The lease under which it was answered; null without one';
COMMENT ON COLUMN stacksaga.effect.started_at IS 'When that attempt began';
COMMENT ON COLUMN stacksaga.effect.completed_at IS 'When it was completed';
COMMENT ON COLUMN stacksaga.effect.worker IS 'Who did it';
COMMENT ON COLUMN stacksaga.effect.by_fallback IS 'Whether the fallback of the step did it; null: its action did';
COMMENT ON COLUMN stacksaga.effect.settled_by IS 'What said that it is done; null: an answer under its lease, or its worker';
COMMENT ON COLUMN stacksaga.effect.output IS 'What it returned';
COMMENT ON COLUMN stacksaga.effect.published IS
    'What its handler published: how many messages, and topic, key and id of the first 20; null: none';

CREATE TABLE stacksaga.failure (
    saga_id       uuid NOT NULL,
    step_no       smallint NOT NULL,
    direction     stacksaga.step_direction NOT NULL,
    attempt       integer NOT NULL,
    token         stacksaga.ring_token NOT NULL,
    lease         bigint,
    error_class   stacksaga.failure_class NOT NULL,
    outcome_known boolean NOT NULL,
    by_fallback   boolean,
    started_at    timestamptz NOT NULL,
    finished_at   timestamptz NOT NULL,
    worker        text,
    sqlstate      text,
    error         text NOT NULL,
    crashes       integer,
    error_detail  text,
    error_context text,
    PRIMARY KEY (saga_id, step_no, direction, attempt, token)
);
COMMENT ON TABLE stacksaga.failure IS 'One row per failed attempt';
COMMENT ON COLUMN stacksaga.failure.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.failure.step_no IS 'The step';
COMMENT ON COLUMN stacksaga.failure.direction IS 'act or compensate';
COMMENT ON COLUMN stacksaga.failure.attempt IS 'Counts from 1 for each step and direction';
COMMENT ON COLUMN stacksaga.failure.token IS 'Its place on the ring: the token of the saga';
COMMENT ON COLUMN stacksaga.failure.lease IS 'The lease under which it was claimed; null without one';
COMMENT ON COLUMN stacksaga.failure.error_class IS 'What the failure means';
COMMENT ON COLUMN stacksaga.failure.started_at IS 'When the attempt began';
COMMENT ON COLUMN stacksaga.failure.finished_at IS 'When it failed';
COMMENT ON COLUMN stacksaga.failure.worker IS 'Who did it';
COMMENT ON COLUMN stacksaga.failure.by_fallback IS 'Whether it was an attempt of the fallback; null: of the action';
COMMENT ON COLUMN stacksaga.failure.sqlstate IS 'The SQLSTATE of the error, where it has one';
COMMENT ON COLUMN stacksaga.failure.error IS 'The text of the error';
COMMENT ON COLUMN stacksaga.failure.crashes IS
    'How often this attempt, or its verify function, ended its process; null: never';
COMMENT ON COLUMN stacksaga.failure.error_detail IS
    'PostgreSQL''s DETAIL of the error, which may hold values of rows: for operators; null: none, or not stored';
COMMENT ON COLUMN stacksaga.failure.error_context IS
    'PostgreSQL''s CONTEXT of the error: for operators; null: none, or not stored';
COMMENT ON COLUMN stacksaga.failure.outcome_known IS
    'False when the effect may have happened all the same: a lost lease, a timeout, an unknown answer';

CREATE TABLE stacksaga.step_release (
    saga_id     uuid NOT NULL,
    step_no     smallint NOT NULL,
    direction   stacksaga.step_direction NOT NULL,
    attempt     integer NOT NULL,
    token       stacksaga.ring_token NOT NULL,
    lease       bigint,
    by_fallback boolean,
    started_at  timestamptz NOT NULL,
    released_at timestamptz NOT NULL,
    worker      text,
    reason      text,
    PRIMARY KEY (saga_id, step_no, direction, attempt, token)
);
COMMENT ON TABLE stacksaga.step_release IS
    'One row per attempt that its service gave back; it is not charged';
COMMENT ON COLUMN stacksaga.step_release.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.step_release.step_no IS 'The step';
COMMENT ON COLUMN stacksaga.step_release.direction IS 'act or compensate';
COMMENT ON COLUMN stacksaga.step_release.attempt IS 'Counts the attempts of the step and direction';
COMMENT ON COLUMN stacksaga.step_release.token IS 'Its place on the ring: the token of the saga';
COMMENT ON COLUMN stacksaga.step_release.lease IS 'The lease under which it was claimed';
COMMENT ON COLUMN stacksaga.step_release.by_fallback IS
    'Whether it was an attempt of the fallback; null: of the action';
COMMENT ON COLUMN stacksaga.step_release.started_at IS 'When it was claimed';
COMMENT ON COLUMN stacksaga.step_release.released_at IS 'When it was given back';
COMMENT ON COLUMN stacksaga.step_release.worker IS 'Who had claimed it';
COMMENT ON COLUMN stacksaga.step_release.reason IS 'The reason that the service gave; null: none';

CREATE TABLE stacksaga.saga_signal (
    saga_id    uuid NOT NULL,
    signal_no  integer NOT NULL,
    token      stacksaga.ring_token NOT NULL,
    signal     text NOT NULL,
    message_id text,
    step_no    smallint,
    arrived_at timestamptz NOT NULL,
    payload    jsonb NOT NULL,
    PRIMARY KEY (saga_id, signal_no, token)
);
CREATE UNIQUE INDEX saga_signal_message ON stacksaga.saga_signal (saga_id, message_id, token)
    WHERE message_id IS NOT NULL;
CREATE INDEX saga_signal_untaken ON stacksaga.saga_signal (arrived_at) WHERE step_no IS NULL;
COMMENT ON TABLE stacksaga.saga_signal IS
    'One row per accepted signal, in the order of arrival; step_no is the step that has taken it';
COMMENT ON COLUMN stacksaga.saga_signal.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.saga_signal.signal_no IS 'Counts the signals of the saga in the order of arrival';
COMMENT ON COLUMN stacksaga.saga_signal.token IS 'Its place on the ring: the token of the saga';
COMMENT ON COLUMN stacksaga.saga_signal.signal IS 'The name of the signal';
COMMENT ON COLUMN stacksaga.saga_signal.message_id IS 'The id under which it is accepted once; null: none';
COMMENT ON COLUMN stacksaga.saga_signal.step_no IS 'The step that has taken it; null: none yet';
COMMENT ON COLUMN stacksaga.saga_signal.arrived_at IS 'When it arrived';
COMMENT ON COLUMN stacksaga.saga_signal.payload IS 'What came with it';
COMMENT ON INDEX stacksaga.saga_signal_untaken IS 'Signals that no step has taken';
COMMENT ON INDEX stacksaga.saga_signal_message IS 'A message is accepted once per saga';

CREATE TABLE stacksaga.saga_action (
    saga_id       uuid NOT NULL,
    action_no     integer NOT NULL,
    token         stacksaga.ring_token NOT NULL,
    action        text NOT NULL
                  CHECK (action IN ('cancel', 'suspend', 'resume', 'retry', 'resolve', 'redact', 'acknowledge', 'void',
                                    'compensate')),
    step_no       smallint,
    outcome       text CHECK (outcome IN ('done', 'not_done', 'never')),
    role          name NOT NULL,
    acted_at      timestamptz NOT NULL,
    status_before stacksaga.saga_status NOT NULL,
    status_after  stacksaga.saga_status NOT NULL,
    reason        text,
    on_behalf_of  text,
    handler       text,
    PRIMARY KEY (saga_id, action_no, token)
);
CREATE INDEX saga_action_acted ON stacksaga.saga_action (acted_at);
COMMENT ON TABLE stacksaga.saga_action IS
    'What operators did to a saga: who, when and why';
COMMENT ON COLUMN stacksaga.saga_action.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.saga_action.action_no IS 'Counts the actions on the saga';
COMMENT ON COLUMN stacksaga.saga_action.token IS 'Its place on the ring: the token of the saga';
COMMENT ON COLUMN stacksaga.saga_action.action IS
    'cancel, compensate, suspend, resume, retry, resolve, redact or acknowledge; void: an irreversible step was done, so a pending compensation ended';
COMMENT ON COLUMN stacksaga.saga_action.step_no IS 'The step that was resolved, whose answer was acknowledged, or that is irreversible and done';
COMMENT ON COLUMN stacksaga.saga_action.outcome IS 'done, not_done or never, of a step that was resolved';
COMMENT ON COLUMN stacksaga.saga_action.role IS 'The role that acted';
COMMENT ON COLUMN stacksaga.saga_action.acted_at IS 'When it was';
COMMENT ON COLUMN stacksaga.saga_action.status_before IS 'The status of the saga before';
COMMENT ON COLUMN stacksaga.saga_action.status_after IS 'The status of the saga after';
COMMENT ON COLUMN stacksaga.saga_action.reason IS 'The reason that it gave';
COMMENT ON COLUMN stacksaga.saga_action.on_behalf_of IS 'Whom the role acted for, by its own account';
COMMENT ON COLUMN stacksaga.saga_action.handler IS 'The step or the subscription whose handler acted, if one did';
COMMENT ON INDEX stacksaga.saga_action_acted IS 'The newest actions';

-- Written by workers, from the file that refused answers are kept in first.
CREATE TABLE stacksaga.saga_contradiction (
    saga_id         uuid NOT NULL,
    step_no         smallint NOT NULL,
    direction       stacksaga.step_direction NOT NULL,
    token           stacksaga.ring_token NOT NULL,
    lease           bigint NOT NULL,
    answer          text NOT NULL CHECK (answer IN ('done', 'retryable', 'non_retryable')),
    answered_at     timestamptz NOT NULL,
    acknowledged_at timestamptz,
    PRIMARY KEY (saga_id, step_no, direction, lease, answer, token)
);
CREATE INDEX saga_contradiction_open ON stacksaga.saga_contradiction (answered_at)
    WHERE acknowledged_at IS NULL;
COMMENT ON TABLE stacksaga.saga_contradiction IS
    'One row per refused answer that contradicts what settled its step; doctor() shows those that nobody has acknowledged';
COMMENT ON COLUMN stacksaga.saga_contradiction.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.saga_contradiction.step_no IS 'The step';
COMMENT ON COLUMN stacksaga.saga_contradiction.direction IS 'act or compensate';
COMMENT ON COLUMN stacksaga.saga_contradiction.token IS 'Its place on the ring: the token of the saga';
COMMENT ON COLUMN stacksaga.saga_contradiction.lease IS 'The lease under which it was answered';
COMMENT ON COLUMN stacksaga.saga_contradiction.answer IS 'done, retryable or non_retryable: what the answer says';
COMMENT ON COLUMN stacksaga.saga_contradiction.answered_at IS 'When it was answered first';
COMMENT ON COLUMN stacksaga.saga_contradiction.acknowledged_at IS 'When an operator acknowledged it; null: not yet';
COMMENT ON INDEX stacksaga.saga_contradiction_open IS 'What nobody has acknowledged';

-- ANALYZE keeps samples of values, which redact_saga() would not reach. No query of the extension plans by these columns.
ALTER TABLE stacksaga.saga
    ALTER COLUMN error SET STATISTICS 0, ALTER COLUMN group_key SET STATISTICS 0,
    ALTER COLUMN attributes SET STATISTICS 0, ALTER COLUMN input SET STATISTICS 0,
    ALTER COLUMN headers SET STATISTICS 0;
ALTER TABLE stacksaga.effect
    ALTER COLUMN output SET STATISTICS 0, ALTER COLUMN published SET STATISTICS 0;
ALTER TABLE stacksaga.failure
    ALTER COLUMN error SET STATISTICS 0, ALTER COLUMN error_detail SET STATISTICS 0,
    ALTER COLUMN error_context SET STATISTICS 0;
ALTER TABLE stacksaga.step_release ALTER COLUMN reason SET STATISTICS 0;
ALTER TABLE stacksaga.saga_signal ALTER COLUMN payload SET STATISTICS 0;
ALTER TABLE stacksaga.saga_action ALTER COLUMN reason SET STATISTICS 0;

SELECT pg_catalog.pg_extension_config_dump('stacksaga.saga_definition', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.saga_definition_definition_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.definition_step', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.saga', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.saga_attribute', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.removed_saga', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.work', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.effect', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.failure', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.step_release', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.saga_signal', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.saga_action', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.saga_contradiction', '');
COMMENT ON SEQUENCE stacksaga.saga_definition_definition_id_seq IS 'Numbers saga definitions';
