-- The history of a saga lists what its handlers published, as far as it was not rolled back.

CREATE SCHEMA published;
-- Publishes what the input says of the step in this direction, and fails its first attempts.
CREATE FUNCTION published.run(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE plan jsonb := call.input -> (call.step || CASE call.direction WHEN 'act' THEN '' ELSE ' undone' END);
BEGIN
    PERFORM stacksaga.publish('published.' || call.step, to_jsonb(n), nullif(call.input ->> 'key', ''))
       FROM generate_series(1, (plan -> 'outside')::integer) AS n;
    BEGIN
        PERFORM stacksaga.publish('published.undone', to_jsonb(n))
           FROM generate_series(1, (plan -> 'rolled back')::integer) AS n;
        RAISE EXCEPTION 'roll back' USING ERRCODE = 'SG499';
    EXCEPTION WHEN SQLSTATE 'SG499' THEN NULL;
    END;
    BEGIN
        PERFORM stacksaga.publish_batch('published.batch', array_agg(to_jsonb(n)), array_agg('key ' || n))
           FROM generate_series(1, (plan -> 'batch')::integer) AS n HAVING count(*) > 0;
    EXCEPTION WHEN SQLSTATE 'SG499' THEN NULL;
    END;
    IF (plan -> 'fails')::integer >= call.attempt THEN
        RAISE EXCEPTION 'not yet' USING ERRCODE = coalesce(plan ->> 'error', 'SR503');
    END IF;
    RETURN NULL;
END
$$;
CREATE FUNCTION published.verify(call stacksaga.step_call) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stacksaga.publish('published.verified', '{}');
    RETURN 'done';
END
$$;
CREATE FUNCTION published.fallback(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stacksaga.publish('published.fallback', '{}');
    RETURN NULL;
END
$$;
CREATE FUNCTION published.signals(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stacksaga.publish('published.signals', '{}');
    PERFORM stacksaga.signal_saga(call.saga_id, 'go');
    PERFORM stacksaga.start_saga('published', '{"a": {"outside": 1}}', 'started inside');
    RETURN NULL;
END
$$;
-- Each message by what follows from the input: ids differ.
CREATE FUNCTION published.history(key text)
RETURNS TABLE (step text, direction text, attempt integer, status text, count bigint, messages text) LANGUAGE sql AS $$
    SELECT h.step, h.direction, h.attempt, h.status, (h.published -> 'count')::bigint,
           (SELECT string_agg(concat_ws(' ', m ->> 'topic', 'of ' || (m ->> 'key')), ', ' ORDER BY n)
              FROM jsonb_array_elements(h.published -> 'messages') WITH ORDINALITY AS l(m, n))
      FROM stacksaga.saga_history h JOIN stacksaga.sagas s USING (saga_id)
     WHERE s.saga LIKE 'published%' AND s.key = history.key ORDER BY h.direction, h.step, h.attempt
$$;
SELECT stacksaga.define_saga('published', ARRAY[
    stacksaga.sql_step('a', 'published.run(stacksaga.step_call)', 'published.run(stacksaga.step_call)'),
    stacksaga.sql_step('b', 'published.run(stacksaga.step_call)', 'published.run(stacksaga.step_call)')],
    retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '0'));
SELECT stacksaga.define_saga('published_others', ARRAY[
    stacksaga.sql_step('asks', 'published.run(stacksaga.step_call)', verify => 'published.verify(stacksaga.step_call)'),
    stacksaga.sql_step('falls', 'published.run(stacksaga.step_call)', fallback => 'published.fallback(stacksaga.step_call)'),
    stacksaga.sql_step('signals', 'published.signals(stacksaga.step_call)'),
    stacksaga.signal_step('go', 'go'),
    stacksaga.timer_step('wait', '0')],
    retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '0'));

SELECT FROM stacksaga.start_saga('published', '{"key": "4711", "a": {"outside": 2, "rolled back": 3, "batch": 2}}', 'usual');
SELECT FROM stacksaga.start_saga('published', '{"a": {"outside": 1, "fails": 1}, "b": {"rolled back": 30}}', 'retried');
SELECT FROM stacksaga.start_saga('published', '{"a": {"outside": 18, "rolled back": 30, "batch": 7}}', 'many');
SELECT FROM stacksaga.start_saga('published',
    '{"a": {"outside": 1}, "a undone": {"outside": 1, "fails": 1}, "b": {"outside": 1, "fails": 3, "error": "SG424"}}', 'compensated');
SELECT FROM stacksaga.start_saga('published_others',
    '{"asks": {"outside": 1, "fails": 1, "error": "SR504"}, "falls": {"outside": 1, "fails": 3}}', 'others');
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT key, status FROM stacksaga.sagas WHERE saga LIKE 'published%' ORDER BY key;
SELECT * FROM published.history('usual');
SELECT * FROM published.history('retried');
SELECT step, count, messages FROM published.history('many');
SELECT * FROM published.history('compensated');
SELECT * FROM published.history('others');
SELECT * FROM published.history('started inside');

-- The ids are those of the messages, in their order.
SELECT count(*), bool_and(l.message_id = m.message_id) AS same_ids, bool_and(l.topic = m.topic AND l.key IS NOT DISTINCT FROM m.key) AS same
  FROM stacksaga.sagas s JOIN stacksaga.saga_history h USING (saga_id),
       LATERAL (SELECT n, (v ->> 'message_id')::uuid AS message_id, v ->> 'topic' AS topic, v ->> 'key' AS key
                  FROM jsonb_array_elements(h.published -> 'messages') WITH ORDINALITY AS e(v, n)) AS l
  JOIN LATERAL (SELECT message_id, topic, key, row_number() OVER (ORDER BY number) AS n FROM stacksaga.outbox_message
                 WHERE topic IN ('published.a', 'published.batch') AND (key = '4711' OR topic = 'published.batch')) AS m USING (n)
 WHERE s.saga = 'published' AND s.key = 'usual' AND h.step = 'a';

-- What a session publishes outside of a handler is nobody's.
SELECT count(stacksaga.publish('published.session', '{}')) FROM generate_series(1, 2);
SELECT FROM stacksaga.start_saga('published', '{}', 'quiet');
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT * FROM published.history('quiet');

SELECT regexp_replace(line, '^.{23}  ', '') AS line
  FROM stacksaga.saga_timeline((SELECT saga_id FROM stacksaga.sagas WHERE saga = 'published' AND key = 'usual')) AS t(line);

-- Keys may be of people; that there were messages stays.
SELECT stacksaga.redact_saga(saga_id, 'ticket 7') FROM stacksaga.sagas WHERE saga = 'published' AND key IN ('usual', 'quiet');
SELECT * FROM published.history('usual');
