-- What PostgreSQL says of an error besides its message may hold values of rows: it is kept apart from the message, and
-- operators read it by functions of their own.

\set SHOW_CONTEXT never
CREATE SCHEMA blame;
CREATE TABLE blame.person (email text UNIQUE, age integer CHECK (age > 0));
INSERT INTO blame.person VALUES ('ann@example.com', 41);
CREATE FUNCTION blame.insert(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO blame.person VALUES (call.input ->> 'email', (call.input ->> 'age')::integer);
    RETURN '{}';
END $$;
CREATE FUNCTION blame.say(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'refused in %', call.direction USING DETAIL = 'for ann@example.com', ERRCODE = call.input ->> 'code';
END $$;
CREATE FUNCTION blame.ask(call stacksaga.step_call) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'nobody answers' USING DETAIL = 'asked ann@example.com', ERRCODE = 'SG424';
END $$;
CREATE FUNCTION blame.nothing(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE VIEW blame.told AS SELECT s.saga, d.step, d.direction, d.attempt, d.detail,
        regexp_replace(d.context, '\n.*', '') AS context FROM stacksaga.sagas AS s, stacksaga.saga_error_detail(s.saga_id) AS d
 WHERE s.saga LIKE 'blame%';
-- Every text in which an error is shown.
CREATE FUNCTION blame.shown(id uuid) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT last_error FROM stacksaga.sagas WHERE saga_id = id
    UNION ALL SELECT error FROM stacksaga.saga_result(id)
    UNION ALL SELECT error FROM stacksaga.saga_history WHERE saga_id = id
    UNION ALL SELECT stacksaga.saga_timeline(id)
    UNION ALL SELECT error FROM stacksaga.parked_sagas WHERE saga_id = id
    UNION ALL SELECT hint FROM stacksaga.parked_sagas WHERE saga_id = id
    UNION ALL SELECT concat(g.pattern, to_jsonb(g)) FROM stacksaga.error_groups() AS g
    UNION ALL SELECT concat(s.error, s.attributes) FROM stacksaga.saga_spans(ARRAY[id]) AS s
    UNION ALL SELECT concat(d.detail, d.fix) FROM stacksaga.doctor() AS d
$$;

SELECT stacksaga.define_saga('blame', ARRAY[
    stacksaga.sql_step('first', 'blame.nothing(stacksaga.step_call)', compensation => 'blame.say(stacksaga.step_call)'),
    stacksaga.sql_step('second', 'blame.insert(stacksaga.step_call)', effect => 'guarded',
        retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0', retry_on => '{23505}'))],
    compensation_retry => stacksaga.retry_policy(max_attempts => 1));
SELECT saga_id AS key FROM stacksaga.start_saga('blame', '{"email": "ann@example.com", "age": 42, "code": "SR503"}',
    headers => '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}') \gset
SELECT saga_id AS row FROM stacksaga.start_saga('blame', '{"email": "bob@example.com", "age": -1, "code": "SG424"}') \gset
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT step, direction, attempt, error FROM stacksaga.saga_history WHERE saga_id IN (:'key', :'row') AND status = 'failed'
 ORDER BY saga_id = :'key' DESC, started_at, attempt;
SELECT step, direction, attempt, detail, regexp_replace(context, '\n.*', '') AS context FROM stacksaga.saga_error_detail(:'key');
SELECT step, direction, attempt, detail, context LIKE 'SQL statement%PL/pgSQL function%' AS has_context FROM stacksaga.saga_error_detail(:'row');
SELECT count(*) > 30 AS are_many, count(*) FILTER (WHERE s ~ 'example|Failing row|PL/pgSQL') AS telling
  FROM unnest(ARRAY[:'key', :'row']::uuid[]) AS id, blame.shown(id) AS s;

-- What verify raises; what a service reports is its error, whatever it looks like.
SELECT stacksaga.define_saga('blame verify', ARRAY[stacksaga.sql_step('asked', 'blame.say(stacksaga.step_call)', effect => 'guarded',
    verify => 'blame.ask(stacksaga.step_call)', retry => stacksaga.retry_policy(max_attempts => 1))]);
SELECT saga_id AS asked FROM stacksaga.start_saga('blame verify', '{"code": "SR504"}') \gset
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT attempt, error FROM stacksaga.saga_history WHERE saga_id = :'asked';
SELECT step, direction, attempt, detail, regexp_replace(context, '\n.*', '') AS context FROM stacksaga.saga_error_detail(:'asked');
SELECT stacksaga.define_saga('blame service', ARRAY[stacksaga.queue_step('served', 'blame', compensable => false)]);
SELECT saga_id AS served FROM stacksaga.start_saga('blame service') \gset
SELECT stacksaga.fail_step(saga_id, step, lease, 'declined (card of ann@example.com)', 'non_retryable') FROM stacksaga.claim_steps('blame', 'w');
SELECT error FROM stacksaga.saga_history WHERE saga_id = :'served';
SELECT count(*) FROM stacksaga.saga_error_detail(:'served');
SELECT count(*) FROM stacksaga.saga_error_detail(gen_random_uuid());
SELECT count(*) FROM stacksaga.saga_timeline(gen_random_uuid());

-- Messages: one handler for each, one for batches, a fallback; several attempts.
CREATE FUNCTION blame.one(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO blame.person VALUES (m.payload ->> 'email', 1);
END $$;
CREATE FUNCTION blame.many(m stacksaga.message[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO blame.person SELECT e.payload ->> 'email', 1 FROM unnest(m) AS e;
END $$;
CREATE FUNCTION blame.instead(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not instead either' USING DETAIL = 'of ann@example.com';
END $$;
SELECT stacksaga.create_subscription('blame_one', 'blame', 'blame.one(stacksaga.message)',
    retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0', retry_on => '{23505}'));
SELECT stacksaga.create_subscription('blame_many', 'blame', 'blame.many(stacksaga.message[])',
    retry => stacksaga.retry_policy(max_attempts => 12, initial_interval => '0', retry_on => '{23505}'));
SELECT stacksaga.create_subscription('blame_instead', 'blame', 'blame.one(stacksaga.message)', fallback => 'blame.instead(stacksaga.message)',
    retry => stacksaga.retry_policy(max_attempts => 1));
SELECT stacksaga.create_subscription('blame_later', 'blame', 'blame.one(stacksaga.message)',
    retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '1 hour', max_interval => '1 hour', retry_on => '{23505}'));
SELECT stacksaga.publish('blame', '{"email": "ann@example.com"}') AS message \gset
SELECT count(stacksaga.run_pending()) FROM generate_series(1, 30);
SELECT subscription, attempts, last_error FROM stacksaga.dead_messages WHERE subscription LIKE 'blame%' ORDER BY subscription;
SELECT subscription, attempt, last_error FROM stacksaga.message_retries WHERE subscription LIKE 'blame%';
SELECT s AS subscription, d.attempt, d.detail, regexp_replace(d.context, '\n.*', '') LIKE ANY ('{SQL statement%,PL/pgSQL function%}') AS has_context
  FROM unnest('{blame_one,blame_many,blame_instead,blame_later}'::text[]) WITH ORDINALITY AS u(s, n),
       stacksaga.message_error_detail(s, :'message') WITH ORDINALITY AS d(attempt, detail, context, m)
 ORDER BY u.n, d.m;
SELECT count(*) FILTER (WHERE g::text ~ 'example') AS telling FROM stacksaga_internal.message_error_groups() AS g;
SELECT stacksaga.redrive_message('blame_one', :'message');
SELECT attempt, detail FROM stacksaga.message_error_detail('blame_one', :'message');
SELECT count(*) FROM stacksaga.message_error_detail('blame_none', :'message');

-- A monitor sees errors, and not these; a service neither.
CREATE ROLE blame_operator; CREATE ROLE blame_support; CREATE ROLE blame_monitor; CREATE ROLE blame_service;
SELECT count(stacksaga.grant_usage('blame_' || kind, kind)) FROM unnest('{operator,support,monitor,service}'::text[]) AS kind;
SELECT f.name, array_agg(kind) FILTER (WHERE has_function_privilege('blame_' || kind, 'stacksaga.' || f.name, 'EXECUTE')) AS may_call
  FROM unnest('{saga_error_detail(uuid),"message_error_detail(text,uuid)"}'::text[]) AS f(name),
       unnest('{operator,support,monitor,service}'::text[]) AS kind
 GROUP BY f.name ORDER BY f.name;
SET ROLE blame_monitor;
SELECT * FROM stacksaga.saga_error_detail(:'key');
SELECT error_detail FROM stacksaga.failure;
RESET ROLE;

-- Erased with the rest, and gone with its saga.
SELECT stacksaga.resolve_step(:'key', 'first', 'done', reason => 'by hand');
SELECT stacksaga.redact_saga(:'key', 'ticket 8');
SELECT count(*) FROM stacksaga.saga_error_detail(:'key');
SELECT count(*) FROM stacksaga.failure WHERE saga_id = :'key' AND (error_detail IS NOT NULL OR error_context IS NOT NULL);

SELECT count(stacksaga.drop_subscription(s, discard => true)) FROM unnest('{blame_one,blame_many,blame_instead,blame_later}'::text[]) AS s;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_action, stacksaga.parked_saga;
DELETE FROM stacksaga.usage_grant WHERE role::text LIKE 'blame%';
DROP OWNED BY blame_operator, blame_support, blame_monitor, blame_service;
DROP ROLE blame_operator, blame_support, blame_monitor, blame_service;
SET client_min_messages = warning;
DROP SCHEMA blame CASCADE;
