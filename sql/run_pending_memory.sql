-- run_pending() keeps next to nothing of a step that it has run until it returns.

CREATE SCHEMA lean;
CREATE SEQUENCE lean.runs;
CREATE TABLE lean.used (run bigint, bytes numeric);
CREATE FUNCTION lean.act(stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    run bigint := nextval('lean.runs');
BEGIN
    IF run IN (200, 1000) THEN
        INSERT INTO lean.used SELECT run, sum(used_bytes) FROM pg_backend_memory_contexts;
    END IF;
    RETURN '1';
END
$$;
SELECT stacksaga.define_saga('lean', ARRAY[stacksaga.sql_step('only', 'lean.act(stacksaga.step_call)')]);
SELECT count(*) FROM (SELECT stacksaga.start_saga('lean') FROM generate_series(1, 1000)) AS started;
SELECT stacksaga.run_pending(2000) >= 1000 AS all_ran;
SELECT (max(bytes) - min(bytes)) / 800 < 1000 AS is_little FROM lean.used;
SET client_min_messages = warning;
DELETE FROM stacksaga.saga;
DROP SCHEMA lean CASCADE;
