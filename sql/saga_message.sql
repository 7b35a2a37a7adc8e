-- Steps whose call is a message: published as a command, answered under the lease in it.

CREATE SCHEMA msg;
CREATE FUNCTION msg.start(saga text, input jsonb DEFAULT '{}') RETURNS uuid LANGUAGE sql AS $$
    TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure,
        stacksaga.parked_saga;
    SELECT set_config('stacksaga.clock_offset', '0', false);
    SELECT saga_id FROM stacksaga.start_saga(saga, input, headers => '{"traceparent": "00-1-2-01"}');
$$;
-- What has been published since the last look, its lease on the way to the answer.
CREATE TABLE msg.command (topic text, key text, type text, payload jsonb, headers jsonb);
CREATE TABLE msg.seen AS SELECT 0::bigint AS number;
CREATE FUNCTION msg.receive() RETURNS TABLE (topic text, type text, direction text, attempt int,
    input jsonb, results jsonb, headers jsonb, keys text) LANGUAGE sql AS $$
    TRUNCATE msg.command;
    INSERT INTO msg.command SELECT topic, key, type, payload, headers
        FROM stacksaga.outbox_message m, msg.seen WHERE m.number > seen.number AND topic ~ '^msg';
    UPDATE msg.seen SET number = (SELECT coalesce(max(number), 0) FROM stacksaga.outbox_message);
    SELECT topic, type, payload ->> 'direction', (payload ->> 'attempt')::int, payload -> 'input',
           payload -> 'results', headers,
           replace(payload ->> 'idempotency_key', key, '(id)')
      FROM msg.command ORDER BY topic, payload ->> 'attempt'
