-- metrics(): names and labels as Prometheus wants them, counters that count what was committed, and
-- a price that does not grow with history.

\set SHOW_CONTEXT never
CREATE SCHEMA metrics;
CREATE FUNCTION metrics.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    code text := call.input -> (call.direction || ' ' || call.step) ->> (call.attempt - 1);
BEGIN
    IF code IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = code;
    END IF;
    RETURN NULL;
END
$$;
SELECT stacksaga.define_saga('metrics', ARRAY[
    stacksaga.sql_step('a', 'metrics.run(stacksaga.step_call)', 'metrics.run(stacksaga.step_call)'),
    stacksaga.sql_step('b', 'metrics.run(stacksaga.step_call)')],
    retry => stacksaga.retry_policy(initial_interval => '0', max_attempts => 3),
    compensation_retry => stacksaga.retry_policy(initial_interval => '0', max_attempts => 2));
SELECT stacksaga.define_saga('metrics queue', ARRAY[stacksaga.queue_step('q', 'metrics queue', compensable => true)]);

-- Names, types, labels, with one of everything there.
SELECT stacksaga_internal.count_sagas();
BEGIN;
SELECT stacksaga.register_node('metrics node') > 0 AS registered;
INSERT INTO stacksaga.worker VALUES (64, pg_backend_pid(), now(), 7, 5, 3, 1.5, 'standalone');
SELECT count(*) FROM stacksaga.start_saga('metrics queue');
SELECT stacksaga.create_subscription('metrics', 'metrics');
SELECT stacksaga.create_schedule('metrics', 'metrics queue', '@hourly');
SELECT stacksaga.set_queue('metrics limits', max_running => 2, max_running_per_group => 5, rate => 7);
SELECT stacksaga.pause_definition('metrics queue', 'a test');
CREATE TABLE metrics.now AS SELECT * FROM stacksaga.metrics();
SELECT DISTINCT name FROM metrics.now EXCEPT SELECT name FROM stacksaga.metric_descriptions();
SELECT name FROM stacksaga.metric_descriptions() EXCEPT SELECT name FROM metrics.now;
SELECT name FROM stacksaga.metric_descriptions() GROUP BY name HAVING count(*) > 1;
SELECT name, type FROM stacksaga.metric_descriptions()
 WHERE name !~ '^stacksaga(_[a-z]+)+$' OR type NOT IN ('counter', 'gauge') OR help IS NULL
    OR (type = 'counter') <> (name LIKE '%\_total');
SELECT name, labels FROM metrics.now GROUP BY name, labels HAVING count(*) > 1;
SELECT name, l.key FROM metrics.now, jsonb_each(labels) l
 WHERE jsonb_typeof(l.value) <> 'string' OR l.key !~ '^[a-z]+$';
SELECT DISTINCT l.key FROM metrics.now, jsonb_each(labels) l ORDER BY l.key;
SELECT name, value FROM metrics.now
 WHERE value IS NULL OR value < 0 OR value = 'NaN' OR name LIKE '%\_ratio' AND value > 1;
-- A counter has all its labels from the start, so that a rate is right from its first event on.
SELECT name, string_agg(labels::text, ' ' ORDER BY labels::text) AS labels FROM metrics.now
 WHERE name LIKE 'stacksaga\_%\_total' AND name NOT LIKE '%worker%' GROUP BY name ORDER BY name;
SELECT name, labels, value FROM metrics.now WHERE name LIKE '%worker%' ORDER BY name;
ROLLBACK;

-- What is overdue, by ring and queue.
CREATE VIEW metrics.overdue AS
    SELECT name, labels ->> 'queue' AS queue, floor(value / 10) * 10 AS value FROM stacksaga.metrics()
     WHERE name LIKE '%overdue%' AND labels @> '{"region": "default", "cluster": "metrics"}' ORDER BY name;
BEGIN;
SELECT stacksaga.create_ring('default', 'metrics') > 0 AS created;
SET LOCAL stacksaga.cluster = 'metrics';
SELECT * FROM metrics.overdue;
SELECT count(*) FROM stacksaga.start_saga('metrics queue', run_at => stacksaga.clock_now() + '1 minute');
SELECT * FROM metrics.overdue;
SET LOCAL stacksaga.clock_offset = '5 minutes';
SELECT * FROM metrics.overdue;
SELECT count(*) FROM stacksaga.claim_steps('metrics queue', 'w', lease => '30 s');
SELECT * FROM metrics.overdue;
SELECT value FROM stacksaga.metrics() WHERE name = 'stacksaga_clock_offset_seconds';
ROLLBACK;

-- Steps and limits of a queue.
SELECT stacksaga.define_saga('metrics limits', ARRAY[stacksaga.queue_step('a', 'metrics limits', compensable => true)]);
SELECT stacksaga.set_queue('metrics limits', max_running => 2, max_running_per_group => 5, rate => 7);
SELECT count(*) FROM generate_series(1, 9) AS n,
       LATERAL stacksaga.start_saga('metrics limits', key => n::text, priority => 3 + n % 2);
