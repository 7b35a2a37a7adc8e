-- Definitions name roles and functions and keep their oids, which are those of the coordinator.
CREATE TABLE stacksaga.citus_oid (
    kind        text NOT NULL CHECK (kind IN ('role', 'function')),
    name        text NOT NULL,
    defined_oid oid NOT NULL,
    local_oid   oid NOT NULL,
    PRIMARY KEY (kind, name, defined_oid)
);
COMMENT ON TABLE stacksaga.citus_oid IS
    'Runtime: what the roles and functions of definitions are on this worker of Citus, as it found them when it first read the definition';
COMMENT ON COLUMN stacksaga.citus_oid.kind IS 'role or function';
COMMENT ON COLUMN stacksaga.citus_oid.name IS 'The name of the role, the signature of the function';
COMMENT ON COLUMN stacksaga.citus_oid.defined_oid IS 'Its oid on the coordinator, where it was defined';
COMMENT ON COLUMN stacksaga.citus_oid.local_oid IS 'Its oid on this node';

-- Citus repeats CREATE EXTENSION on every node. There citus_enable() brings the tables that are distributed, so the
-- ones that this script has just made go again; on a node that keeps them citus_add_node() would fail.

DO $$
DECLARE
    ladder_table regclass;
BEGIN
    IF current_setting('application_name') NOT LIKE 'citus_internal%'
       OR NOT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus') THEN
        RETURN;
    END IF;
    FOREACH ladder_table IN ARRAY ARRAY['stacksaga.idempotency_key', 'stacksaga.accepted_message',
                                        'stacksaga.producer_sequence', 'stacksaga.versioned_value']::regclass[]
    LOOP
        EXECUTE pg_catalog.format('ALTER EXTENSION stacksaga DROP TABLE %s', ladder_table);
        EXECUTE pg_catalog.format('DROP TABLE %s', ladder_table);
    END LOOP;
END
$$;
