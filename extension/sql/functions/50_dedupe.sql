-- Idempotency keys and the dedupe ladder (extension/src/dedupe/idempotency*.cpp, message_dedupe.cpp,
-- sequence.cpp, versioned_value.cpp, dedupe_state.cpp, expiry.cpp).

CREATE OR REPLACE FUNCTION stacksaga.fingerprint(request jsonb) RETURNS bytea
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stacksaga_fingerprint';
COMMENT ON FUNCTION stacksaga.fingerprint IS
    'Returns the SHA-256 of a request in canonical form: what jsonb calls equal has the same one. Raises SG413';

CREATE OR REPLACE FUNCTION stacksaga.idempotency_begin(
    scope     text,
    key       text,
    request   jsonb    DEFAULT NULL,
    lease     interval DEFAULT '60 seconds',
    retention interval DEFAULT NULL,
    on_locked text     DEFAULT 'error'
) RETURNS TABLE (outcome text, response jsonb, recovery_point text, attempt integer, lease bigint)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
AS 'MODULE_PATHNAME', 'stacksaga_idempotency_begin';
COMMENT ON FUNCTION stacksaga.idempotency_begin IS
    'Begins an operation under its key: new, replay with the stored response, or resume after an owner whose lease ran out. Raises SG400, SG409 (an operator has forgotten it), SG413, SG422 (the same key with another request), SR409 (in progress elsewhere), 25006 (read-only)';

CREATE OR REPLACE FUNCTION stacksaga.idempotency_checkpoint(
    scope text, key text, lease bigint, recovery_point text
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_idempotency_checkpoint';
COMMENT ON FUNCTION stacksaga.idempotency_checkpoint IS
    'Records how far an operation has come, which resume returns, and begins its lease anew. Raises SG400, SG409 (it is completed), SG412 (the lease is lost), 25006';

CREATE OR REPLACE FUNCTION stacksaga.idempotency_finish(
    scope text, key text, lease bigint, response jsonb DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'stacksaga_idempotency_finish';
COMMENT ON FUNCTION stacksaga.idempotency_finish IS
    'Completes an operation and stores the response that replays return; the same finish again changes nothing. Raises SG400, SG409 (an operator has forgotten it), SG412 (the lease is lost), SG413, SG422 (finished with another response), 25006';

CREATE OR REPLACE FUNCTION stacksaga.idempotency_release(scope text, key text, lease bigint)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_idempotency_release';
COMMENT ON FUNCTION stacksaga.idempotency_release IS
    'Says that this attempt did nothing: the key is free again; where it has a recovery point, or an earlier attempt was lost, only the lease ends. Raises SG400, SG409 (it is completed), SG412 (the lease is lost), 25006';

CREATE OR REPLACE FUNCTION stacksaga.idempotency_forget(scope text, key text, reason text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_idempotency_forget';
COMMENT ON FUNCTION stacksaga.idempotency_forget IS
    'Erases the response, the recovery point and the request''s fingerprint of a completed key before its retention ends; until then the key answers SG409, whatever the request. Raises SG400, SG404 (unknown or expired), SG409 (it is in progress), 25006';

CREATE OR REPLACE FUNCTION stacksaga.accept_message(
    consumer text, message_id text, retention interval DEFAULT NULL
) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_accept_message';
COMMENT ON FUNCTION stacksaga.accept_message IS
    'Returns true the first time that a consumer meets a message, and records it in the transaction of the effect. Raises SG400, 25006';

CREATE OR REPLACE FUNCTION stacksaga.accept_sequence(producer text, epoch bigint, sequence bigint)
RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_accept_sequence';
COMMENT ON FUNCTION stacksaga.accept_sequence IS
    'Returns accepted for the next message of a producer and duplicate for an earlier one; a newer epoch begins at 1 and fences the older ones. Raises SG400, SG412 (an older epoch), SR425 (a gap), 25006';

CREATE OR REPLACE FUNCTION stacksaga.compare_and_set(
    scope text, key text, expected_version bigint, value jsonb
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_compare_and_set';
COMMENT ON FUNCTION stacksaga.compare_and_set IS
    'Sets a value whose version is the expected one (NULL: that does not exist) and returns its new version; a NULL value deletes. Raises SG400, SG412 (another version), SG413, 25006';

CREATE OR REPLACE FUNCTION stacksaga.read_value(scope text, key text)
RETURNS TABLE (value jsonb, version bigint)
LANGUAGE c STABLE PARALLEL UNSAFE ROWS 1 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_read_value';
COMMENT ON FUNCTION stacksaga.read_value IS
    'Returns a value of compare_and_set() and its version; no row when it does not exist. Raises SG400';

CREATE OR REPLACE FUNCTION stacksaga.dedupe_state(scope text, key text)
RETURNS TABLE (
    rung text, state text, created_at timestamptz, expires_at timestamptz, detail jsonb
)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 4 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_dedupe_state';
COMMENT ON FUNCTION stacksaga.dedupe_state IS
    'Returns what is known of a scope (consumer, producer) and a key (message id) on each rung, without responses and values; only reads. Raises SG400';

CREATE OR REPLACE FUNCTION stacksaga.expire_dedupe(max_rows integer DEFAULT 1000) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stacksaga_expire_dedupe';
COMMENT ON FUNCTION stacksaga.expire_dedupe IS
    'Forgets idempotency keys and accepted messages whose retention is over, at most so many, and returns how many it forgot; never one in progress. Raises SG400, 25006';

CREATE OR REPLACE FUNCTION stacksaga.idempotency_transitions()
RETURNS TABLE (from_state text, event text, to_state text, reply text, sentence text)
LANGUAGE c IMMUTABLE PARALLEL SAFE ROWS 42
AS 'MODULE_PATHNAME', 'stacksaga_idempotency_transitions';
COMMENT ON FUNCTION stacksaga.idempotency_transitions IS
    'Returns what each call, and time, does to an idempotency key in each state, with a sentence for each';
