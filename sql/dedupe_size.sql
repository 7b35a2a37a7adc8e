-- What a call costs does not grow with the table: with two hundred thousand keys a begin and a finish
-- touch as many pages as with a few, but for a level of each index. Pages are counted, not seconds.
SET client_min_messages = warning;
-- (14 names no folder: there it is the one that the tests are started from.)
\set srcdir `printf %s "${PG_ABS_SRCDIR:-.}"`
\set copy_key :srcdir '/test/bench/copy_key.sql'
\i :copy_key

-- The pages of tables and indexes that a statement touches, those that its functions touch included.
CREATE FUNCTION pages_touched(statement text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || statement INTO plan;
    RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::integer
         + (plan->0->'Plan'->>'Shared Read Blocks')::integer;
END $$;

-- A new key, its finish once its row is there, its replay, and the finish of another key that writes its row.
CREATE FUNCTION pages_of_calls(
    new_key text, OUT begun integer, OUT finished integer, OUT replayed integer, OUT finished_at_once integer
) LANGUAGE plpgsql AS $$
DECLARE
    held bigint;
BEGIN
    begun := pages_touched(
        format($s$SELECT * FROM stacksaga.idempotency_begin('size', %L, '{"a": 1}')$s$, new_key));
    PERFORM stacksaga.dedupe_state('size', new_key);
    SELECT lease INTO held FROM stacksaga.idempotency_key WHERE scope = 'size' AND key = new_key;
    finished := pages_touched(
        format($s$SELECT stacksaga.idempotency_finish('size', %L, %s, '{"b": 2}')$s$, new_key, held));
    replayed := pages_touched(
        format($s$SELECT * FROM stacksaga.idempotency_begin('size', %L, '{"a": 1}')$s$, new_key));
    SELECT lease INTO held FROM stacksaga.idempotency_begin('size', new_key || ' too', '{"a": 1}');
    finished_at_once := pages_touched(
        format($s$SELECT stacksaga.idempotency_finish('size', %L, %s, '{"b": 2}')$s$, new_key || ' too', held));
END $$;

BEGIN;
SELECT stacksaga.idempotency_finish('size', 'key-0', lease, '{"b": 2}')
  FROM stacksaga.idempotency_begin('size', 'key-0', '{"a": 1}');
SELECT copy_key('size', 'key-0', 1, 1000);
ANALYZE stacksaga.idempotency_key;
-- The first calls of a session read the catalog, until their plans are made.
SELECT count(pages_of_calls('warm-' || n)) FROM generate_series(1, 20) AS n;
CREATE TEMPORARY TABLE with_few AS SELECT * FROM pages_of_calls('few');

SELECT copy_key('size', 'key-0', 1001, 200000);
ANALYZE stacksaga.idempotency_key;
SELECT count(pages_of_calls('again-' || n)) FROM generate_series(1, 20) AS n;
CREATE TEMPORARY TABLE with_many AS SELECT * FROM pages_of_calls('many');
SELECT count(*) > 200000 AS filled FROM stacksaga.idempotency_key;
-- A begin, a finish of a row and a replay descend the primary key once; who writes the row descends each index.
SELECT many.begun <= few.begun + 2 AS begun, many.finished <= few.finished + 2 AS finished,
       many.replayed <= few.replayed + 2 AS replayed,
       many.finished_at_once <= few.finished_at_once + 4 AS finished_at_once,
       few.begun <= 4 AND few.finished <= 8 AND few.replayed <= 4 AND few.finished_at_once <= 12 AS few
  FROM with_few AS few, with_many AS many;

-- Another key in the middle of the table is as near as the latest one.
SELECT pages_touched($$SELECT * FROM stacksaga.idempotency_begin('size', 'key-123456', '{"a": 1}')$$)
       <= with_few.replayed + 2 AS middle
  FROM with_few;
SELECT outcome, response FROM stacksaga.idempotency_begin('size', 'key-123456', '{"a": 1}');
ROLLBACK;
VACUUM stacksaga.idempotency_key;
DROP FUNCTION copy_key, pages_touched, pages_of_calls;
