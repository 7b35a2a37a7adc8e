-- The rungs of the dedupe ladder that need state. What changes is not indexed, so updates stay
-- heap-only; fillfactor leaves room for them.

CREATE TABLE stacksaga.idempotency_key (
    token               stacksaga.ring_token NOT NULL,
    lease               bigint NOT NULL,
    lease_until         timestamptz NOT NULL,
    completed_at        timestamptz,
    sweep_at            timestamptz NOT NULL,
    created_at          timestamptz NOT NULL,
    attempt             integer NOT NULL,
    fingerprint_version smallint NOT NULL,
    lease_length        interval NOT NULL,
    retention           interval NOT NULL,
    scope               text COLLATE "C" NOT NULL,
    key                 text COLLATE "C" NOT NULL,
    fingerprint         bytea,
    recovery_point      text,
    response            jsonb,
    forgotten_at        timestamptz,
    PRIMARY KEY (token, scope, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX idempotency_key_sweep ON stacksaga.idempotency_key (sweep_at);
COMMENT ON TABLE stacksaga.idempotency_key IS
    'One row per idempotency key: in progress under a lease, or completed with its response';
COMMENT ON COLUMN stacksaga.idempotency_key.token IS 'Its place on the ring: the token of scope and key';
COMMENT ON COLUMN stacksaga.idempotency_key.lease_until IS 'When the lease of the latest begin runs out';
COMMENT ON COLUMN stacksaga.idempotency_key.completed_at IS 'When it was finished; null: it is in progress';
COMMENT ON COLUMN stacksaga.idempotency_key.created_at IS 'When the key was begun first';
COMMENT ON COLUMN stacksaga.idempotency_key.attempt IS
    'Counts those who began its work: one more each time a lease had run out';
COMMENT ON COLUMN stacksaga.idempotency_key.fingerprint_version IS 'The algorithm of the fingerprint';
COMMENT ON COLUMN stacksaga.idempotency_key.lease_length IS 'How long its leases last';
COMMENT ON COLUMN stacksaga.idempotency_key.retention IS 'How long it is kept after it was finished';
COMMENT ON COLUMN stacksaga.idempotency_key.scope IS 'The operation that the key belongs to';
COMMENT ON COLUMN stacksaga.idempotency_key.key IS 'The key';
COMMENT ON COLUMN stacksaga.idempotency_key.recovery_point IS 'What idempotency_checkpoint() has noted last';
COMMENT ON COLUMN stacksaga.idempotency_key.response IS 'What idempotency_finish() has stored';
COMMENT ON COLUMN stacksaga.idempotency_key.forgotten_at IS
    'When idempotency_forget() has erased fingerprint, recovery point and response; NULL: it has not';
COMMENT ON COLUMN stacksaga.idempotency_key.lease IS
    'Fencing token of the latest begin; kept after completion, since the same finish may come again';
COMMENT ON COLUMN stacksaga.idempotency_key.sweep_at IS
    'When expire_dedupe() checks the row; the row expires retention after completed_at';
COMMENT ON COLUMN stacksaga.idempotency_key.fingerprint IS
    'Hash of the request by the algorithm of fingerprint_version; NULL: the request was NULL';
COMMENT ON INDEX stacksaga.idempotency_key_sweep IS 'Keys by the instant at which to check them';

CREATE TABLE stacksaga.accepted_message (
    token      stacksaga.ring_token NOT NULL,
    expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    consumer   text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (token, consumer, message_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX accepted_message_expiry ON stacksaga.accepted_message (expires_at);
COMMENT ON TABLE stacksaga.accepted_message IS
    'One row per consumer and message that it accepted, until expires_at';
COMMENT ON COLUMN stacksaga.accepted_message.token IS 'Its place on the ring: the token of consumer and message id';
COMMENT ON COLUMN stacksaga.accepted_message.expires_at IS 'When the row may be removed';
COMMENT ON COLUMN stacksaga.accepted_message.created_at IS 'When the message was accepted';
COMMENT ON COLUMN stacksaga.accepted_message.consumer IS 'Who accepted it';
COMMENT ON COLUMN stacksaga.accepted_message.message_id IS 'The id of the message';
COMMENT ON INDEX stacksaga.accepted_message_expiry IS 'Messages by the instant of their expiry';

CREATE TABLE stacksaga.producer_sequence (
    token      stacksaga.ring_token NOT NULL,
    epoch      bigint NOT NULL,
    sequence   bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    producer   text COLLATE "C" NOT NULL,
    PRIMARY KEY (token, producer)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
COMMENT ON TABLE stacksaga.producer_sequence IS
    'The last sequence accepted of each producer, and its epoch; never forgotten, or an old producer would be let in again';
COMMENT ON COLUMN stacksaga.producer_sequence.token IS 'Its place on the ring: the token of the producer';
COMMENT ON COLUMN stacksaga.producer_sequence.epoch IS 'The epoch of the producer';
COMMENT ON COLUMN stacksaga.producer_sequence.sequence IS 'The last sequence that was accepted in that epoch';
COMMENT ON COLUMN stacksaga.producer_sequence.updated_at IS 'When that was';
COMMENT ON COLUMN stacksaga.producer_sequence.created_at IS 'When the producer was first heard of';
COMMENT ON COLUMN stacksaga.producer_sequence.producer IS 'The name of the producer';

CREATE TABLE stacksaga.versioned_value (
    token      stacksaga.ring_token NOT NULL,
    version    bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    scope      text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      jsonb,
    PRIMARY KEY (token, scope, key)
) WITH (fillfactor = 70);
COMMENT ON TABLE stacksaga.versioned_value IS
    'Values of compare_and_set(); a deleted one keeps its row and its version, so that no version comes twice';
COMMENT ON COLUMN stacksaga.versioned_value.token IS 'Its place on the ring: the token of scope and key';
COMMENT ON COLUMN stacksaga.versioned_value.version IS 'Rises with each change, also after a delete';
COMMENT ON COLUMN stacksaga.versioned_value.updated_at IS 'When it was last changed';
COMMENT ON COLUMN stacksaga.versioned_value.created_at IS 'When it was first set';
COMMENT ON COLUMN stacksaga.versioned_value.scope IS 'The scope of the key';
COMMENT ON COLUMN stacksaga.versioned_value.key IS 'The key';
COMMENT ON COLUMN stacksaga.versioned_value.value IS 'The value; null: deleted';

SELECT pg_catalog.pg_extension_config_dump('stacksaga.idempotency_key', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.accepted_message', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.producer_sequence', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.versioned_value', '');
