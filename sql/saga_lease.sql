-- Leases of queue steps: running out, timeouts, late, repeated, stale and forged answers,
-- extensions. Time is moved by stacksaga.clock_offset.

CREATE SCHEMA lease;
CREATE TABLE lease.held (name text, saga_id uuid, step text, lease bigint);
CREATE VIEW lease.history AS
    SELECT step, direction, attempt, status, error_class, error, worker FROM stacksaga.saga_history
        ORDER BY step, direction, attempt;
-- Claims one step and remembers it by a name.
CREATE FUNCTION lease.claim(name text, queue text DEFAULT 'lease', lease interval DEFAULT '30 s')
  RETURNS text LANGUAGE sql AS $$
    WITH c AS (SELECT * FROM stacksaga.claim_steps(queue, name, 1, lease)),
         h AS (INSERT INTO lease.held SELECT name, saga_id, step, lease FROM c)
    SELECT format('%s %s attempt %s, lease of %s, deadline in %s', step, direction, attempt,
                  date_trunc('second', lease_until - stacksaga.clock_now() + interval '0.9 s'),
                  date_trunc('second', deadline - stacksaga.clock_now() + interval '0.9 s')) FROM c
$$;
-- What an answer raises or returns, ids and leases masked. (held) stands for saga id, step and
-- lease.
CREATE FUNCTION lease.answer(name text, call text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    result text; message text; detail text; hint text;
BEGIN
    EXECUTE (SELECT format('SELECT * FROM stacksaga.' || replace(call, '(held)', '%L, %L, %s'),
        h.saga_id, h.step, h.lease)
               FROM lease.held h WHERE h.name = answer.name) INTO result;
    RETURN NEXT result;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN QUERY SELECT regexp_replace(regexp_replace(line, '[0-9a-f]{8}-[0-9a-f-]{27}', '(id)',
        'g'), '-?\d{13,}', '(lease)', 'g')
      FROM (VALUES (SQLSTATE || ': ' || message), ('DETAIL: ' || nullif(detail, '')),
                   ('HINT: ' || nullif(hint, ''))) AS v(line) WHERE line IS NOT NULL;
END
$$;
-- Everything that the engine has, to see that something changed nothing.
CREATE FUNCTION lease.state() RETURNS text LANGUAGE sql AS $$
    SELECT md5(concat((SELECT string_agg(s::text, ',' ORDER BY s::text) FROM stacksaga.saga s),
                      (SELECT string_agg(w::text, ',' ORDER BY w::text) FROM stacksaga.work w),
                      (SELECT string_agg(e::text, ',' ORDER BY e::text) FROM stacksaga.effect e),
                      (SELECT string_agg(f::text, ',' ORDER BY f::text) FROM stacksaga.failure f)))
$$;
CREATE FUNCTION lease.clean() RETURNS void LANGUAGE sql AS $$
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, lease.held;
    SELECT set_config('stacksaga.clock_offset', '0', false);
$$;
SELECT stacksaga.define_saga('lease', ARRAY[
    stacksaga.queue_step('a', 'lease', compensable => true, timeout => '10 minutes',
        retry => stacksaga.retry_policy(initial_interval => '0')),
    stacksaga.queue_step('b', 'lease', compensable => true)]);

-- The lease is held until it runs out; then the step is another's, and the old lease is fenced.
SELECT created FROM stacksaga.start_saga('lease');
SELECT lease.claim('first');
SELECT lease.claim('too early');
SET stacksaga.clock_offset = '29 s';
SELECT lease.claim('too early');
SET stacksaga.clock_offset = '31 s';
SELECT lease.claim('second');
SELECT lease.state() AS before \gset
SELECT * FROM lease.answer('first', 'complete_step((held))');
SELECT * FROM lease.answer('first', $$ fail_step((held), 'no', 'retryable') $$);
SELECT * FROM lease.answer('first', 'extend_step((held))');
SELECT lease.state() = :'before' AS nothing_changed;
SELECT * FROM lease.history;
SELECT (SELECT lease FROM lease.held WHERE name = 'second') > (SELECT lease FROM lease.held
  WHERE name = 'first') AS leases_rise;
SELECT * FROM lease.answer('second', $$ complete_step((held), '2') $$);
-- Repeated: the same is nothing new, another output is a conflict, a failure comes too late.
SELECT lease.state() AS before \gset
SELECT * FROM lease.answer('second', $$ complete_step((held), '2') $$);
SELECT * FROM lease.answer('second', $$ complete_step((held), '2.0') $$);
SELECT line FROM lease.answer('second', $$ complete_step((held), '3') $$) AS line;
SELECT line FROM lease.answer('second', $$ complete_step((held)) $$) AS line;
SELECT line FROM lease.answer('second', $$ fail_step((held), 'no', 'retryable') $$) AS line;
SELECT line FROM lease.answer('second', $$ extend_step((held)) $$) AS line;
SELECT line FROM lease.answer('first', $$ complete_step((held), '2') $$) AS line;
SELECT lease.state() = :'before' AS nothing_changed;
SELECT * FROM lease.history;

-- A lease that ran out and was not taken over yet: its answer still counts, before and after a
-- worker has noticed, until somebody else has claimed.
SELECT lease.clean();
SELECT created FROM stacksaga.start_saga('lease');
SELECT lease.claim('late');
SET stacksaga.clock_offset = '1 minute';
SELECT * FROM lease.answer('late', $$ complete_step((held), '"late"') $$);
SELECT * FROM lease.history;
SELECT lease.clean();
SELECT created FROM stacksaga.start_saga('lease');
SELECT lease.claim('late');
SET stacksaga.clock_offset = '1 minute';
SELECT stacksaga.run_pending();
SELECT * FROM lease.history;
SELECT stacksaga.run_pending();
SELECT * FROM lease.answer('late', 'extend_step((held))');
SELECT * FROM lease.answer('late', $$ complete_step((held), '"late"') $$);
SELECT * FROM lease.history;
SELECT count(*) FROM stacksaga.failure;
-- A late failure says more than "the lease ran out": its row replaces that one.
SELECT lease.clean();
SELECT created FROM stacksaga.start_saga('lease');
SELECT lease.claim('late');
SET stacksaga.clock_offset = '1 minute';
SELECT stacksaga.run_pending();
SELECT * FROM lease.answer('late', $$ fail_step((held), 'card refused', 'non_retryable') $$);
SELECT * FROM lease.history;
SELECT status, current_step FROM stacksaga.sagas;

-- The timeout bounds an attempt, whatever its lease; passing it is an unknown outcome.
SELECT lease.clean();
SELECT stacksaga.define_saga('lease timeout', ARRAY[
    stacksaga.queue_step('a', 'lease', compensable => true, timeout => '1 minute',
        retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0'))]);
SELECT created FROM stacksaga.start_saga('lease timeout');
SELECT lease.claim('long', lease => '1 hour');
SET stacksaga.clock_offset = '59 s';
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '61 s';
SELECT stacksaga.run_pending();
SELECT * FROM lease.history;
SELECT lease.claim('again', lease => '1 hour');
SET stacksaga.clock_offset = '200 s';
SELECT stacksaga.run_pending();
-- The attempts are used up, the outcome is not known: the step itself is compensated.
SELECT * FROM lease.history;
SELECT status, current_step FROM stacksaga.sagas;
SELECT * FROM lease.answer('again', 'complete_step((held))');
SELECT * FROM lease.answer('long', 'complete_step((held))');
SELECT lease.claim('undo');
SELECT * FROM lease.answer('again', 'complete_step((held))');
SELECT * FROM lease.answer('undo', 'complete_step((held))');
SELECT * FROM lease.answer('undo', 'complete_step((held))');
SELECT * FROM lease.history;

-- Extensions: from now on, never shorter, at most to the timeout.
SELECT lease.clean();
SELECT created FROM stacksaga.start_saga('lease timeout');
SELECT lease.claim('long', lease => '20 s');
CREATE FUNCTION lease.extend(name text, by interval) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s, cancel %s',
        date_trunc('second', lease_until - stacksaga.clock_now() + interval '0.9 s'),
        cancel_requested)
      FROM lease.held h, stacksaga.extend_step(h.saga_id, h.step, h.lease, by)
          WHERE h.name = extend.name
$$;
SELECT lease.extend('long', '10 s');
SELECT lease.extend('long', '30 s');
SET stacksaga.clock_offset = '25 s';
SELECT stacksaga.run_pending();
SELECT lease.extend('long', '30 s');
SELECT lease.extend('long', '1 day');
SELECT line FROM unnest('{0,-1 s,178000000 years}'::text[]) AS by,
    lease.answer('long', format('extend_step((held), %L)', by)) AS line;
SELECT * FROM lease.answer('long', 'extend_step((held), NULL)');
SET stacksaga.clock_offset = '61 s';
SELECT * FROM lease.answer('long', 'extend_step((held))');
SELECT stacksaga.run_pending();
SELECT error_class, error FROM lease.history;
-- An extended lease that ran out before the timeout is a lost lease, not a timeout.
SELECT lease.clean();
SELECT created FROM stacksaga.start_saga('lease timeout');
SELECT lease.claim('long', lease => '10 s');
SELECT lease.extend('long', '20 s');
SET stacksaga.clock_offset = '30 s';
SELECT stacksaga.run_pending();
SELECT error_class, error FROM lease.history;
-- An attempt that is claimed anew has a whole timeout for itself.
SELECT lease.claim('second', lease => '1 hour');

-- Forged leases, other sagas' leases, other steps, other directions.
SELECT lease.clean();
SELECT created FROM stacksaga.start_saga('lease', key => 'one');
SELECT created FROM stacksaga.start_saga('lease', key => 'two');
SELECT lease.claim('one');
SELECT lease.claim('two');
SELECT lease.state() AS before \gset
SELECT forged, line
  FROM unnest('{0,1,-1,2199023255552,3298534883328,9223372036854775807,
                -9223372036854775808}'::bigint[]) AS forged, lease.held h,
       lease.answer('one', format('complete_step(%L, %L, %s)', h.saga_id, h.step, forged))
           WITH ORDINALITY AS o(line, n)
 WHERE h.name = 'one' AND n = 1;
SELECT line FROM lease.held h, lease.answer('one', format('complete_step(%L, %L, %s)', h.saga_id,
    h.step, h.lease + 1)) AS line WHERE h.name = 'one';
SELECT line FROM lease.held h, lease.answer('one', format('complete_step(%L, %L, %s)', h.saga_id,
    h.step, (h.lease # (1::bigint << 40)))) AS line WHERE h.name = 'one';
SELECT line FROM lease.held o, lease.held t,
    lease.answer('one', format('complete_step(%L, %L, %s)', o.saga_id, o.step, t.lease)) AS line
  WHERE o.name = 'one' AND t.name = 'two';
SELECT line FROM lease.held h, lease.answer('one', format('complete_step(%L, %L, %s)', h.saga_id,
    'b', h.lease)) AS line WHERE h.name = 'one';
SELECT other, line FROM lease.held h, unnest('{nobody,"",A}'::text[]) AS other,
       lease.answer('one', format('complete_step(%L, %L, %s)', h.saga_id, other, h.lease)) AS line
           WHERE h.name = 'one';
SELECT line FROM lease.answer('one', $$ complete_step('00000000-0000-0000-0000-00000000dead', 'a',
    1) $$) AS line;
SELECT which, line FROM lease.held h,
    unnest(ARRAY[$$ NULL, 'a', 1 $$, format($$ %L, NULL, 1 $$, h.saga_id),
    format($$ %L, 'a', NULL $$, h.saga_id)]) WITH ORDINALITY AS a(arguments, which),
       lease.answer('one', format('complete_step(%s)', arguments)) AS line WHERE h.name = 'one';
-- Outputs that are too large.
SELECT * FROM lease.answer('one', $$ complete_step((held), to_jsonb(repeat('x', 2000000))) $$);
SELECT lease.state() = :'before' AS nothing_changed;

-- Claims: their own bad input; how many; their order; what is not due.
SELECT arguments, line FROM unnest(ARRAY[
    $$ NULL, 'w' $$, $$ '', 'w' $$, $$ repeat('q', 256), 'w' $$, $$ 'q', NULL $$, $$ 'q', '' $$,
        $$ 'q', repeat('w', 256) $$,
    $$ 'q', 'w', 0 $$, $$ 'q', 'w', -1 $$, $$ 'q', 'w', 1001 $$, $$ 'q', 'w', NULL $$,
    $$ 'q', 'w', 1, '0' $$, $$ 'q', 'w', 1, '-1 s' $$, $$ 'q', 'w', 1, NULL $$,
    $$ 'q', 'w', 1, '178000000 years' $$
    ]) AS arguments, lease.answer('one', format('claim_steps(%s)', arguments)) AS line;
SELECT count(*) FROM stacksaga.claim_steps('no such queue', 'w', 1000);
SELECT lease.clean();
SELECT count(*) FROM generate_series(1, 30) n, LATERAL stacksaga.start_saga('lease', key => n::text,
    run_at => stacksaga.clock_now() + n * interval '1 s');
SET stacksaga.clock_offset = '1 minute';
SELECT string_agg(key, ' ') FROM (SELECT key FROM stacksaga.claim_steps('lease', 'w', 5)
  JOIN stacksaga.sagas USING (saga_id)) AS earliest_due_first;
SELECT count(*), count(DISTINCT lease) FROM stacksaga.claim_steps('lease', 'w', 1000,
    '36500000 days');
SELECT count(*) FROM stacksaga.claim_steps('lease', 'w', 1000);

SELECT lease.clean();
SET client_min_messages = warning;
DROP SCHEMA lease CASCADE;
RESET stacksaga.clock_offset;

-- A fencing token for systems outside: the timeline first, then the lease, which rises with the attempts.
SELECT stacksaga.fencing_token(1), stacksaga.fencing_token(9223372036854775807), stacksaga.fencing_token(NULL) IS NULL AS of_null;
SELECT bool_and(stacksaga.fencing_token(older) < stacksaga.fencing_token(newer)) AS rises
  FROM (VALUES (9::bigint, 10::bigint), (255, 256), (2199023255551, 2199023255552), (2199023255552, 4398046511104)) AS l(older, newer);

-- Of sessions that find enough to claim, some settle leases that ran out: the first one that has not heard of another's look.
SELECT stacksaga.define_saga('lease busy', ARRAY[stacksaga.queue_step('a', 'lease busy', compensable => true)]);
SELECT count(*) FROM stacksaga.start_sagas('lease busy', array_fill('{}'::jsonb, ARRAY[5]));
SELECT count(*) FROM stacksaga.claim_steps('lease busy', 'w', 1, '5 s');
\c -
SET stacksaga.clock_offset = '6 s';
SELECT count(*) FROM stacksaga.claim_steps('lease busy', 'w', 1);
SELECT count(*) FROM stacksaga.work WHERE queue = 'lease busy' AND lease_until < stacksaga.clock_now();
RESET stacksaga.clock_offset;
SET client_min_messages = warning;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
