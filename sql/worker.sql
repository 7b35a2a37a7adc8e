-- The background worker, started without preloading.

-- its settings, which the module brings
SELECT stacksaga.token('');
SELECT name, context, boot_val, min_val, max_val, unit
  FROM pg_settings WHERE name IN ('stacksaga.workers', 'stacksaga.poll_interval',
                                  'stacksaga.databases', 'stacksaga.coordination')
 ORDER BY name COLLATE "C";
SET stacksaga.workers = 2;

-- what does not run is started, and what runs is left alone
SELECT stacksaga.worker_ensure();
CREATE TEMPORARY TABLE first AS
    SELECT pid, backend_start FROM pg_stat_activity
     WHERE backend_type = 'stacksaga worker' AND datname = current_database();
SELECT count(*) FROM first;
SELECT stacksaga.worker_ensure();
SELECT count(*) FROM first
  JOIN pg_stat_activity a USING (pid, backend_start)
 WHERE a.backend_type = 'stacksaga worker' AND a.usename IS NOT NULL;

-- it runs a saga, woken by the commit that starts it
CREATE FUNCTION worker_answer(stacksaga.step_call) RETURNS jsonb LANGUAGE sql
    AS $$ SELECT jsonb_build_object('done', $1.step) $$;
SELECT stacksaga.define_saga('worker_pair', ARRAY[
    stacksaga.sql_step('first', 'worker_answer(stacksaga.step_call)'),
    stacksaga.sql_step('second', 'worker_answer(stacksaga.step_call)')]);
SELECT saga_id FROM stacksaga.start_saga('worker_pair') \gset
SELECT stacksaga.await_saga(:'saga_id', '60 seconds');
SELECT step, direction, attempt, status, worker FROM stacksaga.saga_history
 WHERE saga_id = :'saga_id' ORDER BY step;

-- it is a node of the ring of its settings
SELECT node, kind, pid IN (SELECT pid FROM first) AS is_worker FROM stacksaga.node
 WHERE node = 'worker-1';

-- only who was granted it may start workers
CREATE ROLE regress_worker_stranger;
GRANT USAGE ON SCHEMA stacksaga TO regress_worker_stranger;
SET ROLE regress_worker_stranger;
SELECT stacksaga.worker_ensure();
RESET ROLE;
REVOKE USAGE ON SCHEMA stacksaga FROM regress_worker_stranger;
DROP ROLE regress_worker_stranger;
DROP FUNCTION worker_answer;
