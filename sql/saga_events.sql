-- Events of a saga's life: one message for each change of status that is written, in the order of the changes.

\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE SCHEMA told;
CREATE FUNCTION told.ok(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"secret": 1}'::jsonb $$;
CREATE FUNCTION told.raise(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'secret' USING ERRCODE = coalesce(call.input ->> 'raises', 'SG424');
END $$;
CREATE FUNCTION told.publish(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    SELECT to_jsonb(stacksaga.publish('own', '1'))
$$;
-- What has been published since the last look; the key is that of the saga, or its id.
CREATE TABLE told.seen AS SELECT coalesce(max(number), 0) AS number FROM stacksaga.outbox_message;
CREATE FUNCTION told.news() RETURNS TABLE (key text, type text, direction text, step text, error_class text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT replace(m.key, m.payload ->> 'saga_id', '(id)'), m.type, m.payload ->> 'direction', m.payload ->> 'step',
           m.payload ->> 'error_class'
      FROM stacksaga.outbox_message m, told.seen s WHERE m.number > s.number AND m.topic = 'told' ORDER BY m.number;
    UPDATE told.seen SET number = (SELECT coalesce(max(m.number), 0) FROM stacksaga.outbox_message m);
END $$;
CREATE FUNCTION told.fail(class text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT stacksaga.fail_step(saga_id, step, lease, 'secret', class) FROM stacksaga.claim_steps('told', 'w', 1)
$$;
CREATE FUNCTION told.complete() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT stacksaga.complete_step(saga_id, step, lease) FROM stacksaga.claim_steps('told', 'w', 1)
$$;

-- run_pending() writes what it has done after each step. Neither starts nor sagas of other definitions publish anything, and
-- a marker lists what its handler has published alone.
SELECT stacksaga.define_saga('unheard', ARRAY[stacksaga.sql_step('a', 'told.ok(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('heard', ARRAY[stacksaga.sql_step('a', 'told.publish(stacksaga.step_call)'),
    stacksaga.sql_step('b', 'told.ok(stacksaga.step_call)')], events_topic => 'told');
SELECT count(*) FROM stacksaga.start_saga('unheard') AS u,
    stacksaga.start_saga('heard', '{"secret": 1}', key => 'k', headers => '{"traceparent": "00-1-2-01"}', attributes => '{"city": "Rome"}');
SELECT * FROM told.news();
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT m.key, m.type, m.headers, jsonb_pretty(m.payload - '{saga_id,started_at,at}'::text[]) AS payload,
       m.payload ->> 'saga_id' = s.saga_id::text AS saga_id, (m.payload ->> 'started_at')::timestamptz = s.created_at AS started_at,
       (m.payload ->> 'at')::timestamptz = s.finished_at AS at, m.payload ->> 'at' ~ '\+00:00$' AS in_utc, m.ring_id = 1 AS ring
  FROM stacksaga.outbox_message m JOIN stacksaga.sagas s ON s.saga_id::text = m.payload ->> 'saga_id' WHERE m.topic = 'told' ORDER BY m.number;
SELECT * FROM told.news();
SELECT jsonb_array_length(published -> 'messages') AS published FROM stacksaga.saga_history JOIN stacksaga.sagas USING (saga_id)
 WHERE saga = 'heard' AND step = 'a';

-- Services: it runs, ends, compensates, fails. The class is that of the failure; nothing says more of the error.
SELECT stacksaga.define_saga('served', ARRAY[stacksaga.queue_step('reserve', 'told', compensable => true),
    stacksaga.queue_step('pay', 'told', compensable => false)], compensation_retry => stacksaga.retry_policy(max_attempts => 1),
    events_topic => 'told');
SELECT saga_id AS id FROM stacksaga.start_saga('served') \gset
SELECT told.complete(), told.complete();
SELECT * FROM told.news();
SELECT saga_id AS id FROM stacksaga.start_saga('served', key => 'order 1') \gset
SELECT told.complete();
SELECT told.fail('non_retryable');
SELECT told.complete();
SELECT * FROM told.news();
SELECT saga_id AS id FROM stacksaga.start_saga('served') \gset
SELECT stacksaga.cancel_saga(:'id', 'no');
SELECT * FROM told.news();

-- A compensation that fails for good parks; retried it compensates.
SELECT saga_id AS id FROM stacksaga.start_saga('served') \gset
SELECT told.complete();
SELECT told.fail('non_retryable');
SELECT told.fail('non_retryable');
SELECT stacksaga.retry_saga(:'id', 'again');
SELECT told.complete();
SELECT * FROM told.news();

-- Suspended and resumed before it began, while it runs, and while it compensates.
SELECT saga_id AS id FROM stacksaga.start_saga('served') \gset
SELECT stacksaga.suspend_saga(:'id', 'wait'), stacksaga.suspend_saga(:'id', 'wait'), stacksaga.resume_saga(:'id', 'go on');
SELECT told.complete();
SELECT stacksaga.suspend_saga(:'id', 'wait'), stacksaga.resume_saga(:'id', 'go on');
SELECT stacksaga.cancel_saga(:'id', 'no'), stacksaga.suspend_saga(:'id', 'wait'), stacksaga.resume_saga(:'id', 'go on');
SELECT told.complete();
SELECT * FROM told.news();
-- A step in flight fails for good while its saga is suspended: the direction turns, which is said.
SELECT saga_id AS id FROM stacksaga.start_saga('served') \gset
SELECT told.complete();
SELECT saga_id, step, lease FROM stacksaga.claim_steps('told', 'w', 1) \gset
SELECT stacksaga.suspend_saga(:'id', 'wait'), stacksaga.fail_step(:'id', :'step', :lease, 'secret', 'non_retryable'), stacksaga.resume_saga(:'id', 'go on');
SELECT told.complete();
SELECT * FROM told.news();

-- One that stops at a failure, is tried again, stops once more and is undone.
SELECT stacksaga.define_saga('stops', ARRAY[stacksaga.queue_step('reserve', 'told', compensable => true),
    stacksaga.queue_step('pay', 'told', compensable => false)], on_failure => 'park', events_topic => 'told');
SELECT saga_id AS id FROM stacksaga.start_saga('stops') \gset
SELECT told.complete();
SELECT told.fail('non_retryable');
SELECT stacksaga.retry_saga(:'id', 'the card works');
SELECT told.fail('non_retryable');
SELECT stacksaga.compensate_saga(:'id', 'it does not'), stacksaga.compensate_saga(:'id', 'again');
SELECT told.complete();
SELECT * FROM told.news();

-- Bulk calls as each changes; dry runs nothing. What is refused, and rolled back, is not said either.
SELECT o.saga_id AS one, t.saga_id AS two FROM stacksaga.start_saga('served', key => 'one') AS o, stacksaga.start_saga('served', key => 'two') AS t \gset
SELECT count(*) FROM stacksaga.cancel_sagas(ARRAY[:'one', :'two']::uuid[], 'no', dry_run => true);
SELECT * FROM told.news();
BEGIN;
SELECT stacksaga.suspend_saga(:'one', 'wait');
SAVEPOINT s;
SELECT stacksaga.resume_saga(:'one', 'go on');
SELECT stacksaga.cancel_saga(:'one', 'no');
ROLLBACK TO s;
COMMIT;
BEGIN;
SELECT stacksaga.cancel_saga(:'one', 'no');
ROLLBACK;
SELECT * FROM told.news();
SELECT status_before, status_after FROM stacksaga.cancel_sagas(ARRAY[:'one', :'two']::uuid[], 'no', dry_run => false) ORDER BY saga_id = :'two';
SELECT stacksaga.cancel_saga(:'one', 'again');
SELECT * FROM told.news();

-- Children by their own definitions, and what their parents ask of them.
SELECT stacksaga.define_saga('heard parent', ARRAY[stacksaga.child_step('c', 'served'),
    stacksaga.queue_step('last', 'told_last', compensable => false)]);
SELECT saga_id AS id FROM stacksaga.start_saga('heard parent') \gset
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT told.complete();
SELECT told.complete();
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT * FROM told.news();
SELECT stacksaga.cancel_saga(:'id', 'no');
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT told.complete();
SELECT * FROM told.news();

-- An UPDATE by hand, and access to the table by SQL.
SELECT saga_id AS id FROM stacksaga.start_saga('served') \gset
UPDATE stacksaga.saga SET status = 'suspended' WHERE saga_id = :'id';
UPDATE stacksaga.saga SET error = 'by hand' WHERE saga_id = :'id';
UPDATE stacksaga.saga SET status = 'parked', parked_step = 99 WHERE saga_id = :'id';
UPDATE stacksaga.saga SET status = 'suspended', parked_step = NULL WHERE saga_id = :'id';
SELECT type, (payload ->> 'at')::timestamptz > (payload ->> 'started_at')::timestamptz AS at FROM stacksaga.outbox_message ORDER BY number DESC LIMIT 1;
SELECT * FROM told.news();
CREATE FUNCTION told.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER told_note AFTER UPDATE ON stacksaga.saga FOR EACH ROW EXECUTE FUNCTION told.note();
UPDATE stacksaga.saga SET status = 'failed', direction = 'compensate', finished_at = now() WHERE saga_id = :'id';
DELETE FROM stacksaga.work WHERE saga_id = :'id';
SELECT saga_id AS id FROM stacksaga.start_saga('served') \gset
SELECT told.complete(), told.complete();
SELECT * FROM told.news();
DROP TRIGGER told_note ON stacksaga.saga;

-- Neither redaction nor retention is a change of status; what was published stays.
SELECT saga_id AS id FROM stacksaga.sagas WHERE key = 'k' \gset
SELECT stacksaga.redact_saga(:'id', 'asked for');
SET stacksaga.clock_offset = '400 days';
SELECT stacksaga.expire_sagas(1000) > 0 AS removed;
RESET stacksaga.clock_offset;
SELECT * FROM told.news();
SELECT payload -> 'attributes' AS attributes FROM stacksaga.outbox_message WHERE topic = 'told' AND key = 'k';

-- In the ring of the saga, whatever ring the session is in.
SELECT stacksaga.create_ring('told', 'r') > 0 AS created;
SET stacksaga.region = 'told';
SET stacksaga.cluster = 'r';
SELECT saga_id AS id FROM stacksaga.start_saga('served') \gset
RESET stacksaga.region;
RESET stacksaga.cluster;
SELECT stacksaga.cancel_saga(:'id', 'no');
SELECT m.type, m.ring_id = s.ring_id AND m.ring_id > 1 AS its_ring FROM stacksaga.outbox_message m JOIN stacksaga.saga s ON s.saga_id::text = m.key
 WHERE m.key = :'id';
SELECT * FROM told.news();
-- A ring that adopts the work of another one changes no status.
SET stacksaga.region = 'told';
SET stacksaga.cluster = 'r';
SELECT saga_id AS id FROM stacksaga.start_saga('served') \gset
RESET stacksaga.region;
RESET stacksaga.cluster;
SELECT stacksaga.adopt_ring('told', 'r', 'default', 'default', 'its nodes are dead');
SELECT * FROM told.news();
SELECT stacksaga.cancel_saga(:'id', 'no');
SELECT m.type, m.ring_id FROM stacksaga.outbox_message m WHERE m.key = :'id';
SELECT * FROM told.news();

-- A service needs no rights on the log.
CREATE ROLE told_service;
SELECT stacksaga.grant_usage('told_service', 'service');
SET ROLE told_service;
SELECT stacksaga.start_saga('served') IS NOT NULL AS started;
SELECT count(stacksaga.complete_step(saga_id, step, lease)) FROM stacksaga.claim_steps('told', 'w', 1);
RESET ROLE;
SELECT * FROM told.news();

-- The topic belongs to the version: the older one keeps its own.
SELECT stacksaga.define_saga('heard', ARRAY[stacksaga.sql_step('a', 'told.ok(stacksaga.step_call)')], events_topic => 'told elsewhere');
SELECT count(*) FROM stacksaga.start_saga('heard') AS new, stacksaga.start_saga('heard', version => 1) AS old;
SELECT stacksaga.run_pending() > 0 AS ran;
SELECT topic, type, payload ->> 'version' AS version FROM stacksaga.outbox_message m, told.seen
 WHERE m.number > seen.number AND topic ~ '^told' ORDER BY topic;

DROP OWNED BY told_service;
DROP ROLE told_service;
DROP SCHEMA told CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.saga_action, stacksaga.removed_saga;
