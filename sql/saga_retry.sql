-- Failures that are tried again: which are, when, how often, and what is left of a failed attempt.
-- Time is moved by stacksaga.clock_offset.
SET stacksaga.retry_budget = -1; -- policies alone decide here

-- This database has no saga but those of this file.
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
CREATE SCHEMA retry;
CREATE TABLE retry.done (step text, attempt int);
-- Raises the SQLSTATE that the saga's input has for this attempt; none: it completes.
CREATE FUNCTION retry.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    code text := call.input -> call.step ->> (call.attempt - 1);
BEGIN
    INSERT INTO retry.done VALUES (call.step, call.attempt);
    IF code IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = 'raised ' || code, DETAIL = 'as told';
    END IF;
    RETURN to_jsonb(call.attempt);
END
$$;
CREATE VIEW retry.now AS
    SELECT status, current_step, attempt, paused_until IS NOT NULL AS paused, last_error
        FROM stacksaga.sagas;
CREATE VIEW retry.history AS
    SELECT step, direction, attempt, status, error_class, error FROM stacksaga.saga_history
        ORDER BY started_at, attempt;

-- Two failures, then success: paused until the policy says so, and the effects of failed attempts
-- are gone.
SELECT stacksaga.define_saga('retry',
    ARRAY[stacksaga.sql_step('a', 'retry.act(stacksaga.step_call)',
    retry => stacksaga.retry_policy(max_attempts => 5, initial_interval => '10 s', multiplier => 3,
        max_interval => '1 minute', jitter => 0.5))]);
SELECT saga_id AS id FROM stacksaga.start_saga('retry', '{"a": ["40001", "SR503", null]}') \gset
SELECT stacksaga.run_pending();
SELECT * FROM retry.now;
SELECT paused_until - stacksaga.clock_now() BETWEEN '4 s' AND '15 s' AS in_bounds
  FROM stacksaga.sagas;
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '4 s';
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '16 s';
SELECT stacksaga.run_pending();
SELECT paused_until - stacksaga.clock_now() BETWEEN '14 s' AND '45 s' AS in_bounds, attempt
  FROM stacksaga.sagas;
SET stacksaga.clock_offset = '62 s';
SELECT stacksaga.run_pending();
SELECT * FROM retry.now;
SELECT * FROM retry.history;
SELECT * FROM retry.done;
SELECT output FROM stacksaga.saga_result(:'id');
SELECT regexp_replace(line, '^[-0-9]{10} [:.0-9]{12}', '(time)')
  FROM stacksaga.saga_timeline(:'id') AS line;
RESET stacksaga.clock_offset;

-- Backoff: every pause lies within its bounds, grows to the cap, and differs between sagas (jitter).
-- Without jitter it is exact.
CREATE FUNCTION retry.clean() RETURNS void LANGUAGE sql AS $$
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, retry.done;
    SELECT set_config('stacksaga.clock_offset', '0', false);
$$;
CREATE TABLE retry.pause (attempt int, pause interval);
-- Starts 50 sagas and fails each claim seven times.
CREATE FUNCTION retry.pauses(jitter double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM retry.clean();
    TRUNCATE retry.pause;
    PERFORM stacksaga.define_saga('retry', ARRAY[stacksaga.queue_step('a', 'retry', compensable => true,
        retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '1 s',
            multiplier => 2, max_interval => '10 s', jitter => jitter))]);
    PERFORM stacksaga.start_saga('retry', key => n::text) FROM generate_series(1, 50) n;
    FOR attempt IN 1..7 LOOP
        PERFORM stacksaga.fail_step(saga_id, step, lease, 'no', 'retryable')
           FROM stacksaga.claim_steps('retry', 'w', 1000);
        INSERT INTO retry.pause
            SELECT f.attempt, w.due_at - f.finished_at
              FROM stacksaga.work w JOIN stacksaga.failure f USING (saga_id, step_no, attempt);
        PERFORM set_config('stacksaga.clock_offset', attempt * 1000 || ' s', false);
    END LOOP;
END
$$;
SELECT retry.pauses(0.2);
SELECT attempt, count(*), count(DISTINCT pause) > 40 AS scattered,
       min(pause) >= 0.8 * least(power(2, attempt - 1), 10) * interval '1 s' AS not_below,
       max(pause) <= 1.2 * least(power(2, attempt - 1), 10) * interval '1 s' AS not_above
  FROM retry.pause GROUP BY attempt ORDER BY attempt;
