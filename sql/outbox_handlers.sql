-- Handlers in SQL, run by run_pending(): effects, failures, order, fallbacks, whole batches, and the
-- role that they run as. Time is moved by stacksaga.clock_offset.

\set SHOW_CONTEXT never
CREATE SCHEMA handled;
CREATE TABLE handled.done (at int GENERATED ALWAYS AS IDENTITY, subscription text, key text, n int,
    attempt int, role name DEFAULT current_user);
-- Fails as often as the message says, with the SQLSTATE that it says.
CREATE FUNCTION handled.one(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO handled.done (subscription, key, n, attempt)
        VALUES ('one', m.key, (m.payload -> 'n')::int, m.attempt);
    IF m.attempt <= (m.payload -> 'fails')::int THEN
        RAISE EXCEPTION USING ERRCODE = m.payload ->> 'code', MESSAGE = 'as told', DETAIL = 'twice';
    END IF;
END
$$;
CREATE FUNCTION handled.batch(messages stacksaga.message[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO handled.done (subscription, key, n, attempt)
        SELECT 'batch of ' || cardinality(messages), m.key, (m.payload -> 'n')::int, m.attempt
          FROM unnest(messages) AS m;
    IF EXISTS (SELECT FROM unnest(messages) AS m WHERE m.attempt <= (m.payload -> 'fails')::int) THEN
        RAISE EXCEPTION 'as told' USING ERRCODE = 'SR503';
    END IF;
END
$$;
CREATE FUNCTION handled.fallback(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO handled.done (subscription, key, n, attempt)
        VALUES ('fallback', m.key, (m.payload -> 'n')::int, m.attempt);
    IF m.payload ? 'fallback fails' THEN
        RAISE EXCEPTION 'the fallback fails as well';
    END IF;
END
$$;
CREATE FUNCTION handled.put(n int, key text, fails int DEFAULT 0, code text DEFAULT 'SR503')
RETURNS text LANGUAGE sql AS $$
    SELECT left(stacksaga.publish('t', jsonb_build_object('n', n, 'fails', fails, 'code', code),
                                  key)::text, 0)
$$;

-- In order, with the position in the same transaction.
SELECT stacksaga.create_subscription('one', 't', 'handled.one(stacksaga.message)',
    retry => stacksaga.retry_policy(max_attempts => 3, initial_interval => '10 s', jitter => 0));
SELECT handled.put(n, 'k' || n % 2) FROM generate_series(1, 4) n;
BEGIN;
SELECT stacksaga.run_pending();
ROLLBACK;
SELECT * FROM handled.done;
SELECT stacksaga.run_pending();
SELECT stacksaga.run_pending();
SELECT key, n, attempt FROM handled.done ORDER BY at;
SELECT lag_messages FROM stacksaga.subscriptions;
TRUNCATE handled.done;

-- A failed attempt leaves no effect, and holds its key.
SELECT handled.put(1, 'a', 1), handled.put(2, 'a'), handled.put(3, 'b'), handled.put(4, NULL, 1);
SELECT stacksaga.run_pending();
SELECT key, n, attempt FROM handled.done ORDER BY at;
SELECT key, attempts, last_error, waiting FROM stacksaga.blocked_keys;
-- What status() walks to is what the view reads.
SELECT count(*) AS differing
  FROM ((TABLE stacksaga.blocked_keys EXCEPT ALL SELECT * FROM stacksaga_internal.first_blocked_keys())
        UNION ALL (SELECT * FROM stacksaga_internal.first_blocked_keys() EXCEPT ALL TABLE stacksaga.blocked_keys)) AS d;
SELECT handled.put(5, 'a');
SELECT stacksaga.run_pending();
SELECT key, waiting FROM stacksaga.blocked_keys;
SELECT count(*) AS differing
  FROM ((TABLE stacksaga.blocked_keys EXCEPT ALL SELECT * FROM stacksaga_internal.first_blocked_keys())
        UNION ALL (SELECT * FROM stacksaga_internal.first_blocked_keys() EXCEPT ALL TABLE stacksaga.blocked_keys)) AS d;
SET stacksaga.clock_offset = '11 s';
SELECT stacksaga.run_pending();
SELECT key, n, attempt FROM handled.done ORDER BY at;
SELECT count(*) FROM stacksaga.message_retry;
TRUNCATE handled.done;

-- A message fails for good at once by its SQLSTATE, or when its attempts are used up.
SELECT handled.put(1, 'a', 1, '23514'), handled.put(2, 'b', 9, '40001');
SELECT stacksaga.run_pending();
SELECT key, attempts, last_error FROM stacksaga.dead_messages;
SET stacksaga.clock_offset = '1 minute';
SELECT stacksaga.run_pending();
SET stacksaga.clock_offset = '2 minutes';
SELECT stacksaga.run_pending();
SELECT key, attempts, last_error FROM stacksaga.dead_messages ORDER BY key;
SELECT subscription, blocked_keys, dead_messages FROM stacksaga.subscriptions;
SELECT stacksaga.discard_message(subscription, message_id, 'over') FROM stacksaga.dead_messages;
RESET stacksaga.clock_offset;
SELECT stacksaga.drop_subscription('one', true);
TRUNCATE handled.done;

-- A fallback gets a message that failed for good: its success ends the message, its failure makes it dead.
SELECT stacksaga.create_subscription('with fallback', 't', 'handled.one(stacksaga.message)',
    fallback => 'handled.fallback(stacksaga.message)');
SELECT handled.put(1, 'a', 1, 'SG424'), handled.put(2, 'a'), handled.put(3, 'b', 0);
SELECT left(stacksaga.publish('t', '{"n": 4, "fails": 1, "code": "SG424", "fallback fails": 1}', 'c')
    ::text, 0);
SELECT stacksaga.run_pending();
SELECT subscription, key, n, attempt FROM handled.done ORDER BY at;
SELECT key, attempts, last_error FROM stacksaga.dead_messages;
SELECT stacksaga.drop_subscription('with fallback', true);
TRUNCATE handled.done;
-- A subscription of services may have one, too.
SELECT stacksaga.create_subscription('service', 't', fallback => 'handled.fallback(stacksaga.message)');
SELECT handled.put(1, 'a'), handled.put(2, 'a');
SELECT batch_id AS batch, message_id AS id FROM stacksaga.receive_messages('service', 'c')
 ORDER BY payload LIMIT 1 \gset
SELECT stacksaga.fail_message(:batch, :'id', 'no', 'non_retryable');
SELECT stacksaga.ack_messages(:batch);
SELECT stacksaga.run_pending();
SELECT subscription, key, n, attempt FROM handled.done ORDER BY at;
SELECT payload -> 'n' AS n, stacksaga.ack_messages(batch_id)
  FROM stacksaga.receive_messages('service', 'c');
SELECT stacksaga.drop_subscription('service', true);
TRUNCATE handled.done;

-- A whole batch at once; when it fails, its messages are tried one by one.
SELECT stacksaga.create_subscription('batch', 't', 'handled.batch(stacksaga.message[])',
    retry => stacksaga.retry_policy(initial_interval => '10 s', jitter => 0));
SELECT handled.put(n, 'k') FROM generate_series(1, 3) n;
SELECT stacksaga.run_pending();
SELECT subscription, n, attempt FROM handled.done ORDER BY at;
TRUNCATE handled.done;
SELECT handled.put(1, 'a'), handled.put(2, 'b', 1), handled.put(3, 'b'), handled.put(4, 'c');
SELECT stacksaga.run_pending();
SELECT subscription, n, attempt FROM handled.done ORDER BY n;
SET stacksaga.clock_offset = '11 s';
SELECT stacksaga.run_pending();
SELECT subscription, n, attempt FROM handled.done ORDER BY n;
RESET stacksaga.clock_offset;
SELECT stacksaga.drop_subscription('batch', true);
TRUNCATE handled.done;

-- A message that a handler publishes is delivered in a later transaction.
CREATE FUNCTION handled.chain(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO handled.done (key, n) VALUES (m.key, (m.payload -> 'n')::int);
    IF (m.payload -> 'n')::int < 3 THEN
        PERFORM handled.put((m.payload -> 'n')::int + 1, m.key);
    END IF;
END
$$;
SELECT stacksaga.create_subscription('chain', 't', 'handled.chain(stacksaga.message)');
SELECT handled.put(1, 'k');
SELECT stacksaga.run_pending();
SELECT stacksaga.run_pending();
SELECT stacksaga.run_pending();
SELECT stacksaga.run_pending();
SELECT key, n FROM handled.done ORDER BY at;
SELECT stacksaga.drop_subscription('chain', true);
TRUNCATE handled.done;

-- As the role that created the subscription, with its search_path; without it, not at all.
CREATE ROLE handled_owner;
SELECT stacksaga.grant_usage('handled_owner', 'operator');
GRANT USAGE ON SCHEMA handled TO handled_owner;
GRANT INSERT, SELECT ON handled.done TO handled_owner;
SET ROLE handled_owner;
SET search_path = handled;
SELECT stacksaga.create_subscription('owned', 't', 'one(stacksaga.message)');
-- The same again, however the session wants names to be quoted.
SET quote_all_identifiers = on;
SELECT stacksaga.create_subscription('owned', 't', 'one(stacksaga.message)');
RESET quote_all_identifiers;
RESET search_path;
RESET ROLE;
SELECT handler FROM stacksaga.subscriptions;
SELECT handled.put(1, 'k');
SELECT stacksaga.run_pending();
SELECT role FROM handled.done;
ALTER FUNCTION handled.one(stacksaga.message) RENAME TO gone;
SELECT handled.put(2, 'k');
SELECT stacksaga.run_pending();
SELECT attempts, last_error FROM stacksaga.blocked_keys;
SELECT count(*) AS differing
  FROM ((TABLE stacksaga.blocked_keys EXCEPT ALL SELECT * FROM stacksaga_internal.first_blocked_keys())
        UNION ALL (SELECT * FROM stacksaga_internal.first_blocked_keys() EXCEPT ALL TABLE stacksaga.blocked_keys)) AS d;
ALTER FUNCTION handled.gone(stacksaga.message) RENAME TO one;
SET stacksaga.clock_offset = '10 s';
SELECT stacksaga.run_pending();
SELECT n, attempt FROM handled.done ORDER BY at;
RESET stacksaga.clock_offset;
-- Only a role that may, of a function that it may execute.
REVOKE EXECUTE ON FUNCTION handled.one(stacksaga.message) FROM PUBLIC;
SET ROLE handled_owner;
SELECT stacksaga.create_subscription('not mine', 't', 'handled.one(stacksaga.message)');
RESET ROLE;
SELECT stacksaga.drop_subscription('owned', true);

-- A handler cannot take its own subscription away from under itself; another one can.
CREATE FUNCTION handled.drops(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stacksaga.drop_subscription(m.type, true);
END
$$;
SELECT stacksaga.create_subscription('a drops', 'drop', 'handled.drops(stacksaga.message)'),
       stacksaga.create_subscription('b drops', 'drop', 'handled.drops(stacksaga.message)');
SELECT stacksaga.publish('drop', '{}', 'k', 'b drops') IS NOT NULL AS published;
SELECT stacksaga.run_pending();
SELECT stacksaga.publish('drop', '{}', 'l', 'a drops') IS NOT NULL AS published;
SELECT stacksaga.run_pending();
SELECT subscription, last_error FROM stacksaga.dead_messages;
SELECT subscription FROM stacksaga.subscriptions;
SELECT count(*) FROM stacksaga.subscription_position
 WHERE subscription_id NOT IN (SELECT subscription_id FROM stacksaga.subscription);
-- Once it has ended, with an error or without, it blocks no alteration.
SELECT stacksaga.drop_subscription(subscription, true) FROM stacksaga.subscriptions;

-- Deferred constraints are the handler's own failure.
CREATE TABLE handled.parent (id int PRIMARY KEY);
CREATE TABLE handled.child (id int REFERENCES handled.parent DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION handled.orphan(m stacksaga.message) RETURNS void LANGUAGE sql
    AS $$ INSERT INTO handled.child VALUES ((m.payload -> 'n')::int) $$;
SELECT stacksaga.create_subscription('orphans', 't', 'handled.orphan(stacksaga.message)');
INSERT INTO handled.parent VALUES (2);
SELECT handled.put(1, 'a'), handled.put(2, 'b');
SELECT stacksaga.run_pending();
SELECT id FROM handled.child;
SELECT key, last_error FROM stacksaga.dead_messages;
SELECT stacksaga.drop_subscription('orphans', true);

DROP OWNED BY handled_owner;
DROP ROLE handled_owner;
DELETE FROM stacksaga.usage_grant WHERE role = 'handled_owner';
DROP SCHEMA handled CASCADE;
TRUNCATE stacksaga.outbox_message, stacksaga.outbox_tick;
