-- run_pending() leaves the caller's temporary objects as they are: what a handler creates is dropped when it returns,
-- and a handler that changes what was there before is left to a worker.

\set SHOW_CONTEXT never
CREATE SCHEMA temporary;
CREATE TABLE temporary.log (what text);
CREATE FUNCTION temporary.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO temporary.log VALUES ('ran');
    EXECUTE call.input ->> 0;
    RETURN '1';
END $$;
SELECT stacksaga.define_saga('temporary', ARRAY[
    stacksaga.sql_step('only', 'temporary.run(stacksaga.step_call)')]);
-- Runs a statement in a handler; the saga's id is not shown.
CREATE FUNCTION temporary.try(statement text) RETURNS TABLE (done bigint, status text, attempt integer, error text)
LANGUAGE plpgsql AS $$
DECLARE
    id uuid;
BEGIN
    SELECT saga_id INTO id FROM stacksaga.start_saga('temporary', jsonb_build_array(statement),
        saga_id => '00000000-0000-0000-0000-000000000001');
    done := stacksaga.run_pending();
    SELECT s.status, s.attempt, s.last_error INTO status, attempt, error FROM stacksaga.sagas AS s WHERE saga_id = id;
    DELETE FROM stacksaga.saga WHERE saga_id = id;
    DELETE FROM stacksaga.work WHERE saga_id = id;
    DELETE FROM stacksaga.effect WHERE saga_id = id;
    DELETE FROM stacksaga.failure WHERE saga_id = id;
    RETURN NEXT;
END $$;
CREATE VIEW temporary.objects AS SELECT relkind, relname FROM pg_class WHERE relnamespace = pg_my_temp_schema();

-- A session without any: the next call finds nothing of the one before.
SELECT * FROM temporary.try('CREATE TEMP TABLE line (id serial PRIMARY KEY)');
SELECT * FROM temporary.try('CREATE TEMP TABLE line (id integer) ON COMMIT DROP');
SELECT * FROM temporary.try('CREATE TEMP VIEW line AS SELECT 1 AS id');
SELECT * FROM temporary.try('CREATE TEMP SEQUENCE line');
SELECT * FROM temporary.try('CREATE FUNCTION pg_temp.line() RETURNS integer LANGUAGE sql AS ''SELECT 1''');
SELECT * FROM temporary.try('CREATE AGGREGATE pg_temp.line (integer) (sfunc = int4pl, stype = integer)');
SELECT * FROM temporary.try('CREATE TYPE pg_temp.line AS ENUM (''one'')');
SELECT * FROM temporary.try('CREATE OPERATOR pg_temp.+ (leftarg = integer, rightarg = bigint, function = int48pl)');
SELECT * FROM temporary.try('CREATE TEMP TABLE parent (id integer PRIMARY KEY); CREATE TEMP TABLE child (id integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
    INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1)');
-- In an inner block that fails, and in one that does not.
SELECT * FROM temporary.try('DO $a$ BEGIN
    BEGIN CREATE TEMP TABLE line (id integer); RAISE ''fails''; EXCEPTION WHEN raise_exception THEN NULL; END;
    BEGIN CREATE TEMP TABLE line2 (id integer); EXCEPTION WHEN OTHERS THEN NULL; END;
END $a$');
SELECT * FROM temporary.objects;

-- Beside the caller's. What it may read stays, too.
CREATE TEMP TABLE staging (id integer PRIMARY KEY, what text);
INSERT INTO staging VALUES (1, 'of the caller');
CREATE TEMP VIEW of_staging AS SELECT * FROM staging;
CREATE FUNCTION pg_temp.of_caller() RETURNS integer LANGUAGE sql AS 'SELECT 1';
SELECT * FROM temporary.try('CREATE TEMP TABLE line AS SELECT * FROM staging');
SELECT * FROM temporary.try('CREATE TEMP VIEW line AS SELECT * FROM of_staging');
SELECT * FROM temporary.try('INSERT INTO temporary.log SELECT what FROM of_staging');
SELECT * FROM temporary.try('CREATE TEMP TABLE IF NOT EXISTS staging (id integer); CREATE TEMP TABLE line (id integer); INSERT INTO line VALUES (1)');
-- Rows, in every way of writing them.
SELECT * FROM temporary.try('INSERT INTO staging VALUES (2, ''of the handler'')');
SELECT * FROM temporary.try('UPDATE staging SET what = ''of the handler''');
SELECT * FROM temporary.try('DELETE FROM of_staging');
SELECT * FROM temporary.try('MERGE INTO staging USING (SELECT 2 AS id) AS s ON s.id = staging.id WHEN NOT MATCHED THEN INSERT VALUES (2, ''x'')');
SELECT * FROM temporary.try('WITH w AS (INSERT INTO staging VALUES (2, ''x'') RETURNING id) SELECT id FROM w');
SELECT * FROM temporary.try('TRUNCATE staging');
SELECT * FROM temporary.try('COPY staging FROM PROGRAM ''echo 2'' (FORMAT csv, DELIMITER ''|'', NULL ''-'')');
SELECT * FROM temporary.try('DO $a$ BEGIN INSERT INTO staging VALUES (2); EXCEPTION WHEN OTHERS THEN NULL; END $a$');
-- And what they are.
SELECT * FROM temporary.try('DROP VIEW of_staging');
SELECT * FROM temporary.try('DROP TABLE staging CASCADE');
SELECT * FROM temporary.try('ALTER TABLE staging ADD COLUMN of_handler integer');
SELECT * FROM temporary.try('ALTER TABLE staging RENAME TO line');
SELECT * FROM temporary.try('CREATE OR REPLACE TEMP VIEW of_staging AS SELECT 1 AS id, ''of the handler''::text AS what');
SELECT * FROM temporary.try('CREATE OR REPLACE FUNCTION pg_temp.of_caller() RETURNS integer LANGUAGE sql AS ''SELECT 2''');
SELECT * FROM temporary.try('CREATE RULE line AS ON INSERT TO staging DO INSTEAD NOTHING');
SELECT * FROM temporary.try('GRANT ALL ON staging TO PUBLIC');
SELECT * FROM temporary.objects ORDER BY relname;
TABLE staging;
TABLE of_staging;
SELECT pg_temp.of_caller();
SELECT count(*) FROM temporary.log;

-- A transaction that has used one cannot be prepared, whatever handlers have done since.
BEGIN;
UPDATE staging SET what = 'again';
SELECT * FROM temporary.try('SELECT 1');
SELECT * FROM temporary.try('SELECT 1 / 0');
PREPARE TRANSACTION 'temporary';
ROLLBACK;

SET client_min_messages = warning;
DROP SCHEMA temporary CASCADE;
DROP TABLE staging CASCADE;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
