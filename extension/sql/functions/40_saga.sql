-- Running a saga (extension/src/saga/start.cpp; extension/src/service).

CREATE OR REPLACE FUNCTION stacksaga.clock_now() RETURNS timestamptz
LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_clock_now';
COMMENT ON FUNCTION stacksaga.clock_now IS
    'Returns the time that stacksaga uses: the database clock moved by stacksaga.clock_offset';

CREATE OR REPLACE FUNCTION stacksaga_internal.statement_clock() RETURNS timestamptz
LANGUAGE c STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_statement_clock';
COMMENT ON FUNCTION stacksaga_internal.statement_clock IS
    'Internal: returns the same instant of clock_now() for all rows of a query';

CREATE OR REPLACE FUNCTION stacksaga.start_saga(
    saga        text,
    input       jsonb       DEFAULT '{}',
    key         text        DEFAULT NULL,
    on_conflict text        DEFAULT 'use_existing',
    run_at      timestamptz DEFAULT NULL,
    deadline    interval    DEFAULT NULL,
    headers     jsonb       DEFAULT '{}',
    saga_id     uuid        DEFAULT NULL,
    version     integer     DEFAULT NULL,
    priority    integer     DEFAULT 3,
    group_key   text        DEFAULT NULL,
    attributes  jsonb       DEFAULT '{}'
) RETURNS TABLE (saga_id uuid, token bigint, created boolean)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
AS 'MODULE_PATHNAME', 'stacksaga_start_saga';
COMMENT ON FUNCTION stacksaga.start_saga IS
    'Starts a saga, or returns the one that its key stands for. Raises SG400, SG404 (no such saga or version), SG409 (on_conflict fail), SG413, SG422 (the same key with another input)';

CREATE OR REPLACE FUNCTION stacksaga.saga_id_of(saga text, key text, run integer DEFAULT 0)
RETURNS uuid
LANGUAGE c IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'stacksaga_saga_id_of';
COMMENT ON FUNCTION stacksaga.saga_id_of IS
    'Returns the id that the saga of this name, key and run has, whether or not it exists. Raises SG400';

CREATE OR REPLACE FUNCTION stacksaga.start_sagas(
    saga       text,
    inputs     jsonb[],
    keys       text[]  DEFAULT NULL,
    priority   integer DEFAULT 3,
    group_keys text[]  DEFAULT NULL,
    attributes jsonb[] DEFAULT NULL
) RETURNS TABLE (saga_id uuid, token bigint, created boolean)
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'stacksaga_start_sagas';
COMMENT ON FUNCTION stacksaga.start_sagas IS
    'Starts one saga per input, in order, as start_saga() does. Raises SG400, SG404, SG413, SG422';

CREATE OR REPLACE FUNCTION stacksaga.find_sagas(
    saga           text        DEFAULT NULL,
    status         text        DEFAULT NULL,
    key_prefix     text        DEFAULT NULL,
    attributes     jsonb       DEFAULT NULL,
    created_before timestamptz DEFAULT NULL,
    before_saga_id uuid        DEFAULT NULL,
    max_sagas      integer     DEFAULT 50
) RETURNS TABLE (
    saga_id uuid, saga text, version integer, key text, status text, waits_for text, attributes jsonb,
    priority integer, group_key text, created_at timestamptz, updated_at timestamptz, finished_at timestamptz
)
LANGUAGE c STABLE PARALLEL UNSAFE SECURITY DEFINER ROWS 50 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_find_sagas';
COMMENT ON FUNCTION stacksaga.find_sagas IS
    'Returns the newest sagas that all filters accept, by an index; page on with the last row''s (created_at, saga_id). Raises SG400, also when filters that no index combines accept too few of 10,000 sagas';

-- Stable: it depends on the encoding of the database.
CREATE OR REPLACE FUNCTION stacksaga_internal.printable(text text) RETURNS text
LANGUAGE c STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_printable';
COMMENT ON FUNCTION stacksaga_internal.printable IS
    'Internal: returns a text with its invisible characters and those that change the direction of writing escaped, such as \u202e';

