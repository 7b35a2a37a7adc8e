-- An outbox as it is written by hand: a row per message, deleted by who has handled it.
CREATE SCHEMA hand;
CREATE TABLE hand.outbox (
    number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id   uuid NOT NULL DEFAULT gen_random_uuid(),
    topic        text NOT NULL,
    key          text,
    type         text,
    payload      jsonb,
    headers      jsonb NOT NULL DEFAULT '{}',
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deliver_at   timestamptz
);
