-- define_saga(…, keep): how long finished sagas of a definition stay, whatever the settings say.

-- a ring of its own, so that it is about these sagas alone
SELECT stacksaga.create_ring('keep', 'here') > 0 AS made;
SET stacksaga.region = 'keep';
SET stacksaga.cluster = 'here';
CREATE FUNCTION keep_do(stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('done', $1.step) $$;
CREATE FUNCTION keep_fail(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'SG424'; END $$;
CREATE VIEW keep_left AS
SELECT d.saga, s.run, s.status, CASE WHEN isfinite(s.remove_at) THEN (s.remove_at - s.finished_at)::text ELSE s.remove_at::text END AS kept,
       (SELECT count(*) FROM stacksaga.effect e WHERE e.saga_id = s.saga_id) AS effects
  FROM stacksaga.saga s JOIN stacksaga.saga_definition d USING (definition_id)
 WHERE s.ring_id = (SELECT ring_id FROM stacksaga.ring WHERE region = 'keep')
 ORDER BY d.saga COLLATE "C", s.run;

-- Completed and failed ones of each length; those without follow the settings: 7 and 30 days.
SELECT count(stacksaga.define_saga('keep_' || name, ARRAY[
           stacksaga.sql_step('first', 'keep_do(stacksaga.step_call)', compensation => 'keep_do(stacksaga.step_call)'),
           stacksaga.sql_step('second', format('keep_%s(stacksaga.step_call)', CASE WHEN fails THEN 'fail' ELSE 'do' END))],
           keep => keep))
  FROM (VALUES ('a_settings', NULL::interval, false), ('b_none', '0', false), ('c_days', '3 days', false), ('d_long', '60 days', false),
               ('e_ever', '-1 second', false), ('f_settings_failed', NULL, true), ('g_none_failed', '0', true),
               ('h_days_failed', '3 days', true), ('i_ever_failed', '-2 days', true)) AS v(name, keep, fails);
SELECT count(s.saga_id) FROM stacksaga.saga_definition d, stacksaga.start_saga(d.saga) AS s WHERE d.saga LIKE 'keep\_%';
SELECT count(*) FROM keep_left WHERE kept IS NOT NULL;
SELECT stacksaga.run_pending(1000) > 0 AS ran;
SELECT * FROM keep_left;
SELECT stacksaga.expire_sagas();
SELECT saga FROM keep_left;
SET stacksaga.clock_offset = '71 hours';
SELECT stacksaga.expire_sagas();
SET stacksaga.clock_offset = '73 hours';
SELECT stacksaga.expire_sagas();
SELECT saga FROM keep_left;
SET stacksaga.clock_offset = '31 days';
SELECT stacksaga.expire_sagas();
SELECT saga FROM keep_left;
SET stacksaga.clock_offset = '61 days';
SELECT stacksaga.expire_sagas();
SET stacksaga.clock_offset = '3000 days';
SELECT stacksaga.expire_sagas();
SELECT saga FROM keep_left;

-- The version that a saga began with counts, not the current one.
RESET stacksaga.clock_offset;
SELECT stacksaga.define_saga('keep_versions', ARRAY[stacksaga.queue_step('go', 'keep', compensable => false)], keep => '2 days');
SELECT saga_id AS began_before FROM stacksaga.start_saga('keep_versions') \gset
SELECT stacksaga.define_saga('keep_versions', ARRAY[stacksaga.queue_step('go', 'keep', compensable => false)], keep => '0');
SELECT saga_id AS began_after FROM stacksaga.start_saga('keep_versions') \gset
SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM stacksaga.claim_steps('keep', 'service', 10);
SELECT stacksaga.expire_sagas();
SELECT saga_id = :'began_before' AS began_before FROM stacksaga.sagas WHERE saga = 'keep_versions';
SELECT status FROM stacksaga.saga_result(:'began_before');
SET stacksaga.clock_offset = '49 hours';
SELECT stacksaga.expire_sagas();
RESET stacksaga.clock_offset;

-- A child stays as long as its parent, whatever its own definition says.
SELECT stacksaga.define_saga('keep_child_' || name, ARRAY[stacksaga.sql_step('first', 'keep_do(stacksaga.step_call)')], keep => keep)
  FROM (VALUES ('ever', '-1 second'::interval), ('none', '0'), ('settings', NULL)) AS v(name, keep);
SELECT stacksaga.define_saga('keep_parent_' || name, ARRAY[
           stacksaga.child_step('ever', 'keep_child_ever'), stacksaga.child_step('none', 'keep_child_none'),
           stacksaga.child_step('settings', 'keep_child_settings')], keep => keep)
  FROM (VALUES ('days', '3 days'::interval), ('none', '0'), ('ever', '-1 second')) AS v(name, keep);
SELECT saga_id AS days FROM stacksaga.start_saga('keep_parent_days') \gset
SELECT saga_id AS none FROM stacksaga.start_saga('keep_parent_none') \gset
SELECT saga_id AS ever FROM stacksaga.start_saga('keep_parent_ever') \gset
SELECT stacksaga.run_pending(1000) > 0 AS ran;
SELECT saga, status, kept FROM keep_left WHERE saga LIKE 'keep_parent%' OR saga LIKE 'keep_child%';
SELECT stacksaga.expire_sagas();
SELECT saga FROM keep_left WHERE saga LIKE 'keep_parent%' OR saga LIKE 'keep_child%';
SET stacksaga.clock_offset = '3 days 1 minute';
SELECT stacksaga.expire_sagas();
SET stacksaga.clock_offset = '3000 days';
SELECT stacksaga.expire_sagas();
SELECT saga FROM keep_left WHERE saga LIKE 'keep_parent%' OR saga LIKE 'keep_child%';
-- What may not go is not read, however much there is.
VACUUM (INDEX_CLEANUP on) stacksaga.saga;
BEGIN;
SELECT pg_stat_get_xact_tuples_returned('stacksaga.saga_finished'::regclass) AS read_before \gset
SELECT stacksaga.expire_sagas();
SELECT pg_stat_get_xact_tuples_returned('stacksaga.saga_finished'::regclass) - :read_before AS entries_read;
COMMIT;
SELECT indexdef FROM pg_indexes WHERE indexname = 'saga_finished';
RESET stacksaga.clock_offset;

-- Parked ones stay; what ends them writes when they go. So does a cancel, and a redacted one goes in its time.
SELECT stacksaga.define_saga('keep_parks', ARRAY[stacksaga.sql_step('only', 'keep_fail(stacksaga.step_call)')], on_failure => 'park', keep => '0');
SELECT saga_id AS parked FROM stacksaga.start_saga('keep_parks') \gset
SELECT stacksaga.define_saga('keep_cancelled', ARRAY[stacksaga.queue_step('go', 'keep_cancelled', compensable => false)], keep => '1 day');
SELECT saga_id AS cancelled FROM stacksaga.start_saga('keep_cancelled') \gset
SELECT stacksaga.run_pending(1000) > 0 AS ran;
SELECT stacksaga.cancel_saga(:'cancelled', 'nobody wants it');
SELECT stacksaga.expire_sagas();
SELECT saga, status, kept FROM keep_left WHERE saga IN ('keep_parks', 'keep_cancelled');
SELECT stacksaga.redact_saga(:'cancelled', 'ticket') IS NOT NULL AS redacted;
SELECT stacksaga.cancel_saga(:'parked', 'given up');
SELECT stacksaga.expire_sagas();
SET stacksaga.clock_offset = '25 hours';
SELECT stacksaga.expire_sagas();
SELECT count(*) FROM keep_left WHERE saga IN ('keep_parks', 'keep_cancelled');
RESET stacksaga.clock_offset;

-- The key of one that is gone stays for key_retention; the runs of a key go together.
SELECT stacksaga.define_saga('keep_keyed', ARRAY[stacksaga.sql_step('only', 'keep_do(stacksaga.step_call)')], keep => '0');
SELECT saga_id AS first FROM stacksaga.start_saga('keep_keyed', '{"n": 1}', key => 'k') \gset
SELECT stacksaga.run_pending(1000) > 0 AS ran;
SELECT stacksaga.expire_sagas();
SELECT saga_id = :'first' AS same, created FROM stacksaga.start_saga('keep_keyed', '{"n": 1}', key => 'k');
\set VERBOSITY sqlstate
SELECT stacksaga.start_saga('keep_keyed', '{"n": 2}', key => 'k');
SELECT stacksaga.start_saga('keep_keyed', '{"n": 1}', key => 'k', on_conflict => 'fail');
\set VERBOSITY default
SELECT status, output, finished_at IS NOT NULL AS finished FROM stacksaga.saga_result(:'first');
SET stacksaga.clock_offset = '91 days';
SELECT stacksaga.expire_sagas();
SELECT created FROM stacksaga.start_saga('keep_keyed', '{"n": 2}', key => 'k');
SELECT stacksaga.run_pending(1000) > 0 AS ran;
SELECT stacksaga.expire_sagas();
RESET stacksaga.clock_offset;
SELECT stacksaga.define_saga('keep_runs', ARRAY[stacksaga.sql_step('only', 'keep_fail(stacksaga.step_call)')], keep => '2 days');
SELECT created FROM stacksaga.start_saga('keep_runs', key => 'k');
SELECT stacksaga.run_pending(1000) > 0 AS ran;
SET stacksaga.clock_offset = '1 day';
SELECT created FROM stacksaga.start_saga('keep_runs', key => 'k', on_conflict => 'restart_if_failed');
SELECT stacksaga.run_pending(1000) > 0 AS ran;
SET stacksaga.clock_offset = '2 days 1 hour';
SELECT stacksaga.expire_sagas();
SELECT saga, run, kept FROM keep_left WHERE saga = 'keep_runs';
SET stacksaga.clock_offset = '3 days 1 hour';
SELECT stacksaga.expire_sagas();
SELECT saga_id = stacksaga.saga_id_of('keep_runs', 'k', 2) AS next_run, created
  FROM stacksaga.start_saga('keep_runs', key => 'k', on_conflict => 'restart_if_failed');

RESET stacksaga.clock_offset;
RESET stacksaga.region;
RESET stacksaga.cluster;
DROP VIEW keep_left;
DROP FUNCTION keep_do, keep_fail;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_signal,
    stacksaga.saga_action, stacksaga.parked_saga, stacksaga.removed_saga;
