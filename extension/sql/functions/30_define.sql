-- Defining a saga (extension/src/definition/define.cpp).

CREATE OR REPLACE FUNCTION stacksaga.retry_policy(
    max_attempts     integer          DEFAULT 10,
    initial_interval interval         DEFAULT '1 second',
    multiplier       double precision DEFAULT 2,
    max_interval     interval         DEFAULT '5 minutes',
    jitter           double precision DEFAULT 0.2,
    retry_on         text[]           DEFAULT NULL,
    never_on         text[]           DEFAULT NULL
) RETURNS stacksaga.retry_policy
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$ SELECT ROW($1, $2, $3, $4, $5, $6, $7)::stacksaga.retry_policy $$;
COMMENT ON FUNCTION stacksaga.retry_policy IS
    'Makes a retry policy: how often (0: no limit) and how fast a step is tried again, and which SQLSTATEs or classes are retryable; define_saga() checks its ranges';

CREATE OR REPLACE FUNCTION stacksaga.sql_step(
    name            text,
    action          text,
    compensation    text                   DEFAULT NULL,
    stage           integer                DEFAULT NULL,
    timeout         interval               DEFAULT '30 seconds',
    retry           stacksaga.retry_policy DEFAULT NULL,
    effect          text                   DEFAULT NULL,
    compensate_when text                   DEFAULT 'started',
    verify          text                   DEFAULT NULL,
    fallback        text                   DEFAULT NULL,
    on_failure      text                   DEFAULT NULL,
    skip_unless     text                   DEFAULT NULL
) RETURNS stacksaga.step_definition
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'stacksaga_sql_step';
COMMENT ON FUNCTION stacksaga.sql_step IS
    'Describes a step whose action the worker runs as f(stacksaga.step_call) RETURNS jsonb, in the transaction of its marker; function names are looked up in the search_path of the caller, which is in force when they run';

CREATE OR REPLACE FUNCTION stacksaga.queue_step(
    name            text,
    queue           text,
    compensable     boolean                DEFAULT NULL,
    stage           integer                DEFAULT NULL,
    timeout         interval               DEFAULT '30 seconds',
    retry           stacksaga.retry_policy DEFAULT NULL,
    effect          text                   DEFAULT NULL,
    compensate_when text                   DEFAULT 'started',
    verify          text                   DEFAULT NULL,
    fallback        text                   DEFAULT NULL,
    compensation_queue text                DEFAULT NULL,
    on_failure      text                   DEFAULT NULL,
    skip_unless     text                   DEFAULT NULL
) RETURNS stacksaga.step_definition
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'stacksaga_queue_step';
COMMENT ON FUNCTION stacksaga.queue_step IS
    'Describes a step that a service claims from a queue with claim_steps(). It says what undoes it: compensation_queue, or compensable => true (its own queue, with direction compensate), or compensable => false, or an effect without a compensation';

CREATE OR REPLACE FUNCTION stacksaga.signal_step(
    name            text,
    signal          text,
    stage           integer                DEFAULT NULL,
    timeout         interval               DEFAULT NULL,
    retry           stacksaga.retry_policy DEFAULT NULL,
    effect          text                   DEFAULT NULL,
    compensate_when text                   DEFAULT 'started',
    verify          text                   DEFAULT NULL,
    fallback        text                   DEFAULT NULL,
    on_failure      text                   DEFAULT NULL,
    skip_unless     text                   DEFAULT NULL
) RETURNS stacksaga.step_definition
LANGUAGE c STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_signal_step';
COMMENT ON FUNCTION stacksaga.signal_step IS
    'Describes a step that waits for signal_saga(), whose payload is its output; timeout bounds the wait, NULL: it has no bound';

