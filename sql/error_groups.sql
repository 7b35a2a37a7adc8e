-- Errors in groups: words with a digit do not divide them, each has its whole count, the newest comes first.

\set SHOW_CONTEXT never
BEGIN;
CREATE SCHEMA groups;
CREATE FUNCTION groups.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
CREATE FUNCTION groups.fail(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.input ->> 'error' IS NULL THEN RETURN '{}'; END IF;
    RAISE EXCEPTION '%', call.input ->> 'error' USING ERRCODE = coalesce(call.input ->> 'sqlstate', 'SG424');
END
$$;
SELECT stacksaga.define_saga('groups', ARRAY[
    stacksaga.sql_step('pay', 'groups.act(stacksaga.step_call)', effect => 'irreversible'),
    stacksaga.sql_step('book', 'groups.fail(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('groups too', ARRAY[
    stacksaga.sql_step('pay', 'groups.act(stacksaga.step_call)', effect => 'irreversible'),
    stacksaga.sql_step('ship', 'groups.fail(stacksaga.step_call)')]);
CREATE VIEW groups.now AS
    SELECT pattern, parked, retrying, sagas, steps, versions, note, link FROM stacksaga.error_groups() WITH ORDINALITY AS g
     WHERE sagas && ARRAY['groups', 'groups too'] ORDER BY g.ordinality;

SELECT count(*) FROM generate_series(1, 7) AS n,
    LATERAL stacksaga.start_saga('groups', jsonb_build_object('error', format('account %s is unknown', n)));
SELECT count(*) FROM stacksaga.start_saga('groups too', '{"error": "account A-17 is unknown"}');
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT * FROM groups.now;
SELECT count(*) FROM stacksaga.start_saga('groups', '{"error": "the bank is closed"}');
SELECT count(*) FROM generate_series(1, 2) AS n, LATERAL stacksaga.start_saga('groups', '{"error": "the bank is closed", "sqlstate": "SR503"}', 'groups ' || n);
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT * FROM groups.now;
SELECT error, cardinality(first_parked) FROM stacksaga_internal.saga_error_groups() WHERE 'groups' = ANY (sagas) ORDER BY error;

-- All of a group, in pages.
SELECT count(*) AS page, count(DISTINCT p) = 5 AS each_once
  FROM stacksaga_internal.parked_of_pattern('account ... is unknown', NULL, 5) AS p;
SELECT count(*) AS rest FROM stacksaga_internal.parked_of_pattern('account ... is unknown',
    (SELECT max(p::text)::uuid FROM stacksaga_internal.parked_of_pattern('account ... is unknown', NULL, 5) AS p));

ROLLBACK;

SELECT stacksaga.error_groups(0);
SELECT stacksaga.error_groups(NULL);
