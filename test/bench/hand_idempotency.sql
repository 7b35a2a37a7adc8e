-- Idempotency keys as they are written by hand: begin inserts the row, finish updates it.
CREATE SCHEMA hand;
CREATE TABLE hand.idempotency (
    scope        text NOT NULL,
    key          text NOT NULL,
    request_hash bytea NOT NULL,
    status       text NOT NULL DEFAULT 'started',
    response     jsonb,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz,
    PRIMARY KEY (scope, key)
) WITH (fillfactor = 80);
