-- start_saga: identity by key, what is refused, and what a started saga looks like.

CREATE SCHEMA starts;
SELECT stacksaga.define_saga('starts',
    ARRAY[stacksaga.queue_step('a', 'starts', compensable => true, retry => stacksaga.retry_policy(max_attempts => 1))]);
SELECT stacksaga.define_saga('starts other', ARRAY[stacksaga.queue_step('a', 'starts', compensable => true)]);
-- What a statement raises or returns, ids masked.
CREATE FUNCTION starts.outcome(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
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

-- Without a key every start is a saga of its own; its token is that of its id.
SELECT saga_id AS id, token = stacksaga.token_uuid(saga_id) AS token_of_id, created
  FROM stacksaga.start_saga('starts') \gset
\echo :token_of_id :created
SELECT saga_id <> :'id' AS another, created FROM stacksaga.start_saga('starts');
SELECT substr(:'id', 15, 1) AS uuid_version;
SELECT saga, version, key, status, current_step, attempt, paused_until, region, cluster, input,
    output,
       last_error, created_at = updated_at AS untouched, finished_at
  FROM stacksaga.sagas WHERE saga_id = :'id';

-- With a key: (saga, key) is the identity, and the same input returns the same saga.
SELECT saga_id AS id, created FROM stacksaga.start_saga('starts', '{"b": 1, "a": [1, 2]}',
    'k1') \gset
\echo :created
SELECT saga_id = :'id' AS same, created FROM stacksaga.start_saga('starts', '{"a":[1,2],   "b":1}',
    'k1');
SELECT saga_id = :'id' AS same, created
  FROM stacksaga.start_saga('starts', '{"b": 0, "b": 1, "a": [1, 2]}', 'k1');
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts', '{"b": 2, "a": [1, 2]}',
    'k1') $$);
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts', '{}', 'k1') $$);
SELECT saga_id = :'id' AS same, created FROM stacksaga.start_saga('starts other',
    '{"b": 1, "a": [1, 2]}', 'k1');
SELECT saga_id = :'id' AS same, created FROM stacksaga.start_saga('starts', '{"b": 1, "a": [1, 2]}',
    'K1');
SELECT saga_id = :'id' AS same, created FROM stacksaga.start_saga('starts', '{"b": 1, "a": [1, 2]}',
    'k1 ');
-- Where the name ends and the key begins makes a difference.
SELECT stacksaga.define_saga('starts1', ARRAY[stacksaga.queue_step('a', 'starts', compensable => true)]);
SELECT created FROM stacksaga.start_saga('starts1', '{}', '23');
SELECT created FROM stacksaga.start_saga('starts', '{}', '123');
-- What jsonb calls equal is one input, also where an earlier version has stored the fingerprint of its text.
SELECT created FROM stacksaga.start_saga('starts', '{"n": 1}', 'number');
SELECT line FROM starts.outcome($$ SELECT created FROM stacksaga.start_saga('starts', '{"n": 1.0}',
    'number') $$) WITH ORDINALITY AS o(line, n) WHERE n = 1;
SELECT created FROM stacksaga.start_saga('starts', '{"n": 1.50}', 'stored');
SET session_replication_role = replica;
UPDATE stacksaga.saga SET fingerprint = sha256('{"n": 1.50}') WHERE key = 'stored';
RESET session_replication_role;
SELECT created FROM stacksaga.start_saga('starts', '{"n": 1.50}', 'stored');
-- The headers, run_at and deadline of a repeated start do not matter: it started nothing.
SELECT saga_id = :'id' AS same, created FROM stacksaga.start_saga('starts', '{"b": 1, "a": [1, 2]}',
    'k1',
    run_at => '2100-01-01', deadline => '1 s', headers => '{"h": 1}');
SELECT headers, deadline_at FROM stacksaga.saga WHERE saga_id = :'id';

-- on_conflict.
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts', '{"b": 1, "a": [1, 2]}', 'k1',
    'fail') $$);
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts', '{"b": 9}', 'k1', 'fail') $$);
SELECT created FROM stacksaga.start_saga('starts', '{}', 'k2', 'fail');
SELECT saga_id = :'id' AS same, created FROM stacksaga.start_saga('starts', '{"b": 1, "a": [1, 2]}',
    'k1', 'restart_if_failed');
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts', '{}', 'k3', 'replace') $$);
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts', '{}', 'k3', NULL) $$);

-- restart_if_failed: run n+1 has an id of its own, and the key stands for it from then on.
CREATE FUNCTION starts.fail(id uuid) RETURNS text LANGUAGE sql AS $$
    SELECT stacksaga.fail_step(c.saga_id, c.step, c.lease, 'no', 'non_retryable')
      FROM stacksaga.claim_steps('starts', 'w', 1000) c WHERE c.saga_id = id
