-- Who may do what: PUBLIC nothing, a kind of user exactly what its kind lists.

\set SHOW_CONTEXT never
CREATE ROLE privileges_nobody;
CREATE ROLE privileges_service;
CREATE ROLE privileges_coordinator;
CREATE ROLE privileges_operator;
CREATE ROLE privileges_monitor;
CREATE ROLE "Privileges; DROP ROLE x";

-- What each kind gets: nothing but EXECUTE on functions and SELECT on views.
SELECT stacksaga.grant_usage('privileges_service', 'service'),
    stacksaga.grant_usage('privileges_coordinator', 'coordinator'),
       stacksaga.grant_usage('privileges_operator', 'operator'),
           stacksaga.grant_usage('privileges_monitor', 'monitor'),
       stacksaga.grant_usage('Privileges; DROP ROLE x', 'monitor');
CREATE SCHEMA privileges;
CREATE TABLE privileges.role AS SELECT rolname AS role, replace(rolname, 'privileges_', '') AS kind
  FROM pg_roles WHERE rolname LIKE 'privileges\_%';
-- Functions that read or write tables, and views: who may use them by their privileges, against the
-- list.
CREATE VIEW privileges.object AS
    SELECT p.proname AS object, p.oid, 'function' AS what, p.provolatile FROM pg_proc p
        WHERE p.pronamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace)
    UNION ALL SELECT c.relname, c.oid, CASE c.relkind WHEN 'v' THEN 'view' ELSE 'table' END, 'v'
        FROM pg_class c
               WHERE c.relnamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace)
                   AND c.relkind IN ('v', 'r', 'p', 'm', 'f');
CREATE VIEW privileges.held AS
    SELECT r.kind, o.object, o.what, o.provolatile = 'i' AS immutable,
           CASE o.what WHEN 'function' THEN has_function_privilege(r.role, o.oid, 'EXECUTE')
                       ELSE has_table_privilege(r.role, o.oid, 'SELECT') END AS may_use,
           o.what <> 'function' AND has_table_privilege(r.role, o.oid,
               'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') AS may_write
      FROM privileges.role r, privileges.object o;
SELECT * FROM privileges.held h
 WHERE may_write OR may_use <> (immutable OR EXISTS (SELECT FROM stacksaga.privilege p
     WHERE p.kind = h.kind AND p.object = h.object)) ORDER BY kind, object;
SELECT kind, count(*) FILTER (WHERE may_use AND what = 'function' AND NOT immutable) > 5 AS
    functions, count(*) FILTER (WHERE may_use AND what = 'view') > 0 AS views,
       count(*) FILTER (WHERE may_use AND what = 'table') AS tables FROM privileges.held
           GROUP BY kind ORDER BY kind;
-- Nothing is listed that is not there.
SELECT p.kind, p.object FROM stacksaga.privilege p WHERE NOT EXISTS (SELECT FROM privileges.object o
  WHERE o.object = p.object) ORDER BY 1, 2;
SELECT role, kind FROM stacksaga.usage_grant
  WHERE role LIKE 'privileges%' OR role LIKE 'Privileges%' ORDER BY role;

