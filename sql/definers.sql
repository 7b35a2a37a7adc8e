-- Whom a saga or a subscription belongs to: a role by name and oid. A function in a schema that the
-- definer may not use is refused; another role of the definer's name inherits nothing; only the definer,
-- a member of it or a superuser makes a new version.

\set SHOW_CONTEXT never
\set VERBOSITY default
CREATE ROLE definers_alice;
CREATE ROLE definers_bob;
CREATE ROLE definers_carol;
CREATE ROLE definers_mallory;
GRANT definers_alice TO definers_carol;
SELECT count(stacksaga.grant_usage(r::name, 'operator')) AS granted
  FROM unnest('{definers_alice,definers_bob,definers_carol,definers_mallory}'::text[]) AS r;
CREATE SCHEMA definers;
GRANT USAGE, CREATE ON SCHEMA definers TO PUBLIC;
CREATE SCHEMA definers_closed;
CREATE TABLE definers.ran (as_role name, what text);
GRANT INSERT ON definers.ran TO PUBLIC;
CREATE FUNCTION definers.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    INSERT INTO definers.ran VALUES (current_user, call.saga); SELECT '1'::jsonb
$$;
CREATE FUNCTION definers.handle(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
    INSERT INTO definers.ran VALUES (current_user, m.topic)
$$;
CREATE FUNCTION definers_closed.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    SELECT definers.act(call)
$$;
CREATE FUNCTION definers_closed.handle(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
    SELECT definers.handle(m)
$$;

-- USAGE on the function's schema: when it is defined, and when it is called.
SET ROLE definers_alice;
SELECT stacksaga.define_saga('definers closed', ARRAY[stacksaga.sql_step('a', 'definers_closed.act(stacksaga.step_call)')]);
SELECT stacksaga.create_subscription('definers closed', 'definers.none', 'definers_closed.handle(stacksaga.message)');
RESET ROLE;
GRANT USAGE ON SCHEMA definers_closed TO definers_alice;
SET ROLE definers_alice;
SELECT stacksaga.define_saga('definers closed', ARRAY[stacksaga.sql_step('a', 'definers_closed.act(stacksaga.step_call)')]);
SELECT stacksaga.create_subscription('definers closed', 'definers.closed', 'definers_closed.handle(stacksaga.message)');
RESET ROLE;
REVOKE USAGE ON SCHEMA definers_closed FROM definers_alice;
SELECT saga_id AS closed FROM stacksaga.start_saga('definers closed') \gset
SELECT stacksaga.publish('definers.closed', '{}') IS NOT NULL AS published;
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT status, last_error FROM stacksaga.sagas WHERE saga_id = :'closed';
SELECT count(*) FROM definers.ran;
SELECT check_name, detail, fix FROM stacksaga.doctor()
 WHERE check_name = 'handlers' AND detail LIKE '%definers closed%' ORDER BY detail;
SELECT stacksaga.drop_subscription('definers closed', true);

-- Who makes a new version: the definer, a member of it, a superuser.
SET SESSION AUTHORIZATION definers_alice;
SELECT stacksaga.define_saga('definers', ARRAY[stacksaga.sql_step('a', 'definers.act(stacksaga.step_call)')]);
SET SESSION AUTHORIZATION definers_mallory;
SELECT stacksaga.define_saga('definers', ARRAY[stacksaga.sql_step('a', 'definers.act(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('definers', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]);
SET SESSION AUTHORIZATION definers_carol;
BEGIN;
SELECT stacksaga.define_saga('definers', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]);
ROLLBACK;
-- What another's function calls in a superuser's session is not the superuser's call.
SET SESSION AUTHORIZATION definers_mallory;
CREATE FUNCTION definers.steal() RETURNS integer LANGUAGE sql SECURITY DEFINER AS $$
    SELECT stacksaga.define_saga('definers', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)])
$$;
RESET SESSION AUTHORIZATION;
SELECT definers.steal();
SELECT version, definer FROM stacksaga.saga_definition WHERE saga = 'definers';

-- Another role of the definer's name is not the definer.
SELECT stacksaga.create_subscription('definers all', 'definers.*');
SET SESSION AUTHORIZATION definers_alice;
SELECT stacksaga.create_subscription('definers', 'definers.*', 'definers.handle(stacksaga.message)');
RESET SESSION AUTHORIZATION;
SELECT saga_id AS orphan FROM stacksaga.start_saga('definers') \gset
SELECT stacksaga.publish('definers.orphan', '{}') IS NOT NULL AS published;
DROP OWNED BY definers_alice;
DROP ROLE definers_alice;
SELECT severity, detail, fix FROM stacksaga.doctor()
 WHERE check_name IN ('definers', 'grants') AND detail LIKE '%definers_alice%' ORDER BY 1, 2;
CREATE ROLE definers_alice;
SELECT severity, detail, fix FROM stacksaga.doctor()
 WHERE check_name IN ('definers', 'grants') AND detail LIKE '%definers_alice%' ORDER BY 1, 2;
SELECT stacksaga.grant_usage('definers_alice', 'operator');
SELECT count(*) FROM stacksaga.doctor() WHERE check_name = 'grants' AND detail LIKE '%definers_alice%';
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT status, last_error FROM stacksaga.sagas WHERE saga_id = :'orphan';
SELECT * FROM definers.ran;
SET SESSION AUTHORIZATION definers_alice;
SELECT stacksaga.define_saga('definers', ARRAY[stacksaga.sql_step('a', 'definers.act(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('definers', ARRAY[stacksaga.queue_step('a', 'q', compensable => true)]);
SELECT stacksaga.create_subscription('definers', 'definers.*', 'definers.handle(stacksaga.message)');

-- A superuser who repeats the same content becomes its definer, or lets a role be it. What is rolled back
-- is not remembered.
RESET SESSION AUTHORIZATION;
BEGIN;
SELECT stacksaga.define_saga('definers', ARRAY[stacksaga.sql_step('a', 'definers.act(stacksaga.step_call)')]);
SELECT count(*) FROM stacksaga.start_saga('definers');
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT as_role = session_user AS as_superuser, what FROM definers.ran;
ROLLBACK;
SELECT saga_id AS still FROM stacksaga.start_saga('definers') \gset
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT status, last_error FROM stacksaga.sagas WHERE saga_id = :'still';
SET ROLE definers_alice;
SELECT stacksaga.define_saga('definers', ARRAY[stacksaga.sql_step('a', 'definers.act(stacksaga.step_call)')]);
RESET ROLE;
SET ROLE definers_bob;
SELECT stacksaga.create_subscription('definers', 'definers.*', 'definers.handle(stacksaga.message)');
RESET ROLE;
SELECT saga_id AS mine FROM stacksaga.start_saga('definers') \gset
SET stacksaga.clock_offset = '10 minutes';
SELECT stacksaga.run_pending(100000) > 0 AS ran;
RESET stacksaga.clock_offset;
SELECT status, last_error FROM stacksaga.sagas WHERE saga_id = :'mine';
SELECT * FROM definers.ran ORDER BY what;
SELECT version, definer, definer_oid = definer::text::regrole AS same_role
  FROM stacksaga.saga_definition WHERE saga = 'definers';
-- The trigger is for rows that a restore writes; Citus distributes no table that has one.
BEGIN;
ALTER TABLE stacksaga.saga_definition DISABLE TRIGGER saga_definition_definer;
SELECT stacksaga.define_saga('definers_untriggered', ARRAY[stacksaga.queue_step('a', 'definers', compensable => true)]);
SELECT definer = current_user AS by_caller, definer_oid = definer::text::regrole AS same_role
  FROM stacksaga.saga_definition WHERE saga = 'definers_untriggered';
ROLLBACK;
SELECT count(*) FROM stacksaga.doctor() WHERE check_name = 'definers' AND detail LIKE '%"definers"%';

SELECT stacksaga.drop_subscription('definers', true), stacksaga.drop_subscription('definers all', true);
-- A role that may write every table writes no definer: it would have its functions run as anybody.
GRANT pg_write_all_data, pg_read_all_data TO definers_mallory;
SET SESSION AUTHORIZATION definers_mallory;
UPDATE stacksaga.saga_definition SET definer = 'definers_alice', definer_oid = NULL;
INSERT INTO stacksaga.saga_definition OVERRIDING SYSTEM VALUE SELECT * FROM stacksaga.saga_definition LIMIT 0;
UPDATE stacksaga.definition_step SET action = 'definers.act(stacksaga.step_call)', search_path = 'mallory';
DELETE FROM stacksaga.definition_step;
UPDATE stacksaga.subscription SET definer = 'definers_alice', definer_oid = NULL;
UPDATE stacksaga.subscription SET search_path = 'mallory';
UPDATE stacksaga.schedule SET definer = 'definers_alice';
INSERT INTO stacksaga.usage_grant VALUES ('definers_mallory', 'operator');
RESET SESSION AUTHORIZATION;

SET client_min_messages = warning;
DROP SCHEMA definers, definers_closed CASCADE;
DELETE FROM stacksaga.usage_grant WHERE role LIKE 'definers%';
DROP OWNED BY definers_alice, definers_bob, definers_carol, definers_mallory;
DROP ROLE definers_alice, definers_bob, definers_carol, definers_mallory;