$$;
SELECT saga_id AS run0 FROM stacksaga.start_saga('starts', '{"r": 1}', 'r') \gset
SELECT starts.fail(:'run0');
SELECT saga_id = :'run0' AS same, created FROM stacksaga.start_saga('starts', '{"r": 1}', 'r');
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts', '{"r": 1}', 'r', 'fail') $$);
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts', '{"r": 2}', 'r',
    'restart_if_failed') $$);
SELECT saga_id AS run1, saga_id <> :'run0' AS another, created
  FROM stacksaga.start_saga('starts', '{"r": 1}', 'r', 'restart_if_failed') \gset
\echo :another :created
SELECT saga_id = :'run1' AS same, created FROM stacksaga.start_saga('starts', '{"r": 1}', 'r',
    'restart_if_failed');
SELECT saga_id = :'run1' AS same, created FROM stacksaga.start_saga('starts', '{"r": 1}', 'r');
SELECT starts.fail(:'run1');
SELECT saga_id AS run2, saga_id <> ALL (ARRAY[:'run0', :'run1']::uuid[]) AS another, created
  FROM stacksaga.start_saga('starts', '{"r": 1}', 'r', 'restart_if_failed') \gset
\echo :another :created
SELECT run, status, key FROM stacksaga.saga WHERE key = 'r' ORDER BY run;
SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('starts', 'w', 1000)
  WHERE saga_id = :'run2';
SELECT saga_id = :'run2' AS same, created FROM stacksaga.start_saga('starts', '{"r": 1}', 'r',
    'restart_if_failed');

-- An id of the caller's is an identity as well.
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts', '{}', 'k',
    saga_id => '018f0000-0000-7000-8000-000000000001') $$);
SELECT * FROM stacksaga.start_saga('starts', saga_id => '018f0000-0000-7000-8000-000000000001');
SELECT * FROM stacksaga.start_saga('starts', saga_id => '018f0000-0000-7000-8000-000000000001');
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts', '{"x": 1}',
    saga_id => '018f0000-0000-7000-8000-000000000001') $$);
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts other',
    saga_id => '018f0000-0000-7000-8000-000000000001') $$);
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts', on_conflict => 'fail',
    saga_id => '018f0000-0000-7000-8000-000000000001') $$);
SELECT created FROM stacksaga.start_saga('starts',
    saga_id => '00000000-0000-0000-0000-000000000000');
-- It stands for one run for ever, even for the first of a key that has moved on.
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts',
    on_conflict => 'restart_if_failed', saga_id => 'ffffffff-ffff-ffff-ffff-ffffffffffff') $$);
SELECT saga_id = :'run0' AS same, created FROM stacksaga.start_saga('starts', '{"r": 1}',
    saga_id => :'run0');

-- run_at: not claimable before, claimable then; in the past it is now.
SELECT saga_id AS id FROM stacksaga.start_saga('starts other', key => 'later',
    run_at => stacksaga.clock_now() + interval '1 hour') \gset
SELECT count(*) FROM stacksaga.claim_steps('starts', 'w', 1000) WHERE saga_id = :'id';
SET stacksaga.clock_offset = '59 minutes';
SELECT count(*) FROM stacksaga.claim_steps('starts', 'w', 1000) WHERE saga_id = :'id';
SET stacksaga.clock_offset = '61 minutes';
SELECT count(*) FROM stacksaga.claim_steps('starts', 'w', 1000) WHERE saga_id = :'id';
RESET stacksaga.clock_offset;
SELECT saga_id AS id FROM stacksaga.start_saga('starts other', key => 'earlier',
    run_at => '1970-01-01') \gset
SELECT count(*) FROM stacksaga.claim_steps('starts', 'w', 1000) WHERE saga_id = :'id';

-- headers, input and deadline reach the step.
SELECT saga_id AS id FROM stacksaga.start_saga('starts other', '[1, "two"]', 'reach',
    headers => '{"trace": "t1"}', deadline => '10 s') \gset
SELECT saga, step, direction, attempt, input, results, headers,
    idempotency_key = :'id' || ':1:act' AS key,
       deadline - stacksaga.clock_now() BETWEEN '9 s' AND '10 s' AS in_deadline,
       lease_until - stacksaga.clock_now() BETWEEN '29 s' AND '30 s' AS leased
  FROM stacksaga.claim_steps('starts', 'w', 1000) WHERE saga_id = :'id';
-- Any JSON is an input: scalars and null too.
SELECT count(*) FROM unnest('{"null",true,1e400,"\"text\"",[],"{}"}'::jsonb[]) AS input,
       LATERAL stacksaga.start_saga('starts', input);

