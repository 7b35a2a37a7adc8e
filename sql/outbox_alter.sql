-- A subscription whose settings are altered keeps its position, its retries and its dead messages.

\set SHOW_CONTEXT never
ALTER SEQUENCE stacksaga.message_batch_id_seq RESTART;
CREATE SCHEMA alters;
CREATE TABLE alters.seen (n bigserial, by_whom text, role name, message text);
CREATE FUNCTION alters.one(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF m.type = 'fails' THEN
        RAISE SQLSTATE 'SR503' USING MESSAGE = 'not now';
    END IF;
    INSERT INTO alters.seen (by_whom, role, message) VALUES ('one', current_user, m.payload ->> 0);
END
$$;
CREATE FUNCTION alters.batch(m stacksaga.message[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO alters.seen (by_whom, role, message)
    SELECT 'batch', current_user, payload ->> 0 FROM unnest(m)
$$;
CREATE FUNCTION alters.saves(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
    INSERT INTO alters.seen (by_whom, role, message) VALUES ('saves', current_user, m.payload ->> 0)
$$;
-- The messages that handlers have got since the last call.
CREATE FUNCTION alters.look() RETURNS text LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM alters.seen RETURNING *)
    SELECT string_agg(format('%s(%s)', by_whom, message), ' ' ORDER BY n) FROM gone
$$;
-- Receives messages as a service does, and acknowledges them.
CREATE FUNCTION alters.take(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    batch bigint;
    messages text;
BEGIN
    SELECT max(batch_id), string_agg(payload ->> 0, ' ') INTO batch, messages
      FROM stacksaga.receive_messages(name, 'c');
    PERFORM stacksaga.ack_messages(batch) WHERE batch IS NOT NULL;
    RETURN messages;
END
$$;
CREATE FUNCTION alters.put(topic text, names text[], type text DEFAULT NULL) RETURNS bigint
LANGUAGE sql AS $$
    SELECT count(stacksaga.publish(topic, to_jsonb(name), 'k', type)) FROM unnest(names) AS name
$$;
CREATE FUNCTION alters.refusal(statement text) RETURNS text LANGUAGE plpgsql AS $$
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
SET search_path = alters, public;

-- Another handler and another policy, with the position kept, and which settings are the same now.
SELECT stacksaga.create_subscription('handled', 'h', 'one(stacksaga.message)');
SELECT put('h', '{a,b}');
SELECT stacksaga.run_pending(), look();
SELECT stacksaga.alter_subscription('handled', 'batch(stacksaga.message[])');
SELECT put('h', '{c,d}');
SELECT stacksaga.run_pending(), look();
SELECT stacksaga.alter_subscription('handled', retry => stacksaga.retry_policy(2, '10 s', jitter => 0),
                                    fallback => 'saves(stacksaga.message)');
SELECT refusal(s) FROM unnest(ARRAY[
    $$SELECT stacksaga.create_subscription('handled', 'h', 'one(stacksaga.message)')$$,
    $$SELECT stacksaga.create_subscription('handled', 'h', 'batch(stacksaga.message[])',
          retry => stacksaga.retry_policy(2, '10 s', jitter => 0),
          fallback => 'alters.saves(stacksaga.message)')$$]) AS s;
-- Retries continue under the new policy: the message has had both attempts that it allows.
SELECT stacksaga.alter_subscription('handled', 'one(stacksaga.message)',
                                    retry => stacksaga.retry_policy(5, '10 s', 1, jitter => 0));
SELECT put('h', '{e}', 'fails'), put('h', '{f}');
SELECT stacksaga.run_pending(), look();
SET stacksaga.clock_offset = '11 s';
SELECT stacksaga.run_pending(), look();
SELECT attempt, state FROM stacksaga.message_retry ORDER BY number;
SELECT stacksaga.alter_subscription('handled', retry => stacksaga.retry_policy(2, '10 s', 1, jitter => 0));
SET stacksaga.clock_offset = '22 s';
SELECT attempt, state, last_error FROM stacksaga.message_retry ORDER BY number LIMIT 1;
SELECT stacksaga.run_pending(), look();
SELECT count(*) FROM stacksaga.message_retry;
-- A message that has had more attempts than are allowed now has failed for good, with its own error.
SELECT stacksaga.create_subscription('fewer', 'f');
SELECT put('f', '{a}');
SELECT batch_id AS batch, message_id AS first FROM stacksaga.receive_messages('fewer', 'c') \gset
SELECT stacksaga.fail_message(:batch, :'first', 'no ink', retry_after => '0'), stacksaga.ack_messages(:batch);
SELECT stacksaga.alter_subscription('fewer', retry => stacksaga.retry_policy(1));
SELECT take('fewer');
SELECT attempts, last_error FROM stacksaga.dead_messages;
SELECT stacksaga.drop_subscription('fewer', true);

-- A failure stops its key no longer: held messages are delivered in order, before new ones.
SELECT stacksaga.create_subscription('stops', 's', retry => stacksaga.retry_policy(1)),
       stacksaga.create_subscription('ticks', 'nothing');
SELECT put('s', '{1,2,3,4}'), take('ticks');
SELECT batch_id AS batch, message_id AS first FROM stacksaga.receive_messages('stops', 'c', 1) \gset
SELECT stacksaga.fail_message(:batch, :'first', 'no'), stacksaga.ack_messages(:batch);
SELECT take('stops');
SELECT put('s', '{5,6}'), take('ticks');
SELECT stacksaga.alter_subscription('stops', stop_on_first_failure => false);
SELECT take('stops');
SELECT count(*) FROM stacksaga.message_retry;
-- It stops the key again, also behind an older dead message, until an operator settles that.
SELECT put('s', '{7,8}'), take('ticks');
SELECT batch_id AS batch, message_id AS seventh FROM stacksaga.receive_messages('stops', 'c', 1) \gset
SELECT stacksaga.fail_message(:batch, :'seventh', 'no', retry_after => '0'), stacksaga.ack_messages(:batch);
SELECT stacksaga.alter_subscription('stops', retry => stacksaga.retry_policy(9));
SELECT batch_id AS batch, message_id AS eighth FROM stacksaga.receive_messages('stops', 'c') \gset
SELECT stacksaga.fail_message(:batch, :'eighth', 'no', retry_after => '0'), stacksaga.ack_messages(:batch);
SELECT state FROM stacksaga.message_retry;
SELECT stacksaga.alter_subscription('stops', stop_on_first_failure => true);
SELECT put('s', '{9}'), take('ticks');
SELECT take('stops');
SELECT state, due_at FROM stacksaga.message_retry ORDER BY number LIMIT 1;
SELECT stacksaga.discard_message('stops', :'first', 'by order');
SELECT take('stops');
SELECT stacksaga.discard_message('stops', :'seventh', 'by order');
SELECT take('stops');

-- Neither the handler nor what stops a key changes while a consumer holds a batch.
SELECT put('s', '{10,11}'), take('ticks');
SELECT batch_id AS batch, message_id AS tenth FROM stacksaga.receive_messages('stops', 'c') LIMIT 1 \gset
SELECT refusal(s) FROM unnest(ARRAY[
    $$SELECT stacksaga.alter_subscription('stops', stop_on_first_failure => false)$$,
    $$SELECT stacksaga.alter_subscription('stops', 'one(stacksaga.message)')$$,
    $$SELECT stacksaga.alter_subscription('stops', stop_on_first_failure => true,
          retry => stacksaga.retry_policy(1))$$]) AS s;
-- The policy does change, and applies to failures of that batch.
SELECT stacksaga.fail_message(:batch, :'tenth', 'no');
SELECT count(*) FROM stacksaga.dead_messages;
-- A late consumer can no longer acknowledge it.
SET stacksaga.clock_offset = '1 minute';
SELECT stacksaga.alter_subscription('stops', stop_on_first_failure => false);
SELECT refusal('SELECT stacksaga.ack_messages(' || :batch || ')');
SELECT take('stops');
-- A handler takes over where services have stopped.
SELECT put('s', '{12}');
SELECT stacksaga.alter_subscription('stops', 'batch(stacksaga.message[])');
SELECT stacksaga.run_pending(), look();
SELECT refusal($$SELECT take('stops')$$);

-- Functions run as the role that passed them, both as the same one.
CREATE ROLE alters_operator;
GRANT USAGE, CREATE ON SCHEMA alters TO alters_operator;
GRANT ALL ON alters.seen, alters.seen_n_seq TO alters_operator;
SELECT stacksaga.grant_usage('alters_operator', 'operator');
SET ROLE alters_operator;
SELECT stacksaga.alter_subscription('handled', retry => stacksaga.retry_policy(3));
SELECT refusal(s) FROM unnest(ARRAY[
    $$SELECT stacksaga.alter_subscription('handled', 'one(stacksaga.message)')$$,
    $$SELECT stacksaga.alter_subscription('handled', fallback => 'saves(stacksaga.message)')$$]) AS s;
RESET ROLE;
SELECT put('h', '{g}');
SELECT stacksaga.run_pending();
SELECT message, role = session_user AS is_mine FROM seen;
SET ROLE alters_operator;
SELECT stacksaga.alter_subscription('handled', 'one(stacksaga.message)',
                                    fallback => 'saves(stacksaga.message)');
RESET ROLE;
SELECT put('h', '{h}');
SELECT stacksaga.run_pending();
SELECT message, role FROM seen;
SELECT refusal(s) FROM unnest(ARRAY[
    $$SELECT stacksaga.alter_subscription('handled', 'one(stacksaga.message)')$$]) AS s;
REVOKE EXECUTE ON FUNCTION alters.one(stacksaga.message) FROM PUBLIC;
SET ROLE alters_operator;
SELECT refusal($$SELECT stacksaga.alter_subscription('handled', 'one(stacksaga.message)')$$);
RESET ROLE;

-- Other refusals, and that nothing has changed.
CREATE FUNCTION alters.alters(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
    SELECT stacksaga.alter_subscription('own', stop_on_first_failure => false)
$$;
SELECT stacksaga.create_subscription('own', 'o', 'alters(stacksaga.message)');
SELECT put('o', '{a}');
SELECT stacksaga.run_pending();
SELECT last_error FROM stacksaga.dead_messages WHERE subscription = 'own';
SELECT refusal('SELECT stacksaga.alter_subscription(' || s || ')') FROM unnest(ARRAY[
    $$NULL, 'one(stacksaga.message)'$$,
    $$'none', stop_on_first_failure => true$$,
    $$'handled'$$,
    $$'handled', ''$$,
    $$'handled', 'none(stacksaga.message)'$$,
    $$'handled', fallback => 'batch(stacksaga.message[])'$$,
    $$'handled', retry => stacksaga.retry_policy(max_attempts => -1)$$,
    $$'handled', retry => stacksaga.retry_policy(jitter => NULL)$$]) AS s;
SELECT handler, takes_batch, fallback, stop_on_first_failure, search_path
  FROM stacksaga.subscription WHERE subscription = 'handled';

-- Held messages come before a delayed one behind them, though that was due before the alteration.
SELECT stacksaga.create_subscription('late', 'l', retry => stacksaga.retry_policy(1));
SELECT put('l', '{1,2,3}'), stacksaga.publish('l', '4', 'k',
           deliver_at => stacksaga.clock_now() + interval '10 s') IS NULL AS has_no_id;
SELECT take('ticks');
SELECT batch_id AS batch, message_id AS first FROM stacksaga.receive_messages('late', 'c', 1) \gset
SELECT stacksaga.fail_message(:batch, :'first', 'no'), stacksaga.ack_messages(:batch);
SELECT take('late');
SET stacksaga.clock_offset = '2 minutes';
SELECT stacksaga.alter_subscription('late', stop_on_first_failure => false);
SELECT batch_id AS batch, messages FROM (
    SELECT max(batch_id) AS batch_id, jsonb_agg(payload) AS messages
      FROM stacksaga.receive_messages('late', 'c', 2)) AS received \gset
SELECT stacksaga.ack_messages(:batch), :'messages' AS messages;

-- Held messages come behind one that was released before the alteration.
SELECT stacksaga.create_subscription('between', 'b');
SELECT put('b', '{1,2,3,4}'), take('ticks');
SELECT max(batch_id) AS batch, (array_agg(message_id ORDER BY payload))[1] AS first,
       (array_agg(message_id ORDER BY payload))[3] AS third
  FROM stacksaga.receive_messages('between', 'c') \gset
SELECT stacksaga.fail_message(:batch, m, 'no', 'non_retryable')
  FROM unnest(ARRAY[:'first', :'third']::uuid[]) AS m;
SELECT stacksaga.ack_messages(:batch);
SET stacksaga.clock_offset = '3 minutes';
SELECT stacksaga.discard_message('between', :'first', 'by order');
SELECT stacksaga.alter_subscription('between', stop_on_first_failure => false);
SELECT payload FROM stacksaga.receive_messages('between', 'c', 1);

SET stacksaga.clock_offset = '5 minutes';
SELECT stacksaga.drop_subscription(s, true)
  FROM unnest('{handled,stops,late,between,ticks,own}'::text[]) AS s;
RESET search_path;
RESET stacksaga.clock_offset;
DELETE FROM stacksaga.usage_grant WHERE role = 'alters_operator';
DROP OWNED BY alters_operator;
DROP ROLE alters_operator;
DROP SCHEMA alters CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick, stacksaga.message_batch;
