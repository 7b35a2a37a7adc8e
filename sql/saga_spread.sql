-- Many sagas that an operator brings back: their attempts fall due evenly over a while.

\set SHOW_CONTEXT never
CREATE SCHEMA spread;
SELECT stacksaga.define_saga('spread', ARRAY[
    stacksaga.queue_step('book', 'spread book', effect => 'irreversible'),
    stacksaga.queue_step('charge', 'spread', compensable => false, timeout => '40 minutes'),
    stacksaga.queue_step('ship', 'spread ship', compensable => false)], deadline => '1 day');
CREATE FUNCTION spread.ids() RETURNS uuid[] LANGUAGE sql AS
    $$ SELECT array_agg(saga_id) FROM stacksaga.sagas WHERE saga = 'spread' $$;
CREATE FUNCTION spread.claim(max_steps int) RETURNS TABLE (saga_id uuid, step text, attempt int, lease bigint)
LANGUAGE sql AS $$
    SELECT saga_id, step, attempt, lease
      FROM stacksaga.claim_steps('spread', 'w', max_steps, lease => '30 minutes')
$$;
-- How much work is due in so many minutes.
CREATE VIEW spread.due AS
    SELECT purpose, lease_until IS NOT NULL AS claimed,
           round(extract(epoch FROM due_at - stacksaga.clock_now()) / 60) AS minute, count(*)
      FROM stacksaga.work JOIN stacksaga.sagas USING (saga_id)
     WHERE saga = 'spread' AND due_at < 'infinity' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
CREATE VIEW spread.actions AS
    SELECT action, reason, role = current_user AS mine, count(*) FROM stacksaga.saga_actions
      JOIN stacksaga.sagas USING (saga_id) WHERE saga = 'spread' GROUP BY 1, 2, 3 ORDER BY 1;

-- Five sagas whose charge has failed past an irreversible step are parked; an operator retries them over ten minutes.
SELECT count(*) FROM stacksaga.start_sagas('spread', array_fill('{}'::jsonb, '{5}'));
SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM stacksaga.claim_steps('spread book', 'w', 5);
SELECT count(stacksaga.fail_step(saga_id, step, lease, 'no', 'non_retryable'))
  FROM spread.claim(5);
SELECT status, count(*) FROM stacksaga.sagas WHERE saga = 'spread' GROUP BY 1;
SELECT status_before, status_after, count(*)
  FROM stacksaga.retry_sagas(spread.ids(), 'back', spread => '10 minutes') GROUP BY 1, 2;
SELECT * FROM spread.due;
SELECT status_before, status_after, count(*)
  FROM stacksaga.retry_sagas(spread.ids(), 'back', dry_run => false, spread => '10 minutes') GROUP BY 1, 2;
SELECT * FROM spread.due;
SELECT * FROM spread.actions;
-- A service gets them when they are due and not before.
SELECT attempt FROM spread.claim(10);
SET stacksaga.clock_offset = '3 minutes';
SELECT attempt FROM spread.claim(10);

-- Suspended and resumed over half an hour: leases stay, and what is due later than its part of the
-- spread keeps its instant; so does the deadline.
SELECT status_after, count(*)
  FROM stacksaga.suspend_sagas(spread.ids(), 'a pause', false) GROUP BY 1;
SELECT status_after, count(*)
  FROM stacksaga.resume_sagas(spread.ids(), 'over', false, '10 seconds') GROUP BY 1;
SELECT * FROM spread.due;
SELECT count(*) FROM stacksaga.suspend_sagas(spread.ids(), 'a pause', false);
SELECT count(*) FROM stacksaga.resume_sagas(spread.ids(), 'over', false, '7 days');
SELECT purpose, claimed, minute > 60 AS later, sum(count) FROM spread.due GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- Bad input.
CREATE FUNCTION spread.try(spread interval) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    d text;
    h text;
BEGIN
    PERFORM stacksaga.retry_sagas('{}', 'why', spread => try.spread);
    RETURN 'done';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT;
    RETURN concat_ws(' | ', sqlstate, sqlerrm, d, h);
END
$$;
SELECT spread.try(s) FROM unnest(ARRAY[NULL, '-1 s', '7 days 1 s', '2000000 years', '7 days', '0']::interval[]) AS s;

RESET stacksaga.clock_offset;
SET client_min_messages = warning;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure,
    stacksaga.saga_signal, stacksaga.saga_action, stacksaga.parked_saga;
DROP SCHEMA spread CASCADE;
