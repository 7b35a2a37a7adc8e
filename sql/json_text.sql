-- A value that is small in a table and huge as text: a number keeps neither the zeros at its end nor those
-- behind its point. Its text may have twice stacksaga.max_payload, wherever a value comes in.
SET client_min_messages = warning;
CREATE SCHEMA json_text;
SET search_path = json_text, stacksaga;

-- The size of a text is computed without making the text, and is that of the text.
CREATE VIEW numbers AS
    SELECT (sign || mantissa || 'e' || exponent)::numeric AS number
      FROM unnest('{"",-}'::text[]) AS sign,
           unnest('{0,1,9,10,99,100,999,1000,9999,10000,12345678,0.1,0.10,1.50,0.00000001,123.456789,9.99990000}'::text[])
               AS mantissa,
           unnest('{-9000,-400,-300,-64,-63,-5,-4,-3,-2,-1,0,1,2,3,4,5,63,64,250,251,252,253,300,400,4000}'::text[])
               AS exponent;
SELECT count(*) > 500 AS many, bool_and(stacksaga_internal.json_text_bytes(to_jsonb(number))
                                         = octet_length(to_jsonb(number)::text)) AS equal FROM numbers;
SELECT n, stacksaga_internal.json_text_bytes(v) = octet_length(v::text) AS equal
  FROM unnest(ARRAY['null', 'true', 'false', '""', '"a\"b\\c\nd\u0001\u001f\u007fé/\t\b\f\r\u000b"', '0', '[]', '{}', '[[]]',
                    '[{}]', '{"a": {}}', '[1]', '[1, 2]', '{"a": 1}', '{"a\u0001": [1e400, -1.50, "x", null, true, false]}',
                    '[[1, 2], {"a": [3, {"b": "c"}]}, -0.0, 1e-7]']::jsonb[]) WITH ORDINALITY AS t(v, n);
SELECT stacksaga_internal.json_text_bytes(v) = octet_length(v::text) AS equal
  FROM (VALUES ((SELECT jsonb_agg(to_jsonb(number)) FROM numbers)),
               ((SELECT jsonb_object_agg('key ' || n, jsonb_build_array(n, n * 1.5, repeat('x', n % 100), n % 2 = 0))
                   FROM generate_series(1, 1000) AS n))) AS t(v);

-- 8,200 numbers: 131 kB, and 1 GB of text. Nothing prints it.
CREATE FUNCTION small() RETURNS jsonb LANGUAGE sql AS $$
    SELECT ('{"a": [' || repeat('1e131071, ', 8199) || '1e131071]}')::jsonb
$$;
\set VERBOSITY default
SELECT publish('t', small());
\echo :LAST_ERROR_SQLSTATE
SELECT fingerprint(small());
SET stacksaga.max_payload = '100kB';
-- A number of each kind, and characters that are printed as six.
CREATE TABLE huge AS
    SELECT * FROM (VALUES ('large', (SELECT jsonb_build_object('a', jsonb_agg(1e131071)) FROM generate_series(1, 2))),
                          ('small', (SELECT jsonb_agg(1e-16383) FROM generate_series(1, 13))),
                          ('nested', (SELECT jsonb_build_object('a', jsonb_build_array(jsonb_agg('-1e99999'::numeric)))
                                        FROM generate_series(1, 3))),
                          ('control', to_jsonb(repeat(E'\x01', 40000)))) AS v(kind, value);
SELECT kind, pg_column_size(value) < 50000 AS small, octet_length(value::text) > 204800 AS huge FROM huge;
-- Exactly twice is allowed.
SET stacksaga.max_payload = 65536;
SELECT publish('t', to_jsonb(1e131071)) IS NOT NULL AS twice;
SELECT publish('t', to_jsonb(-1e131071));
SET stacksaga.max_payload = '100kB';

