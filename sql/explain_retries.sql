-- explain_retries(): what the retries of a saga add up to, with exact numbers.

\set SHOW_CONTEXT never
CREATE SCHEMA explain;
CREATE FUNCTION explain.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE FUNCTION explain.steps(VARIADIC policies stacksaga.retry_policy[])
RETURNS stacksaga.step_definition[] LANGUAGE sql AS $$
    SELECT array_agg(stacksaga.queue_step('s' || n, 'explain', false, retry => policies[n],
                                          timeout => '10 s', effect => 'idempotent') ORDER BY n)
      FROM generate_subscripts(policies, 1) n
$$;

-- By hand: attempts x timeout, and the delays at their longest.
SELECT stacksaga.define_saga('explain', explain.steps(
    stacksaga.retry_policy(max_attempts => 1),                                    -- 10
    stacksaga.retry_policy(max_attempts => 2, jitter => 0),                       -- 20 + 1
    stacksaga.retry_policy(max_attempts => 4, jitter => 0),                       -- 40 + 1 + 2 + 4
    stacksaga.retry_policy(max_attempts => 4, jitter => 0.5),                     -- 40 + 7 * 1.5
    stacksaga.retry_policy(max_attempts => 5, jitter => 0, initial_interval => '7 s', multiplier => 1),
    stacksaga.retry_policy(max_attempts => 5, jitter => 0, initial_interval => '1 s', multiplier => 10,
                           max_interval => '15 s'),                               -- 50 + 1 + 10 + 15 + 15
    stacksaga.retry_policy(max_attempts => 3, jitter => 1, initial_interval => '0'),
    stacksaga.retry_policy(max_attempts => 3, jitter => 0, initial_interval => '0.000001 s',
                           multiplier => 3)));                                    -- 30 s + 4 us
SELECT step, attempts, longest_window, worst_case_calls, dedupe_window, warning
  FROM stacksaga.explain_retries('explain');
-- The same policy adds up to what the engine's delays are, at their longest.
SELECT stacksaga.define_saga('explain default', ARRAY[stacksaga.queue_step('a', 'explain', compensable => true)]);
SELECT attempts, longest_window, '5 minutes'::interval + (1+2+4+8+16+32+64+128+256) * 1.2 * '1 s'::interval AS by_hand
  FROM stacksaga.explain_retries('explain default');

-- Layers multiply, and saturate.
SELECT outer_attempts, worst_case_calls, warning
  FROM (VALUES ('{}'::int[]), ('{1,1}'), ('{3,5}'), ('{3,4}'), ('{2147483647,2147483647,2147483647}'))
       AS o(outer_attempts),
       stacksaga.explain_retries('explain default', outer_attempts);
SELECT stacksaga.define_saga('explain much', ARRAY[
    stacksaga.queue_step('a', 'explain', false, effect => 'idempotent', timeout => '1000 years',
        retry => stacksaga.retry_policy(max_attempts => 2147483647, max_interval => '3650000 days'),
        fallback => 'other')]);
SELECT attempts, longest_window > '290000 years' AS saturated, worst_case_calls
  FROM stacksaga.explain_retries('explain much', '{2147483647,3}');

-- Without limit: no numbers, and a warning.
SELECT stacksaga.define_saga('explain endless', ARRAY[
    stacksaga.queue_step('a', 'explain', compensable => true, retry => stacksaga.retry_policy(max_attempts => 0)),
    stacksaga.queue_step('b', 'explain', false, effect => 'idempotent',
                         retry => stacksaga.retry_policy(max_attempts => 0))],
    compensation_retry => stacksaga.retry_policy(max_attempts => 0));
SELECT step, attempts, longest_window, worst_case_calls, warning
  FROM stacksaga.explain_retries('explain endless', '{5}');

-- What is remembered must outlast what may be repeated: to the microsecond.
SELECT stacksaga.define_saga('explain window', ARRAY[
    stacksaga.queue_step('plain', 'explain', false, timeout => '10 s',
                         retry => stacksaga.retry_policy(max_attempts => 3, jitter => 0)),
    stacksaga.queue_step('undone', 'explain', compensable => true, timeout => '1 s',
                         retry => stacksaga.retry_policy(max_attempts => 1)),
    stacksaga.queue_step('idempotent', 'explain', false, effect => 'idempotent', timeout => '10 minutes')],
    compensation_retry => stacksaga.retry_policy(max_attempts => 2, jitter => 0, initial_interval => '1 minute'));
SELECT step, longest_window, dedupe_window, warning FROM stacksaga.explain_retries('explain window');
SET stacksaga.dedupe_retention = '34 s';
SELECT step, longest_window, dedupe_window, warning FROM stacksaga.explain_retries('explain window');
SET stacksaga.dedupe_retention = '33 s';
SELECT step, warning FROM stacksaga.explain_retries('explain window');
RESET stacksaga.dedupe_retention;

-- A fallback has attempts of its own under the same key; what waits is one attempt.
SELECT stacksaga.define_saga('explain kinds', ARRAY[
    stacksaga.sql_step('sql', 'explain.act(stacksaga.step_call)', timeout => '10 s',
        retry => stacksaga.retry_policy(max_attempts => 2, jitter => 0),
        fallback => 'explain.act(stacksaga.step_call)'),
    stacksaga.signal_step('signal', 'go'),
    stacksaga.signal_step('bounded', 'go', timeout => '1 hour'),
    stacksaga.timer_step('timer', '90 minutes'),
    stacksaga.child_step('child', 'explain default')]);
SELECT step, attempts, longest_window, worst_case_calls, warning
  FROM stacksaga.explain_retries('explain kinds', '{2}');
-- The current version.
SELECT stacksaga.define_saga('explain default', ARRAY[stacksaga.queue_step('b', 'explain', compensable => true,
    retry => stacksaga.retry_policy(max_attempts => 3))]);
SELECT step, attempts FROM stacksaga.explain_retries('explain default');

-- What is not there, and what are no attempts.
CREATE FUNCTION explain.refused(saga text, outer_attempts int[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text; hint text;
BEGIN
    PERFORM stacksaga.explain_retries(saga, outer_attempts);
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws('; ', SQLSTATE, SQLERRM, detail, hint);
END
$$;
SELECT explain.refused(s, o)
  FROM (VALUES (NULL, '{}'::int[]), ('explain', NULL), ('no such saga', '{}'), ('explain', '{0}'), ('explain', '{3,-1}'),
               ('explain', '{3,NULL}'), ('explain', '{{3,3},{3,3}}'), ('explain', array_fill(1, '{101}')),
               ('explain', array_fill(1, '{100}')), ('explain', '[5:6]={2,2}')) AS v(s, o);

-- For operators and monitors.
CREATE ROLE explain_monitor;
CREATE ROLE explain_service;
SELECT stacksaga.grant_usage('explain_monitor', 'monitor'), stacksaga.grant_usage('explain_service', 'service');
SET ROLE explain_monitor;
SELECT count(*) FROM stacksaga.explain_retries('explain');
SET ROLE explain_service;
SELECT count(*) FROM stacksaga.explain_retries('explain');
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA explain CASCADE;
DELETE FROM stacksaga.usage_grant WHERE role LIKE 'explain%';
DROP OWNED BY explain_monitor, explain_service;
DROP ROLE explain_monitor, explain_service;
