-- Queues that have limits or are paused (extension/src/queue/queue_limits.hpp). Any other queue has no
-- row here.

CREATE TABLE stacksaga.queue (
    ring_id               integer NOT NULL,
    queue                 text COLLATE "C" NOT NULL,
    max_running           integer CHECK (max_running > 0),
    max_running_per_group integer CHECK (max_running_per_group > 0),
    rate                  integer CHECK (rate > 0),
    rate_interval         interval,
    paused_at             timestamptz,
    pause_reason          text,
    paused_until          timestamptz,
    PRIMARY KEY (ring_id, queue)
);
COMMENT ON TABLE stacksaga.queue IS 'One row per queue that has limits or is paused';
COMMENT ON COLUMN stacksaga.queue.ring_id IS 'The ring';
COMMENT ON COLUMN stacksaga.queue.queue IS 'The name of the queue';
COMMENT ON COLUMN stacksaga.queue.max_running IS 'How many leases there may be; null: no limit';
COMMENT ON COLUMN stacksaga.queue.max_running_per_group IS
    'How many leases of one group there may be; null: no limit';
COMMENT ON COLUMN stacksaga.queue.rate_interval IS 'The length of these windows';
COMMENT ON COLUMN stacksaga.queue.pause_reason IS 'The reason that was given';
COMMENT ON COLUMN stacksaga.queue.paused_until IS
    'From when on it is not paused, whatever paused_at says; null: until resume_queue()';
COMMENT ON COLUMN stacksaga.queue.rate IS 'At most so many claims in any window of rate_interval';
COMMENT ON COLUMN stacksaga.queue.paused_at IS 'Since when only compensations are claimed';

-- Written by every claim of a queue with a rate, under the lock of the queue.
CREATE TABLE stacksaga.queue_claims (
    ring_id    integer NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    claimed_at timestamptz[] NOT NULL,
    claims     integer[] NOT NULL,
    PRIMARY KEY (ring_id, queue)
) WITH (fillfactor = 50);
COMMENT ON TABLE stacksaga.queue_claims IS
    'When a queue with a rate was claimed from, within its last interval';
COMMENT ON COLUMN stacksaga.queue_claims.ring_id IS 'The ring';
COMMENT ON COLUMN stacksaga.queue_claims.queue IS 'The name of the queue';
COMMENT ON COLUMN stacksaga.queue_claims.claimed_at IS 'The instants of its claims, in order';
COMMENT ON COLUMN stacksaga.queue_claims.claims IS
    'How many steps were claimed at each of these instants; instants that lie close together count as the later one';

SELECT pg_catalog.pg_extension_config_dump('stacksaga.queue', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.queue_claims', '');
