-- What the workers report of themselves, at a heartbeat or after work; no index but the key, so
-- updates stay heap-only.
CREATE TABLE stacksaga.worker (
    worker       integer PRIMARY KEY,
    pid          integer NOT NULL,
    started_at   timestamptz NOT NULL,
    turns        bigint NOT NULL,
    items        bigint NOT NULL,
    failures     bigint NOT NULL,
    last_turn_ms double precision NOT NULL,
    mode         text NOT NULL CHECK (mode IN ('standalone', 'coordinator')),
    deferred     bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE stacksaga.worker IS
    'Runtime: one row per number that a background worker has had, counted since its process started';
COMMENT ON COLUMN stacksaga.worker.worker IS 'The number of the worker in its database';
COMMENT ON COLUMN stacksaga.worker.pid IS 'Its process';
COMMENT ON COLUMN stacksaga.worker.started_at IS 'When that process started';
COMMENT ON COLUMN stacksaga.worker.turns IS 'Transactions in which it looked for work';
COMMENT ON COLUMN stacksaga.worker.items IS 'Items that it has done';
COMMENT ON COLUMN stacksaga.worker.failures IS 'Attempts that failed';
COMMENT ON COLUMN stacksaga.worker.last_turn_ms IS 'How long its last turn took, in milliseconds';
COMMENT ON COLUMN stacksaga.worker.mode IS 'standalone or coordinator, as stacksaga.coordination says';
COMMENT ON COLUMN stacksaga.worker.deferred IS 'Retries that it deferred, since the retry budget was empty';
