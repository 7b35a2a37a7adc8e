-- An item that cannot be read, built or sent stops no other one: a step parks its saga. (Values are damaged by taking
-- their chunks away, as a broken disk may.)
SET client_min_messages = warning;
SET log_min_messages = fatal;
CREATE SCHEMA unfit;
SET search_path = unfit, stacksaga, public;
CREATE EXTENSION pg_surgery SCHEMA unfit;
CREATE FUNCTION large(n integer) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('n', n, 'text', string_agg(md5(n || ' ' || i), '')) FROM generate_series(1, 200) AS i
$$;
-- Takes away the chunks of the values of a table that this transaction has stored outside of it.
CREATE FUNCTION damage(damaged regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    toast regclass := (SELECT reltoastrelid FROM pg_class WHERE oid = damaged);
    places tid[];
BEGIN
    EXECUTE format('SELECT array_agg(ctid) FROM %s', toast) INTO places;
    PERFORM heap_force_kill(toast, places);
END $$;
CREATE FUNCTION act(call step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(length(call.results::text) > 0) $$;
SELECT define_saga('unfit service', ARRAY[queue_step('a', 'unfit', compensable => false),
                                          queue_step('b', 'unfit b', compensable => false)]),
       define_saga('unfit handler', ARRAY[queue_step('a', 'unfit h', compensable => false),
                                          sql_step('b', 'unfit.act(stacksaga.step_call)')]),
       define_saga('unfit command', ARRAY[queue_step('a', 'unfit c', compensable => false), message_step('b', 'unfit b')]),
       define_saga('unfit child', ARRAY[queue_step('a', 'unfit d', compensable => false)]),
       define_saga('unfit parent', ARRAY[child_step('a', 'unfit child')]);

-- The first of three steps of a service.
CREATE TABLE started AS SELECT n, s.saga_id FROM generate_series(1, 3) AS n, LATERAL start_saga('unfit service', to_jsonb(n)) AS s;
SELECT count(complete_step(c.saga_id, c.step, c.lease, CASE WHEN s.n = 1 THEN large(1) ELSE '1' END))
  FROM claim_steps('unfit', 'w', 10) AS c JOIN started s USING (saga_id);
SELECT damage('effect');
SELECT n, step FROM claim_steps('unfit b', 'w', 10) JOIN started USING (saga_id) ORDER BY n;
SELECT n, status, p.step, p.error ~ '^missing chunk number 0 for toast value' AS missing
  FROM started JOIN sagas USING (saga_id) LEFT JOIN parked_sagas p USING (saga_id) ORDER BY n;
SELECT n, step FROM claim_steps('unfit b', 'w', 10) JOIN started USING (saga_id) ORDER BY n;
-- It goes on when the value is there again.
UPDATE effect SET output = '1' WHERE saga_id = (SELECT saga_id FROM started WHERE n = 1);
SELECT retry_saga(saga_id, 'repaired') FROM started WHERE n = 1;
SELECT n, step FROM claim_steps('unfit b', 'w', 10) JOIN started USING (saga_id) ORDER BY n;

-- Handlers, commands, and a child that has ended.
DROP TABLE started;
CREATE TABLE started AS
    SELECT v.saga, n, s.saga_id FROM generate_series(1, 2) AS n, unnest('{unfit handler,unfit command,unfit parent}'::text[]) AS v(saga),
           LATERAL start_saga(v.saga, to_jsonb(n)) AS s;
SELECT run_pending() > 0 AS ran;
SELECT q, count(complete_step(c.saga_id, c.step, c.lease, CASE WHEN s.n = 1 THEN large(2) ELSE '1' END))
  FROM unnest('{unfit h,unfit c,unfit d}'::text[]) AS q, claim_steps(q, 'w', 10) AS c
  JOIN sagas g USING (saga_id) JOIN started s ON s.saga_id = coalesce(g.parent_id, g.saga_id) GROUP BY q ORDER BY q;
SELECT damage('effect');
SELECT run_pending() > 0 AS ran;
SELECT s.saga, n, status, p.step, p.error ~ '^missing chunk number 0 for toast value' AS missing
  FROM started s JOIN sagas USING (saga_id) LEFT JOIN parked_sagas p USING (saga_id) ORDER BY 1, 2;

-- Messages of a service and of a handler, and those behind them of their key.
CREATE TABLE handled (n integer);
CREATE FUNCTION take(m message) RETURNS void LANGUAGE sql AS $$ INSERT INTO unfit.handled VALUES ((m.payload ->> 'n')::integer) $$;
SELECT create_subscription('unfit service', 'unfit'), create_subscription('unfit handler', 'unfit', 'unfit.take(stacksaga.message)');
SELECT count(publish('unfit', CASE WHEN n IN (2, 5) THEN large(n) ELSE jsonb_build_object('n', n) END,
                     key => CASE WHEN n IN (2, 3) THEN 'k' END)) FROM generate_series(1, 6) AS n;
SELECT damage(tableoid) FROM (SELECT DISTINCT tableoid::regclass FROM outbox_message) AS t;
SELECT payload ->> 'n' AS n FROM receive_messages('unfit service', 'c') ORDER BY 1;
SELECT subscription, key, payload IS NULL AS unread, last_error ~ '^missing chunk number 0 for toast value' AS missing
  FROM dead_messages WHERE subscription = 'unfit service' ORDER BY key;
-- Nothing of them was kept that could be delivered again. What is behind them in the key waits until they are discarded.
CREATE TABLE unread AS SELECT message_id, key FROM dead_messages WHERE subscription = 'unfit service';
\set VERBOSITY terse
SELECT redrive_message('unfit service', message_id, past_dedupe_retention => true) FROM unread WHERE key = 'k';
SELECT count(*) FROM redrive_messages('unfit service');
SELECT count(*) FROM redrive_messages('unfit service', dry_run => false, past_dedupe_retention => true);
\set VERBOSITY default
SELECT count(*) FROM dead_messages WHERE subscription = 'unfit service';
SELECT ack_messages(batch_id) FROM message_batch WHERE subscription_id = (SELECT subscription_id FROM subscription WHERE subscription = 'unfit service');
SELECT count(*) FROM receive_messages('unfit service', 'c');
SELECT discard_message('unfit service', message_id, 'published again') FROM unread WHERE key = 'k';
SELECT payload ->> 'n' AS n, ack_messages(batch_id) FROM receive_messages('unfit service', 'c');
SELECT run_pending() > 0 AS ran;
SELECT n FROM handled ORDER BY n;
SELECT subscription, count(*) FROM dead_messages WHERE subscription ~ '^unfit' GROUP BY subscription ORDER BY subscription;
SELECT drop_subscription('unfit service', discard => true), drop_subscription('unfit handler', discard => true);

-- Dead messages of which one or more cannot be read: the others are redriven, as many as were wanted.
SELECT create_subscription('unfit dead', 'unfit dead');
SELECT count(publish('unfit dead', CASE WHEN n IN (1, 4) THEN large(n) ELSE jsonb_build_object('n', n) END,
                     key => CASE WHEN n IN (4, 5) THEN 'k' WHEN n IN (6, 7) THEN 'l' END)) FROM generate_series(1, 7) AS n;
CREATE TABLE received AS SELECT message_id, batch_id, payload ->> 'n' AS n FROM receive_messages('unfit dead', 'c');
SELECT count(fail_message(batch_id, message_id, 'no', 'non_retryable')) FROM received WHERE n NOT IN ('5', '7');
SELECT sum(ack_messages(batch_id)) FROM (SELECT DISTINCT batch_id FROM received) AS b;
SELECT damage('dead_message');
SELECT n, severity, regexp_replace(detail, '[0-9a-f-]{36}', '...') AS detail
  FROM doctor() JOIN received ON strpos(detail, message_id::text) > 0 WHERE check_name = 'values' ORDER BY n;
\set VERBOSITY terse
SELECT count(*) FROM redrive_messages('unfit dead', max_messages => 2);
SELECT n FROM redrive_messages('unfit dead', max_messages => 2, dry_run => false) JOIN received USING (message_id) ORDER BY n;
SELECT n FROM redrive_messages('unfit dead', dry_run => false) JOIN received USING (message_id) ORDER BY n;
SELECT n FROM redrive_messages('unfit dead', dry_run => false) JOIN received USING (message_id) ORDER BY n;
SELECT count(*) FROM operator_actions WHERE object ~ 'unfit dead' AND action = 'redrive';
-- Each is delivered; what lies behind a damaged one in its key waits for it.
SELECT payload ->> 'n' AS n FROM receive_messages('unfit dead', 'c') ORDER BY 1;
SELECT ack_messages(batch_id) > 0 AS acknowledged FROM (SELECT DISTINCT batch_id FROM message_batch
 WHERE subscription_id = (SELECT subscription_id FROM subscription WHERE subscription = 'unfit dead') AND batch_id NOT IN (SELECT batch_id FROM received)) AS b;
SELECT payload ->> 'n' AS n, ack_messages(batch_id) FROM receive_messages('unfit dead', 'c') ORDER BY 1;
SELECT message_id AS damaged FROM received WHERE n = '4' \gset
\set VERBOSITY sqlstate
SELECT redrive_message('unfit dead', :'damaged');
SELECT discard_message('unfit dead', :'damaged', 'published again');
SELECT payload ->> 'n' AS n, ack_messages(batch_id) FROM receive_messages('unfit dead', 'c') ORDER BY 1;
\set VERBOSITY default
SELECT drop_subscription('unfit dead', discard => true);

RESET search_path;
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure, stacksaga.outbox_message, stacksaga.parked_saga;
DROP SCHEMA unfit CASCADE;
RESET log_min_messages;