SELECT count(*) FROM stacksaga.claim_steps('metrics limits', 'w', 5);
CREATE VIEW metrics.queue AS
    SELECT name, labels ->> 'priority' AS priority, labels ->> 'limit' AS limit, value FROM stacksaga.metrics()
     WHERE labels ->> 'queue' = 'metrics limits' AND name NOT LIKE '%overdue%' AND value > 0 ORDER BY 1, 2, 3;
SELECT name, sum(value) FROM metrics.queue GROUP BY name ORDER BY name;
SELECT stacksaga.drop_queue('metrics limits'), stacksaga.pause_queue('metrics limits', 'a test');
SELECT name, sum(value) FROM metrics.queue GROUP BY name ORDER BY name;
SELECT stacksaga.resume_queue('metrics limits', 'a test');
SELECT name, sum(value) FROM metrics.queue GROUP BY name ORDER BY name;
SELECT count(stacksaga.cancel_saga(saga_id, 'the test is over')) FROM stacksaga.sagas WHERE saga = 'metrics limits'
   AND current_step = 'a' AND paused_until IS NULL;
SELECT count(stacksaga.complete_step(saga_id, 'a', lease)) FROM stacksaga.work WHERE queue = 'metrics limits';

-- Counters: what committed, and nothing else.
CREATE TABLE metrics.before (name text, labels jsonb, value double precision);
CREATE VIEW metrics.delta AS
    SELECT n.name, string_agg(l.value, ' ' ORDER BY l.key) AS labels, n.value - b.value AS more
      FROM stacksaga.metrics() n JOIN metrics.before b USING (name, labels)
      LEFT JOIN jsonb_each_text(n.labels) l ON true
     WHERE n.name LIKE '%\_total' AND n.name NOT LIKE '%worker%' AND n.value <> b.value
     GROUP BY n.name, n.labels, n.value, b.value ORDER BY 1, 2;
CREATE PROCEDURE metrics.mark() LANGUAGE sql AS $$
    TRUNCATE metrics.before;
    INSERT INTO metrics.before SELECT * FROM stacksaga.metrics();
$$;
CALL metrics.mark();
SELECT count(*) FROM stacksaga.start_saga('metrics', '{"act a": ["40001", "SR504"]}');
SELECT stacksaga.run_pending();
SELECT * FROM metrics.delta;
CALL metrics.mark();
SELECT count(*) FROM stacksaga.start_saga('metrics', '{"act b": ["SG424"], "compensate a": ["40001"]}');
SELECT stacksaga.run_pending();
SELECT * FROM metrics.delta;
CALL metrics.mark();
SELECT count(*) FROM stacksaga.start_saga('metrics', '{"act b": ["SG424"], "compensate a": ["SG424"]}');
SELECT stacksaga.run_pending();
SELECT * FROM metrics.delta;
SELECT value FROM stacksaga.metrics() WHERE name = 'stacksaga_sagas_parked';
-- Not before the commit, and never when it rolls back.
CALL metrics.mark();
BEGIN;
SELECT count(*) FROM stacksaga.start_saga('metrics');
SELECT stacksaga.run_pending();
SELECT * FROM metrics.delta;
ROLLBACK;
SELECT * FROM metrics.delta;
-- Subtransactions, one in the other.
BEGIN;
SAVEPOINT outermost;
SELECT count(*) FROM stacksaga.start_saga('metrics');
SAVEPOINT dropped;
SAVEPOINT within;
SELECT count(*) FROM stacksaga.start_saga('metrics');
RELEASE within;
ROLLBACK TO dropped;
SAVEPOINT deep;
SAVEPOINT deeper;
SELECT count(*) FROM stacksaga.start_saga('metrics');
RELEASE deep;
RELEASE outermost;
SAVEPOINT dropped;
SELECT stacksaga.run_pending();
ROLLBACK TO dropped;
COMMIT;
SELECT * FROM metrics.delta;
-- The next transaction counts anew, and another session in the same place.
SELECT stacksaga.run_pending();
CREATE TABLE metrics.kept AS SELECT * FROM metrics.delta;
\c -
TABLE metrics.kept EXCEPT TABLE metrics.delta;
SELECT * FROM metrics.delta;
-- What repeats nothing counts nothing: the same answer again, and a start that finds its saga.
SELECT count(*) FROM stacksaga.start_saga('metrics queue', key => 'k');
SELECT saga_id AS id, lease, stacksaga.complete_step(saga_id, step, lease)
  FROM stacksaga.claim_steps('metrics queue', 'w') \gset
CALL metrics.mark();
SELECT stacksaga.complete_step(:'id', 'q', :lease);
SELECT created FROM stacksaga.start_saga('metrics queue', key => 'k');
SELECT * FROM metrics.delta;

