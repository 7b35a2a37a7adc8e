-- The views that python-cqrs' models of its saga storage read: named, typed and filled as its tables are.

\set SHOW_CONTEXT never
CREATE SCHEMA cqrs;
SELECT relname, attname, format_type(atttypid, atttypmod) AS type
  FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
 WHERE c.relnamespace = 'stacksaga'::regnamespace AND relname IN ('saga_executions', 'saga_logs') AND attnum > 0
 ORDER BY relname, attnum;

CREATE FUNCTION cqrs.ok(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"id": 7}'::jsonb $$;
CREATE FUNCTION cqrs.undo(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE FUNCTION cqrs.no(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'sold out' USING ERRCODE = 'SG424';
END $$;
SELECT stacksaga.define_saga('cqrs done', ARRAY[stacksaga.sql_step('first', 'cqrs.ok(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('cqrs undone', ARRAY[
    stacksaga.sql_step('first', 'cqrs.ok(stacksaga.step_call)', 'cqrs.undo(stacksaga.step_call)'),
    stacksaga.sql_step('second', 'cqrs.no(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('cqrs parked', ARRAY[
    stacksaga.sql_step('first', 'cqrs.ok(stacksaga.step_call)', effect => 'irreversible'),
    stacksaga.sql_step('second', 'cqrs.no(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('cqrs back', ARRAY[
    stacksaga.queue_step('first', 'cqrs', compensable => true), stacksaga.queue_step('second', 'cqrs', compensable => false)]);
SELECT count(*)
  FROM (VALUES ('cqrs done', '{"order": 1}'::jsonb), ('cqrs done', '[1, 2]'), ('cqrs undone', '{}'), ('cqrs parked', '{}')) AS s(saga, input),
       stacksaga.start_saga(s.saga, s.input) AS started;
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT (stacksaga.start_saga('cqrs back')).saga_id AS forward \gset
SELECT stacksaga.suspend_saga(:'forward', 'a look');
SELECT (stacksaga.start_saga('cqrs back')).saga_id AS back \gset
SELECT count(stacksaga.complete_step(saga_id, step, lease, '5')) FROM stacksaga.claim_steps('cqrs', 'w', 10);
SELECT stacksaga.cancel_saga(:'back', 'no longer wanted');
SELECT stacksaga.suspend_saga(:'back', 'a look');
SELECT name, status, context, version, recovery_attempts, created_at <= updated_at AS in_order
  FROM stacksaga.saga_executions WHERE name LIKE 'cqrs %' ORDER BY name, created_at, id;
SELECT e.name, step_name, action, l.status, details
  FROM stacksaga.saga_logs l JOIN stacksaga.saga_executions e ON e.id = l.saga_id
 WHERE name LIKE 'cqrs %' AND context::text NOT LIKE '%[%' ORDER BY name, e.created_at, l.created_at, step_name, l.status;
-- As its queries compare: the type that SQLAlchemy casts to; an id of its own for each line.
SET search_path = stacksaga;
SELECT count(*) FROM saga_executions WHERE status IN ('RUNNING'::sagastatus, 'COMPENSATING'::sagastatus) AND name LIKE 'cqrs %';
SELECT count(*) = count(DISTINCT id) AND min(id) >= 0 AS own FROM saga_logs;
RESET search_path;
-- Nobody writes them.
UPDATE stacksaga.saga_executions SET version = 1;
DELETE FROM stacksaga.saga_logs;
-- Who may.
CREATE ROLE cqrs_reader;
SELECT stacksaga.grant_usage('cqrs_reader', 'monitor');
SET ROLE cqrs_reader;
SELECT count(*) > 0 FROM stacksaga.saga_executions;
SELECT count(*) > 0 FROM stacksaga.saga_logs;
RESET ROLE;
SELECT kind FROM stacksaga.privilege WHERE object = 'saga_executions' ORDER BY kind;

SELECT stacksaga.resume_saga(:'forward', 'done'), stacksaga.resume_saga(:'back', 'done');
SELECT stacksaga.cancel_saga(saga_id, 'done') FROM stacksaga.sagas WHERE saga_id = :'forward';
SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM stacksaga.claim_steps('cqrs', 'w', 10);
SELECT stacksaga.resolve_step(saga_id, 'second', 'done', reason => 'by hand') FROM stacksaga.sagas WHERE saga = 'cqrs parked';
SET client_min_messages = warning;
DROP SCHEMA cqrs CASCADE;
DROP OWNED BY cqrs_reader;
DROP ROLE cqrs_reader;
