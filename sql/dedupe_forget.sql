-- idempotency_forget: the answer of a completed key is erased before its retention ends, and the key never answers with
-- it, or begins, until then.

\set SHOW_CONTEXT never
TRUNCATE stacksaga.idempotency_key;
CREATE SCHEMA forget;
-- A statement's outcome, or its error; instants and leases are left out.
CREATE FUNCTION forget.outcome(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text; detail text; hint text;
BEGIN
    EXECUTE statement INTO result;
    RETURN coalesce(nullif(result, ''), 'done');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(E'\n', SQLSTATE || ': ' || SQLERRM,
                     regexp_replace(detail, 'ends at .*|\d{6,}', '…', 'g'), hint);
END
$$;
CREATE FUNCTION forget.begins(key text, request text, options text DEFAULT '') RETURNS text LANGUAGE sql AS $$
    SELECT forget.outcome(format('SELECT concat_ws('' '', outcome, attempt, recovery_point, response)
                                    FROM stacksaga.idempotency_begin(''person'', %L, %L%s)', key, request, options)) $$;
CREATE FUNCTION forget.forgets(key text, reason text DEFAULT 'ticket 815') RETURNS text LANGUAGE sql AS $$
    SELECT forget.outcome(format('SELECT stacksaga.idempotency_forget(''person'', %L, %L)', key, reason)) $$;
CREATE FUNCTION forget.state(key text) RETURNS TABLE (state text, expires_in interval, detail text) LANGUAGE sql AS $$
    SELECT s.state, date_trunc('hour', s.expires_at - (s.detail ->> 'completed_at')::timestamptz),
           (SELECT string_agg(d, ' ' ORDER BY d) FROM jsonb_object_keys(s.detail) AS d)
      FROM stacksaga.dedupe_state('person', key) AS s $$;

SELECT lease AS ann FROM stacksaga.idempotency_begin('person', 'ann', '{"mail": "ann@example.com"}', retention => '2 days') \gset
SELECT stacksaga.idempotency_checkpoint('person', 'ann', :ann, 'mail to ann@example.com');
-- In progress under a lease, and when that has run out.
SELECT forget.forgets('ann');
SET stacksaga.clock_offset = '2 minutes';
SELECT forget.forgets('ann');
RESET stacksaga.clock_offset;
SELECT stacksaga.idempotency_finish('person', 'ann', :ann, '{"card": "Ann A."}');
SELECT lease AS bob FROM stacksaga.idempotency_begin('person', 'bob', '{"mail": "bob@example.com"}') \gset
SELECT stacksaga.idempotency_finish('person', 'bob', :bob, '{"card": "Bob B."}');
SELECT * FROM forget.state('ann');

SELECT forget.forgets('ann');
SELECT key, fingerprint IS NULL AS no_fingerprint, recovery_point, response, completed_at IS NOT NULL AS completed,
       forgotten_at IS NOT NULL AS forgotten
  FROM stacksaga.idempotency_key ORDER BY key;
SELECT * FROM forget.state('ann');
SELECT * FROM forget.state('bob');

-- Whatever the request, also none, and for one who would wait.
SELECT forget.begins('ann', '{"mail": "ann@example.com"}');
SELECT forget.begins('ann', '{"mail": "other@example.com"}');
SELECT forget.begins('ann', NULL);
SELECT forget.begins('ann', '{"mail": "ann@example.com"}', ', on_locked => ''wait''');
-- So do answers under its lease, the finish that is repeated too; under another one it is lost.
SELECT forget.outcome(format($$SELECT stacksaga.idempotency_finish('person', 'ann', %s, '{"card": "Ann A."}')$$, :ann));
SELECT forget.outcome(format($$SELECT stacksaga.idempotency_finish('person', 'ann', %s, NULL)$$, :ann));
SELECT forget.outcome(format($$SELECT stacksaga.idempotency_checkpoint('person', 'ann', %s, 'x')$$, :ann));
SELECT forget.outcome(format($$SELECT stacksaga.idempotency_release('person', 'ann', %s)$$, :ann));
SELECT forget.outcome(format($$SELECT stacksaga.idempotency_finish('person', 'ann', %s + 1, NULL)$$, :ann));
SELECT forget.begins('bob', '{"mail": "bob@example.com"}');

-- Again changes nothing, and is not recorded again.
SELECT forgotten_at AS forgotten FROM stacksaga.idempotency_key WHERE key = 'ann' \gset
SET stacksaga.clock_offset = '1 hour';
SELECT forget.forgets('ann', 'again');
RESET stacksaga.clock_offset;
SELECT forgotten_at = :'forgotten' AS same FROM stacksaga.idempotency_key WHERE key = 'ann';
SELECT action, object, reason FROM stacksaga.operator_actions WHERE action = 'forget' ORDER BY at;

-- What a rollback takes back was not forgotten.
BEGIN;
SELECT forget.forgets('bob');
SELECT state FROM forget.state('bob');
ROLLBACK;
SELECT forget.begins('bob', '{"mail": "bob@example.com"}');
-- In the transaction that finishes it, and while this transaction has begun it.
BEGIN;
SELECT lease AS cat FROM stacksaga.idempotency_begin('person', 'cat', '1') \gset
SELECT forget.forgets('cat');
SELECT stacksaga.idempotency_finish('person', 'cat', :cat, '2');
SELECT forget.forgets('cat');
COMMIT;
SELECT forget.begins('cat', '1');

-- Its retention ends as it would have: then the key is unknown, and new for the one who begins it.
SET stacksaga.clock_offset = '47 hours';
SELECT state FROM forget.state('ann');
SET stacksaga.clock_offset = '49 hours';
SELECT state FROM forget.state('ann');
SELECT forget.forgets('ann');
SELECT forget.outcome(format($$SELECT stacksaga.idempotency_finish('person', 'ann', %s, '{"card": "Ann A."}')$$, :ann));
SELECT forget.begins('ann', '{"mail": "ann@example.com"}');
SELECT state, detail FROM forget.state('ann');
SELECT lease AS ann FROM stacksaga.idempotency_key WHERE key = 'ann' \gset
SELECT stacksaga.idempotency_finish('person', 'ann', :ann, '"new"');
SELECT forget.begins('ann', '{"mail": "ann@example.com"}');
-- One that nobody begins again is swept.
SET stacksaga.clock_offset = '8 days';
SELECT forget.forgets('cat');
SELECT stacksaga.expire_dedupe() > 0 AS swept;
SELECT forget.forgets('cat');
RESET stacksaga.clock_offset;

-- Arguments, a transaction that only reads, and who may.
SELECT forget.forgets('ann', NULL);
SELECT forget.forgets('ann', '');
SELECT forget.outcome($$SELECT stacksaga.idempotency_forget(NULL, 'ann', 'x')$$);
SELECT forget.outcome($$SELECT stacksaga.idempotency_forget('person', '', 'x')$$);
SELECT lease AS bob FROM stacksaga.idempotency_begin('person', 'bob') \gset
SELECT stacksaga.idempotency_finish('person', 'bob', :bob, '{"card": "Bob B."}');
BEGIN READ ONLY;
SELECT forget.forgets('bob');
COMMIT;
CREATE ROLE forget_support;
CREATE ROLE forget_service;
SELECT stacksaga.grant_usage('forget_support', 'support'), stacksaga.grant_usage('forget_service', 'service');
SET ROLE forget_service;
SELECT stacksaga.idempotency_forget('person', 'bob', 'mine');
SET ROLE forget_support;
SELECT stacksaga.idempotency_forget('person', 'bob', 'ticket 816');
RESET ROLE;
SELECT role_name, object, reason FROM stacksaga.operator_actions WHERE reason = 'ticket 816';

DELETE FROM stacksaga.idempotency_key WHERE scope = 'person';
DROP OWNED BY forget_support, forget_service;
DELETE FROM stacksaga.usage_grant WHERE role IN ('forget_support', 'forget_service');
DROP ROLE forget_support, forget_service;
\set VERBOSITY terse
DROP SCHEMA forget CASCADE;
