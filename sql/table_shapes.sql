-- A table that somebody has changed: what reads it goes on, through SQL where it has to, or says why it
-- cannot. It never takes "this index cannot be read" for "there is no such row".

\set SHOW_CONTEXT never
SET stacksaga.check_plans = off; -- without its index a table is read from end to end
CREATE SCHEMA shapes;
CREATE FUNCTION shapes.keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN coalesce(NEW, OLD); END';

-- One saga that waits for a service in a queue with limits, one key that is completed.
SELECT stacksaga.define_saga('shapes', ARRAY[stacksaga.queue_step('only', 'shapes', compensable => true)]);
SELECT stacksaga.set_queue('shapes', max_running => 10);
SELECT created FROM stacksaga.start_saga('shapes', key => 'shapes', attributes => '{"shape": "round"}');
SELECT stacksaga.register_node('shapes') > 0 AS is_registered;
SELECT count(stacksaga.idempotency_finish('shapes', 'key', lease, '{}'))
  FROM stacksaga.idempotency_begin('shapes', 'key');

-- A message in the log; another that is due again after a failure; a third whose key a dead one blocks.
SELECT stacksaga.create_subscription(s, s, partitions => 1, retry => stacksaga.retry_policy(max_attempts => 2, initial_interval => '0'))
  FROM unnest('{shapes_log,shapes_retry}'::text[]) AS s;
SELECT stacksaga.create_subscription('shapes_dead', 'shapes_dead', partitions => 1, stop_on_first_failure => true,
    retry => stacksaga.retry_policy(max_attempts => 1));
SELECT count(stacksaga.publish(t, '{}', key => 'k')) FROM unnest('{shapes_log,shapes_retry,shapes_dead}'::text[]) AS t;
SELECT count(stacksaga.fail_message(m.batch_id, m.message_id, 'no'))
  FROM unnest('{shapes_retry,shapes_dead}'::text[]) AS s, LATERAL stacksaga.receive_messages(s, 'c') AS m;
SELECT stacksaga.ack_messages(b) FROM (SELECT DISTINCT batch_id FROM stacksaga.message_batch) AS a(b);
SELECT count(stacksaga.publish('shapes_dead', '{}', key => 'k'));
SELECT count(*) FROM stacksaga.receive_messages('shapes_dead', 'c');

-- What is asked of a table, and one of its indexes that answers it. The message is in the generation of the log that is
-- written now, whichever that is.
SELECT relname AS log FROM stacksaga.outbox_message AS m JOIN pg_class AS c ON c.oid = m.tableoid WHERE topic = 'shapes_log' \gset
CREATE TABLE shapes.question (table_name text, index_name text, other_column text, question text);
INSERT INTO shapes.question VALUES
    ('subscription_position', 'subscription_position_pkey', 'written_at', $$SELECT count(*) FROM stacksaga.receive_messages('shapes_log', 'c')$$),
    (:'log', :'log' || '_number', 'published_at', $$SELECT count(*) FROM stacksaga.receive_messages('shapes_log', 'c')$$),
    ('message_retry', 'message_retry_due', 'published_at', $$SELECT count(*) FROM stacksaga.receive_messages('shapes_retry', 'c')$$),
    ('message_retry', 'message_retry_pkey', 'published_at', $$SELECT count(*) FROM stacksaga.receive_messages('shapes_retry', 'c')$$),
    ('dead_message', 'dead_message_open', 'published_at', $$SELECT count(*) FROM stacksaga.receive_messages('shapes_dead', 'c')$$),
    ('dead_message', 'dead_message_pkey', 'published_at', $$SELECT count(*) FROM stacksaga.receive_messages('shapes_dead', 'c')$$),
    ('subscription', 'subscription_pkey', 'created_at', $$SELECT count(stacksaga.publish('shapes_log', '{}'))$$),
    ('saga_definition', 'saga_definition_current', 'defined_at', $$SELECT count(*) FROM stacksaga.start_saga('shapes')$$),
    ('ring', 'ring_region_cluster_key', 'created_at', $$SELECT count(*) FROM stacksaga.start_saga('shapes')$$),
    ('node', 'node_pkey', 'registered_at', $$SELECT count(*) FROM stacksaga.claim_steps('shapes', 'shapes')$$),
    ('work', 'work_for_services', 'due_at', $$SELECT count(*) FROM stacksaga.claim_steps('shapes', 'w')$$),
    ('queue', 'queue_pkey', 'paused_at', $$SELECT count(*) FROM stacksaga.claim_steps('shapes', 'w')$$),
    ('queue_claims', 'queue_claims_pkey', 'claims', $$SELECT count(*) FROM stacksaga.claim_steps('shapes', 'w')$$),
    ('saga', 'saga_created', 'finished_at', $$SELECT count(*) FROM stacksaga.find_sagas(created_before => 'infinity', max_sagas => 1)$$),
    ('saga', 'saga_listed', 'updated_at', $$SELECT count(*) FROM stacksaga.find_sagas(saga => 'shapes')$$),
    ('saga', 'saga_key', 'updated_at', $$SELECT count(*) FROM stacksaga.find_sagas(key_prefix => 'shapes')$$),
    ('saga', 'saga_pkey', 'updated_at', $$SELECT count(*) FROM stacksaga.claim_steps('shapes', 'w')$$),
    ('saga_attribute', 'saga_attribute_listed', 'created_at', $$SELECT count(*) FROM stacksaga.find_sagas(attributes => '{"shape": "round"}')$$),
    ('idempotency_key', 'idempotency_key_pkey', 'sweep_at', $$SELECT outcome FROM stacksaga.idempotency_begin('shapes', 'key')$$);
