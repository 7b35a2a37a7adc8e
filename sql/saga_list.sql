-- The view sagas with many rows: what is asked first is answered by an index, whatever PostgreSQL
-- believes of the tables, and costs nothing for what is not returned. And saga_id_of().

CREATE SCHEMA list;
CREATE FUNCTION list.act(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
SELECT stacksaga.define_saga('list', ARRAY[
    stacksaga.sql_step('only', 'list.act(stacksaga.step_call)')]);
-- Whether a query reads the table of sagas whole, or sorts it.
CREATE FUNCTION list.plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    whole text[] = '{}';
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        IF line ~ 'Seq Scan on saga ' OR line ~ '^ {0,6}(-> *)?Sort' THEN
            whole := whole || trim(line);
        END IF;
    END LOOP;
    RETURN CASE WHEN whole = '{}' THEN 'by index' ELSE array_to_string(whole, ', ') END;
END
$$;
CREATE VIEW list.plans AS
    SELECT list.plan('SELECT * FROM stacksaga.sagas ORDER BY created_at DESC LIMIT 20') AS newest,
           list.plan($$ SELECT * FROM stacksaga.sagas WHERE saga = 'list' AND key = 'k 7' $$) AS one_key,
           list.plan($$ SELECT * FROM stacksaga.sagas WHERE saga_id = stacksaga.saga_id_of('list', 'k 7') $$)
               AS by_id;

-- Statistics of a table that was small, then of a large one.
BEGIN;
INSERT INTO stacksaga.saga (saga_id, token, ring_id, slot, definition_id, status, created_at,
        updated_at, key, fingerprint, input, headers)
SELECT i, stacksaga.token_uuid(i), 1, stacksaga.slot(stacksaga.token_uuid(i)), d.definition_id,
       CASE n % 10 WHEN 0 THEN 'running' ELSE 'completed' END,
       now() - n * interval '1 second', now(), 'k ' || n, '', '{}', '{}'
  FROM generate_series(1, 20000) AS n, stacksaga.saga_id_of('list', 'k ' || n) AS i,
       stacksaga.saga_definition d
 WHERE d.saga = 'list' AND d.is_current;
SELECT * FROM list.plans;
ANALYZE stacksaga.saga;
SELECT * FROM list.plans;
SELECT list.plan($$ SELECT * FROM stacksaga.sagas WHERE status = 'running'
                     ORDER BY created_at DESC LIMIT 20 $$) AS by_status;
-- Rows that LIMIT spares are not looked at.
SELECT key FROM stacksaga.sagas ORDER BY created_at DESC LIMIT 3;
SELECT saga, key, status FROM stacksaga.sagas WHERE saga = 'list' AND key = 'k 7';
ROLLBACK;

-- A saga whose steps run in one transaction changes its row once.
SELECT saga_id AS id FROM stacksaga.start_saga('list', key => 'hot') \gset
BEGIN;
SELECT stacksaga.run_pending() AS ran;
SELECT n_tup_upd FROM pg_stat_xact_user_tables WHERE relid = 'stacksaga.saga'::regclass;
COMMIT;

-- The id of a name, a key and a run.
SELECT s.saga_id = stacksaga.saga_id_of('list', 'hot') AS same, stacksaga.saga_id_of('list', 'hot')
  FROM stacksaga.start_saga('list', key => 'hot') AS s;
SELECT stacksaga.saga_id_of('no such saga', 'a key', 3);
SELECT stacksaga.saga_id_of(saga => 'list', key => 'hot', run => 1)
       <> stacksaga.saga_id_of('list', 'hot') AS other_run;
SELECT proname, provolatile, proparallel FROM pg_proc
 WHERE oid = 'stacksaga.saga_id_of(text, text, integer)'::regprocedure;
SELECT stacksaga.saga_id_of('list', '');
SELECT stacksaga.saga_id_of('', 'k');
SELECT stacksaga.saga_id_of('list', NULL);
SELECT stacksaga.saga_id_of('list', 'k', -1);

DELETE FROM stacksaga.work WHERE saga_id = :'id';
DELETE FROM stacksaga.effect WHERE saga_id = :'id';
DELETE FROM stacksaga.saga WHERE saga_id = :'id';
SET client_min_messages = warning;
DROP SCHEMA list CASCADE;