-- Refused.
SELECT line FROM unnest(ARRAY[
    $$ NULL $$, $$ '' $$, $$ repeat('x', 256) $$,
    $$ 'starts', NULL $$,
    $$ 'starts', key => '' $$, $$ 'starts', key => repeat('k', 256) $$, $$ 'starts',
        key => repeat('é', 128) $$,
    $$ 'starts', key => repeat('k', 1000000) $$,
    $$ 'starts', run_at => 'infinity' $$, $$ 'starts', run_at => '-infinity' $$,
    $$ 'starts', deadline => '0' $$, $$ 'starts', deadline => '-1 s' $$, $$ 'starts',
        deadline => '178000000 years' $$,
    $$ 'starts', headers => NULL $$, $$ 'starts', headers => '[]' $$, $$ 'starts',
        headers => '1' $$, $$ 'starts', headers => 'null' $$,
    $$ 'starts', version => -1 $$
    ]) AS arguments, starts.outcome('SELECT stacksaga.start_saga(' || arguments || ')') AS line;
-- What is no JSON, no uuid and no UTF-8 does not get that far.
SELECT arguments, left(line, 5) AS sqlstate FROM unnest(ARRAY[
    $$ 'starts', '{"a": ' $$, $$ 'starts', '{"a": "\u0000"}' $$, $$ 'starts', '{"a": "\ud800"}' $$,
        $$ 'starts', '{"a": NaN}' $$,
    $$ 'starts', saga_id => 'zz' $$, $$ 'starts', key => convert_from('\xff', 'UTF8') $$
    ]) AS arguments, starts.outcome('SELECT stacksaga.start_saga(' || arguments || ')')
        WITH ORDINALITY AS o(line, n)
 WHERE n = 1;
-- Keys of all sorts that are fine.
SELECT count(*) FILTER (WHERE created) AS created
  FROM unnest(ARRAY[' ', repeat('k', 255), repeat('é', 127), E'line\nfeed', '''; DROP TABLE x; --',
      '%s %n', E'\u202e', '1e3', '1000', E'e\u0301', E'\u00e9']) AS key,
       LATERAL stacksaga.start_saga('starts', '{}', key);

-- Payloads: as large as stacksaga.max_payload, which counts the stored form, uncompressed.
SELECT created FROM stacksaga.start_saga('starts', to_jsonb(repeat('x', 1024 * 1024 - 100)));
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts',
    to_jsonb(repeat('x', 1024 * 1024))) $$);
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts',
    to_jsonb(repeat('x', 100 * 1024 * 1024))) $$);
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts',
    headers => jsonb_build_object('h', repeat('x', 2 * 1024 * 1024))) $$);
SET stacksaga.max_payload = '2MB';
SELECT created FROM stacksaga.start_saga('starts', to_jsonb(repeat('x', 1024 * 1024)));
RESET stacksaga.max_payload;
-- A compressed input is measured by what it holds.
CREATE TABLE starts.stored AS SELECT to_jsonb(repeat('x', 1024 * 1024)) AS j;
SELECT pg_column_size(j) < 100000 AS compressed FROM starts.stored;
SELECT line FROM starts.outcome($$ SELECT stacksaga.start_saga('starts', j) FROM starts.stored $$)
    AS line;
-- The setting is no service's to raise.
CREATE ROLE starts_service;
SET ROLE starts_service;
SET stacksaga.max_payload = '1GB';
RESET ROLE;

-- Where nothing may be written, nothing is started.
BEGIN READ ONLY;
SELECT * FROM starts.outcome($$ SELECT stacksaga.start_saga('starts') $$);
ROLLBACK;
-- A savepoint that is rolled back takes the saga and its key with it.
BEGIN;
SAVEPOINT s;
SELECT created FROM stacksaga.start_saga('starts', key => 'savepoint');
ROLLBACK TO s;
SELECT created FROM stacksaga.start_saga('starts', '{"other": 1}', 'savepoint');
COMMIT;
-- In a trigger: an insert starts a saga.
CREATE TABLE starts.orders (n int);
CREATE FUNCTION starts.on_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stacksaga.start_saga('starts', to_jsonb(NEW), 'order ' || NEW.n);
    RETURN NEW;
END
$$;
CREATE TRIGGER on_order BEFORE INSERT ON starts.orders FOR EACH ROW
  EXECUTE FUNCTION starts.on_order();
INSERT INTO starts.orders SELECT generate_series(1, 3);
SELECT key, input FROM stacksaga.sagas WHERE saga = 'starts' AND key LIKE 'order %' ORDER BY key;

SET client_min_messages = warning;
DROP SCHEMA starts CASCADE;
DROP ROLE starts_service;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
