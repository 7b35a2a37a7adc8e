-- Bank B: an ordinary database with pgbench's tables, and no stacksaga in it. Run as the role "bank".
--   :accounts   accounts 1 to this many are opened with :deposit each

CREATE SCHEMA bank;

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

-- What has been decided under each idempotency key, in the transaction of the change itself.
CREATE TABLE bank.applied (
    idempotency_key text PRIMARY KEY,
    outcome         text NOT NULL CHECK (outcome IN ('applied', 'undone', 'never')),
    response        jsonb,
    replays         integer NOT NULL DEFAULT 0,
    refusals        integer NOT NULL DEFAULT 0
);
COMMENT ON COLUMN bank.applied.outcome IS
    'applied; undone: applied, then compensated; never: compensated first, and must not happen now';
COMMENT ON COLUMN bank.applied.replays IS 'How often the same key came again and got the stored response';
COMMENT ON COLUMN bank.applied.refusals IS 'How often an act came after its compensation';

GRANT USAGE ON SCHEMA bank TO credit_service;
GRANT SELECT, INSERT, UPDATE ON bank.applied TO credit_service;
GRANT INSERT ON bank.journal TO credit_service;
GRANT SELECT, UPDATE ON pgbench_accounts TO credit_service;
ANALYZE pgbench_accounts;
