-- What the harness runs on: accounts, ledgers of every effect, handlers and definitions. Run as the role
-- "bank". No ledger has a unique key: an effect that commits twice is two rows, and the checker sees them.

CREATE SCHEMA bank;
CREATE TABLE bank.account (id integer PRIMARY KEY, balance bigint NOT NULL, opening bigint NOT NULL);
INSERT INTO bank.account SELECT i, 100000, 100000 FROM generate_series(1, 24) AS i;

-- seq orders the effects of one saga: each row is written under the lock of its account or after it.
CREATE TABLE bank.ledger (seq bigserial, saga_id uuid, saga text, step text, direction text, attempt integer,
    account integer, amount bigint);
-- What clients did to accounts without a saga.
CREATE TABLE bank.direct (nonce text, account integer, amount bigint);
-- What was published, in the transaction of the publish call; n counts per key under the lock of its row.
CREATE TABLE bank.stream (key text PRIMARY KEY, n bigint NOT NULL);
INSERT INTO bank.stream SELECT 'k' || i, 0 FROM generate_series(1, 12) AS i;
CREATE TABLE bank.sent (topic text, key text, n bigint, nonce text, message_id uuid, is_delayed boolean);
CREATE TABLE bank.delivered (seq bigserial, subscription text, key text, n bigint, nonce text,
    message_id uuid, attempt integer, is_delayed boolean);
CREATE TABLE bank.healed (nonce text PRIMARY KEY);
-- What was put right, by which a saga that had failed may go on.
CREATE TABLE bank.repaired (saga_id uuid PRIMARY KEY);
-- What subscribers hear of sagas.
CREATE TABLE bank.life (seq bigserial, saga_id uuid, status text, message_id uuid);
CREATE TABLE bank.paid (key text, nonce text);
CREATE TABLE bank.versioned (key text, version bigint, nonce text);
CREATE TABLE bank.sequenced (producer text, epoch bigint, sequence bigint);
CREATE TABLE bank.signalled (saga_id uuid, message_id text);

