-- What a step's functions may do, and what becomes of the saga when they do something else.

\set SHOW_CONTEXT never
CREATE SCHEMA handlers;
CREATE ROLE handlers_definer;
CREATE ROLE handlers_other;
SELECT stacksaga.grant_usage('handlers_definer', 'operator'),
    stacksaga.grant_usage('handlers_other', 'monitor');
GRANT CREATE, USAGE ON SCHEMA handlers TO handlers_definer, handlers_other;
CREATE TABLE handlers.log (n serial, what text);
GRANT ALL ON handlers.log, handlers.log_n_seq TO handlers_definer;

-- Makes a function of this body the action of a saga, as handlers_definer, and runs it.
CREATE PROCEDURE handlers.define(body text, search_path text DEFAULT 'handlers',
    timeout interval DEFAULT '30 s') LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
    SET LOCAL ROLE handlers_definer;
    PERFORM set_config('search_path', search_path, true);
    EXECUTE format('CREATE OR REPLACE FUNCTION handlers.act(call stacksaga.step_call)'
        ' RETURNS jsonb LANGUAGE plpgsql AS %L', body);
    PERFORM stacksaga.define_saga('handlers',
        ARRAY[stacksaga.sql_step('a', 'handlers.act(stacksaga.step_call)', timeout => timeout)]);
    RESET ROLE;
    RESET search_path;
    PERFORM stacksaga.start_saga('handlers', key => 'h');
END
$$;
CREATE VIEW handlers.now AS
    SELECT s.status, coalesce(h.error_class, 'no failure') AS class, f.sqlstate,
           CASE WHEN f.sqlstate ~ '^(SG|P0001|23514)' OR f.sqlstate = '57014' THEN left(h.error,
               220) END AS error, r.output
      FROM stacksaga.sagas s CROSS JOIN stacksaga.saga_result(s.saga_id) r LEFT
          JOIN stacksaga.saga_history h USING (saga_id)
      LEFT JOIN stacksaga.failure f USING (saga_id);
-- Runs such a saga and shows its end.
CREATE FUNCTION handlers.try(body text, search_path text DEFAULT 'handlers',
    timeout interval DEFAULT '30 s') RETURNS SETOF handlers.now LANGUAGE plpgsql AS $$
BEGIN
    CALL handlers.define(body, search_path, timeout);
    PERFORM stacksaga.run_pending();
    RETURN QUERY SELECT * FROM handlers.now;
END
$$;

-- It runs as the role that defined it, not the caller, with its search_path; a caller's temporary
-- table comes last.
CREATE TEMP TABLE log (n serial, what text);
SELECT * FROM handlers.try($$ BEGIN INSERT INTO log (what)
  VALUES (current_user || ' ' || current_setting('search_path')); RETURN to_jsonb(current_user); END
    $$);
SELECT what FROM handlers.log;
SELECT count(*) FROM pg_temp.log;
SELECT * FROM handlers.try($$ BEGIN RETURN to_jsonb(current_setting('search_path')); END $$,
    'pg_temp, "odd, schema", handlers');
SELECT * FROM handlers.try($$ BEGIN RETURN to_jsonb(current_setting('search_path')); END $$, '');
SELECT * FROM handlers.try($$ BEGIN INSERT INTO pg_catalog.pg_class
  VALUES (NULL); RETURN NULL; END $$);
SELECT * FROM handlers.try($$ BEGIN DELETE FROM stacksaga.saga; RETURN NULL; END $$);
-- It may not change role, nor commit.
SELECT * FROM handlers.try($$ BEGIN SET ROLE postgres; RETURN NULL; END $$);
SELECT * FROM handlers.try($$ BEGIN RESET ROLE; RETURN NULL; END $$);
SELECT * FROM handlers.try($$ BEGIN SET SESSION AUTHORIZATION DEFAULT; RETURN NULL; END $$);
SELECT * FROM handlers.try($$ BEGIN PERFORM set_config('role', 'postgres', false); RETURN NULL; END
    $$);
