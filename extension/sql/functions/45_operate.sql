-- Actions of operators (extension/src/operate/operate.cpp), and signals (signal.cpp).

CREATE OR REPLACE FUNCTION stacksaga.signal_saga(
    saga_id    uuid,
    signal     text,
    payload    jsonb DEFAULT '{}',
    message_id text  DEFAULT NULL
) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_signal_saga';
COMMENT ON FUNCTION stacksaga.signal_saga IS
    'Sends a signal, which completes the step that waits for it or the first one that will; false when message_id was accepted before. Raises SG400, SG404 (no such saga, or no step of it waits for the signal), SG409 (the saga has ended or compensates), SG413';

CREATE OR REPLACE FUNCTION stacksaga.cancel_saga(saga_id uuid, reason text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_cancel_saga';
COMMENT ON FUNCTION stacksaga.cancel_saga IS
    'Makes a saga compensate what it has done, once its claimed steps have settled, and returns the status that stands: while an irreversible step is in flight or in doubt, the one before. Raises SG400, SG404, SG409 (it has ended, is past an irreversible step, or parked after its compensation began)';

CREATE OR REPLACE FUNCTION stacksaga.suspend_saga(saga_id uuid, reason text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_suspend_saga';
COMMENT ON FUNCTION stacksaga.suspend_saga IS
    'Stops a saga until resume_saga(): none of its steps becomes due, answers under a lease still count. Raises SG400, SG404, SG409 (it has ended or is parked)';

CREATE OR REPLACE FUNCTION stacksaga.resume_saga(saga_id uuid, reason text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_resume_saga';
COMMENT ON FUNCTION stacksaga.resume_saga IS
    'Resumes a suspended saga. Raises SG400, SG404, SG409 (it is not suspended)';

CREATE OR REPLACE FUNCTION stacksaga.retry_saga(saga_id uuid, reason text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_retry_saga';
COMMENT ON FUNCTION stacksaga.retry_saga IS
    'Retries what failed in a parked saga, or makes verify due where a step is in doubt. Attempts count from 1 again. Raises SG400, SG404, SG409 (it is not parked, or only resolve_step() can say what happened)';

CREATE OR REPLACE FUNCTION stacksaga.compensate_saga(saga_id uuid, reason text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_compensate_saga';
COMMENT ON FUNCTION stacksaga.compensate_saga IS
    'Makes a saga compensate that is parked in direction act or suspended, as cancel_saga() does, and returns the status that stands; one that compensates already stays as it is. Raises SG400, SG404, SG409 (it runs, is pending or has ended, is past an irreversible step, or parked after its compensation began)';

CREATE OR REPLACE FUNCTION stacksaga.resolve_step(
    saga_id uuid,
    step    text,
    outcome text,
    output  jsonb DEFAULT NULL,
    reason  text  DEFAULT NULL,
    direction text DEFAULT NULL
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_resolve_step';
COMMENT ON FUNCTION stacksaga.resolve_step IS
    'Records that a step, or its compensation, is done, not_done or never will be, where no attempt could say so; direction may be NULL where only one is open. Raises SG400, SG404, SG409 (nothing is open, an attempt is under its lease, the child has not ended), SG413';

CREATE OR REPLACE FUNCTION stacksaga.acknowledge_contradiction(saga_id uuid, step text, reason text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_acknowledge_contradiction';
COMMENT ON FUNCTION stacksaga.acknowledge_contradiction IS
    'Records that somebody has looked at the answers that contradict what settled a step; doctor() shows them until then. Raises SG400, SG404, SG409 (there is none)';

CREATE OR REPLACE FUNCTION stacksaga_internal.kept_contradictions()
RETURNS TABLE (saga_id uuid, step_no smallint, direction text, lease bigint, answer text, answered_at timestamptz)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_kept_contradictions';
COMMENT ON FUNCTION stacksaga_internal.kept_contradictions IS
    'Internal: returns the refused answers that contradict others and that no worker has written to the table yet';

CREATE OR REPLACE FUNCTION stacksaga.redact_saga(saga_id uuid, reason text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_redact_saga';
COMMENT ON FUNCTION stacksaga.redact_saga IS
    'Erases the input, outputs, errors, signals and attributes of a finished saga, and the reasons given for earlier actions on it; its identity, steps and times stay. Raises SG400, SG404, SG409 (it, or a saga that it is a step of, has not finished)';

CREATE OR REPLACE FUNCTION stacksaga.cancel_sagas(
    saga_ids uuid[],
    reason   text,
    dry_run  boolean DEFAULT true
) RETURNS TABLE (saga_id uuid, status_before text, status_after text, sqlstate text, error text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_cancel_sagas';
COMMENT ON FUNCTION stacksaga.cancel_sagas IS
    'Does what cancel_saga() does to each saga, and reports those that it refuses; a dry run only reports. Raises SG400';

CREATE OR REPLACE FUNCTION stacksaga.suspend_sagas(
    saga_ids uuid[],
    reason   text,
    dry_run  boolean DEFAULT true
) RETURNS TABLE (saga_id uuid, status_before text, status_after text, sqlstate text, error text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_suspend_sagas';
COMMENT ON FUNCTION stacksaga.suspend_sagas IS
    'Does what suspend_saga() does to each saga, and reports those that it refuses; a dry run only reports. Raises SG400';

CREATE OR REPLACE FUNCTION stacksaga.resume_sagas(
    saga_ids uuid[],
    reason   text,
    dry_run  boolean  DEFAULT true,
    spread   interval DEFAULT '0'
) RETURNS TABLE (saga_id uuid, status_before text, status_after text, sqlstate text, error text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_resume_sagas';
COMMENT ON FUNCTION stacksaga.resume_sagas IS
    'Does what resume_saga() does to each saga, and reports those that it refuses; the attempts that become due fall due evenly over spread; a dry run only reports. Raises SG400';

CREATE OR REPLACE FUNCTION stacksaga.retry_sagas(
    saga_ids uuid[],
    reason   text,
    dry_run  boolean  DEFAULT true,
    spread   interval DEFAULT '0'
) RETURNS TABLE (saga_id uuid, status_before text, status_after text, sqlstate text, error text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_retry_sagas';
COMMENT ON FUNCTION stacksaga.retry_sagas IS
    'Does what retry_saga() does to each saga, and reports those that it refuses; the attempts that become due fall due evenly over spread; a dry run only reports. Raises SG400';

CREATE OR REPLACE FUNCTION stacksaga.compensate_sagas(
    saga_ids uuid[],
    reason   text,
    dry_run  boolean  DEFAULT true,
    spread   interval DEFAULT '0'
) RETURNS TABLE (saga_id uuid, status_before text, status_after text, sqlstate text, error text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_compensate_sagas';
COMMENT ON FUNCTION stacksaga.compensate_sagas IS
    'Does what compensate_saga() does to each saga, and reports those that it refuses; the compensations that become due fall due evenly over spread; a dry run only reports. Raises SG400';
