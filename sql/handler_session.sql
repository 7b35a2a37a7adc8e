-- run_pending() runs handlers of others in its caller's session, and lets none of them leave anything
-- there, or find anything of the caller's.

\set SHOW_CONTEXT never
CREATE SCHEMA session;
CREATE ROLE session_definer;
CREATE ROLE session_caller;
SELECT stacksaga.grant_usage('session_definer', 'operator'),
    stacksaga.grant_usage('session_caller', 'operator'), stacksaga.grant_usage('session_caller', 'service');
GRANT CREATE, USAGE ON SCHEMA session TO session_definer, session_caller;
CREATE TABLE session.log (what text, role text DEFAULT current_user);
GRANT SELECT, INSERT, DELETE ON session.log TO session_definer, session_caller;
SET ROLE session_definer;
CREATE FUNCTION session.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session.log VALUES ('run');
    EXECUTE call.input ->> 0;
    RETURN '1';
END $$;
CREATE FUNCTION session.run(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session.log VALUES ('run');
    EXECUTE m.payload ->> 0;
END $$;
SELECT stacksaga.define_saga('session', ARRAY[
    stacksaga.sql_step('only', 'session.run(stacksaga.step_call)')]);
RESET ROLE;
-- Runs a statement in a handler; the saga's id is not shown.
CREATE FUNCTION session.try(statement text) RETURNS TABLE (done bigint, status text, attempt integer, ran bigint)
LANGUAGE plpgsql AS $$
DECLARE
    id uuid;
BEGIN
    DELETE FROM session.log;
    SELECT saga_id INTO id FROM stacksaga.start_saga('session', jsonb_build_array(statement),
        saga_id => '00000000-0000-0000-0000-000000000001');
    done := stacksaga.run_pending();
    SELECT s.status, s.attempt INTO status, attempt FROM stacksaga.sagas AS s WHERE saga_id = id;
    SELECT count(*) INTO ran FROM session.log;
    DELETE FROM stacksaga.saga WHERE saga_id = id;
    DELETE FROM stacksaga.work WHERE saga_id = id;
    DELETE FROM stacksaga.effect WHERE saga_id = id;
    RETURN NEXT;
END $$;

-- Temporary objects of every kind are dropped when the handler returns (sql/handler_temporary.sql).
SELECT * FROM session.try('CREATE TEMP TABLE left_behind (id integer)');
SELECT * FROM session.try('CREATE TEMP TABLE left_behind (id integer) ON COMMIT DROP');
SELECT * FROM session.try('CREATE TEMP VIEW log AS SELECT 1 AS what');
SELECT * FROM session.try('CREATE TEMP SEQUENCE left_behind');
SELECT * FROM session.try('CREATE TYPE pg_temp.left_behind AS (id integer)');
SELECT * FROM session.try('CREATE DOMAIN pg_temp.left_behind AS integer');
SELECT * FROM session.try('CREATE FUNCTION pg_temp.left_behind() RETURNS integer LANGUAGE sql AS ''SELECT 1''');
SELECT * FROM session.try('CREATE TEMP TABLE used (id integer); DROP TABLE used');
SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND pg_my_temp_schema() <> 0;
-- Open cursors.
SELECT * FROM session.try('DECLARE left_behind CURSOR FOR SELECT 1');
SELECT * FROM session.try('DECLARE used CURSOR FOR SELECT 1; CLOSE used');
SELECT * FROM session.try('DO ''DECLARE c CURSOR FOR SELECT 1; BEGIN OPEN c; END''');
BEGIN;
DECLARE mine CURSOR FOR SELECT 'the caller''s' AS of;
SELECT * FROM session.try('SELECT 1');
FETCH mine;
COMMIT;
-- Locks of the session, also those that it gives back: the caller's own would be among them.
SELECT pg_advisory_lock(4711);
SELECT * FROM session.try('SELECT pg_advisory_lock(1)');
SELECT * FROM session.try('SELECT pg_try_advisory_lock_shared(1, 2)');
SELECT * FROM session.try('SELECT pg_advisory_unlock_all()');
SELECT * FROM session.try('DO ''BEGIN PERFORM pg_advisory_lock(1); EXCEPTION WHEN OTHERS THEN NULL; END''');
SELECT * FROM session.try('SELECT pg_advisory_xact_lock(1)');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT pg_advisory_unlock(4711);
-- One that fails anyway is charged as ever.
SELECT * FROM session.try('CREATE TEMP TABLE left_behind (id integer); SELECT 1 / 0');

-- Others are done, whatever is left; in one call each is tried once.
TRUNCATE session.log;
SELECT created FROM stacksaga.start_saga('session', '["DECLARE left_behind CURSOR FOR SELECT 1"]',
    saga_id => '00000000-0000-0000-0000-000000000001');
SELECT count(*) FROM stacksaga.start_sagas('session',
    (SELECT array_agg('["SELECT 1"]'::jsonb) FROM generate_series(1, 3)));
SELECT stacksaga.run_pending(1);
SELECT stacksaga.run_pending();
SELECT status, count(*) FROM stacksaga.sagas GROUP BY status ORDER BY status;
SELECT stacksaga.run_pending();
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;

-- A caller's temporary table is not taken for the handler's: its triggers would be run as the definer.
SET ROLE session_caller;
CREATE TEMP TABLE staging (id integer);
CREATE FUNCTION session.trap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session.log VALUES ('trapped');
    RETURN NULL;
END $$;
CREATE TRIGGER trap AFTER INSERT ON staging FOR EACH ROW EXECUTE FUNCTION session.trap();
GRANT ALL ON staging TO PUBLIC;
SELECT created FROM stacksaga.start_saga('session',
    '["CREATE TEMP TABLE IF NOT EXISTS staging (id integer); INSERT INTO staging VALUES (1)"]',
    saga_id => '00000000-0000-0000-0000-000000000002');
SELECT stacksaga.run_pending();
SELECT * FROM session.log WHERE what = 'trapped';
DROP TABLE staging;
RESET ROLE;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;

-- Messages: what comes behind in the subscription waits for the worker, too.
SET ROLE session_definer;
SELECT stacksaga.create_subscription('session', 'session', 'session.run(stacksaga.message)');
RESET ROLE;
TRUNCATE session.log;
SELECT count(*) FROM stacksaga.publish_batch('session', ARRAY['["SELECT 1"]',
    '["DECLARE left_behind CURSOR FOR SELECT 1"]', '["SELECT 1"]']::jsonb[],
    keys => ARRAY['k', 'k', 'k']);
SELECT stacksaga.run_pending();
SELECT stacksaga.run_pending();
SELECT lag_messages, dead_messages, blocked_keys FROM stacksaga.subscriptions WHERE subscription = 'session';
SELECT what, role FROM session.log;

SET client_min_messages = warning;
SELECT stacksaga.drop_subscription('session', true);
DROP SCHEMA session CASCADE;
DROP OWNED BY session_definer, session_caller;
DELETE FROM stacksaga.usage_grant WHERE role LIKE 'session%';
DROP ROLE session_definer, session_caller;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
TRUNCATE stacksaga.outbox_message;