SELECT retry.pauses(0);
SELECT attempt, pause, count(*) FROM retry.pause GROUP BY attempt, pause ORDER BY attempt;

-- No backoff and no jitter at all; numbers that would overflow saturate.
SELECT retry.clean();
SELECT stacksaga.define_saga('retry', ARRAY[stacksaga.queue_step('a', 'retry', compensable => true,
    retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '0', jitter => 0))]);
SELECT stacksaga.define_saga('retry long', ARRAY[stacksaga.queue_step('a', 'retry long', compensable => true,
    retry => stacksaga.retry_policy(max_attempts => 0, initial_interval => '36500000 days',
        multiplier => 1000, max_interval => '105850000 days', jitter => 1))]);
SELECT created FROM stacksaga.start_saga('retry');
SELECT stacksaga.fail_step(saga_id, step, lease, 'no', 'retryable') FROM stacksaga.claim_steps('retry', 'w');
SELECT attempt, stacksaga.fail_step(saga_id, step, lease, 'no', 'retryable')
  FROM stacksaga.claim_steps('retry', 'w');
SELECT attempt FROM stacksaga.claim_steps('retry', 'w');
SELECT created FROM stacksaga.start_saga('retry long');
SELECT stacksaga.fail_step(saga_id, step, lease, 'no', 'retryable') FROM stacksaga.claim_steps('retry long',
    'w');
SELECT attempt, paused_until > stacksaga.clock_now() AS paused FROM stacksaga.sagas
  WHERE saga = 'retry long';
-- Attempt 4,194,304 and later: the lease cannot count on, and is still one of its attempt's own.
UPDATE stacksaga.work SET attempt = 2147483645, lease_until = NULL, due_at = stacksaga.clock_now();
SELECT attempt, stacksaga.fail_step(saga_id, step, lease, 'no', 'retryable')
  FROM stacksaga.claim_steps('retry', 'w');
UPDATE stacksaga.work SET due_at = stacksaga.clock_now();
SELECT attempt, stacksaga.complete_step(saga_id, step, lease)
  FROM stacksaga.claim_steps('retry', 'w');

-- retry_after replaces the policy's pause; its own errors.
SELECT retry.clean();
SELECT stacksaga.define_saga('retry',
    ARRAY[stacksaga.queue_step('a', 'retry', compensable => true, retry => stacksaga.retry_policy(max_attempts => 3))]);
SELECT created FROM stacksaga.start_saga('retry');
SELECT stacksaga.fail_step(saga_id, step, lease, 'busy', 'retryable', retry_after => '1 hour')
  FROM stacksaga.claim_steps('retry', 'w');
SELECT paused_until - stacksaga.clock_now() BETWEEN '59 minutes 50 s' AND '1 hour' AS in_an_hour
  FROM stacksaga.sagas;
SET stacksaga.clock_offset = '1 hour';
SELECT stacksaga.fail_step(saga_id, step, lease, 'busy', 'retryable', retry_after => '0')
  FROM stacksaga.claim_steps('retry', 'w');
SELECT attempt, paused_until FROM stacksaga.sagas;
-- The third and last attempt: retry_after grants no further one.
SELECT attempt, stacksaga.fail_step(saga_id, step, lease, 'busy', 'retryable', retry_after => '1 s')
  FROM stacksaga.claim_steps('retry', 'w');
SELECT * FROM retry.now;
SELECT * FROM retry.history;
SELECT r.status, r.output, r.error, r.failed_step FROM stacksaga.sagas s,
    stacksaga.saga_result(s.saga_id) r;
RESET stacksaga.clock_offset;

-- Attempts used up by a sql step; failures that are not retryable are not tried again.
SELECT retry.clean();
SELECT stacksaga.define_saga('retry',
    ARRAY[stacksaga.sql_step('a', 'retry.act(stacksaga.step_call)',
    retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '0'))]);
SELECT saga_id AS id FROM stacksaga.start_saga('retry',
    '{"a": ["SR503", "SR503", "SR503", "SR503"]}') \gset
