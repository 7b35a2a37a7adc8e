-- What the outbox refuses: the SQLSTATE, what DETAIL and HINT say, and that nothing was changed.

\set SHOW_CONTEXT never
ALTER SEQUENCE stacksaga.message_batch_id_seq RESTART;
CREATE SCHEMA refused;
CREATE FUNCTION refused.refusal(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text; hint text;
BEGIN
    EXECUTE statement;
    RETURN 'allowed';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN format('%s: %s; %s %s', SQLSTATE, SQLERRM, detail, hint);
END
$$;
CREATE FUNCTION refused.takes_nothing() RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION refused.takes_text(text) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION refused.returns(stacksaga.message) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION refused.batch_returns(stacksaga.message[]) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION refused.batch(stacksaga.message[]) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION refused.one(stacksaga.message) RETURNS void LANGUAGE sql AS '';

-- publish
SELECT refused.refusal(s) FROM unnest(ARRAY[
    $$SELECT stacksaga.publish(NULL, '{}')$$,
    $$SELECT stacksaga.publish('', '{}')$$,
    $$SELECT stacksaga.publish('a*', '{}')$$,
    $$SELECT stacksaga.publish(repeat('x', 256), '{}')$$,
    $$SELECT stacksaga.publish('t', NULL)$$,
    $$SELECT stacksaga.publish('t', '{}', '')$$,
    $$SELECT stacksaga.publish('t', '{}', repeat('k', 256))$$,
    $$SELECT stacksaga.publish('t', '{}', type => repeat('k', 256))$$,
    $$SELECT stacksaga.publish('t', '{}', headers => '[]')$$,
    $$SELECT stacksaga.publish('t', '{}', deliver_at => 'infinity')$$,
    $$SELECT stacksaga.publish('t', '{}', deliver_at => '-infinity')$$,
    $$SELECT stacksaga.publish('t', to_jsonb(repeat('x', 2000000)))$$,
    $$SELECT stacksaga.publish('t', '{}', headers => jsonb_build_object('x', repeat('x', 2000000)))$$
]) AS s;
-- publish into a log that was changed
BEGIN READ ONLY;
SELECT refused.refusal($$SELECT stacksaga.publish('t', '{}')$$);
SELECT refused.refusal($$SELECT stacksaga.publish_batch('t', ARRAY['{}'::jsonb])$$);
COMMIT;
CREATE FUNCTION refused.fires() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER fires AFTER INSERT ON stacksaga.outbox_message
    FOR EACH ROW EXECUTE FUNCTION refused.fires();
SELECT regexp_replace(refused.refusal($$SELECT stacksaga.publish('t', '{}')$$), 'message_\d', 'message_N')
    AS refusal;
DROP TRIGGER fires ON stacksaga.outbox_message;
-- publish_batch
SELECT refused.refusal(s) FROM unnest(ARRAY[
    $$SELECT stacksaga.publish_batch('t', NULL)$$,
    $$SELECT stacksaga.publish_batch('t*', ARRAY['{}']::jsonb[])$$,
    $$SELECT stacksaga.publish_batch('t', ARRAY['{}', NULL]::jsonb[])$$,
    $$SELECT stacksaga.publish_batch('t', ARRAY['{}', '{}']::jsonb[], ARRAY['a'])$$,
    $$SELECT stacksaga.publish_batch('t', ARRAY['{}']::jsonb[], ARRAY['a'], ARRAY['b', 'c'])$$,
    $$SELECT stacksaga.publish_batch('t', ARRAY['{}', '{}']::jsonb[], ARRAY['a', ''])$$,
    $$SELECT stacksaga.publish_batch('t', ARRAY[['{}'], ['{}']]::jsonb[])$$,
    $$SELECT stacksaga.publish_batch('t', ARRAY['{}', to_jsonb(repeat('x', 2000000))])$$
]) AS s;
SELECT count(*) FROM stacksaga.publish_batch('t', '{}');
SELECT count(*) FROM stacksaga.outbox_message;
-- create_subscription
SELECT refused.refusal('SELECT stacksaga.create_subscription(' || s || ')') FROM unnest(ARRAY[
    $$NULL, 't'$$,
    $$'', 't'$$,
    $$repeat('s', 64), 't'$$,
    $$'s', NULL$$,
    $$'s', ''$$,
    $$'s', 'a*b'$$,
    $$'s', 't', 'refused.one'$$,
    $$'s', 't', 'refused.none(stacksaga.message)'$$,
    $$'s', 't', 'refused.takes_nothing()'$$,
    $$'s', 't', 'refused.takes_text(text)'$$,
    $$'s', 't', 'refused.returns(stacksaga.message)'$$,
    $$'s', 't', 'refused.batch_returns(stacksaga.message[])'$$,
    $$'s', 't', fallback => 'refused.batch(stacksaga.message[])'$$,
    $$'s', 't', start_at => 'yesterday'$$,
    $$'s', 't', stop_on_first_failure => NULL$$,
    $$'s', 't', retry => stacksaga.retry_policy(max_attempts => -1)$$,
    $$'s', 't', retry => stacksaga.retry_policy(multiplier => 0.5)$$,
    $$'s', 't', retry => stacksaga.retry_policy(retry_on => ARRAY['four'])$$,
    $$'s', 't', retry => stacksaga.retry_policy(retry_on => ARRAY['40', '40p01'])$$,
    $$'s', 't', retry => stacksaga.retry_policy(never_on => ARRAY['23', NULL])$$,
    $$'s', 't', retry => stacksaga.retry_policy(jitter => NULL)$$
]) AS s;
SELECT count(*) FROM stacksaga.subscription;
SELECT stacksaga.create_subscription('handled', 't', 'refused.batch(stacksaga.message[])');
SELECT stacksaga.create_subscription('s', 't');
SELECT refused.refusal($$SELECT stacksaga.create_subscription('s', 'u')$$);
-- what services call
SELECT stacksaga.publish('t', '{}', 'k', message_id => '11111111-1111-7111-8111-111111111111');
SELECT batch_id AS batch FROM stacksaga.receive_messages('s', 'c') \gset
SELECT refused.refusal(s) FROM unnest(ARRAY[
    $$SELECT stacksaga.receive_messages('none', 'c')$$,
    $$SELECT stacksaga.receive_messages(NULL, 'c')$$,
    $$SELECT stacksaga.receive_messages('s', '')$$,
    $$SELECT stacksaga.receive_messages('s', 'c', 0)$$,
    $$SELECT stacksaga.receive_messages('s', 'c', -1)$$,
    $$SELECT stacksaga.receive_messages('s', 'c', 10001)$$,
    $$SELECT stacksaga.receive_messages('s', 'c', NULL)$$,
    $$SELECT stacksaga.receive_messages('s', 'c', lease => '0')$$,
    $$SELECT stacksaga.receive_messages('handled', 'c')$$,
    $$SELECT stacksaga.ack_messages(NULL)$$,
    $$SELECT stacksaga.ack_messages(-1)$$,
    $$SELECT stacksaga.extend_batch(-1)$$,
    $$SELECT stacksaga.fail_message(-1, '11111111-1111-7111-8111-111111111111', 'no')$$,
    $$SELECT stacksaga.drop_subscription('none')$$,
    $$SELECT stacksaga.drop_subscription('s')$$,
    $$SELECT stacksaga.redrive_message('s', '11111111-1111-7111-8111-111111111111')$$,
    $$SELECT stacksaga.discard_message('s', '11111111-1111-7111-8111-111111111111', 'x')$$,
    $$SELECT stacksaga.discard_message('s', '11111111-1111-7111-8111-111111111111', NULL)$$
]) AS s;
SELECT refused.refusal(format(s, :batch)) FROM unnest(ARRAY[
    $$SELECT stacksaga.extend_batch(%s, '-1 s')$$,
    $$SELECT stacksaga.fail_message(%s, '22222222-2222-7222-8222-222222222222', 'no')$$,
    $$SELECT stacksaga.fail_message(%s, '11111111-1111-7111-8111-111111111111', NULL)$$,
    $$SELECT stacksaga.fail_message(%s, '11111111-1111-7111-8111-111111111111', 'no', 'maybe')$$,
    $$SELECT stacksaga.fail_message(%s, '11111111-1111-7111-8111-111111111111', 'no',
        retry_after => '-1 s')$$,
    $$SELECT stacksaga.fail_message(%s, '11111111-1111-7111-8111-111111111111',
        repeat('x', 100000))$$
]) AS s;
BEGIN;
SELECT stacksaga.extend_batch(:batch) IS NOT NULL AS extended;
PREPARE TRANSACTION 'refused';
-- nothing was lost on the way
SELECT stacksaga.ack_messages(:batch);
SELECT refused.refusal('SELECT stacksaga.ack_messages(' || :batch || ')');
SELECT stacksaga.drop_subscription('s', true), stacksaga.drop_subscription('handled', true);
SELECT refused.refusal('SELECT stacksaga.ack_messages(' || :batch || ')');
-- An error names a column that was added to the log; the rows in it are read all the same.
SELECT stacksaga.publish('altered', '{}') IS NOT NULL AS published;
SELECT stacksaga.create_subscription('altered', 'altered', start_at => 'earliest');
ALTER TABLE stacksaga.outbox_message ADD CONSTRAINT small CHECK (length(topic) < 3) NOT VALID;
SELECT regexp_replace(refused.refusal($$SELECT stacksaga.publish('topic', '{}')$$), 'message_\d', 'message_N')
    AS refusal;
ALTER TABLE stacksaga.outbox_message DROP CONSTRAINT small;
ALTER TABLE stacksaga.outbox_message ADD COLUMN remark text DEFAULT 'a remark';
SELECT regexp_replace(refused.refusal($$SELECT stacksaga.publish('t', '{}')$$), 'message_\d', 'message_N')
    AS refusal;
SELECT topic, payload FROM stacksaga.receive_messages('altered', 'refused');
SELECT stacksaga.ack_messages(max(batch_id)) FROM stacksaga.message_batch;
ALTER TABLE stacksaga.outbox_message DROP COLUMN remark;
SELECT count(*) FROM stacksaga.publish_batch('altered', ARRAY['1', '2']::jsonb[]);
SELECT count(*) FROM stacksaga.receive_messages('altered', 'refused');
SELECT stacksaga.ack_messages(max(batch_id)) FROM stacksaga.message_batch;
SELECT stacksaga.drop_subscription('altered', true);

DROP SCHEMA refused CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick;
