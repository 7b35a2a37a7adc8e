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
