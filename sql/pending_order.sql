-- In which order run_pending() does what is due: compensations, priorities, the oldest first; one of eight
-- steps is of a lower priority; and no saga runs ahead longer than its turn. The ring is this file's own: what others
-- leave behind would come due with the clock.
SELECT stacksaga.create_ring('pending order', 'default') AS ring \gset
SET stacksaga.region = 'pending order';
CREATE SCHEMA pending_order;
CREATE TABLE pending_order.done (n bigint GENERATED ALWAYS AS IDENTITY, rank integer, key text, step text);
CREATE FUNCTION pending_order.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    INSERT INTO pending_order.done (rank, key, step)
    SELECT CASE call.direction WHEN 'act' THEN priority ELSE 0 END, split_part(key, ' test', 1), call.step
      FROM stacksaga.saga WHERE saga_id = call.saga_id RETURNING 'null'::jsonb $$;
CREATE FUNCTION pending_order.step(name text) RETURNS stacksaga.step_definition LANGUAGE sql AS $$
    SELECT stacksaga.sql_step(name, 'pending_order.act(stacksaga.step_call)', 'pending_order.act(stacksaga.step_call)') $$;
SELECT stacksaga.define_saga('pending short', ARRAY[pending_order.step('a')]);
SELECT stacksaga.define_saga('pending long', array_agg(pending_order.step('s' || n) ORDER BY n))
  FROM generate_series(1, 20) AS n;
SELECT stacksaga.define_saga('pending back', ARRAY[pending_order.step('a'), stacksaga.queue_step('b', 'pending back',
    compensable => false)]);
SELECT stacksaga.define_saga('pending timer', ARRAY[stacksaga.timer_step('wait', '1 minute'), pending_order.step('a')]);
-- Numbered from 1 on in each test.
CREATE SEQUENCE pending_order.test;
CREATE PROCEDURE pending_order.start(saga text, sagas integer, of_priority integer) LANGUAGE sql AS $$
    SELECT count(*) FROM generate_series(1, sagas) AS n, LATERAL stacksaga.start_saga(saga,
           key => format('p%s %s test %s', of_priority, n, nextval('pending_order.test')), priority => of_priority) $$;
-- What was done since the last time: the priorities, one digit for each step.
CREATE FUNCTION pending_order.ranks() RETURNS text LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM pending_order.done RETURNING *)
    SELECT string_agg(rank::text, '' ORDER BY n) FROM gone $$;

-- By priority, the oldest first; the eighth is the longest-waiting of the others.
CALL pending_order.start('pending short', 3, 5);
CALL pending_order.start('pending short', 4, 3);
CALL pending_order.start('pending short', 9, 1);
SELECT stacksaga.run_pending(1000);
SELECT string_agg(key, ', ' ORDER BY n) FROM pending_order.done;
SELECT pending_order.ranks();

-- Whatever the size of the calls, which together are one sequence.
CALL pending_order.start('pending short', 6, 4);
CALL pending_order.start('pending short', 50, 2);
SELECT sum(stacksaga.run_pending(1)) FROM generate_series(1, 20);
SELECT sum(stacksaga.run_pending(3)) FROM generate_series(1, 4);
SELECT stacksaga.run_pending(10);
SELECT stacksaga.run_pending(1000);
SELECT pending_order.ranks();

-- More than a search holds: those of lower priorities have their turns all the same.
CALL pending_order.start('pending short', 60, 5);
CALL pending_order.start('pending short', 600, 1);
SELECT stacksaga.run_pending(400);
SELECT min(lower), max(lower) FROM (SELECT row_number() OVER w AS n,
    count(*) FILTER (WHERE rank = 5) OVER (w ROWS BETWEEN 7 PRECEDING AND CURRENT ROW) AS lower
      FROM pending_order.done WINDOW w AS (ORDER BY n)) AS eights WHERE n >= 8;
SELECT bool_and(key = 'p5 ' || i) AS oldest_first FROM (SELECT key, row_number() OVER (ORDER BY n) AS i
    FROM pending_order.done WHERE rank = 5) AS low;
SELECT stacksaga.run_pending(1000);
SELECT length(pending_order.ranks());

-- A saga runs ahead until it is another one's turn: a step of the long one of eight.
CALL pending_order.start('pending long', 1, 5);
CALL pending_order.start('pending long', 2, 1);
SELECT stacksaga.run_pending(1000);
SELECT pending_order.ranks();

-- Compensations come before all; a timer of the lowest priority is not forgotten.
SELECT saga_id AS back FROM stacksaga.start_saga('pending back', key => 'back', priority => 5) \gset
CALL pending_order.start('pending timer', 1, 5);
SELECT stacksaga.run_pending(1000);
SELECT pending_order.ranks();
CALL pending_order.start('pending short', 10, 1);
SELECT stacksaga.cancel_saga(:'back', 'compensate it');
SET stacksaga.clock_offset = '2 minutes';
SELECT stacksaga.run_pending(10);
SELECT pending_order.ranks();
SELECT stacksaga.run_pending(1000);
SELECT pending_order.ranks();
RESET stacksaga.clock_offset;

-- Work of other priorities counts in what waits longest in a ring.
CALL pending_order.start('pending short', 1, 5);
SELECT stacksaga_internal.oldest_due_of_workers(:ring) = w.due_at AS seen FROM stacksaga.work w JOIN stacksaga.saga s USING (saga_id)
 WHERE s.key LIKE 'p5 1 %' AND s.status = 'pending';
SELECT stacksaga.run_pending(1000);
SET client_min_messages = warning;
DROP SCHEMA pending_order CASCADE;