CREATE OR REPLACE FUNCTION stacksaga.timer_step(
    name            text,
    delay           interval,
    stage           integer                DEFAULT NULL,
    timeout         interval               DEFAULT '30 seconds',
    retry           stacksaga.retry_policy DEFAULT NULL,
    effect          text                   DEFAULT NULL,
    compensate_when text                   DEFAULT 'started',
    verify          text                   DEFAULT NULL,
    fallback        text                   DEFAULT NULL,
    on_failure      text                   DEFAULT NULL,
    skip_unless     text                   DEFAULT NULL
) RETURNS stacksaga.step_definition
LANGUAGE c STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_timer_step';
COMMENT ON FUNCTION stacksaga.timer_step IS
    'Describes a step that waits for a while and does nothing else';

CREATE OR REPLACE FUNCTION stacksaga.message_step(
    name            text,
    topic           text,
    compensation_topic text                DEFAULT NULL,
    stage           integer                DEFAULT NULL,
    timeout         interval               DEFAULT '30 seconds',
    retry           stacksaga.retry_policy DEFAULT NULL,
    effect          text                   DEFAULT NULL,
    compensate_when text                   DEFAULT 'started',
    verify          text                   DEFAULT NULL,
    fallback        text                   DEFAULT NULL,
    fallback_compensation_topic text       DEFAULT NULL,
    on_failure      text                   DEFAULT NULL,
    skip_unless     text                   DEFAULT NULL
) RETURNS stacksaga.step_definition
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'stacksaga_message_step';
COMMENT ON FUNCTION stacksaga.message_step IS
    'Describes a step whose call is published to a topic as a command, and that a service answers with complete_step() or fail_step() under the lease in it; its compensation is published to compensation_topic, or where the fallback did the step to fallback_compensation_topic';

CREATE OR REPLACE FUNCTION stacksaga.child_step(
    name            text,
    saga            text,
    stage           integer                DEFAULT NULL,
    timeout         interval               DEFAULT '30 seconds',
    retry           stacksaga.retry_policy DEFAULT NULL,
    effect          text                   DEFAULT NULL,
    compensate_when text                   DEFAULT 'started',
    verify          text                   DEFAULT NULL,
    fallback        text                   DEFAULT NULL,
    on_failure      text                   DEFAULT NULL,
    skip_unless     text                   DEFAULT NULL
) RETURNS stacksaga.step_definition
LANGUAGE c STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_child_step';
COMMENT ON FUNCTION stacksaga.child_step IS
    'Describes a step that starts a saga with the input and headers of its own, and takes its output; compensating the step compensates that saga';

CREATE OR REPLACE FUNCTION stacksaga.define_saga_content(
    name text, steps jsonb, deadline interval, retry jsonb, compensation_retry jsonb,
    on_compensation_failure text, on_failure text, events_topic text, keep interval
) RETURNS integer
LANGUAGE c VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres' SET extra_float_digits = 1
AS 'MODULE_PATHNAME', 'stacksaga_define_saga_content';
COMMENT ON FUNCTION stacksaga.define_saga_content IS
    'Does the work of define_saga(), with the composite arguments as jsonb';

CREATE OR REPLACE FUNCTION stacksaga.define_saga(
    name                    text,
    steps                   stacksaga.step_definition[],
    deadline                interval               DEFAULT NULL,
    retry                   stacksaga.retry_policy DEFAULT NULL,
    compensation_retry      stacksaga.retry_policy DEFAULT NULL,
    on_compensation_failure text                   DEFAULT 'park',
    on_failure              text                   DEFAULT 'compensate',
    events_topic            text                   DEFAULT NULL,
    keep                    interval               DEFAULT NULL
) RETURNS integer
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres' SET extra_float_digits = 1
AS $$
    SELECT stacksaga.define_saga_content(
        name, to_jsonb(steps), deadline, to_jsonb(retry), to_jsonb(compensation_retry),
        on_compensation_failure, on_failure, events_topic, keep)
$$;
COMMENT ON FUNCTION stacksaga.define_saga IS
    'Defines a saga and returns its version: the same content keeps its version, new content gets the next one. The steps run as the role that defines them. Raises SG400 for a definition that is not valid, with the step in DETAIL; SG403 for a saga that another role has defined; SG413';
