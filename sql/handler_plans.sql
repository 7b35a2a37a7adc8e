-- What is kept of a handler from call to call: its plans, as long as nothing changes that they depend on,
-- also after an error and in subtransactions, in which run_pending() calls each handler. Functions in SQL
-- do what they do elsewhere, however they are written.

\set SHOW_CONTEXT never
CREATE SCHEMA plans;
CREATE ROLE plans_definer;
CREATE ROLE plans_other;
SELECT stacksaga.grant_usage('plans_definer', 'operator'), stacksaga.grant_usage('plans_other', 'operator');
GRANT USAGE, CREATE ON SCHEMA plans TO plans_definer, plans_other;
CREATE TABLE plans.log (n integer GENERATED ALWAYS AS IDENTITY, what text NOT NULL, role name DEFAULT current_user);
GRANT SELECT, INSERT ON plans.log TO plans_definer, plans_other;

-- Counts how often a statement that calls it is planned, for then it is evaluated.
CREATE SEQUENCE plans.made;
CREATE FUNCTION plans.planned() RETURNS text LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER AS $$
BEGIN
    PERFORM nextval('plans.made');
    RETURN 'planned';
END $$;
-- Whether so many plans were made since it was last asked. From version 18 on PostgreSQL keeps them itself,
-- and makes the first five for their parameters.
CREATE FUNCTION plans.only(expected bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE made bigint := CASE WHEN is_called THEN last_value ELSE 0 END FROM plans.made;
BEGIN
    PERFORM setval('plans.made', 1, false);
    RETURN made = expected OR current_setting('server_version_num')::integer >= 180000;
END $$;
-- Makes a function of this body the only step of a saga, for this role.
CREATE PROCEDURE plans.define(saga text, body text, attributes text DEFAULT 'LANGUAGE sql',
    as_role name DEFAULT 'plans_definer', path text DEFAULT 'plans') LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('search_path', path, true);
    EXECUTE format('CREATE OR REPLACE FUNCTION plans.%I(call stacksaga.step_call) RETURNS jsonb %s AS %L',
        saga, attributes, body);
    EXECUTE format('SET LOCAL ROLE %I', as_role);
    PERFORM stacksaga.define_saga(saga, ARRAY[stacksaga.sql_step('only',
        format('plans.%I(stacksaga.step_call)', saga), retry => stacksaga.retry_policy(max_attempts => 1))]);
    RESET ROLE;
    RESET search_path;
END $$;
-- Runs a saga for each input, all in this transaction.
CREATE FUNCTION plans.run(saga text, VARIADIC inputs jsonb[]) RETURNS TABLE (output jsonb, last_error text)
LANGUAGE plpgsql AS $$
DECLARE
    input jsonb;
    id uuid;
BEGIN
    FOREACH input IN ARRAY inputs LOOP
        id := (stacksaga.start_saga(saga, input)).saga_id;
        PERFORM stacksaga.run_pending();
        RETURN QUERY SELECT CASE s.status WHEN 'completed' THEN r.output -> 'only' END, s.last_error
                       FROM stacksaga.sagas AS s, stacksaga.saga_result(id) AS r WHERE s.saga_id = id;
    END LOOP;
END $$;

-- One plan for all calls, in this transaction and later.
CALL plans.define('one', $$
    INSERT INTO log (what) VALUES (call.input ->> 0 || planned());
    SELECT jsonb_build_object('was', call.input -> 0, 'key', call.idempotency_key LIKE call.saga_id || ':1:act') $$);
SELECT plans.only(0) IS NOT NULL AS counting;
SELECT * FROM plans.run('one', '["a"]', '["b"]', '["c"]');
SELECT * FROM plans.run('one', '["d"]');
SELECT plans.only(1);
SELECT what, role FROM plans.log ORDER BY n;
-- Roles that alternate each have theirs, and each acts as itself.
CALL plans.define('other', $$ SELECT to_jsonb(current_user || ' ' || planned()) $$, as_role => 'plans_other');
CALL plans.define('this', $$ SELECT to_jsonb(current_user || ' ' || planned()) $$);
SELECT r.* FROM unnest(ARRAY['this', 'other', 'this', 'other']) AS saga, plans.run(saga, '1') AS r;
SELECT plans.only(2);
-- So have the search paths of one function.
CREATE SCHEMA plans_2;
CREATE FUNCTION plans_2.which() RETURNS text LANGUAGE sql AS $$ SELECT 'second'::text $$;
CREATE FUNCTION plans.which() RETURNS text LANGUAGE sql AS $$ SELECT 'first'::text $$;
GRANT USAGE ON SCHEMA plans_2 TO plans_definer;
CALL plans.define('first', $$ SELECT to_jsonb(which() || ' ' || plans.planned()) $$);
BEGIN;
SET LOCAL ROLE plans_definer;
SET LOCAL search_path = plans_2, plans;
SELECT stacksaga.define_saga('second', ARRAY[stacksaga.sql_step('only', 'plans.first(stacksaga.step_call)')]);
COMMIT;
SELECT r.* FROM unnest(ARRAY['first', 'second', 'first', 'second']) AS saga, plans.run(saga, '1') AS r;
SELECT plans.only(2);
-- A definition that is refreshed brings its new one.
CALL plans.define('first', $$ SELECT to_jsonb(which() || ' ' || plans.planned()) $$, path => 'plans_2, plans');
SELECT * FROM plans.run('first', '1');

-- An error in its second statement undoes its first, and is over at the next call.
CALL plans.define('fails', $$
    INSERT INTO log (what) VALUES ('failing ' || (call.input ->> 0));
    SELECT to_jsonb(100 / (call.input -> 0)::integer) $$);
TRUNCATE plans.log;
SELECT * FROM plans.run('fails', '[5]', '[0]', '[0]', '[4]');
SELECT what FROM plans.log ORDER BY n;

-- What its statements name may change, also in the transaction that calls it.
CREATE TABLE plans.source (a jsonb);
GRANT SELECT, INSERT ON plans.source TO plans_definer;
INSERT INTO plans.source VALUES ('"a"');
CALL plans.define('reads', $$ SELECT a FROM source $$);
BEGIN;
SELECT * FROM plans.run('reads', '1');
ALTER TABLE plans.source ADD COLUMN b integer, ALTER COLUMN a TYPE jsonb USING '"altered"';
SELECT * FROM plans.run('reads', '1');
CREATE VIEW plans.above AS SELECT '"a view"'::jsonb AS a;
GRANT SELECT ON plans.above TO plans_definer;
ALTER TABLE plans.source RENAME TO below;
ALTER VIEW plans.above RENAME TO source;
SELECT * FROM plans.run('reads', '1');
ALTER VIEW plans.source RENAME TO above;
SELECT * FROM plans.run('reads', '1');
ALTER TABLE plans.below RENAME TO source;
ALTER TABLE plans.source ALTER COLUMN a TYPE text;
SELECT * FROM plans.run('reads', '1');
ALTER TABLE plans.source ALTER COLUMN a TYPE jsonb USING a::jsonb;
SELECT * FROM plans.run('reads', '1');
REVOKE SELECT ON plans.source FROM plans_definer;
SELECT * FROM plans.run('reads', '1');
ROLLBACK;
SELECT * FROM plans.run('reads', '1');
-- A function is replaced, and comes back with what replaced it.
BEGIN;
CREATE OR REPLACE FUNCTION plans.reads(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS
    $$ BEGIN RETURN '"in PL/pgSQL"'; END $$;
SELECT * FROM plans.run('reads', '1');
SAVEPOINT s;
CREATE OR REPLACE FUNCTION plans.reads(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT '"new"'::jsonb $$;
SELECT * FROM plans.run('reads', '1');
ROLLBACK TO s;
SELECT * FROM plans.run('reads', '1');
ROLLBACK;
SELECT * FROM plans.run('reads', '1');
-- A rule adds a statement, which may be one without a plan.
CALL plans.define('ruled', $$ INSERT INTO source VALUES ('"ruled"'); SELECT '1'::jsonb $$);
BEGIN;
SELECT * FROM plans.run('ruled', '1');
CREATE RULE logs AS ON INSERT TO plans.source DO ALSO INSERT INTO plans.log (what) VALUES ('by a rule');
SELECT * FROM plans.run('ruled', '1');
SELECT count(*) FROM plans.log WHERE what = 'by a rule';
CREATE RULE notifies AS ON INSERT TO plans.source DO ALSO NOTIFY plans;
SELECT * FROM plans.run('ruled', '1');
SELECT count(*) FROM plans.log WHERE what = 'by a rule';
ROLLBACK;
-- A statement makes what the next one meets.
CREATE FUNCTION plans.adds_rule() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    CREATE OR REPLACE RULE logs AS ON INSERT TO plans.source DO ALSO (
        INSERT INTO plans.log (what) VALUES ('by a rule'); NOTIFY plans);
END $$;
CALL plans.define('adds', $$ SELECT adds_rule(); INSERT INTO source VALUES ('"ruled"'); SELECT '1'::jsonb $$);
BEGIN;
SELECT * FROM plans.run('adds', '1');
SELECT count(*) FROM plans.log WHERE what = 'by a rule';
ROLLBACK;
CREATE FUNCTION plans.alters() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS
    $$ BEGIN ALTER TABLE plans.source ALTER COLUMN a TYPE text; END $$;
CALL plans.define('alters', $$ SELECT alters(); SELECT a FROM source $$);
BEGIN;
SELECT output, last_error IS NOT NULL AS failed FROM plans.run('alters', '1', '2');
ROLLBACK;

-- However it is written: its result is the first row of its last statement, which ends there.
CREATE SEQUENCE plans.rows;
GRANT USAGE ON SEQUENCE plans.rows TO plans_definer;
CALL plans.define('rows', $$ SELECT to_jsonb(nextval('rows')) FROM generate_series(1, 5) $$);
SELECT * FROM plans.run('rows', '1', '2');
CALL plans.define('none', $$ SELECT '1'::jsonb WHERE false $$);
CALL plans.define('null', $$ SELECT NULL::jsonb $$);
CALL plans.define('returning', $$ INSERT INTO log (what) SELECT n::text FROM generate_series(1, 3) AS n
    RETURNING to_jsonb(what) $$);
CALL plans.define('cte', $$ WITH new AS (INSERT INTO log (what) SELECT n::text FROM generate_series(1, 3) AS n
    RETURNING what) SELECT to_jsonb(what) FROM new $$);
CALL plans.define('unread', $$ SELECT nextval('rows') FROM generate_series(1, 5); SELECT to_jsonb(nextval('rows')) $$);
CALL plans.define('large', $$ SELECT to_jsonb(repeat(call.input ->> 0, 1000)) $$);
CALL plans.define('by position', $$ SELECT ($1).input $$);
CALL plans.define('stable', $$ SELECT to_jsonb(count(*)) FROM log $$, 'LANGUAGE sql STABLE');
CALL plans.define('stable writes', $$ INSERT INTO log (what) VALUES ('no') RETURNING '1'::jsonb $$, 'LANGUAGE sql STABLE');
CALL plans.define('utility', $$ SET LOCAL work_mem = '1234kB'; SELECT to_jsonb(current_setting('work_mem')) $$);
CALL plans.define('definer', $$ SELECT to_jsonb(current_user = 'plans_definer') $$, 'LANGUAGE sql SECURITY DEFINER');
CALL plans.define('setting', $$ SELECT to_jsonb(current_setting('work_mem')) $$, 'LANGUAGE sql SET work_mem = ''1234kB''');
CALL plans.define('strict', $$ SELECT call.input $$, 'LANGUAGE sql STRICT');
TRUNCATE plans.log;
SELECT saga, r.* FROM unnest(ARRAY['none', 'null', 'returning', 'cte', 'unread', 'by position', 'stable',
        'stable writes', 'utility', 'definer', 'setting', 'strict']) WITH ORDINALITY AS s(saga, n),
    plans.run(saga, '{"n": 1}', '{"n": 2}') AS r ORDER BY n;
SELECT length(output #>> '{}') FROM plans.run('large', '["x"]', '["yy"]');
SELECT current_setting('work_mem') = '1234kB' AS left_over;
CREATE FUNCTION plans.atomic(call stacksaga.step_call) RETURNS jsonb
    BEGIN ATOMIC INSERT INTO plans.log (what) VALUES (call.step); SELECT call.input; END;
CREATE FUNCTION plans.verify(call stacksaga.step_call) RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'done'::varchar $$;
CREATE FUNCTION plans.unknown(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'nobody knows' USING ERRCODE = 'SR504'; END $$;
SELECT stacksaga.define_saga('atomic', ARRAY[stacksaga.sql_step('only', 'plans.atomic(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('verified', ARRAY[stacksaga.sql_step('only', 'plans.unknown(stacksaga.step_call)',
    verify => 'plans.verify(stacksaga.step_call)')]);
SELECT * FROM plans.run('atomic', '1', '2');
SELECT * FROM plans.run('verified', '1', '2');
-- Handlers of messages return nothing.
CREATE FUNCTION plans.handle(m stacksaga.message) RETURNS void LANGUAGE sql AS
    $$ INSERT INTO plans.log (what) VALUES (m.payload ->> 0 || plans.planned()) $$;
CREATE FUNCTION plans.ignore(m stacksaga.message) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION plans.selects(m stacksaga.message[]) RETURNS void LANGUAGE sql AS
    $$ SELECT nextval('plans.rows') FROM unnest(m) $$;
SELECT stacksaga.create_subscription('handle', 'plans', 'plans.handle(stacksaga.message)'),
    stacksaga.create_subscription('ignore', 'plans', 'plans.ignore(stacksaga.message)'),
    stacksaga.create_subscription('selects', 'plans', 'plans.selects(stacksaga.message[])');
TRUNCATE plans.log;
SELECT plans.only(0) IS NOT NULL AS counting, setval('plans.rows', 1, false);
SELECT count(*) FROM stacksaga.publish_batch('plans', ARRAY['["a"]', '["b"]', '["c"]']::jsonb[]);
SELECT stacksaga.run_pending();
SELECT what FROM plans.log ORDER BY n;
SELECT plans.only(1), last_value FROM plans.rows;

SET client_min_messages = warning;
SELECT stacksaga.drop_subscription(s, true) FROM unnest(ARRAY['handle', 'ignore', 'selects']) AS s;
DROP SCHEMA plans, plans_2 CASCADE;
DROP OWNED BY plans_definer, plans_other;
DELETE FROM stacksaga.usage_grant WHERE role LIKE 'plans%';
DROP ROLE plans_definer, plans_other;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.parked_saga;
TRUNCATE stacksaga.outbox_message;
