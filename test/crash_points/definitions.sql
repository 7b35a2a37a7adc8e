-- What the scenarios run: steps and handlers whose every effect is a row of a table without a unique key,
-- so that a second one shows.

CREATE TABLE effect (saga_id uuid NOT NULL, step text NOT NULL, direction text NOT NULL);
CREATE TABLE handled (seq bigint GENERATED ALWAYS AS IDENTITY, tag text NOT NULL, key text, n integer NOT NULL);
CREATE TABLE published (tag text NOT NULL, n integer NOT NULL, message_id uuid NOT NULL);
CREATE TABLE done (tag text NOT NULL, what text NOT NULL);
CREATE TABLE repaired (tag text NOT NULL);

-- A step named flaky fails at its first attempt, one named broken for good.
CREATE FUNCTION act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF call.step = 'flaky' AND call.attempt = 1 THEN
        RAISE 'try again' USING ERRCODE = 'SR503';
    ELSIF call.step = 'broken' THEN
        RAISE 'never' USING ERRCODE = 'SG424';
    END IF;
    INSERT INTO effect VALUES (call.saga_id, call.step, call.direction);
    RETURN jsonb_build_object('did', call.step);
END $$;
CREATE FUNCTION fall_back(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO effect VALUES (call.saga_id, call.step, 'fallback');
    RETURN '{}';
END $$;

CREATE FUNCTION handle(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF m.payload ->> 'fails' = 'once' AND m.attempt = 1 THEN
        RAISE 'try again' USING ERRCODE = 'SR503';
    ELSIF m.payload ->> 'fails' = 'dead' AND NOT EXISTS (SELECT FROM repaired WHERE tag = m.payload ->> 'tag') THEN
        RAISE 'never' USING ERRCODE = 'SG424';
    END IF;
    INSERT INTO handled (tag, key, n) VALUES (m.payload ->> 'tag', m.key, (m.payload ->> 'n')::integer);
END $$;
CREATE FUNCTION handle(m stacksaga.message[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one stacksaga.message;
BEGIN
    FOREACH one IN ARRAY m LOOP
        PERFORM handle(one);
    END LOOP;
END $$;

CREATE TABLE told (seq bigint GENERATED ALWAYS AS IDENTITY, saga_id uuid NOT NULL, type text NOT NULL);
CREATE FUNCTION hear(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
    INSERT INTO told (saga_id, type) VALUES ((m.payload ->> 'saga_id')::uuid, m.type)
$$;

CREATE FUNCTION step(name text) RETURNS stacksaga.step_definition LANGUAGE sql AS $$
    SELECT stacksaga.sql_step(name, action => 'act(stacksaga.step_call)', compensation => 'act(stacksaga.step_call)',
        retry => stacksaga.retry_policy(max_attempts => 20, initial_interval => '0'))
$$;
CREATE FUNCTION service(queue text) RETURNS stacksaga.step_definition LANGUAGE sql AS $$
    SELECT stacksaga.queue_step('charge', queue => queue, compensable => true,
        retry => stacksaga.retry_policy(max_attempts => 20, initial_interval => '0'))
$$;

SELECT stacksaga.define_saga('steps', ARRAY[step('a'), step('b'), step('c')]),
       stacksaga.define_saga('retry', ARRAY[step('a'), step('flaky')]),
       stacksaga.define_saga('undo', ARRAY[step('a'), step('b'), step('broken')]),
       stacksaga.define_saga('fallback', ARRAY[step('a'), stacksaga.sql_step('broken',
           action => 'act(stacksaga.step_call)', fallback => 'fall_back(stacksaga.step_call)')]),
       stacksaga.define_saga('service', ARRAY[service('service'), step('a')]),
       stacksaga.define_saga('service_undo', ARRAY[service('service_undo'), step('broken')]),
       stacksaga.define_saga('told', ARRAY[service('told'), step('broken')], events_topic => 'told'),
       stacksaga.define_saga('service_release', ARRAY[service('service_release'), step('a')]),
       stacksaga.define_saga('park_undone', ARRAY[step('a'), step('broken')], on_failure => 'park'),
       stacksaga.define_saga('park_retried', ARRAY[service('park_retried'), step('a')], on_failure => 'park'),
       stacksaga.define_saga('signal', ARRAY[stacksaga.signal_step('paid', signal => 'paid'), step('a')]),
       stacksaga.define_saga('timer', ARRAY[stacksaga.timer_step('wait', delay => '100 milliseconds'), step('a')]),
       stacksaga.define_saga('deadline', ARRAY[step('a'), stacksaga.queue_step('charge', queue => 'nobody', compensable => true)],
           deadline => '300 milliseconds'),
       stacksaga.define_saga('command', ARRAY[stacksaga.message_step('charge', topic => 'command'), step('a')]),
       stacksaga.define_saga('kid', ARRAY[step('a'), step('b')]);
SELECT stacksaga.define_saga('child', ARRAY[step('a'), stacksaga.child_step('kid', saga => 'kid')]),
       stacksaga.define_saga('child_undo', ARRAY[stacksaga.child_step('kid', saga => 'kid'), step('broken')]);

SELECT stacksaga.create_subscription(topic, topic, handler, retry => stacksaga.retry_policy(initial_interval => '0'))
  FROM (VALUES ('keyed', 'handle(stacksaga.message)'), ('batch', 'handle(stacksaga.message[])'),
               ('fetched', NULL), ('command', NULL), ('told', 'hear(stacksaga.message)')) AS s(topic, handler);

-- Claims note what the limits of a queue counted; these never hold anything back.
SELECT stacksaga.set_queue('service', max_running => 100, rate => 1000);
