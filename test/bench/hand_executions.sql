-- Sagas as an orchestrator of one's own keeps them: the execution, and a log that says of each step when it
-- began and what came of it. Nobody claims anything and no lease runs out: whoever has started a saga ends it.
CREATE TABLE hand.saga_execution (
    saga_id    uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    saga       text NOT NULL,
    status     text NOT NULL,
    step       integer NOT NULL,
    input      jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 80);
CREATE TABLE hand.saga_log (
    saga_id    uuid NOT NULL REFERENCES hand.saga_execution,
    step       integer NOT NULL,
    status     text NOT NULL,
    output     jsonb,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz,
    PRIMARY KEY (saga_id, step)
) WITH (fillfactor = 80);