CREATE FUNCTION bank.book(call_saga uuid, saga text, step text, direction text, attempt integer, place integer,
    change bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    held bigint;
BEGIN
    SELECT balance INTO held FROM bank.account WHERE id = place FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no account %', place USING ERRCODE = 'SG424';
    ELSIF direction = 'act' AND held + change < 0 THEN
        RAISE EXCEPTION 'account % holds %, not %', place, held, -change USING ERRCODE = 'SG424';
    END IF;
    UPDATE bank.account SET balance = balance + change WHERE id = place;
    INSERT INTO bank.ledger (saga_id, saga, step, direction, attempt, account, amount)
    VALUES (call_saga, saga, step, direction, attempt, place, change);
END $$;

-- The action and the compensation of every SQL step: what moves depends on the step's name. A compensation
-- does not ask whether its action was done, so that one too many shows.
CREATE FUNCTION bank.step(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    amount bigint := call.input ->> 'amount';
    change bigint := CASE call.step WHEN 'debit' THEN -amount WHEN 'hold' THEN -amount
                                    WHEN 'credit' THEN amount ELSE 0 END;
    place integer := call.input ->> CASE call.step WHEN 'credit' THEN 'to' ELSE 'from' END;
BEGIN
    IF random() < 0.03 THEN
        RAISE EXCEPTION 'the bank is busy' USING ERRCODE = 'SR503';
    ELSIF call.direction = 'act' AND call.input ->> 'fails_at' = call.step
          AND NOT EXISTS (SELECT FROM bank.repaired r WHERE r.saga_id = call.saga_id) THEN
        RAISE EXCEPTION 'asked to fail' USING ERRCODE = 'SG424';
    END IF;
    PERFORM bank.book(call.saga_id, call.saga, call.step, call.direction, call.attempt, place,
                      CASE call.direction WHEN 'act' THEN change ELSE -change END);
    RETURN jsonb_build_object(call.step, change);
END $$;

-- The effect of a service, which calls it in the transaction of its answer. Its compensation is asked for
-- also when it is not known whether the service acted; its own ledger says that.
CREATE FUNCTION bank.serve(id uuid, saga text, step text, direction text, attempt integer, input jsonb)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    amount bigint := input ->> 'amount';
BEGIN
    IF direction = 'act' THEN
        PERFORM bank.book(id, saga, step, direction, attempt, (input ->> 'to')::integer, amount);
    ELSIF EXISTS (SELECT FROM bank.ledger l WHERE l.saga_id = id AND l.step = serve.step
                     AND l.direction = 'act') THEN
        PERFORM bank.book(id, saga, step, direction, attempt, (input ->> 'to')::integer, -amount);
    END IF;
END $$;
CREATE INDEX ON bank.ledger (saga_id);

-- Handlers. A poisoned message fails for good until somebody has healed it; a busy one fails sometimes.
CREATE FUNCTION bank.deliver(subscription text, m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (m.payload ->> 'poison')::boolean
       AND NOT EXISTS (SELECT FROM bank.healed h WHERE h.nonce = m.payload ->> 'nonce') THEN
        RAISE EXCEPTION 'poisoned' USING ERRCODE = 'SG424';
    ELSIF (m.payload ->> 'busy')::boolean AND random() < 0.5 THEN
        RAISE EXCEPTION 'busy' USING ERRCODE = 'SR503';
    END IF;
    INSERT INTO bank.delivered (subscription, key, n, nonce, message_id, attempt, is_delayed)
    VALUES (subscription, m.key, (m.payload ->> 'n')::bigint, m.payload ->> 'nonce', m.message_id, m.attempt,
            (m.payload ->> 'delayed')::boolean);
END $$;
CREATE FUNCTION bank.on_event(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM bank.deliver('ledger', m);
    IF (m.payload ->> 'n')::bigint % 3 = 0 THEN
        WITH derived AS (
            SELECT stacksaga.publish('derived', m.payload || '{"busy": false, "poison": false}', key => m.key) AS id)
        INSERT INTO bank.sent
        SELECT 'derived', m.key, (m.payload ->> 'n')::bigint, m.payload ->> 'nonce', id,
               (m.payload ->> 'delayed')::boolean FROM derived;
    END IF;
END $$;
CREATE FUNCTION bank.on_loose(m stacksaga.message) RETURNS void LANGUAGE sql
    AS $$ SELECT bank.deliver('loose', m) $$;
CREATE FUNCTION bank.on_derived(m stacksaga.message) RETURNS void LANGUAGE sql
    AS $$ SELECT bank.deliver('derived', m) $$;
CREATE FUNCTION bank.on_life(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO bank.life (saga_id, status, message_id)
    VALUES ((m.payload ->> 'saga_id')::uuid, m.payload ->> 'status', m.message_id);
END $$;
CREATE FUNCTION bank.on_batch(batch stacksaga.message[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    m stacksaga.message;
BEGIN
    FOREACH m IN ARRAY batch LOOP
        PERFORM bank.deliver('batch', m);
    END LOOP;
END $$;

CREATE FUNCTION bank.short(attempts integer) RETURNS stacksaga.retry_policy LANGUAGE sql AS $$
    SELECT stacksaga.retry_policy(max_attempts => attempts, initial_interval => '50 milliseconds',
                                  max_interval => '400 milliseconds')
$$;
SELECT stacksaga.define_saga('transfer', ARRAY[
    stacksaga.sql_step('debit', 'bank.step(stacksaga.step_call)', 'bank.step(stacksaga.step_call)'),
    stacksaga.sql_step('credit', 'bank.step(stacksaga.step_call)', 'bank.step(stacksaga.step_call)'),
    stacksaga.sql_step('confirm', 'bank.step(stacksaga.step_call)', 'bank.step(stacksaga.step_call)'),
    stacksaga.sql_step('close', 'bank.step(stacksaga.step_call)', 'bank.step(stacksaga.step_call)')],
    retry => bank.short(0), compensation_retry => bank.short(0), events_topic => 'life');
SELECT stacksaga.define_saga('order', ARRAY[
    stacksaga.sql_step('hold', 'bank.step(stacksaga.step_call)', 'bank.step(stacksaga.step_call)'),
    stacksaga.queue_step('charge', queue => 'payments', compensable => true, timeout => '20 seconds', retry => bank.short(6)),
    stacksaga.sql_step('close', 'bank.step(stacksaga.step_call)', 'bank.step(stacksaga.step_call)')],
    retry => bank.short(0), compensation_retry => bank.short(0));
-- It stops where a step has failed for good, and an operator repairs or undoes it.
SELECT stacksaga.define_saga('patient', ARRAY[
    stacksaga.sql_step('hold', 'bank.step(stacksaga.step_call)', 'bank.step(stacksaga.step_call)'),
    stacksaga.queue_step('charge', queue => 'payments', compensable => true, timeout => '20 seconds', retry => bank.short(6)),
    stacksaga.sql_step('close', 'bank.step(stacksaga.step_call)', 'bank.step(stacksaga.step_call)')],
    retry => bank.short(0), compensation_retry => bank.short(0), on_failure => 'park', events_topic => 'life');
SELECT stacksaga.define_saga('family', ARRAY[
    stacksaga.sql_step('hold', 'bank.step(stacksaga.step_call)', 'bank.step(stacksaga.step_call)'),
    stacksaga.child_step('child', 'transfer'),
    stacksaga.signal_step('go', signal => 'go', timeout => '10 seconds'),
    stacksaga.timer_step('pause', delay => '100 milliseconds'),
    -- Longer than its messages wait on a busy machine: each attempt that times out before is one more message.
    stacksaga.message_step('ship', topic => 'ship', compensation_topic => 'ship', timeout => '20 seconds',
                           retry => bank.short(6)),
    stacksaga.sql_step('close', 'bank.step(stacksaga.step_call)', 'bank.step(stacksaga.step_call)')],
    retry => bank.short(0), compensation_retry => bank.short(0));

SELECT stacksaga.create_subscription('ledger', 'event', 'bank.on_event(stacksaga.message)', retry => bank.short(8));
SELECT stacksaga.create_subscription('batch', 'event', 'bank.on_batch(stacksaga.message[])', retry => bank.short(8));
SELECT stacksaga.create_subscription('loose', 'event', 'bank.on_loose(stacksaga.message)',
                                     stop_on_first_failure => false, retry => bank.short(8));
SELECT stacksaga.create_subscription('derived', 'derived', 'bank.on_derived(stacksaga.message)',
                                     retry => bank.short(0));
SELECT stacksaga.create_subscription('pull', 'event', retry => bank.short(8));
SELECT stacksaga.create_subscription('ships', 'ship', retry => bank.short(8));
SELECT stacksaga.create_subscription('life', 'life', 'bank.on_life(stacksaga.message)', retry => bank.short(0));
