-- What the functions of the dedupe ladder refuse: SQLSTATE, DETAIL and HINT, and nothing is changed.

\set SHOW_CONTEXT never
CREATE SCHEMA refused;
CREATE FUNCTION refused.outcome(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text; detail text; hint text;
BEGIN
    EXECUTE statement INTO result;
    RETURN 'ALLOWED ' || coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(E'\n', SQLSTATE || ': ' || SQLERRM, nullif(detail, ''), nullif(hint, ''));
END
$$;
CREATE VIEW refused.everything AS
    SELECT t::text FROM stacksaga.idempotency_key t UNION ALL SELECT t::text FROM stacksaga.accepted_message t
    UNION ALL SELECT t::text FROM stacksaga.producer_sequence t UNION ALL SELECT t::text FROM stacksaga.versioned_value t;
SELECT lease FROM stacksaga.idempotency_begin('refused', 'held', '{"a": 1}') \gset
SELECT stacksaga.accept_message('refused', 'm'), stacksaga.accept_sequence('refused', 2, 1),
       stacksaga.compare_and_set('refused', 'v', NULL, '1');
CREATE TABLE refused.before AS SELECT * FROM refused.everything;

-- Scopes, keys and their like.
SELECT call, refused.outcome('SELECT stacksaga.' || call) FROM unnest(ARRAY[
    $$idempotency_begin(NULL, 'k')$$, $$idempotency_begin('', 'k')$$, $$idempotency_begin(repeat('s', 64), 'k')$$,
    $$idempotency_begin('s', NULL)$$, $$idempotency_begin('s', '')$$, $$idempotency_begin('s', repeat('k', 256))$$,
    $$idempotency_begin('s', repeat('é', 128))$$, $$idempotency_begin('s', E'\xff')$$,
    $$idempotency_checkpoint('', 'k', 1, 'p')$$, $$idempotency_checkpoint('s', '', 1, 'p')$$,
    $$idempotency_checkpoint('s', 'k', NULL, 'p')$$, $$idempotency_checkpoint('s', 'k', 1, NULL)$$,
    $$idempotency_checkpoint('s', 'k', 1, '')$$, $$idempotency_checkpoint('s', 'k', 1, repeat('p', 256))$$,
    $$idempotency_finish(NULL, 'k', 1)$$, $$idempotency_finish('s', NULL, 1)$$, $$idempotency_finish('s', 'k', NULL)$$,
    $$idempotency_release('s', repeat('k', 100000), 1)$$, $$idempotency_release('s', 'k', NULL)$$,
    $$accept_message('', 'm')$$, $$accept_message('c', '')$$, $$accept_message('c', NULL)$$, $$accept_message(repeat('c', 64), 'm')$$,
    $$accept_message('c', repeat('m', 256))$$,
    $$accept_sequence('', 1, 1)$$, $$accept_sequence(NULL, 1, 1)$$, $$accept_sequence('p', NULL, 1)$$, $$accept_sequence('p', 1, NULL)$$,
    $$accept_sequence('p', -1, 1)$$, $$accept_sequence('p', 1, 0)$$, $$accept_sequence('p', 1, -9223372036854775808)$$,
    $$compare_and_set('', 'k', NULL, '1')$$, $$compare_and_set('s', '', NULL, '1')$$, $$compare_and_set('s', 'k', NULL, NULL)$$,
    $$read_value('', 'k')$$, $$read_value('s', NULL)$$, $$read_value(NULL, NULL)$$,
    $$expire_dedupe(0)$$, $$expire_dedupe(-1)$$, $$expire_dedupe(100001)$$, $$expire_dedupe(NULL)$$]) AS call;
-- The largest that is allowed.
SELECT refused.outcome($$ SELECT outcome FROM stacksaga.idempotency_begin(repeat('s', 63), repeat('k', 255)) $$);
DELETE FROM stacksaga.idempotency_key WHERE scope LIKE 'sss%';

-- Leases, retentions, on_locked.
SELECT options, refused.outcome(format($$ SELECT stacksaga.idempotency_begin('s', 'k', '1', %s) $$, options)) FROM unnest(ARRAY[
    $$lease => NULL$$, $$lease => '0'$$, $$lease => '-1 second'$$, $$lease => '1 month -31 days'$$, $$lease => '178000000 years'$$,
    $$lease => '200 years', retention => '200 years'$$,
    $$retention => '0'$$, $$retention => '-1 day'$$, $$retention => '178000000 years'$$,
    $$retention => '59 seconds'$$, $$lease => '1 day', retention => '23 hours'$$, $$lease => '8 days'$$,
    $$on_locked => NULL$$, $$on_locked => ''$$, $$on_locked => 'WAIT'$$, $$on_locked => 'skip'$$]) AS options;
SELECT refused.outcome($$ SELECT stacksaga.accept_message('c', 'm', '0') $$);
SELECT refused.outcome($$ SELECT stacksaga.accept_message('c', 'm', '-1 day') $$);

-- Too large.
SET stacksaga.max_payload = 1024;
SELECT refused.outcome($$ SELECT stacksaga.idempotency_begin('s', 'k', to_jsonb(repeat('x', 2000))) $$);
SELECT refused.outcome(format($$ SELECT stacksaga.idempotency_finish('refused', 'held', %s, to_jsonb(repeat('x', 2000))) $$, :lease));
SELECT refused.outcome($$ SELECT stacksaga.compare_and_set('s', 'k', NULL, to_jsonb(repeat('x', 2000))) $$);
RESET stacksaga.max_payload;

-- Leases that are not there: unknown scopes and keys, the lease of another, a guess.
SELECT call, refused.outcome('SELECT stacksaga.' || call) FROM unnest(ARRAY[
    $$idempotency_finish('unknown', 'held', 7)$$, $$idempotency_finish('refused', 'unknown', 7)$$,
    $$idempotency_finish('refused', 'held', 7)$$, $$idempotency_finish('refused', 'held', 0)$$, $$idempotency_finish('refused', 'held', -1)$$,
    $$idempotency_checkpoint('unknown', 'held', 7, 'p')$$, $$idempotency_checkpoint('refused', 'held', 7, 'p')$$,
    $$idempotency_release('unknown', 'held', 7)$$, $$idempotency_release('refused', 'held', 7)$$]) AS call;

-- A read-only transaction: without a record there is no effect, not even a replay.
BEGIN READ ONLY;
SAVEPOINT call;
\set ON_ERROR_ROLLBACK on
SELECT stacksaga.idempotency_begin('refused', 'held', '{"a": 1}');
\echo :LAST_ERROR_SQLSTATE
SELECT stacksaga.idempotency_checkpoint('refused', 'held', 1, 'p');
\echo :LAST_ERROR_SQLSTATE
SELECT stacksaga.idempotency_finish('refused', 'held', 1);
\echo :LAST_ERROR_SQLSTATE
SELECT stacksaga.idempotency_release('refused', 'held', 1);
\echo :LAST_ERROR_SQLSTATE
SELECT stacksaga.accept_message('refused', 'm');
\echo :LAST_ERROR_SQLSTATE
SELECT stacksaga.accept_sequence('refused', 2, 2);
\echo :LAST_ERROR_SQLSTATE
SELECT stacksaga.compare_and_set('refused', 'v', 1, '2');
\echo :LAST_ERROR_SQLSTATE
SELECT stacksaga.expire_dedupe();
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM stacksaga.read_value('refused', 'v');
\set ON_ERROR_ROLLBACK off
COMMIT;

-- A failed transaction.
BEGIN;
SELECT 1 / 0;
SELECT stacksaga.idempotency_begin('refused', 'new');
SELECT stacksaga.accept_message('refused', 'new');
ROLLBACK;

-- An error inside PL/pgSQL's block takes back what the block recorded, and nothing else.
DO $$
BEGIN
    PERFORM stacksaga.accept_message('refused', 'block');
    PERFORM stacksaga.idempotency_finish('refused', 'held', 7);
EXCEPTION WHEN SQLSTATE 'SG000' OR SQLSTATE 'SG412' THEN
    RAISE NOTICE '%', SQLSTATE;
END
$$;

-- Nothing was changed by any of it.
SELECT count(*) FROM (TABLE refused.everything EXCEPT TABLE refused.before) AS more;
SELECT count(*) FROM (TABLE refused.before EXCEPT TABLE refused.everything) AS less;

-- Who may: a service, and no other by default.
CREATE ROLE refused_service;
SELECT stacksaga.grant_usage('refused_service', 'service');
CREATE ROLE refused_nobody;
GRANT USAGE ON SCHEMA stacksaga, refused TO refused_nobody, refused_service;
SET ROLE refused_nobody;
SELECT call, refused.outcome('SELECT stacksaga.' || call) FROM unnest(ARRAY[
    $$idempotency_begin('s', 'k')$$, $$accept_message('c', 'm')$$, $$compare_and_set('s', 'k', NULL, '1')$$,
    $$read_value('s', 'k')$$, $$expire_dedupe()$$]) AS call;
SELECT length(stacksaga.fingerprint('{}'));
SET ROLE refused_service;
SELECT outcome FROM stacksaga.idempotency_begin('s', 'k');
SELECT stacksaga.accept_message('c', 'm');
SELECT refused.outcome($$ SELECT stacksaga.expire_dedupe() $$);
SELECT refused.outcome($$ TABLE stacksaga.idempotency_key $$);
RESET ROLE;

SET client_min_messages = warning;
TRUNCATE stacksaga.idempotency_key, stacksaga.accepted_message, stacksaga.producer_sequence, stacksaga.versioned_value;
DROP OWNED BY refused_service, refused_nobody;
DELETE FROM stacksaga.usage_grant WHERE role LIKE 'refused%';
DROP ROLE refused_service, refused_nobody;
DROP SCHEMA refused CASCADE;
