-- The other rungs: compare and set, sequences, accepted messages; what a definition declares.

\set SHOW_CONTEXT never
CREATE SCHEMA ladder;
CREATE FUNCTION ladder.outcome(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text; detail text; hint text;
BEGIN
    EXECUTE statement INTO result;
    RETURN coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(E'\n', SQLSTATE || ': ' || SQLERRM, nullif(detail, ''), nullif(hint, ''));
END
$$;

-- By algebra: a total instead of an increment. Nothing is recorded, and repeating changes nothing.
CREATE TABLE ladder.account (id int PRIMARY KEY, balance int, members text[] DEFAULT '{}');
INSERT INTO ladder.account VALUES (1, 100);
CREATE FUNCTION ladder.set_total(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    UPDATE ladder.account SET balance = (call.input->>'total')::int WHERE id = 1
    RETURNING to_jsonb(balance)
$$;
CREATE FUNCTION ladder.set_back(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
    UPDATE ladder.account SET balance = (call.input->>'before')::int WHERE id = 1
    RETURNING to_jsonb(balance)
$$;
SELECT stacksaga.define_saga('ladder', ARRAY[
    stacksaga.sql_step('total', 'ladder.set_total(stacksaga.step_call)', effect => 'idempotent'),
    stacksaga.sql_step('back', 'ladder.set_total(stacksaga.step_call)', 'ladder.set_back(stacksaga.step_call)'),
    stacksaga.sql_step('guarded', 'ladder.set_total(stacksaga.step_call)'),
    stacksaga.queue_step('tag', 'ladder', compensable => false, effect => 'idempotent'),
    stacksaga.queue_step('mail', 'ladder', compensable => false),
    stacksaga.queue_step('charge', 'ladder', compensable => true),
    stacksaga.queue_step('ship', 'ladder', compensable => false, effect => 'irreversible')]);
SELECT stacksaga.define_saga('ladder', ARRAY[
    stacksaga.sql_step('total', 'ladder.set_total(stacksaga.step_call)', effect => 'idempotent')]);
SELECT source, step, effect, rung, guarantee, version FROM stacksaga.effects WHERE source = 'ladder' ORDER BY version, guarantee, step;
SELECT stacksaga.define_saga('ladder kinds', ARRAY[stacksaga.signal_step('signal', 's'), stacksaga.timer_step('timer', '1 s'),
    stacksaga.child_step('child', 'ladder')]);
CREATE FUNCTION ladder.handle(stacksaga.message) RETURNS void LANGUAGE sql AS '';
SELECT stacksaga.create_subscription('ladder handled', 'ladder', handler => 'ladder.handle(stacksaga.message)');
SELECT stacksaga.create_subscription('ladder fetched', 'ladder');
SELECT source, step, effect, rung, guarantee, version FROM stacksaga.effects WHERE source LIKE 'ladder %' ORDER BY source, step;
SELECT stacksaga.drop_subscription(s, true) FROM unnest(ARRAY['ladder handled', 'ladder fetched']) AS s;
SELECT count(*) FROM stacksaga.idempotency_key UNION ALL SELECT count(*) FROM stacksaga.accepted_message;
SELECT saga_id FROM stacksaga.start_saga('ladder', '{"total": 130}') \gset
SELECT stacksaga.run_pending();
SELECT balance FROM ladder.account;
SELECT count(*) FROM stacksaga.idempotency_key UNION ALL SELECT count(*) FROM stacksaga.accepted_message;
SELECT count(*) AS markers FROM stacksaga.effect WHERE saga_id = :'saga_id';

-- Compare and set: versions only rise, and one version is one content.
SELECT stacksaga.compare_and_set('ladder', 'price', NULL, '10');
SELECT * FROM stacksaga.read_value('ladder', 'price');
SELECT stacksaga.compare_and_set('ladder', 'price', 1, '11');
SELECT ladder.outcome($$ SELECT stacksaga.compare_and_set('ladder', 'price', 1, '12') $$);
SELECT ladder.outcome($$ SELECT stacksaga.compare_and_set('ladder', 'price', NULL, '12') $$);
SELECT ladder.outcome($$ SELECT stacksaga.compare_and_set('ladder', 'price', 0, '12') $$);
SELECT ladder.outcome($$ SELECT stacksaga.compare_and_set('ladder', 'absent', 1, '12') $$);
SELECT * FROM stacksaga.read_value('ladder', 'price');
SELECT * FROM stacksaga.read_value('ladder', 'absent');
SELECT * FROM stacksaga.read_value('other', 'price');
-- JSON null is a value, the same value is a new version.
SELECT stacksaga.compare_and_set('ladder', 'null', NULL, 'null'),
       stacksaga.compare_and_set('ladder', 'null', 1, 'null');
-- Deleting is a version too; what was read before it never fits again.
SELECT stacksaga.compare_and_set('ladder', 'price', 2, NULL);
SELECT * FROM stacksaga.read_value('ladder', 'price');
SELECT ladder.outcome($$ SELECT stacksaga.compare_and_set('ladder', 'price', 2, '10') $$);
SELECT ladder.outcome($$ SELECT stacksaga.compare_and_set('ladder', 'price', 3, '10') $$);
SELECT stacksaga.compare_and_set('ladder', 'price', NULL, '10');
SELECT ladder.outcome(format($$ SELECT stacksaga.compare_and_set('ladder', 'price', %s, '13') $$, n))
  FROM generate_series(1, 3) AS n;
SELECT * FROM stacksaga.read_value('ladder', 'price');
BEGIN;
SELECT stacksaga.compare_and_set('ladder', 'price', 4, '14');
ROLLBACK;
SELECT * FROM stacksaga.read_value('ladder', 'price');
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT * FROM stacksaga.read_value('ladder', 'price');
COMMIT;

-- Sequence and epoch.
SELECT ladder.outcome(format('SELECT stacksaga.accept_sequence(%L, %s)', 'till', numbers))
  FROM unnest(ARRAY['1, 2', '1, 1', '1, 1', '1, 2', '1, 4', '1, 3', '1, 1', '1, 3']) AS numbers;
-- A newer epoch begins at 1, and fences the old one.
SELECT ladder.outcome(format('SELECT stacksaga.accept_sequence(%L, %s)', 'till', numbers))
  FROM unnest(ARRAY['3, 2', '1, 4', '3, 1', '1, 5', '2, 1', '3, 1', '3, 2', '1, 1']) AS numbers;
-- Other producers have sequences of their own; epochs may begin anywhere.
SELECT stacksaga.accept_sequence('other till', 0, 1), stacksaga.accept_sequence('other till', 9223372036854775807, 1);
UPDATE stacksaga.producer_sequence SET sequence = 9223372036854775806 WHERE producer = 'other till';
SELECT stacksaga.accept_sequence('other till', 9223372036854775807, 9223372036854775807),
       stacksaga.accept_sequence('other till', 9223372036854775807, 9223372036854775807);
-- A rolled-back message may come again.
BEGIN;
SELECT stacksaga.accept_sequence('till', 3, 3);
ROLLBACK;
SELECT stacksaga.accept_sequence('till', 3, 3);
-- A duplicate writes nothing.
BEGIN;
SELECT stacksaga.accept_sequence('till', 3, 3), pg_current_xact_id_if_assigned();
COMMIT;
SELECT producer, epoch, sequence FROM stacksaga.producer_sequence ORDER BY producer;

-- Accepted messages: once a consumer.
SELECT stacksaga.accept_message('mailer', 'm1'), stacksaga.accept_message('mailer', 'm1'),
       stacksaga.accept_message('ledger', 'm1'), stacksaga.accept_message('ledger', 'm1');
BEGIN;
SELECT stacksaga.accept_message('mailer', 'm1'), pg_current_xact_id_if_assigned();
SELECT stacksaga.accept_message('mailer', 'm2');
ROLLBACK;
BEGIN;
SAVEPOINT effect;
SELECT stacksaga.accept_message('mailer', 'm2');
ROLLBACK TO effect;
SELECT stacksaga.accept_message('mailer', 'm2');
COMMIT;
SELECT stacksaga.accept_message('mailer', 'm2');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT stacksaga.accept_message('mailer', 'm3'), stacksaga.accept_message('mailer', 'm3'), stacksaga.accept_message('mailer', 'm2');
COMMIT;
SELECT stacksaga.accept_message('mailer', 'm3');
-- Forgotten when its retention is over, whether swept or not.
SELECT stacksaga.accept_message('mailer', 'short', retention => '1 hour');
SET stacksaga.clock_offset = '59 minutes';
SELECT stacksaga.accept_message('mailer', 'short');
SET stacksaga.clock_offset = '61 minutes';
SELECT stacksaga.accept_message('mailer', 'short'), stacksaga.accept_message('mailer', 'short');
SET stacksaga.clock_offset = '6 days 23 hours';
SELECT stacksaga.expire_dedupe(), stacksaga.accept_message('ledger', 'm1');
SET stacksaga.clock_offset = '7 days 30 minutes';
SELECT stacksaga.expire_dedupe(2), stacksaga.expire_dedupe(), stacksaga.expire_dedupe();
SELECT consumer, message_id FROM stacksaga.accepted_message;
SELECT stacksaga.accept_message('ledger', 'm1');
RESET stacksaga.clock_offset;
-- Producers and values are never forgotten.
SELECT (SELECT count(*) FROM stacksaga.producer_sequence), (SELECT count(*) FROM stacksaga.versioned_value);
SET stacksaga.dedupe_retention = '1h';
SELECT stacksaga.accept_message('mailer', 'setting');
SELECT round(extract(epoch FROM expires_at - now()) / 60) FROM stacksaga.accepted_message WHERE message_id = 'setting';
RESET stacksaga.dedupe_retention;
SELECT token::bigint = stacksaga.token(consumer || chr(31) || message_id) FROM stacksaga.accepted_message
UNION SELECT token::bigint = stacksaga.token(scope || chr(31) || key) FROM stacksaga.versioned_value
UNION SELECT token::bigint = stacksaga.token(producer) FROM stacksaga.producer_sequence;

-- A definition whose retries may take longer than what is remembered of them.
CREATE FUNCTION ladder.defines(attempts int, options text DEFAULT '', step text DEFAULT ', compensable => true') RETURNS text LANGUAGE sql AS $$
    SELECT ladder.outcome(format(
        'SELECT stacksaga.define_saga(''window'', ARRAY[stacksaga.queue_step(''charge'', ''ladder'',
             retry => stacksaga.retry_policy(max_attempts => %s, jitter => 0)%s)]%s)', attempts, step, options))
$$;
-- 30 seconds an attempt, and pauses of 1, 2, 4, .. seconds up to five minutes.
SELECT ladder.defines(1840);
SELECT ladder.defines(1841);
SELECT ladder.defines(1841, ', deadline => ''7 days''');
SELECT ladder.defines(1841, ', deadline => ''7 days 1 second''');
SELECT ladder.defines(1841, '', ', effect => ''idempotent'', compensable => false');
SELECT ladder.defines(1, ', compensation_retry => stacksaga.retry_policy(max_attempts => 2000, jitter => 0)');
SELECT ladder.defines(1, ', compensation_retry => stacksaga.retry_policy(max_attempts => 2000, jitter => 0)', ', compensable => false');
SELECT ladder.defines(2147483647);
-- A wait repeats nothing, but its fallback is a service.
SELECT fallback, ladder.outcome(format(
    $$SELECT stacksaga.define_saga('window', ARRAY[stacksaga.signal_step('paid', 'paid', timeout => '30 s',
        retry => stacksaga.retry_policy(max_attempts => 1841, jitter => 0) %s)])$$, fallback))
  FROM unnest(ARRAY['', ', fallback => ''reminders'' ']) AS fallback;
-- Without a limit there is no number to compare.
SELECT ladder.defines(0);
SET stacksaga.dedupe_retention = '8d';
SELECT ladder.defines(1841);
SET stacksaga.dedupe_retention = '10min';
SELECT ladder.defines(1841);
RESET stacksaga.dedupe_retention;
SELECT count(*) FROM stacksaga.saga_definition WHERE saga = 'window';
-- PostgreSQL 17 says the unit beside the bounds.
\set VERBOSITY sqlstate
SET stacksaga.dedupe_retention = 0;
\set VERBOSITY default
SELECT min_val, max_val, boot_val, unit, context FROM pg_settings WHERE name = 'stacksaga.dedupe_retention';

SET client_min_messages = warning;
TRUNCATE stacksaga.idempotency_key, stacksaga.accepted_message, stacksaga.producer_sequence,
    stacksaga.versioned_value, stacksaga.saga, stacksaga.work, stacksaga.effect;
DROP SCHEMA ladder CASCADE;
