-- Bank A: where transfers begin, and where their sagas live. Run as the role "bank" in a database that
-- has stacksaga and pgbench's tables.
--   :accounts   accounts 1 to this many are opened with :deposit each
--   :transfers  how many are asked for
--   :seed       makes them the same ones again

CREATE SCHEMA bank;

-- pgbench's accounts are empty.
UPDATE pgbench_accounts SET abalance = :deposit WHERE aid <= :accounts;
CREATE TABLE bank.opening AS SELECT aid, abalance AS balance FROM pgbench_accounts WHERE abalance <> 0;

-- Every change of a balance, in the transaction that makes it. Nothing here is unique: a change made
-- twice shows.
CREATE TABLE bank.journal (
    idempotency_key text NOT NULL,
    saga_id         uuid NOT NULL,
    aid             integer NOT NULL,
    amount          integer NOT NULL
);

-- The step `debit`: takes the money, or refuses for good.
CREATE FUNCTION bank.debit(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    account integer := call.input ->> 'from';
    price   integer := call.input ->> 'amount';
    balance integer;
BEGIN
    SELECT abalance INTO balance FROM pgbench_accounts WHERE aid = account FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'bank A has no account %', account USING ERRCODE = 'SG424';
    ELSIF balance < price THEN
        RAISE EXCEPTION 'account % of bank A holds %, not %', account, balance, price
            USING ERRCODE = 'SG424';
    END IF;
    UPDATE pgbench_accounts SET abalance = abalance - price WHERE aid = account;
    INSERT INTO bank.journal VALUES (call.idempotency_key, call.saga_id, account, -price);
    RETURN jsonb_build_object('debited', price);
END $$;

-- Its compensation: gives the money back.
CREATE FUNCTION bank.give_back(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    account integer := call.input ->> 'from';
    price   integer := call.input ->> 'amount';
BEGIN
    UPDATE pgbench_accounts SET abalance = abalance + price WHERE aid = account;
    INSERT INTO bank.journal VALUES (call.idempotency_key, call.saga_id, account, price);
    RETURN jsonb_build_object('given_back', price);
END $$;

-- Leases, pauses and attempts are short, so that a transfer whose answers are all lost is given up
-- and undone within seconds. Undoing is never given up.
SELECT stacksaga.define_saga('transfer', ARRAY[
           stacksaga.sql_step('debit', action => 'bank.debit(stacksaga.step_call)',
                              compensation => 'bank.give_back(stacksaga.step_call)',
                              retry => stacksaga.retry_policy(max_attempts => 0,
                                           initial_interval => '50 milliseconds',
                                           max_interval => '500 milliseconds')),
           stacksaga.queue_step('credit', queue => 'bank_b', compensable => true, timeout => '5 seconds',
                                retry => stacksaga.retry_policy(max_attempts => 6,
                                             initial_interval => '100 milliseconds',
                                             max_interval => '500 milliseconds'))],
       compensation_retry => stacksaga.retry_policy(max_attempts => 0,
                                 initial_interval => '50 milliseconds',
                                 max_interval => '500 milliseconds'));

-- What is asked for. One in thirty comes from an account that bank A does not have, one in thirty
-- goes to one that bank B does not have, and amounts are such that some accounts run dry.
CREATE TABLE bank.request (
    n     integer PRIMARY KEY,
    key   text NOT NULL,
    input jsonb NOT NULL
);
SELECT setseed(:seed % 1000000 / 1e6);
INSERT INTO bank.request
SELECT n, format('transfer-%s', n),
       jsonb_build_object(
           'from', CASE WHEN random() < 1 / 30.0 THEN 900000000 ELSE 0 END
                   + 1 + floor(random() * :accounts)::integer,
           'to', CASE WHEN random() < 1 / 30.0 THEN 900000000 ELSE 0 END
                 + 1 + floor(random() * :accounts)::integer,
           'amount', 1 + floor(random() * :deposit * 0.5)::integer)
  FROM generate_series(1, :transfers) AS n;
ANALYZE pgbench_accounts, bank.request;