-- The kinds' words, and roles that are not there.
CREATE FUNCTION privileges.outcome(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text; detail text; hint text;
BEGIN
    EXECUTE statement INTO result;
    RETURN 'allowed';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN CASE WHEN SQLSTATE LIKE 'SG%' THEN SQLSTATE || ': ' || SQLERRM ||
        coalesce('; ' || nullif(detail, ''), '') || coalesce('; ' || nullif(hint, ''), '')
                ELSE SQLSTATE END;
END
$$;
GRANT USAGE ON SCHEMA privileges TO PUBLIC;
SELECT privileges.outcome(format('SELECT stacksaga.grant_usage(%s)', arguments)) FROM unnest(ARRAY[
    $$ 'privileges_service', 'king' $$, $$ 'privileges_service', '' $$, $$ 'privileges_service',
        NULL $$, $$ 'privileges_absent', 'service' $$,
    $$ NULL, 'service' $$, $$ '', 'service' $$, $$ 'public', 'service' $$, $$ 'privileges_service',
        repeat('x', 10000) $$ ]) AS arguments;

-- As the roles themselves: one call of each kind of thing.
CREATE TABLE privileges.call (n serial, call text);
INSERT INTO privileges.call (call) VALUES
    ($$ SELECT stacksaga.token('x') $$),
    ($$ SELECT (stacksaga.retry_policy()).max_attempts $$),
    ($$ SELECT stacksaga.start_saga('privileges') $$),
    ($$ SELECT count(*) FROM stacksaga.claim_steps('privileges', 'w') $$),
    ($$ SELECT stacksaga.saga_result('00000000-0000-0000-0000-000000000000') $$),
    ($$ SELECT stacksaga.define_saga('other', ARRAY[stacksaga.queue_step('a', 'p', compensable => true)]) $$),
    ($$ SELECT stacksaga.run_pending() $$),
    ($$ SELECT stacksaga.grant_usage('privileges_nobody', 'operator') $$),
    ($$ SELECT count(*) FROM stacksaga.sagas $$),
    ($$ SELECT count(*) FROM stacksaga.saga_history $$),
    ($$ SELECT count(*) FROM stacksaga.nodes $$),
    ($$ SELECT count(*) FROM stacksaga.saga $$),
    ($$ UPDATE stacksaga.saga SET status = 'completed' $$),
    ($$ DELETE FROM stacksaga.sagas $$),
    ($$ INSERT INTO stacksaga.effect SELECT * FROM stacksaga.effect $$),
    ($$ SELECT count(*) FROM stacksaga.work $$),
    ($$ CREATE TABLE stacksaga.mine (n int) $$),
    ($$ CREATE FUNCTION stacksaga.mine() RETURNS int LANGUAGE sql AS 'SELECT 1' $$),
    ($$ SELECT set_config('stacksaga.clock_offset', '1 hour', true) $$),
    ($$ SELECT set_config('stacksaga.cluster', 'default', true) $$),
    ($$ SELECT stacksaga_internal.enforce_transition() $$);
SELECT stacksaga.define_saga('privileges', ARRAY[stacksaga.queue_step('a', 'privileges', compensable => true)]);
CREATE TABLE privileges.result (kind text, n int, call text, outcome text);
GRANT SELECT ON privileges.call TO PUBLIC;
GRANT SELECT, INSERT ON privileges.result TO PUBLIC;
SET ROLE privileges_nobody;
INSERT INTO privileges.result SELECT 'nobody', n, call, privileges.outcome(call)
  FROM privileges.call;
SET ROLE privileges_service;
INSERT INTO privileges.result SELECT 'service', n, call, privileges.outcome(call)
  FROM privileges.call;
SET ROLE privileges_coordinator;
INSERT INTO privileges.result SELECT 'coordinator', n, call, privileges.outcome(call)
  FROM privileges.call;
SET ROLE privileges_operator;
INSERT INTO privileges.result SELECT 'operator', n, call, privileges.outcome(call)
  FROM privileges.call;
SET ROLE privileges_monitor;
INSERT INTO privileges.result SELECT 'monitor', n, call, privileges.outcome(call)
  FROM privileges.call;
RESET ROLE;
SELECT left(call, 75) AS call, max(left(outcome, 7)) FILTER (WHERE kind = 'nobody') AS nobody,
    max(left(outcome, 7)) FILTER (WHERE kind = 'service') AS service,
       max(left(outcome, 7)) FILTER (WHERE kind = 'coordinator') AS coordinator,
           max(left(outcome, 7)) FILTER (WHERE kind = 'operator') AS operator,
       max(left(outcome, 7)) FILTER (WHERE kind = 'monitor') AS monitor
  FROM privileges.result GROUP BY n, call ORDER BY n;

-- A service's whole day, as the service: what it may do is enough. The step runs as its definer.
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
GRANT CREATE ON SCHEMA privileges TO privileges_operator;
SET ROLE privileges_operator;
CREATE FUNCTION privileges.operators_act(call stacksaga.step_call) RETURNS jsonb
  LANGUAGE sql AS $$ SELECT to_jsonb(current_user) $$;
REVOKE ALL ON FUNCTION privileges.operators_act(stacksaga.step_call) FROM PUBLIC;
SELECT stacksaga.define_saga('privileges',
    ARRAY[stacksaga.sql_step('s', 'privileges.operators_act(stacksaga.step_call)'),
    stacksaga.queue_step('a', 'privileges', compensable => true)]);
SET ROLE privileges_service;
SELECT saga_id AS id FROM stacksaga.start_saga('privileges', key => 'day') \gset
RESET ROLE;
SELECT stacksaga.run_pending();
SET ROLE privileges_service;
SELECT lease, results FROM stacksaga.claim_steps('privileges', 'w') \gset
\echo :results
SELECT cancel_requested FROM stacksaga.extend_step(:'id', 'a', :lease);
SELECT stacksaga.fail_step(:'id', 'a', :lease, 'again', 'retryable', retry_after => '0');
SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('privileges', 'w');
SELECT status FROM stacksaga.saga_result(:'id');
SELECT stacksaga.await_saga(:'id');
SELECT count(*) FROM stacksaga.saga_timeline(:'id');
SELECT status FROM stacksaga.sagas WHERE saga_id = :'id';
-- Nobody can make the definer's functions their own by way of the search_path. Those that publish pin
-- it where they need it (sql/outbox_publish.sql), run_pending() once it has fired what the caller has
-- deferred (sql/handler_escape.sql).
RESET ROLE;
SELECT proname, proconfig FROM pg_proc WHERE pronamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace) AND prosecdef
   AND NOT 'search_path=pg_catalog, pg_temp' = ANY (coalesce(proconfig, '{}'))
   AND proname NOT IN ('publish', 'publish_batch', 'run_pending');
