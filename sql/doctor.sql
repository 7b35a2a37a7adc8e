-- doctor(): each check finds nothing, is provoked, and names its fix. What needs a server of its
-- own, or another session, is in test/tap/doctor.pl.

\set SHOW_CONTEXT never
CREATE SCHEMA doctor;
CREATE ROLE doctor_definer;
CREATE ROLE doctor_service;
CREATE FUNCTION doctor.act(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'no' USING ERRCODE = 'SG424';
END
$$;
CREATE FUNCTION doctor.ok(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE FUNCTION doctor.verify(call stacksaga.step_call) RETURNS text LANGUAGE sql AS 'SELECT ''done''';
GRANT USAGE ON SCHEMA doctor TO doctor_definer;
SELECT stacksaga.grant_usage('doctor_definer', 'operator'), stacksaga.grant_usage('doctor_service', 'service');
SET ROLE doctor_definer;
SELECT stacksaga.define_saga('doctor', ARRAY[
    stacksaga.sql_step('first', 'doctor.ok(stacksaga.step_call)', effect => 'irreversible',
                       verify => 'doctor.verify(stacksaga.step_call)'),
    stacksaga.sql_step('second', 'doctor.act(stacksaga.step_call)')]);
SELECT stacksaga.define_saga('doctor queue', ARRAY[stacksaga.queue_step('q', 'doctor ''queue''', compensable => true)]);
RESET ROLE;
-- What is found of a check, with what differs from run to run left out.
CREATE FUNCTION doctor.found(name text) RETURNS TABLE (severity text, detail text, fix text)
LANGUAGE sql AS $$
    SELECT severity, regexp_replace(detail, ' since [^,]*,', ' since (instant),') AS detail, fix
      FROM stacksaga.doctor() WHERE check_name = name
       AND (name NOT IN ('definers', 'handlers', 'grants', 'retries', 'dead_messages', 'lag') OR detail LIKE '%"doctor%')
     ORDER BY detail
$$;
-- All is well with these.
SELECT check_name, found.* FROM unnest('{clock_offset,handlers,definers,grants,windows,autovacuum,version,track_counts,
    synchronous_commit,standby}'::text[]) AS check_name, doctor.found(check_name);

-- Settings of the session.
BEGIN;
SET LOCAL stacksaga.clock_offset = '2 minutes';
SELECT * FROM doctor.found('clock_offset');
SET LOCAL synchronous_commit = off;
SELECT * FROM doctor.found('synchronous_commit');
SET LOCAL track_counts = off;
SELECT * FROM doctor.found('track_counts');
COMMIT;
BEGIN;
SET LOCAL stacksaga.clock_offset = '0 hours';
SELECT * FROM doctor.found('clock_offset');
COMMIT;

-- Parked sagas.
BEGIN;
DELETE FROM stacksaga.saga WHERE status = 'parked';
SELECT * FROM doctor.found('parked');
SELECT count(*) FROM stacksaga.start_saga('doctor');
SELECT stacksaga.run_pending() > 1 AS ran;
SELECT * FROM doctor.found('parked');
ROLLBACK;

-- Messages that no consumer reads. (receive_messages() makes a tick.)
SELECT stacksaga.create_subscription('doctor ''idle', 'doctor');
SELECT stacksaga.create_subscription('doctor busy', 'doctor');
SELECT stacksaga.publish('doctor', '{}') IS NOT NULL AS published;
SELECT stacksaga.ack_messages(batch_id) FROM stacksaga.receive_messages('doctor busy', 'c');
SELECT * FROM doctor.found('lag');
SET stacksaga.clock_offset = '2 minutes';
SELECT severity, regexp_replace(detail, '00:0\d:\d\d', 'some time') AS detail, fix FROM doctor.found('lag');
SET stacksaga.clock_offset = '12 minutes';
SELECT severity, fix FROM doctor.found('lag');
SELECT labels ->> 'subscription' AS subscription, value > 700 AS lags FROM stacksaga.metrics()
 WHERE name = 'stacksaga_subscription_lag_seconds' ORDER BY 1;
SELECT stacksaga.ack_messages(batch_id) FROM stacksaga.receive_messages('doctor ''idle', 'c');
SELECT * FROM doctor.found('lag');
RESET stacksaga.clock_offset;
SELECT stacksaga.drop_subscription('doctor ''idle', true), stacksaga.drop_subscription('doctor busy', true);
TRUNCATE stacksaga.outbox_message;

-- Handlers that were dropped or changed, or that their definer may no longer run; definers.
BEGIN;
DROP FUNCTION doctor.verify;
SELECT * FROM doctor.found('handlers');
ROLLBACK;
BEGIN;
REVOKE EXECUTE ON FUNCTION doctor.act FROM PUBLIC;
SELECT * FROM doctor.found('handlers');
ROLLBACK;
BEGIN;
ALTER ROLE doctor_definer RENAME TO doctor_renamed;
SELECT * FROM doctor.found('definers');
SELECT count(*) FROM doctor.found('handlers');
ROLLBACK;
BEGIN;
ALTER ROLE doctor_definer SUPERUSER;
SELECT * FROM doctor.found('definers');
ROLLBACK;
-- An older version, which no new saga starts, is not checked.
BEGIN;
SET LOCAL ROLE doctor_definer;
SELECT stacksaga.define_saga('doctor', ARRAY[stacksaga.sql_step('only', 'doctor.ok(stacksaga.step_call)')]);
RESET ROLE;
DROP FUNCTION doctor.act;
SELECT count(*) FROM doctor.found('handlers');
ROLLBACK;

-- Retries that outlast what is remembered of them, since the setting was lowered.
BEGIN;
SET LOCAL stacksaga.dedupe_retention = '10 s';
SELECT * FROM doctor.found('retries') WHERE detail LIKE '%doctor queue%';
ROLLBACK;
SELECT count(*) FROM doctor.found('retries');

-- Grants that an update or somebody else left incomplete.
BEGIN;
REVOKE EXECUTE ON FUNCTION stacksaga.start_saga, stacksaga.claim_steps FROM doctor_service;
REVOKE SELECT ON stacksaga.sagas FROM doctor_service;
SELECT * FROM doctor.found('grants');
SELECT stacksaga.grant_usage('doctor_service', 'service');
SELECT * FROM doctor.found('grants');
REVOKE USAGE ON SCHEMA stacksaga FROM doctor_service, PUBLIC;
SELECT count(*), max(length(detail)) < 200 AS short FROM doctor.found('grants') WHERE detail LIKE '%doctor_service%';
INSERT INTO stacksaga.usage_grant VALUES ('doctor''s ghost', 'monitor');
SELECT * FROM doctor.found('grants') WHERE detail LIKE '%ghost%';
ROLLBACK;

-- Work that nobody does: a queue without a service, and everything else.
BEGIN;
SELECT stacksaga.create_ring('default', 'doctor') > 0 AS created;
SET LOCAL stacksaga.cluster = 'doctor';
SELECT count(*) FROM stacksaga.start_saga('doctor queue');
SELECT count(*) FROM doctor.found('overdue') WHERE detail LIKE '%doctor%';
SET LOCAL stacksaga.clock_offset = '90 s';
SELECT severity, regexp_replace(detail, '00:01:3\d', '(90 s)'), fix FROM doctor.found('overdue')
 WHERE detail LIKE '%doctor%';
SELECT count(*) FROM stacksaga.start_saga('doctor');
SET LOCAL stacksaga.clock_offset = '1 hour';
SELECT severity, regexp_replace(detail, '\d\d:\d\d:\d\d', '(a while)'), fix FROM doctor.found('overdue')
 WHERE detail LIKE '%doctor%' ORDER BY 2;
SELECT count(*) FROM stacksaga.claim_steps('doctor ''queue''', 'w');
SELECT severity, regexp_replace(detail, '\d\d:\d\d:\d\d', '(a while)'), fix FROM doctor.found('overdue')
 WHERE detail LIKE '%doctor%';
ROLLBACK;

-- A retry that registered services may not claim, though they call claim_steps().
BEGIN;
SELECT stacksaga.create_ring('default', 'doctor') > 0 AS created;
SET LOCAL stacksaga.cluster = 'doctor';
SELECT count(*) FROM stacksaga.start_saga('doctor queue');
SELECT saga_id, step, lease FROM stacksaga.claim_steps('doctor ''queue''', 'w') \gset
SELECT stacksaga.fail_step(:'saga_id', :'step', :lease, 'no', 'retryable', retry_after => '0');
SET LOCAL stacksaga.clock_offset = '90 s';
SELECT fix FROM doctor.found('overdue') WHERE detail LIKE '%doctor%';
SELECT stacksaga.register_node('doctor s', 'default', 'doctor', 'standard') IS NOT NULL AS s;
SELECT count(*) FROM stacksaga.claim_steps('doctor ''queue''', 'doctor s');
SELECT fix FROM doctor.found('overdue') WHERE detail LIKE '%doctor%';
SELECT count(*) FROM stacksaga.claim_steps('doctor ''queue''', 'not registered');
ROLLBACK;

-- Subscriptions: messages that failed for good, handlers that cannot be run.
BEGIN;
CREATE FUNCTION doctor.handle(message stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'no' USING ERRCODE = 'SG424';
END
$$;
GRANT EXECUTE ON FUNCTION doctor.handle TO doctor_definer;
SET LOCAL ROLE doctor_definer;
SELECT stacksaga.create_subscription('doctor''s', 'doctor', handler => 'doctor.handle(stacksaga.message)');
RESET ROLE;
SELECT * FROM doctor.found('dead_messages') UNION ALL SELECT * FROM doctor.found('handlers');
INSERT INTO stacksaga.dead_message (subscription_id, token, number, tick, partition, attempts, since,
                                    dead_since, published_at, message_id, topic, headers)
SELECT subscription_id, n, n, 1, 0, 1, now(), now(), now(), gen_random_uuid(), 'doctor', '{}'
  FROM stacksaga.subscription, generate_series(1, 2) n WHERE subscription = 'doctor''s';
SELECT * FROM doctor.found('dead_messages');
UPDATE stacksaga.dead_message SET discarded_at = now();
SELECT count(*) FROM doctor.found('dead_messages');
REVOKE EXECUTE ON FUNCTION doctor.handle FROM doctor_definer, PUBLIC;
SELECT * FROM doctor.found('handlers');
DROP FUNCTION doctor.handle;
SELECT * FROM doctor.found('handlers');
ALTER ROLE doctor_definer RENAME TO doctor_renamed;
SELECT * FROM doctor.found('definers') WHERE detail LIKE 'subscription%';
-- In another ring than that of the session.
SET LOCAL stacksaga.cluster = 'another';
SELECT detail FROM doctor.found('definers') WHERE detail LIKE 'subscription%';
ROLLBACK;

-- A ring that pauses, as no coordinator assigns its slots.
BEGIN;
SELECT stacksaga.create_ring('default', 'doctor', on_missing_window => 'pause') > 0 AS created;
SELECT * FROM doctor.found('windows');
SELECT stacksaga.alter_ring('default', 'doctor', 'on_missing_window', 'keep');
SELECT count(*) FROM doctor.found('windows');
ROLLBACK;

-- A ring that pauses, and that a coordinator should assign. It publishes no window without a node, and it runs
-- when it has published the next window.
BEGIN;
SELECT stacksaga.create_ring('default', 'doctor', on_missing_window => 'pause') AS ring \gset
SELECT stacksaga.register_node('doctor a', 'default', 'doctor') AS a \gset
SELECT fix FROM doctor.found('windows') WHERE detail LIKE '%doctor%';
SELECT replace(fix, :'a', '(incarnation)') AS fix FROM doctor.found('nodes') WHERE detail LIKE '%holds%';
INSERT INTO stacksaga.token_window
SELECT :ring, stacksaga.clock_now() + w * interval '1 minute', '', stacksaga.clock_now() + (w + 1) * interval '1 minute',
       w, now(), 'c'
  FROM generate_series(1, 2) AS w;
SELECT fix FROM doctor.found('windows') WHERE detail LIKE '%doctor%';
SELECT replace(fix, :'a', '(incarnation)') AS fix FROM doctor.found('nodes') WHERE detail LIKE '%holds%';
SET LOCAL stacksaga.clock_offset = '90 s';
SELECT count(*) FROM doctor.found('windows') WHERE detail LIKE '%doctor%';
RESET stacksaga.clock_offset;
-- One slot without an owner is reported.
UPDATE stacksaga.slot SET owner = CASE WHEN slot > 0 THEN :a END WHERE ring_id = :ring;
SELECT detail FROM doctor.found('coverage') WHERE detail LIKE '%doctor%';
ROLLBACK;

-- Nodes that died, and the part of the ring that was theirs.
BEGIN;
SELECT stacksaga.create_ring('default', 'doctor', slots => 64) AS ring \gset
SET LOCAL stacksaga.cluster = 'doctor';
SELECT stacksaga.register_node('doctor a', 'default', 'doctor') AS a,
       stacksaga.register_node('doctor b', 'default', 'doctor') AS b \gset
UPDATE stacksaga.slot SET owner = CASE WHEN slot < 16 THEN :a ELSE :b END WHERE ring_id = :ring;
SELECT check_name FROM stacksaga.doctor() WHERE detail LIKE '%doctor%' AND check_name IN ('nodes', 'coverage');
UPDATE stacksaga.node SET heartbeat_at = heartbeat_at - interval '1 minute' WHERE incarnation = :a;
-- (It may have become some seconds older.)
SELECT severity, regexp_replace(detail, '00:01:[0-5][0-9]', '(a minute)') AS detail, replace(fix, :'a', '(incarnation)') AS fix
  FROM doctor.found('nodes') WHERE detail LIKE '%doctor%';
SELECT * FROM doctor.found('coverage') WHERE detail LIKE '%doctor%';
-- A node that holds nothing gets no retries; one of kind standard is meant to get none.
SELECT stacksaga.register_node('doctor c', 'default', 'doctor') AS c,
       stacksaga.register_node('doctor d', 'default', 'doctor', 'standard') IS NOT NULL AS d \gset
SELECT severity, detail, replace(fix, :'c', '(incarnation)') FROM doctor.found('nodes')
 WHERE detail LIKE '%holds%';
UPDATE stacksaga.slot SET next_owner = :c WHERE ring_id = :ring AND slot = 0;
SELECT count(*) FROM doctor.found('nodes') WHERE detail LIKE '%holds%';
ROLLBACK;

-- Tables that autovacuum passes over.
BEGIN;
ALTER TABLE stacksaga.work SET (autovacuum_enabled = false);
SELECT * FROM doctor.found('autovacuum');
ALTER TABLE stacksaga.work SET (autovacuum_enabled = true);
SELECT * FROM doctor.found('autovacuum');
ROLLBACK;

-- Versions that do not go together.
BEGIN;
UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'stacksaga';
SELECT severity, regexp_replace(detail, 'is version 1[.0-9]+$', 'is this one') AS detail, fix FROM doctor.found('version');
UPDATE pg_extension SET extversion = '99.10' WHERE extname = 'stacksaga';
SELECT severity, regexp_replace(detail, 'is version 1[.0-9]+$', 'is this one') AS detail, fix FROM doctor.found('version');
ROLLBACK;

-- What DROP EXTENSION takes along, handlers apart. A publication of the log stays, without it.
SELECT count(*) FROM doctor.found('dependents');
BEGIN;
CREATE VIEW doctor.a_view AS SELECT saga_id FROM stacksaga.sagas;
CREATE TABLE doctor.kept (policy stacksaga.retry_policy, ring_id integer REFERENCES stacksaga.ring, note text);
CREATE FUNCTION doctor.a_handler(stacksaga.message) RETURNS void LANGUAGE sql AS $$ SELECT $$;
SET LOCAL client_min_messages = error;   -- wal_level is not logical
CREATE PUBLICATION doctor_log FOR TABLE stacksaga.outbox_message;
SELECT severity, detail FROM doctor.found('dependents') ORDER BY detail;
ROLLBACK;

-- The worst first, and a monitor may ask.
BEGIN;
SET LOCAL stacksaga.clock_offset = '2 minutes';
SET LOCAL synchronous_commit = off;
SELECT array_agg(severity ORDER BY place) = array_agg(severity ORDER BY
       array_position('{error,warning,info}', severity)) AS sorted
  FROM (SELECT severity, row_number() OVER () AS place FROM stacksaga.doctor()) AS d;
ROLLBACK;
CREATE ROLE doctor_monitor;
SELECT stacksaga.grant_usage('doctor_monitor', 'monitor');
SET ROLE doctor_monitor;
SELECT count(*) >= 0 AS may FROM stacksaga.doctor();
SET ROLE doctor_service;
SELECT count(*) FROM stacksaga.doctor();
RESET ROLE;

SET client_min_messages = warning;
DROP SCHEMA doctor CASCADE;
DELETE FROM stacksaga.saga_definition WHERE saga LIKE 'doctor%';
DELETE FROM stacksaga.usage_grant WHERE role LIKE 'doctor%';
DROP OWNED BY doctor_definer, doctor_service, doctor_monitor;
DROP ROLE doctor_definer, doctor_service, doctor_monitor;
