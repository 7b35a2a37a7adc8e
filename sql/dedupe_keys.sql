-- Idempotency keys: new, replay, resume; what a failure leaves behind; when a key is forgotten.

\set SHOW_CONTEXT never
TRUNCATE stacksaga.idempotency_key;
CREATE SCHEMA keys;
CREATE TABLE keys.charge (amount int);
CREATE VIEW keys.state AS
    SELECT scope, key, attempt, completed_at IS NOT NULL AS completed, recovery_point, response
      FROM stacksaga.idempotency_key ORDER BY scope, key;
-- A statement's outcome, or its error; leases in DETAIL are random.
CREATE FUNCTION keys.outcome(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text; detail text; hint text;
BEGIN
    EXECUTE statement INTO result;
    RETURN coalesce(result, 'done');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(E'\n', SQLSTATE || ': ' || SQLERRM,
                     nullif(regexp_replace(detail, 'lease (given is )?\d{6,}', 'lease \1N'), ''),
                     nullif(hint, ''));
END
$$;
CREATE FUNCTION keys.begins(key text, request text DEFAULT NULL, options text DEFAULT '')
RETURNS text LANGUAGE sql AS $$
    SELECT keys.outcome(format(
        'SELECT concat_ws('' '', outcome, attempt, recovery_point, response)
           FROM stacksaga.idempotency_begin(''shop'', %L, %L%s)', key, request, options))
$$;

-- Everything in one transaction: the marker commits with the effect.
BEGIN;
SELECT outcome, response, recovery_point, attempt, lease > 0 AS has_lease, lease
  FROM stacksaga.idempotency_begin('shop', 'one', '{"amount": 30}') \gset
\echo :outcome :attempt :has_lease
INSERT INTO keys.charge VALUES (30);
SELECT stacksaga.idempotency_finish('shop', 'one', :lease, '{"status": 201, "id": 7}');
COMMIT;
SELECT * FROM stacksaga.idempotency_begin('shop', 'one', '{"amount": 30}');
-- A replay takes no transaction id and writes nothing.
BEGIN;
SELECT outcome FROM stacksaga.idempotency_begin('shop', 'one', '{"amount": 30}');
SELECT pg_current_xact_id_if_assigned();
COMMIT;
-- The same finish again is no news, another response is refused.
SELECT stacksaga.idempotency_finish('shop', 'one', :lease, '{"id": 7, "status": 201}');
SELECT keys.outcome(format($$ SELECT stacksaga.idempotency_finish('shop', 'one', %s, '{}') $$, :lease));
SELECT keys.outcome(format($$ SELECT stacksaga.idempotency_finish('shop', 'one', %s) $$, :lease));
SELECT keys.outcome(format($$ SELECT stacksaga.idempotency_checkpoint('shop', 'one', %s, 'x') $$, :lease));
SELECT keys.outcome(format($$ SELECT stacksaga.idempotency_release('shop', 'one', %s) $$, :lease));
SELECT * FROM keys.state;

-- The scope is part of the identity.
SELECT outcome FROM stacksaga.idempotency_begin('other shop', 'one', '{"amount": 31}');
-- A response may be absent, and so may a request.
SELECT lease FROM stacksaga.idempotency_begin('shop', 'bare') \gset
SELECT stacksaga.idempotency_finish('shop', 'bare', :lease);
SELECT keys.begins('bare');
SELECT keys.begins('bare', 'null');
SELECT keys.begins('bare', '{}');
SELECT keys.begins('one');

-- What a failure leaves behind: a rolled-back attempt nothing, a final answer its answer.
BEGIN;
SELECT outcome FROM stacksaga.idempotency_begin('shop', 'fails', '{"amount": 1}');
INSERT INTO keys.charge VALUES (1);
ROLLBACK;
SELECT keys.begins('fails', '{"amount": 2}');
BEGIN;
SELECT lease FROM stacksaga.idempotency_begin('shop', 'declined', '{"amount": 5000}') \gset
SAVEPOINT effect;
INSERT INTO keys.charge VALUES (5000);
ROLLBACK TO effect;
SELECT stacksaga.idempotency_finish('shop', 'declined', :lease, '{"status": 402}');
COMMIT;
SELECT keys.begins('declined', '{"amount": 5000}');

-- A savepoint that is rolled back takes marker and effect, and the lock on the key.
BEGIN;
SAVEPOINT marker_and_effect;
SELECT lease FROM stacksaga.idempotency_begin('shop', 'savepoint') \gset
INSERT INTO keys.charge VALUES (77);
SELECT stacksaga.idempotency_finish('shop', 'savepoint', :lease, '"first"');
ROLLBACK TO marker_and_effect;
SELECT count(*) FROM pg_locks WHERE locktype = 'userlock' AND pid = pg_backend_pid();
SELECT outcome, lease FROM stacksaga.idempotency_begin('shop', 'savepoint') \gset
\echo :outcome
INSERT INTO keys.charge VALUES (78);
SELECT stacksaga.idempotency_finish('shop', 'savepoint', :lease, '"second"');
COMMIT;
SELECT keys.begins('savepoint');
SELECT * FROM keys.charge ORDER BY amount;
-- The finish alone can be rolled back too: then the key is in progress again.
BEGIN;
SELECT lease FROM stacksaga.idempotency_begin('shop', 'half') \gset
SAVEPOINT finish;
SELECT stacksaga.idempotency_finish('shop', 'half', :lease, '1');
ROLLBACK TO finish;
SELECT stacksaga.idempotency_finish('shop', 'half', :lease, '2');
COMMIT;
SELECT keys.begins('half');

-- A begin inside the begin of the same key does not wait for itself.
BEGIN;
SELECT outcome FROM stacksaga.idempotency_begin('shop', 'nested');
SELECT keys.begins('nested');
SELECT keys.begins('nested', NULL, ', on_locked => ''wait''');
ROLLBACK;

-- External work: the begin is committed, and protected by its lease.
SELECT lease AS first FROM stacksaga.idempotency_begin('shop', 'outside', '{"to": "bank"}', lease => '30 seconds') \gset
SELECT keys.begins('outside', '{"to": "bank"}');
SELECT keys.begins('outside', '{"to": "bank"}', ', on_locked => ''wait''');
SELECT keys.begins('outside', '{"to": "bench"}');
SELECT stacksaga.idempotency_checkpoint('shop', 'outside', :first, 'reserved');
SET stacksaga.clock_offset = '20 seconds';
SELECT stacksaga.idempotency_checkpoint('shop', 'outside', :first, 'charged');
-- A checkpoint is a sign of life: the lease begins anew.
SET stacksaga.clock_offset = '40 seconds';
SELECT keys.begins('outside', '{"to": "bank"}');
-- The owner has stopped: the next attempt continues from the last recovery point.
SET stacksaga.clock_offset = '51 seconds';
SELECT keys.begins('outside', '{"to": "bench"}');
SELECT outcome, recovery_point, attempt, response, lease AS second
  FROM stacksaga.idempotency_begin('shop', 'outside', '{"to": "bank"}') \gset
\echo :outcome :recovery_point :attempt
SELECT :second > :first AS lease_rises;
SELECT keys.begins('outside', '{"to": "bank"}');
-- The old owner is fenced, whatever it tries.
SELECT keys.outcome(format($$ SELECT stacksaga.idempotency_finish('shop', 'outside', %s, '1') $$, :first));
SELECT keys.outcome(format($$ SELECT stacksaga.idempotency_checkpoint('shop', 'outside', %s, 'shipped') $$, :first));
SELECT keys.outcome(format($$ SELECT stacksaga.idempotency_release('shop', 'outside', %s) $$, :first));
SELECT * FROM keys.state WHERE key = 'outside';
-- An answer under the latest lease counts, also late, as long as nobody has taken over.
SET stacksaga.clock_offset = '10 minutes';
SELECT stacksaga.idempotency_finish('shop', 'outside', :second, '"done"');
SELECT keys.begins('outside', '{"to": "bank"}');
SELECT keys.outcome(format($$ SELECT stacksaga.idempotency_finish('shop', 'outside', %s, '"done"') $$, :first));
RESET stacksaga.clock_offset;

-- Nothing was done: the key is free, and the old lease is worth nothing.
SELECT lease AS old FROM stacksaga.idempotency_begin('shop', 'released', '1') \gset
SELECT stacksaga.idempotency_release('shop', 'released', :old);
SELECT keys.outcome(format($$ SELECT stacksaga.idempotency_release('shop', 'released', %s) $$, :old));
SELECT outcome, attempt, lease AS new FROM stacksaga.idempotency_begin('shop', 'released', '2') \gset
\echo :outcome :attempt
SELECT keys.outcome(format($$ SELECT stacksaga.idempotency_finish('shop', 'released', %s, '1') $$, :old));
SELECT stacksaga.idempotency_finish('shop', 'released', :new, '2');

-- Something may have been done: only the lease ends, and the next attempt resumes at once.
SELECT lease AS first FROM stacksaga.idempotency_begin('shop', 'in doubt', '1') \gset
SELECT stacksaga.idempotency_checkpoint('shop', 'in doubt', :first, 'charged');
SELECT stacksaga.idempotency_release('shop', 'in doubt', :first);
SELECT keys.outcome(format($$ SELECT stacksaga.idempotency_release('shop', 'in doubt', %s) $$, :first));
SELECT keys.begins('in doubt', '2');
SELECT keys.begins('in doubt', '1');
SELECT lease AS second FROM stacksaga.idempotency_begin('shop', 'lost', '1') \gset
SET stacksaga.clock_offset = '61 seconds';
SELECT outcome, attempt, lease AS second FROM stacksaga.idempotency_begin('shop', 'lost', '1') \gset
\echo :outcome :attempt
SELECT stacksaga.idempotency_release('shop', 'lost', :second);
SELECT keys.begins('lost', '1');
SELECT * FROM keys.state WHERE key IN ('in doubt', 'lost');
RESET stacksaga.clock_offset;

-- What jsonb calls equal is one request, and a fingerprint that an earlier version has stored matches the same one.
SELECT keys.begins('equal', '{"amount": 10.0, "note": "10.0"}');
SELECT keys.begins('equal', '{"amount": 10, "note": "10.0"}');
SELECT keys.begins('equal', '{"amount": 10.00, "note": "10"}');
SELECT lease FROM stacksaga.idempotency_begin('shop', 'stored', '{"amount": 10.0}') \gset
SELECT stacksaga.idempotency_finish('shop', 'stored', :lease);
UPDATE stacksaga.idempotency_key SET fingerprint = sha256('{"amount": 10.0}'), fingerprint_version = 1 WHERE key = 'stored';
SELECT keys.begins('stored', '{"amount": 10.0}');
SELECT keys.begins('stored', '{"amount": 11}');

-- Fingerprints: canonical, and a mismatch names both.
SELECT stacksaga.fingerprint('{"b": [1, 2], "a": "x"}') = stacksaga.fingerprint('  {"a":"x","b":[1,2]}') AS same,
       stacksaga.fingerprint('{"a": 1}') = stacksaga.fingerprint('{"a": 1.0}') AS scale,
       stacksaga.fingerprint('{"a": null}') = stacksaga.fingerprint('{}') AS absent,
       stacksaga.fingerprint(NULL) IS NULL AS none,
       stacksaga.fingerprint('{"a": 1}') = sha256('{"a": 1}') AS sha256;
-- Of every length around the borders of the hash's blocks.
SELECT count(*) AS lengths,
       bool_and(stacksaga.fingerprint(to_jsonb(repeat('x', n))) = sha256(convert_to('"' || repeat('x', n) || '"', 'UTF8'))) AS same
  FROM generate_series(0, 300) AS n;
SELECT length(stacksaga.fingerprint(to_jsonb(repeat('x', 10000000))));
SELECT lease FROM stacksaga.idempotency_begin('shop', 'fields',
    '{"amount": 30, "currency": "EUR", "tags": ["a", "}\","], "to": {"name": "Zoë", "iban": "1"}}') \gset
SELECT keys.begins('fields', request) FROM unnest(ARRAY[
    '{"amount": 31, "currency": "EUR", "tags": ["a", "}\","], "to": {"name": "Zoë", "iban": "1"}}',
    '{"amount": 30, "currency": "EUR", "tags": ["a", "}\""], "to": {"name": "Zoe", "iban": "1"}}',
    '{"amount": 30, "currency": "EUR", "tags": ["a", "}\","], "to": {"iban": "1", "name": "Zoë"}, "new": 1}',
    '{"betrag": 30, "währung": "EUR"}', '{}', '[]', '30', '"x"', 'null', NULL]) AS request;
SELECT stacksaga.idempotency_finish('shop', 'fields', :lease);
SELECT keys.begins('fields', '{"amount": 31}');
-- However large the request, what is kept of it is small.
SELECT outcome FROM stacksaga.idempotency_begin('shop', 'wide',
    (SELECT jsonb_object_agg('field' || lpad(n::text, 4, '0'), n) FROM generate_series(1, 1000) AS n));
SELECT pg_column_size(k.*) < 500 AS small FROM stacksaga.idempotency_key AS k WHERE key = 'wide';
SELECT keys.begins('wide', (SELECT jsonb_object_agg('field' || lpad(n::text, 4, '0'), n + n / 1000)
                              FROM generate_series(1, 1000) AS n)::text);

-- Retention counts from completion, on the database's clock, to the microsecond.
SELECT lease FROM stacksaga.idempotency_begin('shop', 'expires', '1', retention => '1 hour') \gset
SET stacksaga.clock_offset = '30 minutes';
SELECT stacksaga.idempotency_checkpoint('shop', 'expires', :lease, 'half an hour later');
SELECT stacksaga.idempotency_finish('shop', 'expires', :lease, '"kept"');
SET stacksaga.clock_offset = '89 minutes';
SELECT keys.begins('expires', '1');
SELECT stacksaga.expire_dedupe();
SELECT keys.begins('expires', '1');
SET stacksaga.clock_offset = '91 minutes';
-- A key that has expired is new, also for another request and before a sweep has passed.
SELECT keys.begins('expires', '2');
SELECT keys.begins('expires', '1');
SELECT keys.outcome(format($$ SELECT stacksaga.idempotency_finish('shop', 'expires', %s, '"kept"') $$, :lease));
UPDATE stacksaga.idempotency_key SET completed_at = stacksaga.clock_now() - interval '59 minutes', retention = '1 hour',
       sweep_at = stacksaga.clock_now() WHERE key = 'expires';
SELECT stacksaga.expire_dedupe();
UPDATE stacksaga.idempotency_key SET completed_at = stacksaga.clock_now() - interval '1 hour',
       sweep_at = stacksaga.clock_now() WHERE key = 'expires';
SELECT stacksaga.expire_dedupe();
SELECT count(*) FROM stacksaga.idempotency_key WHERE key = 'expires';
-- Keys in progress are never forgotten, however long ago they began.
SELECT outcome, lease FROM stacksaga.idempotency_begin('shop', 'slow') \gset
SELECT count(*) AS in_progress FROM stacksaga.idempotency_key WHERE completed_at IS NULL \gset
SET stacksaga.clock_offset = '10 years';
SELECT count(*) AS completed FROM stacksaga.idempotency_key WHERE completed_at IS NOT NULL \gset
-- (A batch counts what it looks at; what is in progress is looked at again a retention later.)
SELECT stacksaga.expire_dedupe(max_rows => 1) + stacksaga.expire_dedupe(max_rows => 1)
       + stacksaga.expire_dedupe(100000) = :completed AS all_gone, stacksaga.expire_dedupe(1);
SELECT count(*) FROM stacksaga.idempotency_key WHERE sweep_at <= stacksaga.clock_now();
SELECT count(*) = :in_progress AS all_there, bool_and(completed_at IS NULL) FROM stacksaga.idempotency_key;
SELECT stacksaga.idempotency_finish('shop', 'slow', :lease, '"at last"');
SELECT keys.begins('slow');
RESET stacksaga.clock_offset;
TRUNCATE stacksaga.idempotency_key;

-- In each isolation level, also over one snapshot.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM keys.charge;
SELECT lease FROM stacksaga.idempotency_begin('shop', 'rr', '1') \gset
SELECT stacksaga.idempotency_finish('shop', 'rr', :lease, '"rr"');
SELECT keys.begins('rr', '1');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT keys.begins('rr', '1');
SELECT lease FROM stacksaga.idempotency_begin('shop', 'ser', '1') \gset
SELECT stacksaga.idempotency_finish('shop', 'ser', :lease, '"ser"');
COMMIT;
SELECT keys.begins('ser', '1');

-- The token is that of scope, a separator and key, and updates are heap-only.
SELECT token::bigint = stacksaga.token(scope || chr(31) || key) FROM stacksaga.idempotency_key;
-- (A session counts what it did by itself until it is idle.)
\c -
DO $$
DECLARE
    held bigint;
    counted CONSTANT regclass := 'stacksaga.idempotency_key';
BEGIN
    FOR n IN 1..2000 LOOP
        SELECT lease INTO held FROM stacksaga.idempotency_begin('hot', 'key ' || n, '{"amount": 1}');
        COMMIT;
        PERFORM stacksaga.idempotency_finish('hot', 'key ' || n, held, '{"status": 201}');
        COMMIT;
    END LOOP;
    RAISE INFO 'updates: %, heap-only: %', pg_stat_get_xact_tuples_updated(counted),
        pg_stat_get_xact_tuples_hot_updated(counted);
END
$$;

SET client_min_messages = warning;
TRUNCATE stacksaga.idempotency_key;
DROP SCHEMA keys CASCADE;
