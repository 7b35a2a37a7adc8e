-- Months and years are added by the calendar, in UTC, whatever the session's time zone; a day is 24 hours.
SET client_min_messages = warning;
SET timezone = 'America/New_York';
CREATE SCHEMA months;
SET search_path = months, stacksaga;
CREATE FUNCTION set_clock(at timestamptz) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('stacksaga.clock_offset', (extract(epoch FROM at - clock_timestamp()) || ' seconds')::text, false)
$$;
CREATE FUNCTION utc(at timestamptz) RETURNS text LANGUAGE sql AS $$
    SELECT to_char(date_trunc('minute', at + interval '30 seconds') AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')
$$;
SELECT define_saga('timers', ARRAY[
           timer_step('year', '1 year', stage => 1), timer_step('month', '1 month', stage => 1),
           timer_step('months', '13 months', stage => 1), timer_step('mixed', '1 month 1 day 01:00', stage => 1),
           timer_step('days', '30 days', stage => 1), timer_step('century', '100 years', stage => 1),
           signal_step('signal', 's', timeout => '1 month', stage => 1)], deadline => '3 months');
CREATE FUNCTION dues(at timestamptz) RETURNS TABLE (step text, due text) LANGUAGE plpgsql AS $$
DECLARE
    id uuid;
BEGIN
    PERFORM set_clock(at);
    id := (SELECT saga_id FROM start_saga('timers'));
    RETURN QUERY SELECT coalesce(d.step, w.purpose::text), utc(w.due_at)
        FROM work w JOIN saga s USING (saga_id)
        LEFT JOIN definition_step d ON d.definition_id = s.definition_id AND d.step_no = w.step_no
       WHERE w.saga_id = id ORDER BY w.due_at, 1;
END $$;
SELECT * FROM dues('2031-01-31 12:00Z');
-- New York is still in the month before, and its clocks change meanwhile.
SELECT * FROM dues('2032-03-01 02:00Z');
SELECT * FROM dues('2032-02-29 23:30Z');
-- A deadline of the call's own counts from run_at.
SELECT set_clock('2031-01-31 12:00Z');
SELECT count(*) FROM start_saga('timers', key => 'own', deadline => '1 month', run_at => '2031-10-31 12:00Z');
SELECT utc(deadline_at) AS deadline FROM saga WHERE key = 'own';

-- Against PostgreSQL's own arithmetic.
SELECT define_saga('timer ' || n, ARRAY[timer_step('t', make_interval(months => m, days => n::integer % 3, hours => n::integer))])
  FROM unnest('{0,1,2,11,12,13,47,48,49,1199,4800}'::integer[]) WITH ORDINALITY AS t(m, n);
CREATE FUNCTION start_all(at timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_clock(at);
    RETURN (SELECT count(*) FROM definitions d, LATERAL start_saga(d.saga) WHERE d.saga ~ '^timer [0-9]');
END $$;
SELECT sum(start_all(day)) AS started FROM generate_series('2031-12-27 23:45Z'::timestamptz, '2033-03-05', '3 days 7 hours') AS day;
SELECT count(*) AS timers, count(DISTINCT utc(s.created_at)) AS instants,
       count(*) FILTER (WHERE w.due_at <> (((s.created_at AT TIME ZONE 'UTC') + d.delay) AT TIME ZONE 'UTC')) AS differ
  FROM work w JOIN saga s USING (saga_id) JOIN definition_step d USING (definition_id, step_no)
 WHERE d.step = 't';

-- A timeout, a lease that is shorter, and what the handler's own timeout is.
CREATE FUNCTION act(call step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(call.deadline - clock_now() > '27 days') $$;
SET stacksaga.dedupe_retention = '31d';
SELECT define_saga('timeouts', ARRAY[queue_step('q', 'months', compensable => false, timeout => '1 month'),
                                     sql_step('s', 'months.act(stacksaga.step_call)', timeout => '1 month')],
                   retry => retry_policy(1));
SELECT set_clock('2031-01-31 12:00Z');
SELECT count(*) FROM start_saga('timeouts');
SELECT utc(deadline) AS timeout, complete_step(saga_id, step, lease) FROM claim_steps('months', 'w');
SELECT run_pending() > 0 AS ran;
SELECT s.status, r.output FROM sagas s, saga_result(s.saga_id) AS r WHERE s.saga = 'timeouts';

-- Retentions.
SELECT outcome FROM idempotency_begin('months', 'k', retention => '1 month');
SELECT idempotency_finish('months', 'k', lease) FROM idempotency_key WHERE scope = 'months';
SELECT accept_message('months', 'm', retention => '1 year');
SELECT rung, utc(expires_at) FROM dedupe_state('months', 'k') WHERE expires_at IS NOT NULL
 UNION ALL
SELECT 'accepted_message', utc(expires_at) FROM accepted_message WHERE consumer = 'months' ORDER BY 1;

-- A month counts as 31 days against what is kept.
CREATE FUNCTION outcome(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
    hint text;
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(' | ', SQLSTATE, SQLERRM, detail, hint);
END $$;
SELECT define_saga('months paused', ARRAY[queue_step('q', 'months', compensable => false)], retry => retry_policy(3));
SELECT count(*) FROM start_saga('months paused');
CREATE TABLE held AS SELECT * FROM claim_steps('months', 'w');
SET stacksaga.dedupe_retention = '30d';
SELECT outcome($$SELECT fail_step(saga_id, step, lease, 'e', 'retryable', retry_after => '1 month') FROM held$$);
SELECT outcome($$SELECT define_saga('windows', ARRAY[queue_step('q', 'months', compensable => false, timeout => '1 month')],
                                    retry => retry_policy(1))$$);
SET stacksaga.dedupe_retention = '31d';
SELECT outcome($$SELECT define_saga('windows', ARRAY[queue_step('q', 'months', compensable => false, timeout => '1 month')],
                                    retry => retry_policy(1))$$);
SELECT step, longest_window FROM explain_retries('windows');
SELECT outcome($$SELECT fail_step(saga_id, step, lease, 'e', 'retryable', retry_after => '1 month') FROM held$$);
SELECT utc(w.due_at) AS due FROM work w JOIN held USING (saga_id);
RESET stacksaga.dedupe_retention;

-- Where a month would be an accident.
CREATE TABLE given AS SELECT batch_id FROM (SELECT create_subscription('months', 'months'), publish('months', '1')) AS p,
                                           LATERAL receive_messages('months', 'c') AS r;
SELECT statement, outcome('SELECT ' || statement) FROM unnest(ARRAY[
    $$define_saga('bad', ARRAY[timer_step('t', '1 day')], retry => retry_policy(initial_interval => '1 month'))$$,
    $$define_saga('bad', ARRAY[queue_step('t', 'q', compensable => false, retry => retry_policy(max_interval => '1 year'))])$$,
    $$define_saga('bad', ARRAY[timer_step('t', '1 day')], compensation_retry => retry_policy(max_interval => '1 year'))$$,
    $$create_subscription('bad', 'bad', retry => retry_policy(max_interval => '1 month'))$$,
    $$alter_subscription('months', retry => retry_policy(max_interval => '1 month'))$$,
    $$set_queue('months', rate => 1, rate_interval => '1 month')$$,
    $$claim_steps('months', 'w', lease => '1 month')$$,
    $$extend_step(saga_id, step, lease, '1 month') FROM held$$,
    $$receive_messages('months', 'c', lease => '1 month')$$,
    $$extend_batch(1, '1 month')$$,
    $$idempotency_begin('months', 'l', lease => '1 month')$$,
    $$retry_sagas('{}', 'r', spread => '1 month')$$,
    $$redrive_messages('months', spread => '1 month')$$,
    $$create_ring('months', 'r', window_length => '1 month')$$,
    $$create_ring('months', 'r', publish_lead => '1 month')$$,
    $$alter_ring('default', 'default', 'dead_after', '1 month')$$,
    $$alter_ring('default', 'default', 'window_length', '1 year')$$,
    -- and where it would lead into the past
    $$define_saga('bad', ARRAY[timer_step('t', '1 month -30 days')])$$,
    $$define_saga('bad', ARRAY[timer_step('t', '-1 month 40 days')])$$,
    $$start_saga('timers', deadline => '-1 year')$$,
    $$start_saga('timers', deadline => '1 month -28 days')$$
]) WITH ORDINALITY AS t(statement, n) ORDER BY n;

RESET ALL;
SET client_min_messages = warning;
SELECT stacksaga.drop_subscription('months', discard => true);
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.outbox_message;
DELETE FROM stacksaga.idempotency_key WHERE scope = 'months';
DELETE FROM stacksaga.accepted_message WHERE consumer = 'months';
DROP SCHEMA months CASCADE;
