-- Many at a time: start_sagas and complete_steps.

CREATE SCHEMA batch;
CREATE FUNCTION batch.try(call text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    message text; detail text; hint text;
BEGIN
    EXECUTE 'SELECT count(*) FROM stacksaga.' || call INTO message;
    RETURN NEXT message;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ': ' || message;
    RETURN NEXT '  DETAIL: ' || regexp_replace(detail, '[0-9a-f-]{36}', '(id)');
    RETURN NEXT '  HINT: ' || hint;
END
$$;
SELECT stacksaga.define_saga('batch', ARRAY[stacksaga.queue_step('one', 'batch', compensable => true),
    stacksaga.queue_step('two', 'batch2', compensable => true)]);

-- In order, with keys or without; the same key twice is one saga.
SELECT row_number() OVER () AS n, token = stacksaga.token_uuid(saga_id) AS token, created
  FROM stacksaga.start_sagas('batch', ARRAY['1', '2', '3']::jsonb[]);
SELECT input FROM stacksaga.sagas WHERE saga = 'batch' ORDER BY input;
CREATE TABLE batch.started AS
    SELECT * FROM stacksaga.start_sagas('batch', ARRAY['10', '20', '10', '30']::jsonb[],
        '{k1,k2,k1,NULL}') WITH ORDINALITY AS s(saga_id, token, created, n);
SELECT n, key, input, created FROM batch.started JOIN stacksaga.sagas USING (saga_id, token)
 ORDER BY n;
SELECT created FROM stacksaga.start_sagas('batch', ARRAY['20', '10']::jsonb[], '{k2,k1}');
SELECT count(*) FROM stacksaga.start_sagas('batch', '{}');
-- They fall due in their order, few at one instant, and all of them before the call returns.
SELECT stacksaga.define_saga('batch in order', ARRAY[stacksaga.queue_step('one', 'batch in order', compensable => true)]);
SELECT count(*) FROM stacksaga.start_sagas('batch in order', (SELECT array_agg(to_jsonb(n)) FROM generate_series(1, 1000) AS n));
SELECT count(DISTINCT due_at), max(due_at) < stacksaga.clock_now() AS are_due
  FROM stacksaga.work WHERE queue = 'batch in order';
SELECT count(*), array_agg(input) = array_agg(input ORDER BY input) AS in_order
  FROM stacksaga.claim_steps('batch in order', 'w', 1000);
-- One that is refused refuses all, and says which.
SELECT count(*) AS sagas FROM stacksaga.saga \gset
SELECT line FROM unnest(ARRAY[
    $$start_sagas('batch', ARRAY['1', NULL]::jsonb[])$$,
    $$start_sagas('batch', ARRAY['1', '2']::jsonb[], '{a}')$$,
    $$start_sagas('batch', ARRAY['1', '2']::jsonb[], '{a,""}')$$,
    $$start_sagas('batch', ARRAY['1', '2']::jsonb[], ARRAY['a', repeat('b', 256)])$$,
    $$start_sagas('batch', ARRAY['1', '2']::jsonb[], '{new,k1}')$$,
    $$start_sagas('batch', ARRAY[['1'], ['2']]::jsonb[])$$,
    $$start_sagas('batch', ARRAY['1', to_jsonb(repeat('x', 2000000))])$$,
    $$start_sagas('batch', NULL)$$,
    $$start_sagas(NULL, '{}')$$,
    $$start_sagas('nobody', ARRAY['1']::jsonb[])$$]) AS call, batch.try(call) AS line;
SELECT count(*) = :sagas AS unchanged FROM stacksaga.saga;

-- Completed in order; a row that is refused has its SQLSTATE and spoils nothing.
CREATE TABLE batch.claimed AS
    SELECT saga_id, step, lease, input, row_number() OVER (ORDER BY saga_id) AS n
      FROM stacksaga.claim_steps('batch', 'w', 6);
SELECT stacksaga.complete_step(saga_id, step, lease, '"first"') FROM batch.claimed WHERE n = 1;
SELECT stacksaga.cancel_saga(saga_id, 'why') FROM batch.claimed WHERE n = 2;
SELECT stacksaga.fail_step(saga_id, step, lease, 'no', 'non_retryable') FROM batch.claimed WHERE n = 2;
SELECT n, r.step, r.status, r.sqlstate, c.saga_id = r.saga_id AS saga
  FROM (SELECT array_agg(saga_id ORDER BY n) || '{00000000-0000-0000-0000-000000000000,NULL}' AS ids,
               array_agg(CASE n WHEN 3 THEN 'nobody' ELSE step END ORDER BY n) || '{one,one}' AS steps,
               array_agg(CASE n WHEN 4 THEN lease + 1 ELSE lease END ORDER BY n) || '{1,2}' AS leases,
               array_agg(CASE n WHEN 1 THEN '"other"' WHEN 5 THEN to_jsonb(repeat('x', 2000000))
                         ELSE to_jsonb(n) END ORDER BY n) || ARRAY['0', '0']::jsonb[] AS outputs
          FROM batch.claimed) AS a,
       stacksaga.complete_steps(a.ids, a.steps, a.leases, a.outputs)
           WITH ORDINALITY AS r(saga_id, step, status, sqlstate, n)
  LEFT JOIN batch.claimed c USING (n) ORDER BY n;
SELECT n, s.status, s.current_step FROM batch.claimed JOIN stacksaga.sagas s USING (saga_id) ORDER BY n;
-- The same again changes nothing; without outputs they are NULL.
SELECT r.status, r.sqlstate FROM batch.claimed c, stacksaga.complete_steps(ARRAY[c.saga_id, c.saga_id],
    ARRAY[c.step, c.step], ARRAY[c.lease, c.lease], ARRAY[to_jsonb(c.n), to_jsonb(c.n)]) AS r
 WHERE c.n = 6;
SELECT r.status, r.sqlstate FROM batch.claimed c,
    stacksaga.complete_steps(ARRAY[c.saga_id], ARRAY[c.step], ARRAY[c.lease]) AS r WHERE c.n = 4;
SELECT count(*) FROM stacksaga.complete_steps('{}', '{}', '{}');
SELECT line FROM unnest(ARRAY[
    $$complete_steps('{00000000-0000-0000-0000-000000000000}', '{}', '{}')$$,
    $$complete_steps('{00000000-0000-0000-0000-000000000000}', '{a}', '{1,2}')$$,
    $$complete_steps('{00000000-0000-0000-0000-000000000000}', '{a}', '{1}', '{}')$$,
    $$complete_steps('{}', '{{a},{b}}', '{}')$$,
    $$complete_steps(NULL, '{a}', '{1}')$$,
    $$complete_steps('{}', NULL, '{1}')$$,
    $$complete_steps('{}', '{}', NULL)$$]) AS call, batch.try(call) AS line;

SET client_min_messages = warning;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure,
    stacksaga.saga_signal, stacksaga.saga_action, stacksaga.parked_saga;
DROP SCHEMA batch CASCADE;