-- What is done to it. An index of a constraint is changed with the constraint.
CREATE TABLE shapes.change (change_no serial, change text, statements text[]);
INSERT INTO shapes.change (change, statements) VALUES
    ('column added', ARRAY['ALTER TABLE stacksaga.%1$I ADD COLUMN extra integer']),
    ('column added and dropped', ARRAY['ALTER TABLE stacksaga.%1$I ADD COLUMN extra integer', 'ALTER TABLE stacksaga.%1$I DROP COLUMN extra']),
    ('index added', ARRAY['CREATE INDEX added ON stacksaga.%1$I (%3$I)']),
    ('index renamed', ARRAY['ALTER INDEX stacksaga.%2$I RENAME TO renamed']),
    ('index invalid', ARRAY['UPDATE pg_index SET indisvalid = false WHERE indexrelid = ''stacksaga.%2$I''::regclass']),
    ('index dropped', ARRAY['SELECT shapes.drop_index(%1$L, %2$L)']),
    ('index of other columns', ARRAY['SELECT shapes.drop_index(%1$L, %2$L)', 'CREATE INDEX %2$I ON stacksaga.%1$I (%3$I)']),
    ('child dropped', ARRAY['CREATE TABLE shapes.child () INHERITS (stacksaga.%1$I)', 'DROP TABLE shapes.child']),
    ('rule', ARRAY['CREATE RULE nothing AS ON DELETE TO stacksaga.%1$I WHERE false DO INSTEAD NOTHING']),
    ('trigger', ARRAY['CREATE TRIGGER added BEFORE UPDATE ON stacksaga.%1$I FOR EACH ROW EXECUTE FUNCTION shapes.keep()']),
    ('row security', ARRAY['ALTER TABLE stacksaga.%1$I ENABLE ROW LEVEL SECURITY']);
CREATE FUNCTION shapes.drop_index(table_name text, index_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_constraint WHERE conname = index_name) THEN
        EXECUTE format('ALTER TABLE stacksaga.%I DROP CONSTRAINT %I CASCADE', table_name, index_name);
    ELSE
        EXECUTE format('DROP INDEX stacksaga.%I', index_name);
    END IF;
END $$;
-- The answer, and the rows of doctor(), when that has been done; all of it is undone.
CREATE FUNCTION shapes.outcome(statements text[], question text, OUT answer text, OUT doctor text) LANGUAGE plpgsql AS $$
DECLARE
    statement text;
    detail text;
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        BEGIN
            EXECUTE statement;
        EXCEPTION WHEN OTHERS THEN
            RAISE EXCEPTION USING ERRCODE = 'XX999', MESSAGE = 'PostgreSQL refuses the change';
        END;
    END LOOP;
    SELECT string_agg(d.severity, ',') INTO doctor FROM stacksaga_internal.doctor_tables() AS d;
    BEGIN
        EXECUTE question INTO answer;
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
        answer := SQLSTATE || ' ' || SQLERRM || ' ' || detail;
    END;
    RAISE EXCEPTION USING ERRCODE = 'XX999', MESSAGE = concat_ws(' | ', answer, 'doctor: ' || doctor);
EXCEPTION WHEN SQLSTATE 'XX999' THEN
    answer := SQLERRM;
END $$;
SET client_min_messages = warning;
CREATE FUNCTION shapes.any_log(name text) RETURNS text LANGUAGE sql AS $$ SELECT regexp_replace(name, 'outbox_message_\d', 'outbox_message_N', 'g') $$;
-- As it was made.
SELECT shapes.any_log(q.index_name) AS index_name, (shapes.outcome('{SELECT}', question)).answer FROM shapes.question AS q ORDER BY q.table_name, q.index_name;
-- Changed. What is the same as before is left out.
SELECT shapes.any_log(q.index_name) AS index_name, c.change, shapes.any_log(changed.answer) AS answer
  FROM shapes.question AS q CROSS JOIN shapes.change AS c,
       LATERAL shapes.outcome('{SELECT}', question) AS before,
       LATERAL (SELECT array_agg(format(s, q.table_name, q.index_name, q.other_column) ORDER BY n)
                  FROM unnest(c.statements) WITH ORDINALITY AS u(s, n)) AS f(statements),
       LATERAL shapes.outcome(f.statements, question) AS changed
 WHERE changed.answer IS DISTINCT FROM before.answer
 ORDER BY q.table_name, q.index_name, c.change_no;
RESET client_min_messages;

-- What is left of it would be in the way of other tests.
SELECT count(stacksaga.drop_subscription(s, discard => true)) FROM unnest('{shapes_log,shapes_retry,shapes_dead}'::text[]) AS s;
SELECT count(stacksaga.cancel_saga(saga_id, 'over')) FROM stacksaga.find_sagas(saga => 'shapes');
SELECT count(stacksaga.leave_ring(node, incarnation)) FROM stacksaga.nodes WHERE node = 'shapes';
SELECT stacksaga.set_queue('shapes');
SET client_min_messages = warning;
DROP SCHEMA shapes CASCADE;