CREATE OR REPLACE FUNCTION stacksaga_internal.saga_waits_for(saga_id uuid) RETURNS text
LANGUAGE c STABLE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_saga_waits_for';
COMMENT ON FUNCTION stacksaga_internal.saga_waits_for IS
    'Internal: returns what a saga waits for, in words; NULL when it has ended or does not exist';

CREATE OR REPLACE FUNCTION stacksaga_internal.live_sagas(definition_id integer) RETURNS bigint
LANGUAGE c STABLE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_live_sagas';
COMMENT ON FUNCTION stacksaga_internal.live_sagas IS
    'Internal: counts the sagas of a version that have not ended, up to 1,000, by an index';

CREATE OR REPLACE FUNCTION stacksaga.claim_steps(
    queue     text,
    worker    text,
    max_steps integer  DEFAULT 1,
    lease     interval DEFAULT '30 seconds'
) RETURNS SETOF stacksaga.claimed_step
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'stacksaga_claim_steps';
COMMENT ON FUNCTION stacksaga.claim_steps IS
    'Claims due steps of a queue under a lease. Raises SG400';

-- No SECURITY DEFINER and no SET: a procedure that has them cannot commit.
CREATE OR REPLACE PROCEDURE stacksaga.wait_for_steps(
    queue text,
    wait  interval DEFAULT '20 seconds'
)
LANGUAGE c
AS 'MODULE_PATHNAME', 'stacksaga_wait_for_steps';
COMMENT ON PROCEDURE stacksaga.wait_for_steps IS
    'Commits, and returns as soon as claim_steps() may find a step in the queue, at the latest after a minute; holds no snapshot while it waits. Raises SG400, SG409 (inside a transaction block)';