SELECT current_user = session_user AS still_the_same;
SELECT * FROM handlers.try($$ BEGIN COMMIT; RETURN NULL; END $$);
SELECT * FROM handlers.try($$ BEGIN ROLLBACK; RETURN NULL; END $$);
SELECT * FROM handlers.try($$ BEGIN EXECUTE 'SAVEPOINT s'; RETURN NULL; END $$);
SELECT * FROM handlers.try($$ BEGIN EXECUTE 'PREPARE TRANSACTION ''p'''; RETURN NULL; END $$);
SELECT * FROM handlers.try($$ BEGIN EXECUTE 'VACUUM'; RETURN NULL; END $$);
SELECT * FROM handlers.try($$ BEGIN PERFORM stacksaga.run_pending(); RETURN NULL; END $$);
-- What it SETs ends with it.
SELECT * FROM handlers.try($$ BEGIN SET work_mem = '1234kB'; SET LOCAL statement_timeout = '1h'; SET
    search_path = public; RETURN to_jsonb(current_setting('work_mem')); END $$);
SELECT current_setting('work_mem') = '1234kB' AS left_over,
    current_setting('statement_timeout') = '1h' AS left_over,
    current_setting('search_path') = 'public' AS left_over;
-- It may start sagas, which commit with it, or not.
SELECT * FROM handlers.try($$ BEGIN IF NOT call.input ? 'child' THEN PERFORM
    stacksaga.start_saga('handlers', '{"child": true}', 'c'); END IF; RETURN '1'; END $$);
SELECT * FROM handlers.try($$ BEGIN PERFORM stacksaga.start_saga('handlers', '{"child": true}',
    'c'); RAISE 'no'; END $$);

-- What it did before it failed is rolled back; an error that it caught is not a failure.
TRUNCATE handlers.log;
SELECT * FROM handlers.try($$ BEGIN INSERT INTO handlers.log (what)
  VALUES ('gone'); RAISE 'failed' USING ERRCODE = '23514', DETAIL = 'why', HINT = 'how'; END $$);
SELECT * FROM handlers.try($$ BEGIN INSERT INTO handlers.log (what)
  VALUES ('stays'); BEGIN RAISE 'caught'; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN '1'; END $$);
SELECT * FROM handlers.try($$ BEGIN RAISE WARNING 'only a warning'; RETURN '1'; END $$);
SELECT * FROM handlers.try($$ BEGIN RETURN 1 / 0; END $$);
SELECT * FROM handlers.try($$ BEGIN ASSERT false, 'asserted'; END $$);
SELECT * FROM handlers.try($$ BEGIN PERFORM 1; END $$);
SELECT what FROM handlers.log;
-- Messages that are too long are cut, at a character; results that are too large are refused.
SELECT status, sqlstate FROM handlers.try($$ BEGIN RAISE '%', 'x' || repeat('é', 1000000); END $$);
SELECT octet_length(error) AS kept FROM stacksaga.failure;
SELECT * FROM handlers.try($$ BEGIN RETURN to_jsonb(repeat('x', 2000000)); END $$);
SELECT * FROM handlers.try($$ BEGIN PERFORM handlers.act(call); RETURN NULL; END $$) ;
-- A handler that hangs is stopped at its timeout: rolled back, tried again.
SELECT status, class, sqlstate, error FROM handlers.try($$ BEGIN INSERT INTO handlers.log (what)
  VALUES ('gone'); LOOP NULL; END LOOP; END $$, timeout => '20 ms');
SELECT attempt, paused_until IS NOT NULL AS paused FROM stacksaga.sagas;
SELECT count(*) FROM handlers.log WHERE what = 'gone';
-- So is one that catches the cancel and returns, or fails, after it.
SELECT status, class, sqlstate, error FROM handlers.try($$ BEGIN INSERT INTO handlers.log (what)
  VALUES ('gone'); BEGIN LOOP NULL; END LOOP; EXCEPTION WHEN query_canceled THEN RETURN '1'; END; END
    $$, timeout => '20 ms');
SELECT attempt, paused_until IS NOT NULL AS paused FROM stacksaga.sagas;
SELECT status, class, error FROM handlers.try($$ BEGIN BEGIN LOOP NULL; END LOOP; EXCEPTION WHEN
    query_canceled THEN RAISE 'no' USING ERRCODE = 'SG424'; END; END $$, timeout => '20 ms');
SELECT count(*) FROM handlers.log WHERE what = 'gone';
-- The timeout ends with the handler, however that ends: nothing later is stopped by it.
SELECT status FROM handlers.try($$ BEGIN RETURN NULL; END $$, timeout => '20 ms');
SELECT status FROM handlers.try($$ BEGIN RAISE 'no'; END $$, timeout => '20 ms');
SELECT count(*) FROM generate_series(1, 1000000);
-- Who cancels run_pending cancels the statement, not the saga.
CALL handlers.define($$ BEGIN LOOP NULL; END LOOP; END $$);
SET statement_timeout = '50 ms';
SELECT stacksaga.run_pending();
RESET statement_timeout;
SELECT * FROM handlers.now;

