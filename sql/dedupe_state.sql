-- What is known on every rung of a scope and a key, to whom it is told, and that it only reads.
CREATE FUNCTION known(scope text, key text)
RETURNS TABLE (rung text, state text, created boolean, expires_in interval, detail jsonb) LANGUAGE sql AS $$
    SELECT d.rung, d.state, d.created_at <= stacksaga.clock_now(),
           justify_interval(date_trunc('minute', d.expires_at - d.created_at)),
           d.detail - '{updated_at,completed_at,lease_until}'::text[]
      FROM stacksaga.dedupe_state(scope, key) AS d ORDER BY d.rung
$$;
SELECT * FROM known('state', 'nothing');
BEGIN;
SELECT lease AS lease FROM stacksaga.idempotency_begin('state', 'k', '{"card": 4711}', retention => '1 hour') \gset
SELECT stacksaga.idempotency_checkpoint('state', 'k', :lease, 'charged');
SELECT stacksaga.accept_message('state', 'k', retention => '2 hours'), stacksaga.accept_sequence('state', 3, 1),
       stacksaga.compare_and_set('state', 'k', NULL, '{"secret": 1}');
SELECT * FROM known('state', 'k');
-- A sequence has no key of its own.
SELECT * FROM known('state', 'another key');
-- Which members there are: no response, no value, no fingerprint.
SELECT rung, array_agg(member ORDER BY member) AS members FROM stacksaga.dedupe_state('state', 'k'), jsonb_object_keys(detail) AS member
 GROUP BY rung ORDER BY rung;
SELECT stacksaga.idempotency_finish('state', 'k', :lease, '{"secret": 2}');
SELECT stacksaga.compare_and_set('state', 'k', 1, NULL);
SELECT * FROM known('state', 'k');
SELECT array_agg(member ORDER BY member) AS members FROM stacksaga.dedupe_state('state', 'k'), jsonb_object_keys(detail) AS member
 WHERE rung = 'idempotency_key';
SELECT count(*) AS told_a_secret FROM stacksaga.dedupe_state('state', 'k') AS d WHERE d::text ~ 'secret|4711';

-- Time alone changes the states; a key that is begun anew is a new one, and so is a value.
SELECT created_at AS first FROM stacksaga.dedupe_state('state', 'k') WHERE rung = 'idempotency_key' \gset
SET stacksaga.clock_offset = '3 hours';
SELECT rung, state FROM stacksaga.dedupe_state('state', 'k') ORDER BY rung;
SELECT outcome FROM stacksaga.idempotency_begin('state', 'k', '{"card": 4711}', lease => '1 minute');
SELECT stacksaga.accept_message('state', 'k'), stacksaga.compare_and_set('state', 'k', NULL, '3');
SELECT rung, state, created_at - :'first' >= interval '3 hours' AS created_anew FROM stacksaga.dedupe_state('state', 'k') ORDER BY rung;
SET stacksaga.clock_offset = '3 hours 2 minutes';
SELECT rung, state FROM stacksaga.dedupe_state('state', 'k') WHERE rung = 'idempotency_key';
SELECT outcome, attempt FROM stacksaga.idempotency_begin('state', 'k', '{"card": 4711}');
SELECT created_at - :'first' < interval '3 hours 1 minute' AS created_at_the_first_attempt FROM stacksaga.dedupe_state('state', 'k')
 WHERE rung = 'idempotency_key';
ROLLBACK;

-- It only reads.
BEGIN READ ONLY;
SELECT count(*) FROM stacksaga.dedupe_state('state', 'k');
ROLLBACK;
\set SHOW_CONTEXT never
SELECT * FROM stacksaga.dedupe_state(NULL, 'k');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM stacksaga.dedupe_state('', 'k');
SELECT * FROM stacksaga.dedupe_state('state', NULL);
SELECT * FROM stacksaga.dedupe_state(repeat('s', 64), 'k');
SELECT * FROM stacksaga.dedupe_state('state', repeat('k', 256));
DROP FUNCTION known;