CREATE OR REPLACE FUNCTION stacksaga.complete_step(
    saga_id uuid, step text, lease bigint, output jsonb DEFAULT NULL
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'stacksaga_complete_step';
COMMENT ON FUNCTION stacksaga.complete_step IS
    'Completes a claimed step and returns the status of its saga; repeating a completion changes nothing. Raises SG404, SG409 (compensation has begun), SG412 (the lease is lost), SG413, SG422 (repeated with another output)';

CREATE OR REPLACE FUNCTION stacksaga.complete_steps(
    saga_ids uuid[],
    steps    text[],
    leases   bigint[],
    outputs  jsonb[] DEFAULT NULL
) RETURNS TABLE (saga_id uuid, step text, status text, sqlstate text)
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'stacksaga_complete_steps';
COMMENT ON FUNCTION stacksaga.complete_steps IS
    'Completes many claimed steps, in order; a row that complete_step() would refuse gets the SQLSTATE, and the others are completed. Raises SG400';

CREATE OR REPLACE FUNCTION stacksaga.fail_step(
    saga_id uuid, step text, lease bigint, error text,
    error_class text     DEFAULT 'unknown',
    retry_after interval DEFAULT NULL
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'stacksaga_fail_step';
COMMENT ON FUNCTION stacksaga.fail_step IS
    'Records that an attempt failed (retryable, non_retryable or unknown) and returns the status of its saga; the same report again changes nothing. Raises SG400, SG404, SG409, SG412, SG413';

CREATE OR REPLACE FUNCTION stacksaga.release_step(
    saga_id uuid, step text, lease bigint,
    retry_after interval DEFAULT '0',
    reason      text     DEFAULT NULL
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'stacksaga_release_step';
COMMENT ON FUNCTION stacksaga.release_step IS
    'Gives back a claimed step whose attempt had no effect, without charging the attempt, and returns the status of its saga; the same again changes nothing. Raises SG400, SG404, SG412 (the lease is lost), SG413';

CREATE OR REPLACE FUNCTION stacksaga.release_steps(
    saga_ids    uuid[],
    steps       text[],
    leases      bigint[],
    retry_after interval DEFAULT '0',
    reason      text     DEFAULT NULL
) RETURNS TABLE (saga_id uuid, step text, status text, sqlstate text, error text)
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'stacksaga_release_steps';
COMMENT ON FUNCTION stacksaga.release_steps IS
    'Gives back many claimed steps, in order; a row that release_step() would refuse gets the SQLSTATE and the error, and the others are released. Raises SG400, SG413';

CREATE OR REPLACE FUNCTION stacksaga.extend_step(
    saga_id uuid, step text, lease bigint,
    extend_by interval DEFAULT '30 seconds',
    progress  jsonb    DEFAULT NULL
) RETURNS TABLE (lease_until timestamptz, cancel_requested boolean)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
AS 'MODULE_PATHNAME', 'stacksaga_extend_step';
COMMENT ON FUNCTION stacksaga.extend_step IS
    'Extends the lease of a claimed step, at most to the timeout of the attempt, and returns whether the saga compensates; records progress, what the service says of the attempt until it ends. Raises SG400, SG404, SG409, SG412, SG413';

CREATE OR REPLACE FUNCTION stacksaga.fencing_token(lease bigint) RETURNS text
LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT lower(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)) || '-' || lpad(to_hex(lease), 16, '0')
$$;
COMMENT ON FUNCTION stacksaga.fencing_token IS
    'Returns the timeline of the server and a lease as text: of two claims of a step the later one has the greater token, also after a failover that lost claims. Raises 55000 (on a standby)';

CREATE OR REPLACE FUNCTION stacksaga.saga_result(saga_id uuid)
RETURNS TABLE (status text, output jsonb, error text, failed_step text, finished_at timestamptz)
LANGUAGE c STABLE PARALLEL UNSAFE SECURITY DEFINER ROWS 1 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_saga_result';
COMMENT ON FUNCTION stacksaga.saga_result IS
    'Returns the status of a saga, the outputs of its completed steps by name, and what failed. Raises SG404';

CREATE OR REPLACE FUNCTION stacksaga.await_saga(
    saga_id uuid, timeout interval DEFAULT '30 seconds'
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_await_saga';
COMMENT ON FUNCTION stacksaga.await_saga IS
    'Waits until a committed saga is completed, failed or parked, and returns its status at the end of the wait. Raises SG404, SR425 (not committed yet)';

-- Pins its search_path after it has fired the caller's deferred triggers, which need the caller's.
CREATE OR REPLACE FUNCTION stacksaga.run_pending(max_items integer DEFAULT 100) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER AS 'MODULE_PATHNAME', 'stacksaga_run_pending';
COMMENT ON FUNCTION stacksaga.run_pending IS
    'Does due work of the session''s ring in the caller''s transaction, each handler in a subtransaction, and returns how many items it did, due schedules among them; deferred constraints of the caller are checked before. Raises SG400, SG409 (inside a handler)';

CREATE OR REPLACE FUNCTION stacksaga.saga_transitions()
RETURNS TABLE (from_status text, to_status text, direction text, sentence text, of_child boolean)
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'stacksaga_saga_transitions';
COMMENT ON FUNCTION stacksaga.saga_transitions IS
    'Lists the changes of status that a saga may make; direction is the saga''s after the change; of_child: only for a saga that is a child of another one';

CREATE OR REPLACE FUNCTION stacksaga.outcome_rules()
RETURNS TABLE (rule integer, direction text, error_class text, attempts_left text, has_verify text,
               irreversible text, outcome text, sentence text, in_doubt text, on_failure text)
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'stacksaga_outcome_rules';
COMMENT ON FUNCTION stacksaga.outcome_rules IS
    'Lists what the engine does about a failed attempt; the first rule that matches applies';

CREATE OR REPLACE FUNCTION stacksaga_internal.enforce_transition() RETURNS trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_enforce_transition';
COMMENT ON FUNCTION stacksaga_internal.enforce_transition IS
    'Internal: refuses changes of a saga''s status that saga_transitions() does not list, and of what it was started with. Raises SG409';

CREATE OR REPLACE TRIGGER saga_transition BEFORE UPDATE ON stacksaga.saga FOR EACH ROW
    EXECUTE FUNCTION stacksaga_internal.enforce_transition();
COMMENT ON TRIGGER saga_transition ON stacksaga.saga IS
    'Refuses changes that are not allowed, to the owner of the table too';