-- Deferred constraints are checked when it returns, as its role.
CREATE TABLE handlers.parent (id int PRIMARY KEY);
CREATE TABLE handlers.child (id int REFERENCES handlers.parent DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION handlers.who() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO handlers.log
    (what) VALUES ('deferred trigger as ' || current_user); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER who AFTER INSERT ON handlers.child DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION handlers.who();
GRANT ALL ON handlers.parent, handlers.child TO handlers_definer;
TRUNCATE handlers.log;
SELECT * FROM handlers.try($$ BEGIN INSERT INTO handlers.child
  VALUES (1); INSERT INTO handlers.parent VALUES (1); RETURN '1'; END $$);
SELECT * FROM handlers.try($$ BEGIN INSERT INTO handlers.child VALUES (2); RETURN '1'; END $$);
SELECT what FROM handlers.log;
SELECT * FROM handlers.child;

-- A function that is dropped parks the saga; under the same name and signature it is found again,
-- of its definer only.
CALL handlers.define($$ BEGIN RETURN '"first"'; END $$);
DROP FUNCTION handlers.act(stacksaga.step_call);
SELECT stacksaga.run_pending();
SELECT * FROM handlers.now;
SELECT parked_step, parked_direction FROM stacksaga.saga;
CALL handlers.define($$ BEGIN RETURN '"first"'; END $$);
DROP FUNCTION handlers.act(stacksaga.step_call);
SET ROLE handlers_definer;
CREATE FUNCTION handlers.act(call stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT '"recreated"'::jsonb $$;
RESET ROLE;
SELECT stacksaga.run_pending();
SELECT * FROM handlers.now;
CALL handlers.define($$ BEGIN RETURN '"first"'; END $$);
DROP FUNCTION handlers.act(stacksaga.step_call);
SET ROLE handlers_other;
CREATE FUNCTION handlers.act(call stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT to_jsonb(current_user) $$;
RESET ROLE;
SELECT stacksaga.run_pending();
SELECT * FROM handlers.now;
DROP FUNCTION handlers.act(stacksaga.step_call);
-- Another signature, no right any more, another name, another schema.
CALL handlers.define($$ BEGIN RETURN '"first"'; END $$);
DROP FUNCTION handlers.act(stacksaga.step_call);
SET ROLE handlers_definer;
CREATE FUNCTION handlers.act(call stacksaga.step_call) RETURNS text
  LANGUAGE sql AS $$ SELECT 'text' $$;
RESET ROLE;
SELECT stacksaga.run_pending();
SELECT * FROM handlers.now;
DROP FUNCTION handlers.act(stacksaga.step_call);
CALL handlers.define($$ BEGIN RETURN '"first"'; END $$);
ALTER FUNCTION handlers.act(stacksaga.step_call) OWNER TO handlers_other;
REVOKE EXECUTE ON FUNCTION handlers.act(stacksaga.step_call) FROM PUBLIC;
SELECT stacksaga.run_pending();
SELECT * FROM handlers.now;
DROP FUNCTION handlers.act(stacksaga.step_call);
CALL handlers.define($$ BEGIN RETURN '"first"'; END $$);
ALTER FUNCTION handlers.act(stacksaga.step_call) RENAME TO renamed;
SELECT stacksaga.run_pending();
SELECT * FROM handlers.now;
DROP FUNCTION handlers.renamed(stacksaga.step_call);
-- A replaced body is what runs: the definition names the function, not its text.
CALL handlers.define($$ BEGIN RETURN '"first"'; END $$);
SET ROLE handlers_definer;
CREATE OR REPLACE FUNCTION handlers.act(call stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT '"replaced"'::jsonb $$;
RESET ROLE;
SELECT stacksaga.run_pending();
SELECT * FROM handlers.now;

-- A definer that was dropped: the saga parks.
DROP FUNCTION handlers.act(stacksaga.step_call);
CALL handlers.define($$ BEGIN RETURN '"first"'; END $$);
ALTER FUNCTION handlers.act(stacksaga.step_call) OWNER TO postgres;
SET client_min_messages = warning;
DROP OWNED BY handlers_definer;
DROP ROLE handlers_definer;
SELECT stacksaga.run_pending();
SELECT * FROM handlers.now;

DROP SCHEMA handlers CASCADE;
DROP OWNED BY handlers_other;
DROP ROLE handlers_other;
DELETE FROM stacksaga.usage_grant WHERE role LIKE 'handlers%';
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
