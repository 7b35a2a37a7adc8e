-- Rows that cannot be removed after their retention, of each table that has one: a user's foreign key refers to them, or a
-- trigger refuses. The others go, doctor() names those that stay, and when nothing keeps them any more, they go as well.
DELETE FROM stacksaga.idempotency_key;
DELETE FROM stacksaga.accepted_message;
CREATE FUNCTION kept_act(step stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$SELECT '{}'::jsonb$$;
SELECT stacksaga.define_saga('kept', ARRAY[stacksaga.sql_step('a', 'kept_act(stacksaga.step_call)')]) IS NOT NULL AS defined;
CREATE TABLE kept_ids (i int, saga_id uuid);
DO $$
BEGIN
    FOR i IN 1 .. 20 LOOP
        INSERT INTO kept_ids SELECT i, s.saga_id FROM stacksaga.start_saga('kept', key => CASE WHEN i > 10 THEN 'k' || i END) AS s;
        PERFORM stacksaga.idempotency_finish('kept', 'k' || i, b.lease, '1') FROM stacksaga.idempotency_begin('kept', 'k' || i) AS b;
        PERFORM stacksaga.accept_message('kept', 'm' || i);
    END LOOP;
END $$;
SELECT stacksaga.run_pending(1000) AS ran;
SELECT status, count(*) FROM stacksaga.saga WHERE saga_id IN (SELECT saga_id FROM kept_ids) GROUP BY status;
DO $$
BEGIN
    FOR i IN 1 .. 4 LOOP
        PERFORM stacksaga.pause_queue('kept ' || i, 'test');
    END LOOP;
END $$;

CREATE TABLE on_saga (saga_id uuid, token stacksaga.ring_token, FOREIGN KEY (saga_id, token) REFERENCES stacksaga.saga (saga_id, token));
INSERT INTO on_saga SELECT s.saga_id, s.token FROM stacksaga.saga s JOIN kept_ids USING (saga_id) WHERE i IN (3, 13);
CREATE TABLE on_effect (saga_id uuid, step_no smallint, direction text, token stacksaga.ring_token);
DO $$
BEGIN
    EXECUTE format('ALTER TABLE on_effect ALTER direction TYPE %s USING direction::%1$s, ADD FOREIGN KEY (saga_id, step_no, direction, token)'
        ' REFERENCES stacksaga.effect (saga_id, step_no, direction, token)',
        (SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'stacksaga.effect'::regclass AND attname = 'direction'));
END $$;
INSERT INTO on_effect SELECT e.saga_id, e.step_no, e.direction, e.token FROM stacksaga.effect e JOIN kept_ids USING (saga_id) WHERE i = 7;
CREATE TABLE on_key (token stacksaga.ring_token, scope text, key text,
    FOREIGN KEY (token, scope, key) REFERENCES stacksaga.idempotency_key (token, scope, key));
INSERT INTO on_key SELECT token, scope, key FROM stacksaga.idempotency_key WHERE scope = 'kept' AND key = 'k5';
CREATE TABLE on_message (token stacksaga.ring_token, consumer text, message_id text,
    FOREIGN KEY (token, consumer, message_id) REFERENCES stacksaga.accepted_message (token, consumer, message_id));
INSERT INTO on_message SELECT token, consumer, message_id FROM stacksaga.accepted_message WHERE consumer = 'kept' AND message_id = 'm9';
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.object = 'queue kept 2' THEN
        RAISE 'this action is kept';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER refuse BEFORE DELETE ON stacksaga.operator_action FOR EACH ROW EXECUTE FUNCTION refuse();

SET stacksaga.clock_offset = '400 days';
SELECT stacksaga.expire_sagas(1000) AS removed;
SELECT i FROM kept_ids JOIN stacksaga.saga USING (saga_id) ORDER BY i;
SELECT stacksaga.expire_dedupe(1000) AS removed;
SELECT key FROM stacksaga.idempotency_key WHERE scope = 'kept';
SELECT message_id FROM stacksaga.accepted_message WHERE consumer = 'kept';
SELECT stacksaga.expire_actions(1000) >= 3 AS removed;
SELECT object FROM stacksaga.operator_action WHERE object LIKE 'queue kept%';
SELECT relation, count(*), min(left(error, 60)) FROM stacksaga.kept_row GROUP BY relation ORDER BY relation;
SELECT severity, regexp_replace(detail, ', the first since.*', '') AS detail FROM stacksaga.doctor() WHERE check_name = 'retention' ORDER BY detail;

-- Nothing is tried again at once, and others go on.
SELECT stacksaga.expire_sagas(1000) AS removed, stacksaga.expire_dedupe(1000) AS rows;
-- An hour later, when nothing refers to them.
DROP TABLE on_saga, on_effect, on_key, on_message;
DROP TRIGGER refuse ON stacksaga.operator_action;
SET stacksaga.clock_offset = '401 days';
SELECT stacksaga.expire_sagas(1000) AS removed, stacksaga.expire_dedupe(1000) AS rows, stacksaga.expire_actions(1000) AS actions;
SELECT count(*) FROM stacksaga.kept_row;
SELECT count(*) FROM stacksaga.doctor() WHERE check_name = 'retention';

-- Where Citus distributes the tables, which its guard says, all that is due until an instant goes at once, and in the end a
-- row alone: also of rows of one instant, and beside a key in progress. The statements are the same on one server.
RESET stacksaga.clock_offset;
CREATE TABLE stacksaga.citus_guard ();
DO $$
BEGIN
    FOR i IN 1 .. 20 LOOP
        PERFORM stacksaga.idempotency_finish('kept', 'k' || i, b.lease, '1') FROM stacksaga.idempotency_begin('kept', 'k' || i) AS b;
        PERFORM stacksaga.accept_message('kept', 'm' || i);
    END LOOP;
END $$;
SELECT outcome FROM stacksaga.idempotency_begin('kept', 'k21');
UPDATE stacksaga.idempotency_key SET sweep_at = (SELECT max(sweep_at) FROM stacksaga.idempotency_key WHERE key = 'k8') WHERE scope = 'kept' AND key < 'k9';
CREATE TABLE on_key (token stacksaga.ring_token, scope text, key text,
    FOREIGN KEY (token, scope, key) REFERENCES stacksaga.idempotency_key (token, scope, key));
INSERT INTO on_key SELECT token, scope, key FROM stacksaga.idempotency_key WHERE scope = 'kept' AND key IN ('k5', 'k12');
CREATE TABLE on_message (token stacksaga.ring_token, consumer text, message_id text,
    FOREIGN KEY (token, consumer, message_id) REFERENCES stacksaga.accepted_message (token, consumer, message_id));
INSERT INTO on_message SELECT token, consumer, message_id FROM stacksaga.accepted_message WHERE consumer = 'kept' AND message_id = 'm9';
SET stacksaga.clock_offset = '400 days';
SELECT stacksaga.expire_dedupe(1000) AS removed;
SELECT key FROM stacksaga.idempotency_key WHERE scope = 'kept' ORDER BY key;
SELECT message_id FROM stacksaga.accepted_message WHERE consumer = 'kept';
SELECT relation, row_key FROM stacksaga.kept_row ORDER BY 1, 2;
SELECT stacksaga.expire_dedupe(1000) AS removed;
DROP TABLE on_key, on_message;
SET stacksaga.clock_offset = '401 days';
SELECT stacksaga.expire_dedupe(1) AS removed;
SELECT stacksaga.expire_dedupe(1000) AS removed;
SELECT count(*) FROM stacksaga.kept_row;
DROP TABLE stacksaga.citus_guard;
DELETE FROM stacksaga.idempotency_key WHERE scope = 'kept';

-- Keys of sagas that were removed, more of them than are removed at once, and actions on a schedule.
RESET stacksaga.clock_offset;
INSERT INTO stacksaga.removed_saga (saga_id, token, kept_since, finished_at, definition_id, latest_run, status, fingerprint)
SELECT m.id, stacksaga.token_uuid(m.id)::bigint::stacksaga.ring_token, now(), now(), (SELECT max(definition_id) FROM stacksaga.saga_definition), 0, 'completed', '\x00'
  FROM generate_series(1, 40) AS i, LATERAL (SELECT md5('kept ' || i)::uuid AS id) AS m;
CREATE TABLE on_removed (saga_id uuid, token stacksaga.ring_token, FOREIGN KEY (saga_id, token) REFERENCES stacksaga.removed_saga (saga_id, token));
INSERT INTO on_removed SELECT saga_id, token FROM stacksaga.removed_saga WHERE saga_id IN (SELECT md5('kept ' || i)::uuid FROM generate_series(1, 30) AS i);
SELECT stacksaga.create_schedule('kept', 'kept', '0 0 * * *') IS NOT NULL AS created;
SELECT stacksaga.pause_schedule('kept', 'test');
SELECT stacksaga.resume_schedule('kept', 'test');
CREATE TABLE on_schedule (schedule text, action_no integer, token stacksaga.ring_token,
    FOREIGN KEY (schedule, action_no, token) REFERENCES stacksaga.schedule_action (schedule, action_no, token));
INSERT INTO on_schedule SELECT schedule, action_no, token FROM stacksaga.schedule_action WHERE schedule = 'kept' AND action_no = 1;
SET stacksaga.clock_offset = '400 days';
SELECT stacksaga.expire_sagas(10) AS removed;
SELECT stacksaga.expire_sagas(10) AS removed;
SELECT stacksaga.expire_sagas(10) AS removed;
SELECT stacksaga.expire_sagas(10) AS removed;
SELECT count(*) FROM stacksaga.removed_saga WHERE saga_id IN (SELECT md5('kept ' || i)::uuid FROM generate_series(1, 40) AS i);
SELECT stacksaga.expire_actions(1000) > 0 AS removed;
SELECT action_no FROM stacksaga.schedule_action WHERE schedule = 'kept';
SELECT relation, count(*) FROM stacksaga.kept_row GROUP BY relation ORDER BY relation;
DROP TABLE on_removed, on_schedule;
RESET stacksaga.clock_offset;
SELECT stacksaga.drop_schedule('kept');
TRUNCATE stacksaga.kept_row;
DELETE FROM stacksaga.schedule_action WHERE schedule = 'kept';

-- What reading the outbox leaves behind.
SELECT stacksaga.create_subscription('kept', 'kept', partitions => 1) IS NOT NULL AS created;
SELECT stacksaga.publish('kept', '1') IS NOT NULL AS published;
SELECT stacksaga.ack_messages(max(batch_id)) FROM stacksaga.receive_messages('kept', 'c');
SELECT stacksaga.publish('kept', '2') IS NOT NULL AS published;
SELECT stacksaga.ack_messages(max(batch_id)) FROM stacksaga.receive_messages('kept', 'c');
SELECT stacksaga.publish('kept', '3') IS NOT NULL AS published;
SELECT stacksaga.ack_messages(max(batch_id)) FROM stacksaga.receive_messages('kept', 'c');
SELECT stacksaga.publish('kept', '4') IS NOT NULL AS published;
SELECT stacksaga.ack_messages(max(batch_id)) FROM stacksaga.receive_messages('kept', 'c');
CREATE TABLE on_tick (tick bigint REFERENCES stacksaga.outbox_tick);
INSERT INTO on_tick SELECT min(tick) FROM stacksaga.outbox_tick;
CREATE TABLE on_position (subscription_id integer, partition smallint, version bigint,
    FOREIGN KEY (subscription_id, partition, version) REFERENCES stacksaga.subscription_position (subscription_id, partition, version));
INSERT INTO on_position SELECT subscription_id, partition, min(version) FROM stacksaga.subscription_position
 WHERE subscription_id = (SELECT subscription_id FROM stacksaga.subscription WHERE subscription = 'kept') GROUP BY 1, 2;
CREATE TABLE on_batch (batch_id bigint REFERENCES stacksaga.message_batch);
INSERT INTO on_batch SELECT min(batch_id) FROM stacksaga.message_batch
 WHERE subscription_id = (SELECT subscription_id FROM stacksaga.subscription WHERE subscription = 'kept');
SET stacksaga.clock_offset = '400 days';
SELECT stacksaga.maintain_outbox(true) IS NOT NULL AS maintained;
SELECT stacksaga.maintain_outbox(true) IS NOT NULL AS maintained;
SELECT count(*) FROM stacksaga.outbox_tick WHERE tick < (SELECT max(tick) - 1 FROM stacksaga.outbox_tick);
SELECT count(*) FROM stacksaga.subscription_position p JOIN stacksaga.subscription USING (subscription_id) WHERE subscription = 'kept';
SELECT count(*) FROM stacksaga.message_batch p JOIN stacksaga.subscription USING (subscription_id) WHERE subscription = 'kept';
SELECT relation, count(*) FROM stacksaga.kept_row GROUP BY relation ORDER BY relation;
RESET stacksaga.clock_offset;
DROP TABLE on_tick, on_position, on_batch;
SELECT stacksaga.drop_subscription('kept', discard => true);
TRUNCATE stacksaga.kept_row;

-- Messages that were discarded, and a table of the log, which is truncated.
SELECT stacksaga.create_subscription('kept', 'kept', partitions => 1, stop_on_first_failure => false) IS NOT NULL AS created;
SELECT count(stacksaga.publish('kept', to_jsonb(n))) FROM generate_series(1, 4) AS n;
SELECT count(stacksaga.fail_message(m.batch_id, m.message_id, 'no', 'non_retryable')) AS failed, max(m.batch_id) AS batch
  FROM stacksaga.receive_messages('kept', 'c') AS m \gset
SELECT :failed AS failed, stacksaga.ack_messages(:batch) AS acknowledged;
SELECT count(stacksaga.discard_message('kept', message_id, 'test')) FROM stacksaga.dead_messages WHERE subscription = 'kept';
CREATE TABLE on_dead (subscription_id integer, token stacksaga.ring_token, tick bigint, number bigint,
    FOREIGN KEY (subscription_id, token, tick, number) REFERENCES stacksaga.dead_message (subscription_id, token, tick, number));
INSERT INTO on_dead SELECT subscription_id, token, tick, number FROM stacksaga.dead_message
 WHERE subscription_id = (SELECT subscription_id FROM stacksaga.subscription WHERE subscription = 'kept') ORDER BY number LIMIT 1;
SELECT tableoid::regclass AS log FROM stacksaga.outbox_message LIMIT 1 \gset
ALTER TABLE :log ADD CONSTRAINT on_log UNIQUE (stripe, number);
CREATE TABLE on_log (stripe smallint, number bigint, FOREIGN KEY (stripe, number) REFERENCES :log (stripe, number));
SET stacksaga.clock_offset = '400 days';
SELECT stacksaga.maintain_outbox(true) IS NOT NULL AS maintained;
SELECT stacksaga.maintain_outbox(true) IS NOT NULL AS maintained;
SELECT count(*) FROM stacksaga.dead_message WHERE topic = 'kept';
SELECT count(*) FROM stacksaga.outbox_message;
SELECT regexp_replace(relation, '[0-9]', 'N') AS relation, left(error, 60) AS error FROM stacksaga.kept_row ORDER BY relation;
-- Others are delivered meanwhile.
SELECT stacksaga.publish('kept', '"next"') IS NOT NULL AS published;
SELECT payload, batch_id AS batch FROM stacksaga.receive_messages('kept', 'c') \gset
SELECT :'payload' AS payload, stacksaga.ack_messages(:batch) AS acknowledged;
DROP TABLE on_dead, on_log;
ALTER TABLE :log DROP CONSTRAINT on_log;
SET stacksaga.clock_offset = '401 days';
SELECT stacksaga.maintain_outbox(true) IS NOT NULL AS maintained;
SELECT stacksaga.maintain_outbox(true) IS NOT NULL AS maintained;
SELECT count(*) FROM stacksaga.dead_message WHERE topic = 'kept';
SELECT count(*) FROM stacksaga.kept_row;
RESET stacksaga.clock_offset;
SELECT stacksaga.drop_subscription('kept', discard => true);
DELETE FROM stacksaga.schedule_action WHERE schedule = 'kept';
DROP TABLE kept_ids;
DROP FUNCTION refuse(), kept_act(stacksaga.step_call);
