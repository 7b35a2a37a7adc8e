-- A handler in run_pending() has the settings of a new session of its definer: with those of its caller, text that
-- the handler quotes by hand would be run as the definer. test/tap/handler_settings.pl tries every setting.

CREATE SCHEMA settings;
CREATE ROLE settings_definer;
CREATE ROLE settings_caller;
SELECT stacksaga.grant_usage('settings_definer', 'operator'),
    stacksaga.grant_usage('settings_caller', 'operator'), stacksaga.grant_usage('settings_caller', 'service');
GRANT CREATE, USAGE ON SCHEMA settings TO settings_definer;
GRANT USAGE ON SCHEMA settings TO settings_caller;
CREATE TABLE settings.secret (what text);
ALTER TABLE settings.secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_tenant ON settings.secret USING (what = 'shown');
INSERT INTO settings.secret VALUES ('a secret'), ('shown');
GRANT SELECT ON settings.secret TO settings_definer;
CREATE TABLE settings.log (what text, role name DEFAULT current_user);
GRANT SELECT, INSERT ON settings.log TO settings_definer;
ALTER ROLE settings_definer SET settings.tenant = 'of the definer';
SET ROLE settings_definer;
CREATE FUNCTION settings.quotes(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    found text;
BEGIN
    EXECUTE 'SELECT ''' || replace(call.input ->> 'name', '''', '''''') || '''' INTO found;
    INSERT INTO settings.log SELECT 'found ' || found || ' of ' || count(*) FROM settings.secret;
    INSERT INTO settings.log SELECT name || ' ' || coalesce(current_setting(name, true), 'NULL') FROM unnest(ARRAY[
        'standard_conforming_strings', 'row_security', 'session_replication_role', 'check_function_bodies',
        'extra_float_digits', 'plpgsql.variable_conflict', 'settings.tenant', 'settings.of_caller',
        'default_transaction_isolation', 'DateStyle', 'work_mem', 'lock_timeout', 'stacksaga.cluster']) AS name;
    IF call.input ? 'fails' THEN
        RAISE 'it fails' USING ERRCODE = 'P0001';
    END IF;
    RETURN '1';
END $$;
SELECT stacksaga.define_saga('settings', ARRAY[
    stacksaga.sql_step('only', 'settings.quotes(stacksaga.step_call)', retry => stacksaga.retry_policy(max_attempts => 1))]);
RESET ROLE;

-- A superuser, who can set more.
SELECT created FROM stacksaga.start_saga('settings', $${"name": "\\' || 42 || \\'"}$$);
SET standard_conforming_strings = off;
SET row_security = off;
SET session_replication_role = 'replica';
SET check_function_bodies = off;
SET extra_float_digits = -15;
SET plpgsql.variable_conflict = 'use_column';
SET settings.tenant = 'of the caller';
SET settings.of_caller = 'of the caller';
SET default_transaction_isolation = 'serializable';
SET work_mem = '7MB';
SET lock_timeout = '7s';
SELECT stacksaga.run_pending();
SELECT * FROM settings.log;
SELECT current_setting('standard_conforming_strings') AS strings, current_setting('row_security') AS security,
    current_setting('session_replication_role') AS replication, current_setting('settings.tenant') AS tenant;

-- After a handler that fails, after one that was rolled back, and set for the transaction only.
TRUNCATE settings.log;
SELECT created FROM stacksaga.start_saga('settings', '{"name": "x", "fails": true}');
SELECT stacksaga.run_pending();
SELECT current_setting('standard_conforming_strings') AS strings, current_setting('settings.tenant') AS tenant;
RESET ALL;
BEGIN;
SET LOCAL standard_conforming_strings = off;
SAVEPOINT s;
SELECT created FROM stacksaga.start_saga('settings', '{"name": "y"}');
SELECT stacksaga.run_pending();
SELECT current_setting('standard_conforming_strings') AS strings;
ROLLBACK TO s;
SELECT current_setting('standard_conforming_strings') AS strings;
ROLLBACK;
SELECT current_setting('standard_conforming_strings') AS strings;

-- Another role, within a function that sets something itself.
GRANT EXECUTE ON FUNCTION stacksaga.run_pending TO settings_caller;
CREATE FUNCTION settings.run() RETURNS bigint LANGUAGE sql SET standard_conforming_strings = off SET row_security = off
AS 'SELECT stacksaga.run_pending()';
SELECT created FROM stacksaga.start_saga('settings', '{"name": "z"}');
SET ROLE settings_caller;
SELECT settings.run();
RESET ROLE;
SELECT * FROM settings.log WHERE what ~ '^(found|standard|row)';

SET client_min_messages = warning;
DROP SCHEMA settings CASCADE;
DROP OWNED BY settings_definer, settings_caller;
DELETE FROM stacksaga.usage_grant WHERE role LIKE 'settings%';
DROP ROLE settings_definer, settings_caller;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
