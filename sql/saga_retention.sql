-- Retention: finished sagas go, with everything that belongs to them, when their time is over.

-- a ring of its own, so that it is about these sagas alone
SELECT stacksaga.create_ring('retention', 'here') > 0 AS made;
SET stacksaga.region = 'retention';
SET stacksaga.cluster = 'here';
CREATE FUNCTION retention_do(stacksaga.step_call) RETURNS jsonb LANGUAGE sql
    AS $$ SELECT jsonb_build_object('done', $1.step) $$;
CREATE FUNCTION retention_fail(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'SG424'; END $$;
SELECT stacksaga.define_saga('retention_good', ARRAY[
    stacksaga.sql_step('first', 'retention_do(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('retention_bad', ARRAY[
    stacksaga.sql_step('first', 'retention_do(stacksaga.step_call)',
                       compensation => 'retention_do(stacksaga.step_call)'),
    stacksaga.sql_step('second', 'retention_fail(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('retention_parks', ARRAY[
    stacksaga.sql_step('first', 'retention_do(stacksaga.step_call)', effect => 'irreversible'),
    stacksaga.sql_step('second', 'retention_fail(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('retention_waits', ARRAY[stacksaga.queue_step('first', 'retention', compensable => true)]);
SELECT stacksaga.define_saga('retention_parent', ARRAY[
    stacksaga.child_step('child', 'retention_good'),
    stacksaga.queue_step('go', 'retention_go', compensable => true),
    stacksaga.signal_step('more', 'more')]);

CREATE VIEW retention_left AS
SELECT d.saga, s.run, s.status,
       (SELECT count(*) FROM stacksaga.effect e WHERE e.saga_id = s.saga_id) AS effects,
       (SELECT count(*) FROM stacksaga.failure f WHERE f.saga_id = s.saga_id) AS failures
  FROM stacksaga.saga s JOIN stacksaga.saga_definition d USING (definition_id)
 WHERE s.ring_id = (SELECT ring_id FROM stacksaga.ring WHERE region = 'retention')
 ORDER BY d.saga COLLATE "C", s.run;
CREATE VIEW retention_orphans AS
SELECT (SELECT count(*) FROM stacksaga.effect e
         WHERE NOT EXISTS (SELECT FROM stacksaga.saga s WHERE s.saga_id = e.saga_id)) AS effects,
       (SELECT count(*) FROM stacksaga.failure f
         WHERE NOT EXISTS (SELECT FROM stacksaga.saga s WHERE s.saga_id = f.saga_id)) AS failures,
       (SELECT count(*) FROM stacksaga.saga_signal f
         WHERE NOT EXISTS (SELECT FROM stacksaga.saga s WHERE s.saga_id = f.saga_id)) AS signals,
       (SELECT count(*) FROM stacksaga.saga_action f
         WHERE NOT EXISTS (SELECT FROM stacksaga.saga s WHERE s.saga_id = f.saga_id)) AS actions,
       (SELECT count(*) FROM stacksaga.work f
         WHERE NOT EXISTS (SELECT FROM stacksaga.saga s WHERE s.saga_id = f.saga_id)) AS work;

-- what is kept, and how long
SELECT name, setting, unit, context FROM pg_settings
 WHERE name IN ('stacksaga.saga_retention', 'stacksaga.failed_saga_retention', 'stacksaga.key_retention') ORDER BY name;

-- one of each
SELECT created FROM stacksaga.start_saga('retention_good');
SELECT created FROM stacksaga.start_saga('retention_bad', deadline => '1 hour');
SELECT created FROM stacksaga.start_saga('retention_parks');
SELECT created FROM stacksaga.start_saga('retention_waits');
SELECT saga_id AS parent FROM stacksaga.start_saga('retention_parent') \gset
SELECT stacksaga.run_pending(1000) > 0 AS ran;
SELECT * FROM retention_left;

-- nothing is removed before its time
SELECT stacksaga.expire_sagas();
SET stacksaga.clock_offset = '6 days 23 hours';
SELECT stacksaga.expire_sagas();

-- completed sagas go after seven days, but not one whose parent waits
SET stacksaga.clock_offset = '7 days 1 minute';
SELECT stacksaga.expire_sagas();
SELECT * FROM retention_left;

-- failed ones after thirty
SET stacksaga.clock_offset = '29 days';
SELECT stacksaga.expire_sagas();
SET stacksaga.clock_offset = '30 days 1 minute';
SELECT stacksaga.expire_sagas();
SELECT * FROM retention_left;

-- parent and child go together, when the time of the parent is over
SELECT stacksaga.complete_step(c.saga_id, c.step, c.lease)
  FROM stacksaga.claim_steps('retention_go', 'a service') AS c;
SELECT stacksaga.suspend_saga(:'parent', 'an action') AS suspended;
SELECT stacksaga.resume_saga(:'parent', 'another one') AS resumed;
SELECT stacksaga.signal_saga(:'parent', 'more', message_id => 'm1');
SELECT stacksaga.expire_sagas();
SET stacksaga.clock_offset = '38 days';
SELECT stacksaga.expire_sagas();
SELECT * FROM retention_left;
SELECT * FROM retention_orphans;

-- parked and running ones never
SET stacksaga.clock_offset = '3000 days';
SELECT stacksaga.expire_sagas();
SELECT saga, status FROM retention_left;

-- the runs of a key go together: the first one says which is the latest
SET stacksaga.clock_offset = '0';
SELECT stacksaga.define_saga('retention_keyed', ARRAY[
    stacksaga.sql_step('first', 'retention_fail(stacksaga.step_call)')]);
SELECT created FROM stacksaga.start_saga('retention_keyed', key => 'k');
SELECT stacksaga.run_pending() > 0 AS ran;
SET stacksaga.clock_offset = '20 days';
SELECT created FROM stacksaga.start_saga('retention_keyed', key => 'k',
                                         on_conflict => 'restart_if_failed');
SELECT stacksaga.run_pending() > 0 AS ran;
SET stacksaga.clock_offset = '40 days';
SELECT stacksaga.expire_sagas();
SELECT saga, run, status FROM retention_left WHERE saga = 'retention_keyed';
SET stacksaga.clock_offset = '51 days';
SELECT stacksaga.expire_sagas();
SELECT count(*) FROM retention_left WHERE saga = 'retention_keyed';

-- but the key stands for them on: nothing starts a second time, and another input is refused
SELECT saga_id = stacksaga.saga_id_of('retention_keyed', 'k', 1) AS is_latest, created
  FROM stacksaga.start_saga('retention_keyed', key => 'k');
SELECT stacksaga.start_saga('retention_keyed', '{"another": "input"}', key => 'k');
SELECT stacksaga.start_saga('retention_keyed', key => 'k', on_conflict => 'fail');
SELECT status, output, error, failed_step, finished_at < stacksaga.clock_now() - interval '30 days' AS then
  FROM stacksaga.saga_result(stacksaga.saga_id_of('retention_keyed', 'k', 1));
SELECT count(*) FROM stacksaga.sagas WHERE key = 'k';
-- a failed one may be started again, which is the next run; it is removed on its own
SELECT saga_id = stacksaga.saga_id_of('retention_keyed', 'k', 2) AS is_next, created
  FROM stacksaga.start_saga('retention_keyed', key => 'k', on_conflict => 'restart_if_failed');
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT run, status FROM retention_left WHERE saga = 'retention_keyed';
SET stacksaga.clock_offset = '82 days';
SELECT stacksaga.expire_sagas();
SELECT saga_id = stacksaga.saga_id_of('retention_keyed', 'k', 2) AS is_latest, created
  FROM stacksaga.start_saga('retention_keyed', key => 'k');
SET stacksaga.clock_offset = '171 days';
SELECT stacksaga.expire_sagas();
SELECT count(*) FROM stacksaga.removed_saga r
 WHERE r.saga_id IN (SELECT stacksaga.saga_id_of('retention_keyed', 'k', n) FROM generate_series(0, 2) n);
SELECT created FROM stacksaga.start_saga('retention_keyed', key => 'k');
-- and when the retention of keys is over the key is free, also before a sweep has passed
SET stacksaga.clock_offset = '173 days';
SELECT saga_id = stacksaga.saga_id_of('retention_keyed', 'k', 0) AS is_first, created
  FROM stacksaga.start_saga('retention_keyed', '{"another": "input"}', key => 'k');
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT stacksaga.expire_sagas();
SELECT count(*) FROM stacksaga.removed_saga r
 WHERE r.saga_id IN (SELECT stacksaga.saga_id_of('retention_keyed', 'k', n) FROM generate_series(0, 2) n);
-- without a key nothing is left of a saga
SELECT saga_id AS anonymous FROM stacksaga.start_saga('retention_good') \gset
SELECT created FROM stacksaga.start_saga('retention_good', key => 'good');
SELECT stacksaga.run_pending() > 0 AS ran;
SET stacksaga.clock_offset = '181 days';
SELECT stacksaga.expire_sagas();
\set VERBOSITY sqlstate
SELECT stacksaga.saga_result(:'anonymous');
\set VERBOSITY default
SELECT status, output, failed_step FROM stacksaga.saga_result(stacksaga.saga_id_of('retention_good', 'good'));
SELECT created FROM stacksaga.start_saga('retention_good', key => 'good', on_conflict => 'restart_if_failed');
ALTER SYSTEM SET stacksaga.key_retention = 0;
SET stacksaga.clock_offset = '51 days';

-- in small batches, and only sagas of the ring of the session
SELECT count(*) FROM (SELECT stacksaga.start_saga('retention_good') FROM generate_series(1, 25)) AS s;
SELECT stacksaga.run_pending() > 0 AS ran;
SET stacksaga.clock_offset = '60 days';
SET stacksaga.region = 'default';
SET stacksaga.cluster = 'default';
SELECT count(*) FROM (SELECT stacksaga.expire_sagas(1)) AS e, retention_left
 WHERE saga = 'retention_good';
SET stacksaga.region = 'retention';
SET stacksaga.cluster = 'here';
SELECT stacksaga.expire_sagas(10);
SELECT stacksaga.expire_sagas(10);
SELECT stacksaga.expire_sagas(10);
SELECT stacksaga.expire_sagas(10);
SELECT * FROM retention_orphans;

-- removal by an index, whatever there is
SELECT indexdef FROM pg_indexes WHERE indexname = 'saga_finished';

-- what is refused
\set VERBOSITY sqlstate
SELECT stacksaga.expire_sagas(100001);
\set VERBOSITY default
SELECT stacksaga.expire_sagas(0);
SELECT stacksaga.expire_sagas(NULL);

RESET stacksaga.clock_offset;
RESET stacksaga.region;
RESET stacksaga.cluster;
DROP VIEW retention_left, retention_orphans;
DROP FUNCTION retention_do, retention_fail;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_signal,
    stacksaga.saga_action, stacksaga.parked_saga;
