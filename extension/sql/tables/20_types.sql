-- Composite types of the public contract.

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
    stage           integer,
    timeout         interval,
    retry           stacksaga.retry_policy,
    effect          text,
    compensate_when text,
    verify          text,
    fallback        text,
    search_path     text
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
    deadline        timestamptz
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
    lease_until     timestamptz
);
COMMENT ON TYPE stacksaga.claimed_step IS
    'A step_call that a service has claimed, with the lease that its answer must carry';
