-- A paused subscription delivers nothing new: to services, to a handler, to a fallback. What was given before goes on.

\set SHOW_CONTEXT never
DELETE FROM stacksaga.operator_action WHERE object LIKE 'subscription %';
ALTER SEQUENCE stacksaga.message_batch_id_seq RESTART;
CREATE SCHEMA pauses;
CREATE TABLE pauses.got (n bigserial, by_whom text, message text);
CREATE FUNCTION pauses.handle(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
    INSERT INTO pauses.got (by_whom, message) VALUES ('handler', m.payload ->> 0)
$$;
CREATE FUNCTION pauses.save(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
    INSERT INTO pauses.got (by_whom, message) VALUES ('fallback', m.payload ->> 0)
$$;
CREATE FUNCTION pauses.look() RETURNS text LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM pauses.got RETURNING *)
    SELECT string_agg(format('%s(%s)', by_whom, message), ' ' ORDER BY n) FROM gone
$$;
CREATE FUNCTION pauses.put(topic text, VARIADIC names text[]) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(stacksaga.publish(topic, to_jsonb(name), name)) FROM unnest(names) AS name
$$;
CREATE FUNCTION pauses.receive(subscription text, max_messages int DEFAULT 100)
RETURNS TABLE (batch bigint, message text) LANGUAGE sql AS $$
    SELECT batch_id, payload ->> 0 FROM stacksaga.receive_messages(subscription, 'c', max_messages) ORDER BY 2
$$;
CREATE FUNCTION pauses.refusal(statement text) RETURNS text LANGUAGE plpgsql AS $$
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
SET search_path = pauses, public;

-- Nothing new; a batch that was given before is extended, answered for and acknowledged.
SELECT stacksaga.create_subscription('service', 's', partitions => 2);
SELECT put('s', 'a', 'b');
SELECT * FROM receive('service');
SELECT stacksaga.pause_subscription('service', 'INC-1: the warehouse is closed');
SELECT paused, paused_since <= stacksaga.clock_now() AS since, paused_until, pause_reason, released_until, release_reason
  FROM stacksaga.subscriptions WHERE subscription = 'service';
SELECT put('s', 'c');
SELECT * FROM receive('service');
SELECT stacksaga.extend_batch(1, '1 minute') > now() AS extended;
SELECT count(stacksaga.fail_message(1, message_id, 'not now', retry_after => '0'))
  FROM stacksaga.outbox_message WHERE payload = '"a"';
SELECT stacksaga.ack_messages(1);
-- Neither the message nor the retry, which is due.
SELECT * FROM receive('service');
SELECT lag_messages FROM stacksaga.subscriptions WHERE subscription = 'service';
SELECT stacksaga.resume_subscription('service', 'INC-1: it is open');
SELECT paused, paused_since, paused_until, pause_reason FROM stacksaga.subscriptions WHERE subscription = 'service';
SELECT * FROM receive('service');
SELECT stacksaga.ack_messages(2);

-- Until an instant: from then on it is not paused, may be paused again, and cannot be resumed.
SELECT stacksaga.pause_subscription('service', 'lunch', stacksaga.clock_now() + interval '1 hour');
SELECT paused, paused_until - paused_since > interval '59 minutes' AS until, pause_reason
  FROM stacksaga.subscriptions WHERE subscription = 'service';
SELECT put('s', 'd');
SELECT * FROM receive('service');
SELECT refusal($$SELECT stacksaga.pause_subscription('service', 'twice')$$);
SET stacksaga.clock_offset = '61 minutes';
SELECT paused, paused_since, paused_until, pause_reason FROM stacksaga.subscriptions WHERE subscription = 'service';
SELECT * FROM receive('service');
SELECT refusal($$SELECT stacksaga.resume_subscription('service', 'too late')$$);
SELECT stacksaga.pause_subscription('service', 'lunch again', stacksaga.clock_now() + interval '1 hour');
SELECT stacksaga.resume_subscription('service', 'not hungry');
RESET stacksaga.clock_offset;

-- The handler, then the fallback of a message that its handler cannot take.
SELECT stacksaga.create_subscription('handled', 'h', 'handle(stacksaga.message)');
SELECT stacksaga.create_subscription('saved', 'f', fallback => 'save(stacksaga.message)', retry => stacksaga.retry_policy(max_attempts => 1));
SELECT stacksaga.pause_subscription('handled', 'a bug in handle()');
SELECT put('h', 'e'), put('f', 'g');
SELECT count(stacksaga.fail_message(batch_id, message_id, 'no')), max(batch_id) AS batch FROM stacksaga.receive_messages('saved', 'c') \gset
SELECT stacksaga.ack_messages(:batch);
SELECT stacksaga.pause_subscription('saved', 'a bug in save()');
SELECT stacksaga.run_pending(), look();
SELECT stacksaga.resume_subscription('handled', 'the bug is gone'), stacksaga.resume_subscription('saved', 'so is that one');
SELECT stacksaga.run_pending(), look();

-- One for which messages wait is named, with how to end the pause; metrics say it.
SELECT stacksaga.pause_subscription('service', 'INC-2');
SELECT put('s', 'i');
SET stacksaga.clock_offset = '5 minutes';
SELECT check_name, fix FROM stacksaga.doctor() WHERE fix LIKE '%resume_subscription%';
SELECT name, labels ->> 'subscription' AS subscription, value FROM stacksaga.metrics()
 WHERE name = 'stacksaga_subscription_paused' ORDER BY 2;
RESET stacksaga.clock_offset;
SELECT stacksaga.ack_messages(3);
SELECT stacksaga.drop_subscription('service', discard => true);

-- What is refused.
SELECT refusal(statement) FROM (VALUES
    (1, $$SELECT stacksaga.pause_subscription('nobody', 'why')$$),
    (2, $$SELECT stacksaga.resume_subscription('nobody', 'why')$$),
    (3, $$SELECT stacksaga.pause_subscription(NULL, 'why')$$),
    (4, $$SELECT stacksaga.pause_subscription('handled', NULL)$$),
    (5, $$SELECT stacksaga.pause_subscription('handled', '')$$),
    (6, $$SELECT stacksaga.resume_subscription('handled', NULL)$$),
    (7, $$SELECT stacksaga.pause_subscription('handled', 'why', '2000-01-01 00:00+00')$$),
    (8, $$SELECT stacksaga.pause_subscription('handled', 'why', 'infinity')$$),
    (9, $$SELECT stacksaga.resume_subscription('handled', 'why')$$)) AS s(no, statement) ORDER BY no;
-- A rolled back pause is none.
BEGIN;
SELECT stacksaga.pause_subscription('handled', 'a slip');
ROLLBACK;
SELECT paused FROM stacksaga.subscriptions WHERE subscription = 'handled';

-- Who did it, and for what reason.
SELECT action, object, reason FROM stacksaga.operator_actions
 WHERE object IN ('subscription service', 'subscription handled', 'subscription saved') ORDER BY at;

SELECT stacksaga.drop_subscription('handled'), stacksaga.drop_subscription('saved', discard => true);
SET client_min_messages = warning;
TRUNCATE stacksaga.outbox_message;
DROP SCHEMA pauses CASCADE;
