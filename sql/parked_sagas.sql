-- Sagas that need a person: what parked each of them, and the SQL that leads out of it.

\set SHOW_CONTEXT never
CREATE SCHEMA parked;
CREATE ROLE parked_definer;
GRANT USAGE, CREATE ON SCHEMA parked TO parked_definer;
CREATE FUNCTION parked.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.input ->> call.step = call.direction THEN
        RAISE EXCEPTION 'no %', call.step USING ERRCODE = 'SG424';
    END IF;
    RETURN NULL;
END
$$;
CREATE FUNCTION parked.gone(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE FUNCTION parked.hopeless(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
SELECT stacksaga.define_saga('parked undo', ARRAY[
    stacksaga.sql_step('take', 'parked.run(stacksaga.step_call)', 'parked.run(stacksaga.step_call)'),
    stacksaga.sql_step('then', 'parked.run(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('parked pivot', ARRAY[
    stacksaga.sql_step('point', 'parked.run(stacksaga.step_call)', effect => 'irreversible'),
    stacksaga.sql_step('behind', 'parked.run(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('parked unknown', ARRAY[
    stacksaga.queue_step('pay ''now''', 'parked', effect => 'irreversible')]);
SELECT stacksaga.define_saga('parked gone', ARRAY[
    stacksaga.sql_step('gone', 'parked.gone(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('parked late', ARRAY[
    stacksaga.queue_step('final', 'parked', effect => 'irreversible', stage => 1),
    stacksaga.sql_step('beside', 'parked.run(stacksaga.step_call)', stage => 1)]);
CREATE VIEW parked.now AS
    SELECT saga, key, step, direction, since BETWEEN now() AND stacksaga.clock_now() AS at, error,
           regexp_replace(replace(hint, saga_id::text, '(id)'), 'until .* at least', 'until (time) at least') AS hint
      FROM stacksaga.parked_sagas ORDER BY saga;
SELECT count(*) FROM stacksaga.parked_sagas;

-- One of each.
BEGIN;
SELECT count(*) FROM stacksaga.start_saga('parked undo', '{"take": "compensate", "then": "act"}', 'k1');
SELECT count(*) FROM stacksaga.start_saga('parked pivot', '{"behind": "act"}');
SELECT count(*) FROM stacksaga.start_saga('parked gone');
SELECT count(*) FROM stacksaga.start_saga('parked unknown');
SELECT stacksaga.fail_step(saga_id, step, lease, 'no answer', 'unknown')
  FROM stacksaga.claim_steps('parked', 'w');
SELECT count(*) FROM stacksaga.start_saga('parked late', '{"beside": "act"}');
SELECT saga_id AS late, lease FROM stacksaga.claim_steps('parked', 'w') \gset
DROP FUNCTION parked.gone;
SELECT stacksaga.run_pending() > 4 AS ran;
SELECT stacksaga.complete_step(:'late', 'final', :lease);
\x on
SELECT * FROM parked.now;
\x off
-- No other saga is in it, and it is in the table that the view reads.
SELECT (SELECT count(*) FROM stacksaga.parked_saga) AS listed,
       (SELECT count(*) FROM stacksaga.saga WHERE status = 'parked') AS parked;
-- What another step of the same saga failed of is not what parked it.
SELECT error FROM stacksaga.parked_sagas WHERE saga = 'parked undo';
COMMIT;
-- No SQL in a name gets out of the hint.
SELECT hint LIKE '%, ''pay ''''now'''''', ''done'', %' AS quoted
  FROM stacksaga.parked_sagas WHERE saga = 'parked unknown';
-- A handler that ends its process is parked under a name of its own.
BEGIN;
UPDATE stacksaga.failure SET sqlstate = '57P02', error = 'the handler ended its process'
 WHERE saga_id = (SELECT saga_id FROM stacksaga.parked_sagas WHERE saga = 'parked pivot');
SELECT hint FROM parked.now WHERE saga = 'parked pivot';
ROLLBACK;
-- Every hint is SQL that runs as it is; once the cause is fixed, it leaves no saga parked.
BEGIN;
CREATE FUNCTION parked.gone(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE OR REPLACE FUNCTION parked.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql
  AS 'SELECT NULL::jsonb';
CREATE FUNCTION parked.follow() RETURNS TABLE (saga text, answer text) LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    FOR saga, hint IN SELECT p.saga, p.hint FROM stacksaga.parked_sagas p ORDER BY p.saga LOOP
        EXECUTE hint INTO answer;
        RETURN NEXT;
    END LOOP;
END
$$;
SELECT * FROM parked.follow();
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT saga, status, last_error FROM stacksaga.sagas WHERE saga LIKE 'parked%' ORDER BY saga;
SELECT count(*) FROM stacksaga.parked_sagas;
ROLLBACK;
-- What is not parked any more, and what is no more.
SELECT saga_id AS pivot FROM stacksaga.parked_sagas WHERE saga = 'parked pivot' \gset
BEGIN;
UPDATE stacksaga.saga SET status = 'running' WHERE saga_id = :'pivot';
SELECT count(*) FROM stacksaga.parked_sagas;
SELECT count(*) FROM stacksaga.parked_saga;
ROLLBACK;
BEGIN;
DELETE FROM stacksaga.saga WHERE saga_id = :'pivot';
SELECT count(*) FROM stacksaga.parked_sagas;
ROLLBACK;
SELECT count(*) FROM stacksaga.parked_sagas;
-- Read by a probe of each parked saga, however many others there are.
CREATE FUNCTION parked.plan() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXPLAIN SELECT * FROM stacksaga.parked_sagas LOOP
        RETURN NEXT line;
    END LOOP;
END
$$;
BEGIN;
INSERT INTO stacksaga.saga (saga_id, token, ring_id, slot, definition_id, status, created_at, updated_at,
                            finished_at, fingerprint, input, headers)
SELECT gen_random_uuid(), n, 1, 0, 1, 'completed', now(), now(), now(), '', '{}', '{}'
  FROM generate_series(1, 20000) n;
ANALYZE stacksaga.saga;
SELECT count(*) FROM parked.plan() line WHERE line ~ 'Seq Scan on saga ';
ROLLBACK;
-- A monitor may read it; a service may not.
CREATE ROLE parked_monitor;
SELECT stacksaga.grant_usage('parked_monitor', 'monitor');
SET ROLE parked_monitor;
SELECT count(*) FROM stacksaga.parked_sagas;
SELECT count(*) FROM stacksaga.parked_saga;
RESET ROLE;

DELETE FROM stacksaga.saga WHERE status = 'parked';
TRUNCATE stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.parked_saga, stacksaga.saga_action;
SET client_min_messages = warning;
DROP SCHEMA parked CASCADE;
DELETE FROM stacksaga.usage_grant WHERE role LIKE 'parked%';
DROP OWNED BY parked_definer, parked_monitor;
DROP ROLE parked_definer, parked_monitor;
