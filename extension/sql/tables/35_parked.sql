-- The sagas that need an operator: found without reading the others, and without an index on a column
-- of table saga that changes, which would cost most of its heap-only updates. Written by the trigger
-- saga_transition.
CREATE TABLE stacksaga.parked_saga (
    saga_id uuid NOT NULL,
    token   stacksaga.ring_token NOT NULL,
    since   timestamptz NOT NULL,
    PRIMARY KEY (saga_id, token)
);
COMMENT ON TABLE stacksaga.parked_saga IS
    'One row per parked saga; a row whose saga was removed means nothing';
COMMENT ON COLUMN stacksaga.parked_saga.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.parked_saga.token IS 'Its place on the ring: the token of the saga';
COMMENT ON COLUMN stacksaga.parked_saga.since IS 'When it was parked';
SELECT pg_catalog.pg_extension_config_dump('stacksaga.parked_saga', '');