-- 100 sagas or 100,000, the same pages are read: those of the catalog and of the ring.
CREATE FUNCTION metrics.pages() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) SELECT * FROM stacksaga.metrics()' INTO plan;
    RETURN (plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::bigint
         + (plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::bigint;
END
$$;
CREATE FUNCTION metrics.finish(sagas integer) RETURNS void LANGUAGE sql AS $$
    WITH s AS (
        INSERT INTO stacksaga.saga (saga_id, token, ring_id, slot, definition_id, status, created_at,
                                    updated_at, finished_at, fingerprint, input, headers)
        SELECT gen_random_uuid(), n, 1, n % 256, 1, 'completed', now(), now(), now(), '', '{}', '{}'
          FROM generate_series(1, sagas) n RETURNING saga_id, token)
    INSERT INTO stacksaga.effect
    SELECT saga_id, 1, 'act', token, 1, NULL, now(), now(), 'w', NULL FROM s
$$;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
SELECT metrics.finish(100);
VACUUM ANALYZE stacksaga.saga, stacksaga.effect, stacksaga.work;
SELECT metrics.pages() > 0 AS warm, metrics.pages() > 0 AS warmer;
SELECT metrics.pages() AS few \gset
SELECT metrics.finish(99900);
VACUUM ANALYZE stacksaga.saga, stacksaga.effect, stacksaga.work;
SELECT metrics.pages() > 0 AS warm;
SELECT metrics.pages() AS many \gset
SELECT count(*), :many - :few < 20 AS same FROM stacksaga.saga;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.parked_saga;

-- Sagas by status: exact after every commit, without reading the table again.
CREATE VIEW metrics.wrong AS
    SELECT status, sagas, counted.n FROM stacksaga_internal.sagas_by_status()
      FULL JOIN (SELECT status::text, count(*) AS n FROM stacksaga.saga GROUP BY status) counted USING (status)
     WHERE coalesce(sagas, -1) <> coalesce(n, 0);
SELECT stacksaga_internal.count_sagas();
SELECT * FROM metrics.wrong;
SELECT count(*) FROM stacksaga.start_sagas('metrics', array_fill('{}'::jsonb, ARRAY[5]));
SELECT count(*) FROM stacksaga.start_saga('metrics', '{"act b": ["SG424"]}');
SELECT count(*) FROM stacksaga.start_saga('metrics', '{"act b": ["SG424"], "compensate a": ["SG424"]}');
SELECT * FROM metrics.wrong;
SELECT stacksaga.run_pending();
SELECT * FROM metrics.wrong;
SELECT saga_id AS id FROM stacksaga.start_saga('metrics queue') \gset
SELECT stacksaga.suspend_saga(:'id', 'wait');
SELECT * FROM metrics.wrong;
SELECT stacksaga.resume_saga(:'id', 'go on');
SELECT stacksaga.cancel_saga(:'id', 'no more');
SELECT * FROM metrics.wrong;
-- What rolls back is not counted, also where only a part of the transaction does.
BEGIN;
SELECT count(*) FROM stacksaga.start_saga('metrics');
SELECT stacksaga.run_pending();
ROLLBACK;
BEGIN;
SELECT count(*) FROM stacksaga.start_saga('metrics');
SAVEPOINT dropped;
SELECT stacksaga.run_pending();
SELECT count(*) FROM stacksaga.start_saga('metrics');
ROLLBACK TO dropped;
SAVEPOINT kept;
SELECT count(*) FROM stacksaga.start_saga('metrics queue');
RELEASE kept;
COMMIT;
SELECT * FROM metrics.wrong;
-- A change that is refused changes nothing.
\set VERBOSITY sqlstate
UPDATE stacksaga.saga SET status = 'completed' WHERE saga_id = :'id';
\set VERBOSITY default
SELECT * FROM metrics.wrong;
-- Retention.
SET stacksaga.clock_offset = '400 days';
SELECT stacksaga.expire_sagas(10000) > 0 AS removed;
RESET stacksaga.clock_offset;
SELECT * FROM metrics.wrong;
-- metrics() and status() say the same.
SELECT labels ->> 'status' AS status, value FROM stacksaga.metrics() WHERE name = 'stacksaga_sagas'
EXCEPT SELECT status, sagas FROM stacksaga_internal.sagas_by_status();
SELECT status, sagas FROM stacksaga_internal.sagas_by_status()
EXCEPT SELECT status, sagas FROM jsonb_to_recordset(stacksaga.status() -> 'sagas') AS x(status text, sagas bigint, more boolean)
 WHERE NOT more;
-- What others write is seen by the next count, which cannot follow it in its transaction.
BEGIN;
DELETE FROM stacksaga.saga WHERE status = 'pending';
SELECT stacksaga_internal.count_sagas();
\echo :SQLSTATE
ROLLBACK;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.parked_saga, stacksaga.saga_action;

-- For monitors; a service has no business with it.
CREATE ROLE metrics_monitor;
CREATE ROLE metrics_service;
SELECT stacksaga.grant_usage('metrics_monitor', 'monitor'), stacksaga.grant_usage('metrics_service', 'service');
SET ROLE metrics_monitor;
SELECT count(*) > 50 AS some FROM stacksaga.metrics();
SET ROLE metrics_service;
SELECT count(*) FROM stacksaga.metrics();
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA metrics CASCADE;
DELETE FROM stacksaga.usage_grant WHERE role LIKE 'metrics%';
DROP OWNED BY metrics_monitor, metrics_service;
DROP ROLE metrics_monitor, metrics_service;
