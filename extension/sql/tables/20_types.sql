-- Types of the tables and of the public contract.

-- Domains and not CHECK constraints of tables: those are parsed anew by every statement that writes,
-- which took a sixth of a worker's time.
CREATE DOMAIN stacksaga.saga_status AS text COLLATE "C"
    CHECK (VALUE IN ('pending', 'running', 'compensating', 'completed', 'failed', 'parked',
                     'suspended'));
COMMENT ON DOMAIN stacksaga.saga_status IS 'A status of a saga; see saga_transitions()';

CREATE DOMAIN stacksaga.step_direction AS text COLLATE "C" CHECK (VALUE IN ('act', 'compensate'));
COMMENT ON DOMAIN stacksaga.step_direction IS 'act: the step itself; compensate: its compensation';

CREATE DOMAIN stacksaga.failure_class AS text COLLATE "C"
    CHECK (VALUE IN ('retryable', 'non_retryable', 'unknown'));
COMMENT ON DOMAIN stacksaga.failure_class IS 'What a failed attempt means; see outcome_rules()';

CREATE DOMAIN stacksaga.compensation_request AS text COLLATE "C"
    CHECK (VALUE IN ('cancel', 'deadline', 'failure'));
COMMENT ON DOMAIN stacksaga.compensation_request IS
    'Why compensation starts once no irreversible step of the saga is in flight or in doubt';

CREATE DOMAIN stacksaga.settled_by AS text COLLATE "C" CHECK (VALUE IN ('verify', 'resolve', 'person'));
COMMENT ON DOMAIN stacksaga.settled_by IS
    'What said that a step is done: its verify function, an operator about an attempt in doubt, or a person who did it';

CREATE TYPE stacksaga.work_purpose AS ENUM (
    'step', 'deadline', 'child_settled', 'compensation_request'
);
COMMENT ON TYPE stacksaga.work_purpose IS
    'Why a row of work is there: a step, the deadline of the saga, a child of a step that has settled, a compensation that the parent saga requests';

-- Named as SQLAlchemy names the types of python-cqrs' columns, since it casts what a query compares with them.
CREATE TYPE stacksaga.sagastatus AS ENUM ('PENDING', 'RUNNING', 'COMPENSATING', 'COMPLETED', 'FAILED');
COMMENT ON TYPE stacksaga.sagastatus IS 'The status of a saga in the view saga_executions';

CREATE TYPE stacksaga.sagastepstatus AS ENUM ('STARTED', 'COMPLETED', 'FAILED', 'COMPENSATED');
COMMENT ON TYPE stacksaga.sagastepstatus IS 'The status of an attempt in the view saga_logs';

CREATE TYPE stacksaga.retry_policy AS (
    max_attempts     integer,
    initial_interval interval,
    multiplier       double precision,
    max_interval     interval,
    jitter           double precision,
    retry_on         text[],
    never_on         text[]
);
COMMENT ON TYPE stacksaga.retry_policy IS
    'How often and how fast a step is tried again; made by stacksaga.retry_policy()';

CREATE TYPE stacksaga.step_definition AS (
    name            text,
    kind            text,
    action          text,
    compensation    text,
    queue           text,
    compensable     boolean,
    signal          text,
    delay           interval,
    saga            text,
    topic           text,
    compensation_topic text,
    stage           integer,
    timeout         interval,
    retry           stacksaga.retry_policy,
    effect          text,
    compensate_when text,
    verify          text,
    fallback        text,
    search_path     text,
    compensation_queue text,
    fallback_compensation_topic text,
    on_failure      text
);
COMMENT ON TYPE stacksaga.step_definition IS
    'One step of a saga as define_saga() takes it; made by sql_step(), queue_step() and their like';

CREATE TYPE stacksaga.step_call AS (
    saga_id         uuid,
    saga            text,
    step            text,
    direction       text,
    attempt         integer,
    input           jsonb,
    results         jsonb,
    idempotency_key text,
    headers         jsonb,
    deadline        timestamptz,
    by_fallback     boolean,
    claimed_at      timestamptz
);
COMMENT ON TYPE stacksaga.step_call IS
    'What a step is called with: direction is act or compensate, results maps each completed step to its output, idempotency_key is the same for every attempt';

CREATE TYPE stacksaga.claimed_step AS (
    saga_id         uuid,
    saga            text,
    step            text,
    direction       text,
    attempt         integer,
    input           jsonb,
    results         jsonb,
    idempotency_key text,
    headers         jsonb,
    deadline        timestamptz,
    lease           bigint,
    lease_until     timestamptz,
    by_fallback     boolean,
    claimed_at      timestamptz
);
COMMENT ON TYPE stacksaga.claimed_step IS
    'A step_call that a service has claimed, with the lease that its answer must carry';

COMMENT ON COLUMN stacksaga.step_definition.name IS 'The name of the step';
COMMENT ON COLUMN stacksaga.step_definition.kind IS 'sql, queue, message, signal, timer or child';
COMMENT ON COLUMN stacksaga.step_definition.action IS 'The function of a sql step, as it was written';
COMMENT ON COLUMN stacksaga.step_definition.compensation IS
    'The function that undoes a sql step, as it was written; null: none';
COMMENT ON COLUMN stacksaga.step_definition.queue IS 'The queue of a queue step';
COMMENT ON COLUMN stacksaga.step_definition.compensable IS
    'Whether a queue step has a compensation; null: what compensation_queue and effect say';
