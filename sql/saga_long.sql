-- Long sagas: each step is called with the outputs of all steps before it, and what that costs does
-- not grow with them.

CREATE SCHEMA long;
CREATE TABLE long.call (n serial, saga_id uuid, step_no int, direction text, results jsonb);
-- Each run of a step has an output of its own, so results that were rolled back would be seen.
CREATE FUNCTION long.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.direction = 'act' AND call.input ->> call.step = call.attempt::text THEN
        RAISE EXCEPTION 'not now' USING ERRCODE = 'SR503';
    ELSIF call.direction = 'act' AND call.input ->> call.step = 'never' THEN
        RAISE EXCEPTION 'no' USING ERRCODE = 'SG424';
    END IF;
    INSERT INTO long.call (saga_id, step_no, direction, results)
    VALUES (call.saga_id, substr(call.step, 2)::int, call.direction, call.results);
    RETURN CASE WHEN substr(call.step, 2)::int % 3 > 0
                THEN jsonb_build_object('by', gen_random_uuid(), 'list', '[1, {"a": null}]'::jsonb)
                WHEN call.step <> 's9' THEN to_jsonb(gen_random_uuid()) END;
END
$$;
CREATE FUNCTION long.define(saga text, steps int, width int DEFAULT 1) RETURNS int LANGUAGE sql AS $$
    SELECT stacksaga.define_saga(saga, array_agg(
               stacksaga.sql_step('s' || n, 'long.run(stacksaga.step_call)',
                                  'long.run(stacksaga.step_call)', stage => (n - 1) / width + 1,
                                  retry => stacksaga.retry_policy(initial_interval => '0')) ORDER BY n))
      FROM generate_series(1, steps) AS n
$$;
-- Calls that did not get what the steps before them had put out.
CREATE VIEW long.wrong AS
    SELECT c.step_no, c.direction, c.results
      FROM long.call c
     WHERE c.results IS DISTINCT FROM coalesce((
           SELECT jsonb_object_agg('s' || e.step_no, e.output)
             FROM stacksaga.effect e
            WHERE e.saga_id = c.saga_id AND e.direction = 'act'
              AND (c.direction = 'compensate' OR EXISTS (
                   SELECT FROM long.call b
                    WHERE b.saga_id = c.saga_id AND b.step_no = e.step_no AND b.n < c.n))), '{}');
-- How many markers a transaction has read, for each step that it ran.
CREATE FUNCTION long.read_per_step(steps int) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN idx_tup_fetch + seq_tup_read <= 2 * steps THEN 'at most two'
           ELSE 'about ' || (idx_tup_fetch + seq_tup_read) / steps END
      FROM pg_stat_xact_user_tables WHERE relid = 'stacksaga.effect'::regclass
$$;

SELECT long.define('long', 200), long.define('long and wide', 60, 3), long.define('short', 6);
SELECT saga_id AS id FROM stacksaga.start_saga('long') \gset
BEGIN;
SELECT stacksaga.run_pending(1000);
SELECT long.read_per_step(200);
COMMIT;
SELECT status FROM stacksaga.sagas WHERE saga_id = :'id';
SELECT count(*) FROM long.call;
SELECT * FROM long.wrong;

-- What was rolled back is not among them: neither a transaction, nor a subtransaction, nor a step
-- that failed.
TRUNCATE long.call RESTART IDENTITY;
SELECT saga_id AS id FROM stacksaga.start_saga('long', '{"s50": "1", "s60": "1", "s61": "1"}') \gset
SELECT stacksaga.run_pending(20);
BEGIN;
SELECT stacksaga.run_pending(20);
ROLLBACK;
BEGIN;
SELECT stacksaga.run_pending(10);
SAVEPOINT first;
SELECT stacksaga.run_pending(10);
SAVEPOINT second;
SELECT stacksaga.run_pending(10);
RELEASE second;
ROLLBACK TO first;
SELECT stacksaga.run_pending(5);
COMMIT;
SELECT stacksaga.run_pending(1000);
SELECT status FROM stacksaga.sagas WHERE saga_id = :'id';
SELECT * FROM long.wrong;

-- In compensation as well, and several steps of a stage.
TRUNCATE long.call RESTART IDENTITY;
SELECT saga_id AS id FROM stacksaga.start_saga('long', '{"s200": "never"}') \gset
SELECT stacksaga.run_pending(1000);
SELECT status FROM stacksaga.sagas WHERE saga_id = :'id';
SELECT direction, count(*) FROM long.call GROUP BY direction ORDER BY direction;
SELECT * FROM long.wrong;
TRUNCATE long.call RESTART IDENTITY;
SELECT saga_id AS id FROM stacksaga.start_saga('long and wide', '{"s30": "1", "s59": "never"}') \gset
SELECT stacksaga.run_pending(1000);
SELECT status FROM stacksaga.sagas WHERE saga_id = :'id';
SELECT direction, count(*) FROM long.call GROUP BY direction ORDER BY direction;
SELECT * FROM long.wrong;

-- Several sagas in turns, short ones among them.
TRUNCATE long.call RESTART IDENTITY;
SELECT count(*)
  FROM generate_series(1, 5) AS n, (VALUES ('long and wide'), ('short')) AS v(saga),
       LATERAL stacksaga.start_saga(saga, jsonb_build_object('n', n));
SELECT stacksaga.run_pending(10000);
SELECT status, count(*) FROM stacksaga.sagas
 WHERE saga_id IN (SELECT saga_id FROM long.call) GROUP BY status;
SELECT * FROM long.wrong;

-- An id whose saga was removed, and came again.
TRUNCATE long.call RESTART IDENTITY;
SELECT saga_id AS id FROM stacksaga.start_saga('long', saga_id => '018f0000-0000-7000-8000-000000000001') \gset
SELECT stacksaga.run_pending(50);
DELETE FROM stacksaga.saga WHERE saga_id = :'id';
DELETE FROM stacksaga.work WHERE saga_id = :'id';
DELETE FROM stacksaga.effect WHERE saga_id = :'id';
TRUNCATE long.call RESTART IDENTITY;
SELECT saga_id = :'id' AS same FROM stacksaga.start_saga('long', saga_id => :'id');
SELECT stacksaga.run_pending(1000);
SELECT status FROM stacksaga.sagas WHERE saga_id = :'id';
SELECT * FROM long.wrong;

-- Outputs that are too large to be kept.
CREATE FUNCTION long.large(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    INSERT INTO long.call (saga_id, step_no, direction, results)
    VALUES (call.saga_id, substr(call.step, 2)::int, call.direction, call.results);
    SELECT to_jsonb(repeat(md5(random()::text), 2000)) -- 64 kB
$$;
SELECT stacksaga.define_saga('long and large', (
    SELECT array_agg(stacksaga.sql_step('s' || n, 'long.large(stacksaga.step_call)') ORDER BY n)
      FROM generate_series(1, 20) AS n));
TRUNCATE long.call RESTART IDENTITY;
SELECT saga_id AS id FROM stacksaga.start_saga('long and large') \gset
SELECT stacksaga.run_pending(1000);
SELECT status FROM stacksaga.sagas WHERE saga_id = :'id';
SELECT count(*) FROM long.wrong;

TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
SET client_min_messages = warning;
DROP SCHEMA long CASCADE;
