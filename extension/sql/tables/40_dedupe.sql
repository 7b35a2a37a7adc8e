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
    PRIMARY KEY (token, scope, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX idempotency_key_sweep ON stacksaga.idempotency_key (sweep_at);
COMMENT ON TABLE stacksaga.idempotency_key IS
    'One row per idempotency key: in progress under a lease, or completed with its response';
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

SELECT pg_catalog.pg_extension_config_dump('stacksaga.idempotency_key', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.accepted_message', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.producer_sequence', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.versioned_value', '');