SET ROLE privileges_service;
CREATE TEMP TABLE saga (saga_id uuid, token bigint, status text);
CREATE TEMP VIEW work AS SELECT 1 AS n;
CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '-infinity'::timestamptz
    $$;
SET search_path = pg_temp, pg_catalog;
SELECT created FROM stacksaga.start_saga('privileges', key => 'shadowed');
SELECT status FROM stacksaga.sagas WHERE key = 'shadowed';
RESET search_path;
-- What a service calls with each step becomes the owner by itself, and pins the path around its
-- queries: those for a claimer that is a node, and for a queue with limits, too.
RESET ROLE;
CREATE SCHEMA privileges_shadow AUTHORIZATION privileges_service;
SELECT stacksaga.define_saga('privileges_shadow', ARRAY[stacksaga.queue_step('a', 'privileges_shadow', compensable => true)]);
SELECT stacksaga.set_queue('privileges_shadow', max_running => 10, rate => 100, rate_interval => '1 second');
SELECT stacksaga.register_node('privileges_node') > 0 AS registered;
SET ROLE privileges_service;
DO $do$
DECLARE type text; operator text;
BEGIN
    FOREACH type IN ARRAY '{text,integer,bigint,uuid,boolean,timestamptz,smallint}'::text[] LOOP
        EXECUTE format('CREATE FUNCTION privileges_shadow.called(%1$s, %1$s) RETURNS boolean LANGUAGE plpgsql'
                       ' AS $$ BEGIN RAISE ''called''; END $$', type);
        FOREACH operator IN ARRAY '{=,<,<=,>,>=,<>}'::text[] LOOP
            EXECUTE format('CREATE OPERATOR privileges_shadow.%s (LEFTARG = %2$s, RIGHTARG = %2$s,'
                           ' FUNCTION = privileges_shadow.called)', operator, type);
        END LOOP;
    END LOOP;
END $do$;
SET search_path = privileges_shadow, pg_catalog;
SELECT created FROM stacksaga.start_saga('privileges_shadow', key => 'operators') \gset
SELECT (SELECT created FROM stacksaga.start_saga('privileges_shadow', key => 'operators')) AS again;
SELECT created FROM stacksaga.start_sagas('privileges_shadow', ARRAY['{}', '{}']::jsonb[]);
SELECT saga_id, step, lease FROM stacksaga.claim_steps('privileges_shadow', 'privileges_node') \gset
SELECT cancel_requested FROM stacksaga.extend_step(:'saga_id', :'step', :lease);
SELECT stacksaga.fail_step(:'saga_id', :'step', :lease, 'again', 'retryable', retry_after => '0');
SELECT saga_id, step, lease FROM stacksaga.claim_steps('privileges_shadow', 'somebody') \gset
SELECT stacksaga.complete_step(:'saga_id', :'step', :lease);
SELECT saga_id, step, lease FROM stacksaga.claim_steps('privileges_shadow', 'somebody') \gset
SELECT sqlstate FROM stacksaga.complete_steps(ARRAY[:'saga_id'::uuid], ARRAY[:'step'], ARRAY[:lease]);
-- The caller is itself again, after an error, too.
\set VERBOSITY sqlstate
SELECT stacksaga.complete_step(:'saga_id', 'nothing', 1);
\set VERBOSITY default
SELECT current_user, current_setting('search_path');
SELECT FROM stacksaga.work;
RESET search_path;
RESET ROLE;

SET client_min_messages = warning;
DELETE FROM stacksaga.node WHERE node = 'privileges_node';
DELETE FROM stacksaga.queue WHERE queue = 'privileges_shadow';
DELETE FROM stacksaga.queue_claims WHERE queue = 'privileges_shadow';
DROP SCHEMA privileges_shadow CASCADE;
DROP SCHEMA privileges CASCADE;
DROP OWNED BY privileges_nobody, privileges_service, privileges_coordinator, privileges_operator,
    privileges_monitor, "Privileges; DROP ROLE x" CASCADE;
DELETE FROM stacksaga.usage_grant WHERE role ILIKE 'privileges%';
DROP ROLE privileges_nobody, privileges_service, privileges_coordinator, privileges_operator,
    privileges_monitor, "Privileges; DROP ROLE x";
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