$$;
CREATE FUNCTION msg.answer(output jsonb DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
    SELECT stacksaga.complete_step((payload ->> 'saga_id')::uuid, payload ->> 'step',
        (payload ->> 'lease')::bigint, output) FROM msg.command ORDER BY payload ->> 'attempt' DESC
     LIMIT 1 $$;
CREATE FUNCTION msg.fail(class text) RETURNS text LANGUAGE sql AS $$
    SELECT stacksaga.fail_step((payload ->> 'saga_id')::uuid, payload ->> 'step',
        (payload ->> 'lease')::bigint, 'no room', class) FROM msg.command $$;
CREATE VIEW msg.history AS
    SELECT step, direction, attempt, status, error_class, error FROM stacksaga.saga_history
     ORDER BY started_at, attempt;

SELECT stacksaga.define_saga('trip', ARRAY[
    stacksaga.message_step('book', 'msg.book', 'msg.cancel', timeout => '1 minute',
        retry => stacksaga.retry_policy(max_attempts => 2, jitter => 0)),
    stacksaga.queue_step('pay', 'msg_pay', compensable => false)]);
SELECT step, kind, topic, compensation_topic, effect FROM stacksaga.definition_step
  JOIN stacksaga.saga_definition USING (definition_id) WHERE saga = 'trip' ORDER BY step_no;

-- Published once for an attempt, in the transaction that claims it; the answer goes on.
SELECT msg.start('trip', '{"to": "Rome"}') AS id \gset
SELECT stacksaga.run_pending(), stacksaga.run_pending();
SELECT * FROM msg.receive();
SELECT key = :'id' AS key, message_id IS NOT NULL AS id FROM stacksaga.outbox_message
 WHERE topic = 'msg.book';
SELECT status, current_step, attempt FROM stacksaga.sagas;
SELECT msg.answer('{"seat": 4}') AS first, msg.answer('{"seat": 4}') AS again;
SELECT results FROM stacksaga.claim_steps('msg_pay', 'w');
SELECT * FROM msg.history;

-- It compensates: the compensation is a command on a topic of its own.
SELECT msg.start('trip') AS id \gset
SELECT stacksaga.run_pending();
SELECT count(*) FROM msg.receive();
SELECT msg.answer('1');
SELECT stacksaga.fail_step(saga_id, step, lease, 'no money', 'non_retryable')
  FROM stacksaga.claim_steps('msg_pay', 'w');
SELECT stacksaga.run_pending();
SELECT * FROM msg.receive();
SELECT msg.answer();
SELECT count(*) FROM stacksaga.work;

-- A failed answer is tried again by policy, as a new message with the same idempotency key.
SELECT msg.start('trip') AS id \gset
SELECT stacksaga.run_pending();
SELECT count(*) FROM msg.receive();
SELECT msg.fail('retryable');
SET stacksaga.clock_offset = '2 s';
SELECT stacksaga.run_pending();
SELECT * FROM msg.receive();
SELECT msg.fail('non_retryable');
SELECT * FROM msg.history;

-- No answer: the outcome is unknown. The last attempt's late answer counts until it is decided.
SELECT msg.start('trip') AS id \gset
SELECT stacksaga.run_pending();
SELECT count(*) FROM msg.receive();
SET stacksaga.clock_offset = '60500 ms';
SELECT stacksaga.run_pending();
SELECT msg.answer('"late"');
SELECT status, current_step FROM stacksaga.sagas;
SELECT msg.start('trip') AS id \gset
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '61 s';
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '3 minutes';
SELECT stacksaga.run_pending();
SELECT * FROM msg.history;
SELECT topic, direction, attempt FROM msg.receive();

-- A fallback is a topic, too; an irreversible step without an answer parks.
SELECT stacksaga.define_saga('msg else', ARRAY[stacksaga.message_step('book', 'msg.book',
    fallback => 'msg.phone', effect => 'irreversible')]);
SELECT msg.start('msg else') AS id \gset
SELECT stacksaga.run_pending();
SELECT topic FROM msg.receive();
SELECT msg.fail('non_retryable');
SELECT stacksaga.run_pending();
SELECT topic, attempt FROM msg.receive();
SELECT msg.answer('"by phone"');
SELECT msg.start('msg else') AS id \gset
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '31 s';
SELECT stacksaga.run_pending();
SELECT status FROM stacksaga.sagas;
SELECT stacksaga.resolve_step(:'id', 'book', 'done');

-- Refused definitions.
CREATE FUNCTION msg.refused(step text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    message text; detail text; hint text;
BEGIN
    EXECUTE format('SELECT stacksaga.define_saga(''bad'', ARRAY[%s])', step);
    RETURN NEXT 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ': ' || message;
    RETURN NEXT '  DETAIL: ' || detail;
    RETURN NEXT '  HINT: ' || hint;
END
$$;
SELECT line FROM unnest(ARRAY[
    $$ stacksaga.message_step('a', '') $$,
    $$ stacksaga.message_step('a', NULL) $$,
    $$ stacksaga.message_step('a', 'all.*') $$,
    $$ stacksaga.message_step('a', 't', repeat('x', 256)) $$,
    $$ stacksaga.message_step('a', 't', effect => 'compensable') $$,
    $$ stacksaga.message_step('a', 't', 'u', effect => 'irreversible') $$,
    $$ stacksaga.message_step('a', 't', fallback => 'u*') $$]) AS step, msg.refused(step) AS line;

-- stacksaga.max_payload is for what is passed in: a command that is made of it may be larger.
SELECT msg.start('trip', to_jsonb(repeat('x', 1048560))) AS id \gset
SELECT stacksaga.run_pending();
SELECT length(payload::text) > 1048576 AS larger FROM stacksaga.outbox_message
 WHERE key = :'id' AND topic = 'msg.book';
SELECT status, current_step, attempt FROM stacksaga.sagas;

RESET stacksaga.clock_offset;
SET client_min_messages = warning;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.parked_saga,
    stacksaga.outbox_message, stacksaga.outbox_tick;
DROP SCHEMA msg CASCADE;