-- Every way in. The error says both sizes.
CREATE FUNCTION answer(call step_call) RETURNS jsonb LANGUAGE sql SET search_path = json_text AS $$
    SELECT value FROM huge WHERE kind = call.input ->> 'kind'
$$;
CREATE FUNCTION answer_verify(call step_call) RETURNS jsonb LANGUAGE sql SET search_path = json_text AS $$
    SELECT jsonb_build_object('outcome', 'done', 'output', value) FROM huge WHERE kind = call.input ->> 'kind'
$$;
CREATE FUNCTION lost(call step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION USING ERRCODE = 'SR504'; END $$;
SELECT define_saga('json_text claimed', ARRAY[queue_step('a', 'json_text', compensable => false)], retry => retry_policy(1)),
       define_saga('json_text signalled', ARRAY[signal_step('a', 'go'), signal_step('b', 'later')]),
       define_saga('json_text run', ARRAY[sql_step('a', 'json_text.answer(stacksaga.step_call)')], retry => retry_policy(1)),
       define_saga('json_text asked', ARRAY[sql_step('a', 'json_text.lost(stacksaga.step_call)',
                                                     verify => 'json_text.answer_verify(stacksaga.step_call)')],
                   retry => retry_policy(1));
CREATE TABLE held AS
    SELECT c.* FROM start_saga('json_text claimed'), claim_steps('json_text', 'w') AS c;
CREATE TABLE sagas_of AS
    SELECT (SELECT saga_id FROM start_saga('json_text signalled')) AS signalled,
           (SELECT lease FROM idempotency_begin('json_text', 'k')) AS lease,
           register_node('json_text node') AS incarnation;
CREATE FUNCTION outcome(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN SQLSTATE || ' ' || regexp_replace(regexp_replace(SQLERRM || ' ' || detail, '[0-9]{6,}', '(large)', 'g'),
                                             '[0-9]{2,}', '(n)', 'g');
END $$;
CREATE TABLE ways (n serial, way text, statement text);
INSERT INTO ways (way, statement) VALUES
    ('publish, payload', $$SELECT publish('t', %s)$$),
    ('publish, headers', $$SELECT publish('t', '1', headers => jsonb_build_object('h', %s))$$),
    ('publish_batch', $$SELECT publish_batch('t', ARRAY['1', %s])$$),
    ('fingerprint', $$SELECT fingerprint(%s)$$),
    ('start_saga, input', $$SELECT start_saga('json_text run', %s)$$),
    ('start_saga, headers', $$SELECT start_saga('json_text run', headers => jsonb_build_object('h', %s))$$),
    ('start_saga, attributes', $$SELECT start_saga('json_text run', attributes => jsonb_build_object('h', %s))$$),
    ('start_sagas, inputs', $$SELECT start_sagas('json_text run', ARRAY['1', %s])$$),
    ('start_sagas, attributes', $$SELECT start_sagas('json_text run', ARRAY['1'::jsonb], attributes => ARRAY[jsonb_build_object('h', %s)])$$),
    ('find_sagas', $$SELECT find_sagas(attributes => jsonb_build_object('h', %s))$$),
    ('complete_step', $$SELECT complete_step(saga_id, step, lease, %s) FROM held$$),
    ('signal_saga', $$SELECT signal_saga(signalled, 'go', %s) FROM sagas_of$$),
    ('resolve_step', $$SELECT resolve_step(signalled, 'a', 'done', %s) FROM sagas_of$$),
    ('create_schedule', $$SELECT create_schedule('json_text', 'json_text run', '@daily', jsonb_build_object('h', %s))$$),
    ('idempotency_begin', $$SELECT idempotency_begin('json_text', 'new', %s)$$),
    ('idempotency_finish', $$SELECT idempotency_finish('json_text', 'k', lease, %s) FROM sagas_of$$),
    ('compare_and_set', $$SELECT compare_and_set('json_text', 'k', NULL, %s)$$),
    ('acknowledge_checkpoint', $$SELECT acknowledge_checkpoint('json_text node', incarnation, %s) FROM sagas_of$$);
SELECT w.way, string_agg(DISTINCT outcome(format(w.statement, format('(SELECT value FROM huge WHERE kind = %L)', h.kind))),
                         E'\n') AS outcome
  FROM ways w, huge h GROUP BY w.n, w.way ORDER BY w.n;
SELECT sqlstate FROM huge, held, complete_steps(ARRAY[held.saga_id], ARRAY['a'], ARRAY[held.lease], ARRAY[huge.value]);
-- A definition may be as large as the default of the setting, whatever that is.
SELECT outcome($$SELECT define_saga_content('json_text large', jsonb_build_array(to_jsonb(queue_step('a', 'q'))
                    || jsonb_build_object('signal', small())), NULL, NULL, NULL, 'park',
                    'compensate', NULL, NULL)$$);
SET stacksaga.max_payload = 1024;
SELECT define_saga('json_text long', ARRAY[queue_step('a', 'q', compensable => false), queue_step('b', 'q', compensable => false),
                                           queue_step('c', 'q', compensable => false), timer_step('d', '1 day')]);
SET stacksaga.max_payload = '100kB';

-- What a function returns is the failure of its step.
CREATE TABLE ran AS SELECT s.saga_id, h.kind, v.saga FROM huge h, (VALUES ('json_text run'), ('json_text asked')) AS v(saga),
       LATERAL start_saga(v.saga, jsonb_build_object('kind', h.kind)) AS s;
SELECT run_pending() > 0 AS ran;
SELECT ran.saga, s.status, regexp_replace(r.error, '[0-9]{6,}', '(large)', 'g') AS error, count(*)
  FROM ran JOIN sagas s USING (saga_id), saga_result(s.saga_id) AS r GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- doctor() names what is there already, and a change that is refused does not print it.
RESET stacksaga.max_payload;
CREATE VIEW two AS SELECT value FROM huge WHERE kind = 'large';
SELECT count(*) FROM two, start_saga('json_text signalled', value, headers => jsonb_build_object('h', value),
                                     attributes => '{"a": 1}') AS s;
SELECT complete_step(saga_id, step, lease, value) FROM held, two;
SELECT count(*) FROM two, publish('t', value, headers => jsonb_build_object('h', value));
SELECT signal_saga(signalled, 'later', value) FROM sagas_of, two;
SELECT idempotency_finish('json_text', 'k', lease, value) FROM sagas_of, two;
SELECT compare_and_set('json_text', 'there', NULL, value) AS version FROM two;
SELECT create_schedule('json_text', 'json_text signalled', '@daily', jsonb_build_object('h', value)) FROM two;
SELECT acknowledge_checkpoint('json_text node', incarnation, value) FROM sagas_of, two;
SELECT count(*) FROM doctor() WHERE check_name = 'values';
SET stacksaga.max_payload = '100kB';
SELECT severity, regexp_replace(detail, '[0-9a-f]{8}-[-0-9a-f]{27}', '(id)', 'g') AS detail
  FROM doctor() WHERE check_name = 'values' ORDER BY 2;
SELECT substring(outcome($$UPDATE saga SET input = '1' WHERE octet_length(input::text) > 200000$$) FROM 'It is.*') AS refused;

SELECT drop_schedule('json_text') WHERE EXISTS (SELECT FROM schedules WHERE schedule = 'json_text');
SELECT leave_ring('json_text node', incarnation) FROM nodes WHERE node = 'json_text node';
TRUNCATE saga, work, effect, failure, saga_signal, outbox_message;
DELETE FROM schedule_action WHERE schedule = 'json_text';
DELETE FROM versioned_value WHERE scope = 'json_text';
DELETE FROM idempotency_key WHERE scope = 'json_text';
RESET search_path;
DROP SCHEMA json_text CASCADE;