COMMENT ON COLUMN stacksaga.step_definition.signal IS 'The signal that a signal step waits for';
COMMENT ON COLUMN stacksaga.step_definition.delay IS 'How long a timer step waits';
COMMENT ON COLUMN stacksaga.step_definition.saga IS 'The saga that a child step starts';
COMMENT ON COLUMN stacksaga.step_definition.topic IS 'The topic that a message step publishes its call to';
COMMENT ON COLUMN stacksaga.step_definition.compensation_topic IS
    'The topic that it publishes its compensation to; null: none';
COMMENT ON COLUMN stacksaga.step_definition.stage IS
    'Steps of one stage run at the same time; null: a stage of its own';
COMMENT ON COLUMN stacksaga.step_definition.timeout IS 'How long an attempt may take; null: as long as it wants';
COMMENT ON COLUMN stacksaga.step_definition.retry IS 'The retry policy of the step; null: that of the saga';
COMMENT ON COLUMN stacksaga.step_definition.effect IS
    'What may be done about its effect; null: what follows from its compensation';
COMMENT ON COLUMN stacksaga.step_definition.compensate_when IS
    'started: undone also when its outcome is not known; completed: only when it is known to be done';
COMMENT ON COLUMN stacksaga.step_definition.verify IS
    'The function that is asked for an unknown outcome, as it was written; null: none';
COMMENT ON COLUMN stacksaga.step_definition.fallback IS
    'What is tried when the action has failed for good: a function, a queue or a topic; null: nothing';
COMMENT ON COLUMN stacksaga.step_definition.search_path IS 'The search_path of the session that made it';
COMMENT ON COLUMN stacksaga.step_definition.compensation_queue IS
    'The queue that its compensation is claimed from; null: its own, where it has one';
COMMENT ON COLUMN stacksaga.step_definition.fallback_compensation_topic IS
    'The topic of the compensation of a message step that its fallback did; null: compensation_topic';
COMMENT ON COLUMN stacksaga.step_definition.on_failure IS
    'What follows when it has failed for good before an irreversible step is done: compensate or park; null: what the saga says';

COMMENT ON COLUMN stacksaga.step_call.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.step_call.saga IS 'The name of the saga';
COMMENT ON COLUMN stacksaga.step_call.step IS 'The name of the step';
COMMENT ON COLUMN stacksaga.step_call.direction IS 'act or compensate';
COMMENT ON COLUMN stacksaga.step_call.attempt IS 'Counts from 1 for each step and direction';
COMMENT ON COLUMN stacksaga.step_call.input IS 'The input of the saga';
COMMENT ON COLUMN stacksaga.step_call.results IS 'The output of each completed step, by name';
COMMENT ON COLUMN stacksaga.step_call.idempotency_key IS
    'The same for every attempt; the fallback has keys of its own';
COMMENT ON COLUMN stacksaga.step_call.headers IS 'The headers of the saga';
COMMENT ON COLUMN stacksaga.step_call.deadline IS 'The end of this attempt';
COMMENT ON COLUMN stacksaga.step_call.by_fallback IS
    'Whether the fallback of the step is called, asked about, or to be undone';
COMMENT ON COLUMN stacksaga.step_call.claimed_at IS
    'When the latest attempt in doubt began, for verify; null: none is';

COMMENT ON COLUMN stacksaga.retry_policy.max_attempts IS 'How often a step is tried; 0: without end';
COMMENT ON COLUMN stacksaga.retry_policy.initial_interval IS 'The pause after the first failure';
COMMENT ON COLUMN stacksaga.retry_policy.multiplier IS 'By what each pause is longer than the last one';
COMMENT ON COLUMN stacksaga.retry_policy.max_interval IS 'No pause is longer';
COMMENT ON COLUMN stacksaga.retry_policy.jitter IS 'The part of a pause that is drawn, 0 to 1';
COMMENT ON COLUMN stacksaga.retry_policy.retry_on IS
    'SQLSTATEs, or their classes, that are retried; null: those that are by themselves';
COMMENT ON COLUMN stacksaga.retry_policy.never_on IS 'SQLSTATEs, or their classes, that are not retried';

COMMENT ON COLUMN stacksaga.claimed_step.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.claimed_step.saga IS 'The name of the saga';
COMMENT ON COLUMN stacksaga.claimed_step.step IS 'The name of the step';
COMMENT ON COLUMN stacksaga.claimed_step.direction IS 'act or compensate';
COMMENT ON COLUMN stacksaga.claimed_step.attempt IS 'Counts from 1 for each step and direction';
COMMENT ON COLUMN stacksaga.claimed_step.input IS 'The input of the saga';
COMMENT ON COLUMN stacksaga.claimed_step.results IS 'The output of each completed step, by name';
COMMENT ON COLUMN stacksaga.claimed_step.idempotency_key IS
    'The same for every attempt; the fallback has keys of its own';
COMMENT ON COLUMN stacksaga.claimed_step.headers IS 'The headers of the saga';
COMMENT ON COLUMN stacksaga.claimed_step.deadline IS 'The end of this attempt';
COMMENT ON COLUMN stacksaga.claimed_step.lease IS 'Names this claim: an answer needs it';
COMMENT ON COLUMN stacksaga.claimed_step.lease_until IS 'When another service may claim the step';
COMMENT ON COLUMN stacksaga.claimed_step.by_fallback IS
    'Whether it is for the fallback of the step, to act or to undo what it did';
COMMENT ON COLUMN stacksaga.claimed_step.claimed_at IS
    'When the latest attempt in doubt began; null: none is';
