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