SELECT stacksaga.run_pending();
SELECT * FROM retry.now;
SELECT * FROM retry.history;
SELECT status, error, failed_step, finished_at IS NOT NULL AS finished
  FROM stacksaga.saga_result(:'id');
SELECT count(*) FROM retry.done;
SELECT retry.clean();
SELECT created FROM stacksaga.start_saga('retry', '{"a": ["SG424", null]}');
SELECT stacksaga.run_pending();
SELECT * FROM retry.now;

-- What each SQLSTATE means: by default, and with lists of the policy's own.
CREATE FUNCTION retry.meaning(code text, policy stacksaga.retry_policy) RETURNS text
  LANGUAGE plpgsql AS $$
DECLARE
    id uuid;
    meaning text;
BEGIN
    PERFORM stacksaga.define_saga('retry meaning',
        ARRAY[stacksaga.sql_step('a', 'retry.act(stacksaga.step_call)', retry => policy)]);
    SELECT saga_id INTO id FROM stacksaga.start_saga('retry meaning',
        jsonb_build_object('a', jsonb_build_array(code)));
    PERFORM stacksaga.run_pending();
    SELECT h.error_class || ', ' || s.status INTO meaning FROM stacksaga.saga_history h
        JOIN stacksaga.sagas s USING (saga_id) WHERE h.saga_id = id;
    DELETE FROM stacksaga.saga WHERE saga_id = id;
    DELETE FROM stacksaga.work WHERE saga_id = id;
    RETURN meaning;
END
$$;
SELECT meaning, string_agg(code, ' ' ORDER BY code) AS sqlstates
  FROM unnest('{SR503,SR504,SR000,SG424,SG000,SG412,08006,08P01,40001,40P01,40002,
                53200,53300,55P03,55000,57P01,57P02,57P03,57014,
                22012,23505,23514,42P01,42501,P0001,P0002,XX000,54000,25006,0A000,ZZZZZ}'::text[])
                    AS code,
       retry.meaning(code, stacksaga.retry_policy()) AS meaning
 GROUP BY meaning ORDER BY meaning;
SELECT code, retry.meaning(code, stacksaga.retry_policy(retry_on => '{23,P0001,SG}',
    never_on => '{40001,53,SR}'))
  FROM unnest('{23505,P0001,P0002,40001,40P01,53300,08006,SR503,SR504,SG424}'::text[]) AS code;
-- A code in both lists is never retried.
SELECT code, retry.meaning(code, stacksaga.retry_policy(retry_on => '{23505,22}',
    never_on => '{23,22012}'))
  FROM unnest('{23505,22012,22003}'::text[]) AS code;

-- What a service says: its classes, its words.
CREATE FUNCTION retry.outcome(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    result text; message text; detail text; hint text;
BEGIN
    EXECUTE statement INTO result;
    RETURN NEXT 'accepted: ' || coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN QUERY SELECT regexp_replace(line, '[0-9a-f]{8}-[0-9a-f-]{27}', '(id)', 'g')
      FROM (VALUES (SQLSTATE || ': ' || message), ('DETAIL: ' || nullif(detail, '')),
                   ('HINT: ' || nullif(hint, ''))) AS v(line) WHERE line IS NOT NULL;
END
$$;
SELECT retry.clean();
SELECT stacksaga.define_saga('retry', ARRAY[stacksaga.queue_step('a', 'retry', compensable => true)]);
SELECT saga_id AS id FROM stacksaga.start_saga('retry') \gset
SELECT lease FROM stacksaga.claim_steps('retry', 'w') \gset
SELECT arguments, line FROM unnest(ARRAY[
    $$ NULL $$, $$ repeat('e', 65537) $$, $$ 'e', 'fatal' $$, $$ 'e', '' $$, $$ 'e', NULL $$,
    $$ 'e', retry_after => '-1 s' $$, $$ 'e', retry_after => '178000000 years' $$
    ]) AS arguments, retry.outcome(format('SELECT stacksaga.fail_step(%L, ''a'', %s, %s)', :'id',
        :lease, arguments)) AS line;
SELECT * FROM retry.now;
SELECT line FROM retry.outcome(format('SELECT stacksaga.fail_step(%L, ''a'', %s, %L)', :'id',
    :lease, '')) AS line;
SELECT * FROM retry.history;

SET client_min_messages = warning;
DROP SCHEMA retry CASCADE;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
