-- Sagas as they are written by hand: one row per saga, one per thing to do, one per thing done.
CREATE SCHEMA hand;
CREATE TABLE hand.saga (
    saga_id    uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    saga       text NOT NULL,
    key        text,
    status     text NOT NULL DEFAULT 'pending',
    input      jsonb NOT NULL,
    input_hash bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (saga, key)
) WITH (fillfactor = 80);
CREATE TABLE hand.work (
    saga_id     uuid NOT NULL,
    step        integer NOT NULL,
    queue       text,
    due_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempt     integer NOT NULL DEFAULT 0,
    lease       bigint,
    worker      text,
    PRIMARY KEY (saga_id, step)
) WITH (fillfactor = 80);
CREATE INDEX ON hand.work (queue, due_at);
CREATE TABLE hand.done (
    saga_id      uuid NOT NULL,
    step         integer NOT NULL,
    output       jsonb,
    completed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (saga_id, step)
);
CREATE SEQUENCE hand.lease;
