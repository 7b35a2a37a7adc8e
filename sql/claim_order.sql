-- In which order claim_steps() hands out what is due: compensations, priorities, turns of groups; and
-- one of eight of a lower priority.

CREATE SCHEMA claim_order;
SELECT stacksaga.define_saga('ordered', ARRAY[stacksaga.queue_step('a', 'ordered', compensable => true)]);
SELECT stacksaga.define_saga('ordered back', ARRAY[stacksaga.queue_step('a', 'ordered', compensable => true),
    stacksaga.queue_step('b', 'ordered back', compensable => false)]);
CREATE SEQUENCE claim_order.number;
CREATE TABLE claim_order.claim (n bigint DEFAULT nextval('claim_order.number'), call integer, priority smallint,
    group_key text, direction text, key text);
-- So many calls, one after the other, in this session.
CREATE PROCEDURE claim_order.claim(calls integer, max_steps integer) LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE claim_order.claim;
    FOR i IN 1 .. calls LOOP
        INSERT INTO claim_order.claim (call, priority, group_key, direction, key)
        SELECT i, s.priority, s.group_key, c.direction, s.key
          FROM stacksaga.claim_steps('ordered', 'w', max_steps) WITH ORDINALITY AS c
          JOIN stacksaga.saga s USING (saga_id) ORDER BY c.ordinality;
    END LOOP;
END $$;
CREATE PROCEDURE claim_order.start(what text, steps integer, of_priority integer, of_group text DEFAULT NULL)
LANGUAGE sql AS $$
    SELECT count(*) FROM generate_series(1, steps) AS n, LATERAL stacksaga.start_saga('ordered',
           key => what || ' ' || n, priority => of_priority, group_key => of_group) $$;
CREATE PROCEDURE claim_order.clear() LANGUAGE sql AS $$
    SELECT count(stacksaga.cancel_saga(saga_id, 'the next test')) FROM stacksaga.sagas
     WHERE saga = 'ordered' AND finished_at IS NULL $$;

-- By priority, and the oldest first within one. (The lower ones' turn comes somewhere among the first
-- eight steps of a session.)
CALL claim_order.start('low', 2, 5);
CALL claim_order.start('usual', 3, 3);
CALL claim_order.start('high', 3, 1);
CALL claim_order.claim(1, 8);
SELECT string_agg(key, ', ' ORDER BY n) FROM claim_order.claim WHERE priority = 1;
SELECT string_agg(key, ', ' ORDER BY n) FROM claim_order.claim WHERE priority = 5;
SELECT count(*) AS inversions FROM claim_order.claim a JOIN claim_order.claim b ON a.n < b.n
 WHERE a.priority > b.priority AND a.key <> 'low 1' AND a.key <> 'usual 1';
CALL claim_order.clear();

-- Of every eight steps in a row one is the longest-waiting of the lower priorities, whatever the size of
-- the calls; no more than one.
CREATE FUNCTION claim_order.eights() RETURNS TABLE (fewest bigint, most bigint, steps bigint) LANGUAGE sql AS $$
    SELECT min(e.lower), max(e.lower), max(e.n)
      FROM (SELECT row_number() OVER w AS n,
                   count(*) FILTER (WHERE priority > 1) OVER (w ROWS BETWEEN 7 PRECEDING AND CURRENT ROW) AS lower
              FROM claim_order.claim WINDOW w AS (ORDER BY n)) AS e WHERE e.n >= 8 $$;
CALL claim_order.start('once', 200, 1);
CALL claim_order.start('lower', 12, 5);
CALL claim_order.start('later', 12, 2);
CALL claim_order.claim(40, 1);
SELECT * FROM claim_order.eights();
SELECT string_agg(key, ', ' ORDER BY n) FROM claim_order.claim WHERE priority > 1;
CALL claim_order.claim(10, 3);
SELECT * FROM claim_order.eights();
CALL claim_order.claim(2, 40);
SELECT * FROM claim_order.eights();
CALL claim_order.clear();

-- Groups take turns: a backlog of one delays the first step of another by one round.
CALL claim_order.start('big', 100, 3, 'big');
CALL claim_order.start('small', 2, 3, 'small');
CALL claim_order.start('none', 2, 3);
CALL claim_order.claim(6, 1);
SELECT count(*) FILTER (WHERE n <= 3 AND group_key = 'big') AS big,
       count(*) FILTER (WHERE n <= 3 AND group_key = 'small') AS small,
       count(*) FILTER (WHERE n <= 3 AND group_key IS NULL) AS none,
       string_agg(DISTINCT key, ', ') FILTER (WHERE n <= 3) AS first_round,
       string_agg(DISTINCT key, ', ') FILTER (WHERE n > 3) AS second_round
  FROM (SELECT row_number() OVER (ORDER BY n) AS n, group_key, key FROM claim_order.claim) AS c;
CALL claim_order.clear();
-- So do hundreds of them, in calls of any size.
CALL claim_order.start('big', 300, 3, 'big');
SELECT count(*) FROM generate_series(1, 299) AS n, LATERAL stacksaga.start_saga('ordered',
    key => 'one ' || n, group_key => 'one ' || n);
CALL claim_order.claim(10, 30);
SELECT count(*), count(DISTINCT group_key) AS groups, count(*) FILTER (WHERE group_key = 'big') AS big
  FROM claim_order.claim;
-- And a few with many steps.
CALL claim_order.start('second', 200, 3, 'second');
CALL claim_order.start('third', 10, 3, 'third');
CALL claim_order.claim(2, 30);
SELECT group_key, count(*) FROM claim_order.claim GROUP BY group_key ORDER BY group_key;
-- What is left of them is claimed too.
CALL claim_order.claim(20, 100);
SELECT group_key, count(*) FROM claim_order.claim GROUP BY group_key ORDER BY group_key;
CALL claim_order.clear();

-- Steps that are due later take no turn, however many groups have them.
SELECT count(*) FROM generate_series(1, 300) AS n, LATERAL stacksaga.start_saga('ordered', key => 'later ' || n,
    group_key => 'a ' || n, run_at => stacksaga.clock_now() + interval '1 day');
CALL claim_order.start('now', 2, 3, 'z');
CALL claim_order.claim(2, 1);
SELECT string_agg(key, ', ' ORDER BY n) FROM claim_order.claim;
CALL claim_order.clear();

-- Compensations come first.
SELECT saga_id AS back FROM stacksaga.start_saga('ordered back') \gset
SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM stacksaga.claim_steps('ordered', 'w');
CALL claim_order.start('urgent', 3, 1);
SELECT stacksaga.cancel_saga(:'back', 'compensate it');
CALL claim_order.claim(1, 3);
SELECT direction, count(*) FROM claim_order.claim GROUP BY direction ORDER BY direction;
CALL claim_order.clear();
DROP SCHEMA claim_order CASCADE;
