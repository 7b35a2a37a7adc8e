-- Citus: the tables of the dedupe ladder distributed by token, and transactions that write here and on another node
-- committed in two phases (extension/src/common/two_phase.cpp). Statements that name what Citus makes are dynamic, since
-- Citus may not be there.

CREATE OR REPLACE FUNCTION stacksaga_internal.ladder_tables() RETURNS regclass[]
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(c.oid::regclass ORDER BY t.number)
      FROM unnest(ARRAY['idempotency_key', 'accepted_message', 'producer_sequence', 'versioned_value'])
           WITH ORDINALITY AS t(name, number)
      JOIN pg_class c ON c.relname = t.name AND c.relnamespace = 'stacksaga'::regnamespace
$$;
COMMENT ON FUNCTION stacksaga_internal.ladder_tables IS
    'Internal: returns the tables that citus_enable() distributes, the first one first';

CREATE OR REPLACE FUNCTION stacksaga_internal.require_citus(caller text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (SELECT count(*) FROM pg_extension WHERE extname = 'citus') = 0 THEN
        RAISE EXCEPTION '% needs Citus, which this database does not have', caller USING ERRCODE = 'SG409',
            DETAIL = format('Extension "citus" is not installed in database "%s".', current_database()),
            HINT = 'Without Citus nothing is to be done. With it: add it to shared_preload_libraries, restart the server, and run CREATE EXTENSION citus.';
    END IF;
END
$$;
COMMENT ON FUNCTION stacksaga_internal.require_citus IS
    'Internal: raises SG409 unless the database has the extension citus';

CREATE OR REPLACE FUNCTION stacksaga_internal.require_citus_coordinator(caller text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    node_group integer;
    is_known boolean;
BEGIN
    PERFORM stacksaga_internal.require_citus(caller);
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        RAISE EXCEPTION '% is for superusers', caller USING ERRCODE = 'insufficient_privilege',
            DETAIL = format('Role "%s" is not one.', current_user), HINT = 'Ask a superuser to call it.';
    END IF;
    EXECUTE 'SELECT groupid, EXISTS (SELECT FROM pg_dist_node WHERE groupid = 0) FROM pg_dist_local_group'
       INTO node_group, is_known;
    IF node_group <> 0 THEN
        RAISE EXCEPTION '% is for the coordinator', caller USING ERRCODE = 'SG409',
            DETAIL = format('This node is a worker, of group %s.', node_group),
            HINT = 'Call it on the coordinator of Citus.';
    END IF;
    IF NOT is_known THEN
        RAISE EXCEPTION 'the coordinator is not a node of its cluster' USING ERRCODE = 'SG409',
            DETAIL = 'Its own tables can take part in a two-phase commit only if Citus knows it.',
            HINT = 'SELECT citus_set_coordinator_host(''the name by which workers reach it'', its port);';
    END IF;
END
$$;
COMMENT ON FUNCTION stacksaga_internal.require_citus_coordinator IS
    'Internal: raises SG409 unless this is the coordinator of Citus and Citus knows it as a node, 42501 for who is no superuser';

CREATE OR REPLACE FUNCTION stacksaga_internal.is_of_citus(relation regclass) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    is_known boolean;
BEGIN
    IF to_regclass('pg_catalog.pg_dist_partition') IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE 'SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = $1)' INTO is_known USING relation;
    RETURN is_known;
END
$$;
COMMENT ON FUNCTION stacksaga_internal.is_of_citus IS
    'Internal: returns whether Citus manages a table';

-- On a worker of Citus the table of the guard is on another node, so a shard of this one stands in for it.
CREATE OR REPLACE FUNCTION stacksaga_internal.touch_citus_guard() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    here integer;
    local_token bigint;
BEGIN
    EXECUTE 'SELECT groupid FROM pg_dist_local_group' INTO here;
    IF here = 0 THEN
        UPDATE stacksaga.citus_guard SET number = number WHERE number = 0;
        RETURN;
    END IF;
    EXECUTE 'SELECT s.shardminvalue::bigint << 32 FROM pg_dist_shard s JOIN pg_dist_placement p USING (shardid)'
            ' WHERE s.logicalrelid = ''stacksaga.idempotency_key''::regclass AND p.groupid = $1 LIMIT 1'
       INTO local_token USING here;
    IF local_token IS NULL THEN
        RAISE EXCEPTION 'this node cannot commit with other nodes' USING ERRCODE = 'SG409',
            DETAIL = 'It has no shard of stacksaga.idempotency_key, so Citus would not commit in two phases.',
            HINT = 'Run the transaction on the coordinator, or SELECT citus_rebalance_start() there.';
    END IF;
    UPDATE stacksaga.idempotency_key SET attempt = attempt
     WHERE token OPERATOR(stacksaga.=) local_token::stacksaga.ring_token AND scope = '' AND key = '';
END
$$;
COMMENT ON FUNCTION stacksaga_internal.touch_citus_guard IS
    'Internal: has Citus commit the transaction in two phases if it has written another node. Raises SG409';

CREATE OR REPLACE FUNCTION stacksaga.citus_enable(shard_count integer DEFAULT 32) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ladder regclass[] := stacksaga_internal.ladder_tables();
    ladder_table regclass;
BEGIN
    PERFORM stacksaga_internal.require_citus_coordinator('citus_enable()');
    IF shard_count IS NULL OR shard_count NOT BETWEEN 1 AND 4096 THEN
        RAISE EXCEPTION 'argument "shard_count" is out of range' USING ERRCODE = 'SG400',
            DETAIL = format('The value is %s.', coalesce(shard_count::text, 'NULL')), HINT = 'Use 1 to 4096.';
    END IF;
    IF stacksaga_internal.is_of_citus(ladder[1]) THEN
        RAISE EXCEPTION 'stacksaga is enabled on Citus already' USING ERRCODE = 'SG409',
            DETAIL = 'Its tables are distributed.', HINT = 'See citus_check() for what else there may be to do.';
    END IF;
    FOREACH ladder_table IN ARRAY ladder LOOP
        EXECUTE format('ALTER EXTENSION stacksaga DROP TABLE %s', ladder_table);
        EXECUTE 'SELECT create_distributed_table($1, ''token'', colocate_with => $2, shard_count => $3)'
          USING ladder_table, CASE WHEN ladder_table = ladder[1] THEN 'none' ELSE ladder[1]::text END,
                CASE WHEN ladder_table = ladder[1] THEN shard_count END;
        EXECUTE 'SELECT truncate_local_data_after_distributing_table($1)' USING ladder_table;
    END LOOP;
    CREATE TABLE stacksaga.citus_guard (number integer PRIMARY KEY);
    COMMENT ON TABLE stacksaga.citus_guard IS
        'Empty. A transaction that has written on this node updates it, so that Citus commits in two phases';
    EXECUTE 'SELECT citus_add_local_table_to_metadata(''stacksaga.citus_guard'')';
END
$$;
COMMENT ON FUNCTION stacksaga.citus_enable IS
    'Distributes idempotency keys and the other tables of the dedupe ladder over the nodes of Citus by token, and makes transactions that write here and on another node commit in two phases. For superusers, on the coordinator. Raises SG400, SG409, 42501';

CREATE OR REPLACE FUNCTION stacksaga.citus_disable() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ladder_table regclass;
    undone bigint := 0;
BEGIN
    PERFORM stacksaga_internal.require_citus_coordinator('citus_disable()');
    IF to_regclass('stacksaga.citus_guard') IS NULL THEN
        RAISE EXCEPTION 'stacksaga is not enabled on Citus' USING ERRCODE = 'SG409',
            DETAIL = 'Its tables are local.', HINT = 'Nothing is to be done.';
    END IF;
    FOREACH ladder_table IN ARRAY stacksaga_internal.ladder_tables() LOOP
        EXECUTE 'SELECT undistribute_table($1)' USING ladder_table;
    END LOOP;
    -- Each table is a new one by now. pg_dump keeps its rows again.
    FOREACH ladder_table IN ARRAY stacksaga_internal.ladder_tables() LOOP
        EXECUTE format('ALTER EXTENSION stacksaga ADD TABLE %s', ladder_table);
        UPDATE pg_extension
           SET extconfig = extconfig || ladder_table::oid, extcondition = extcondition || ''::text
         WHERE extname = 'stacksaga';
    END LOOP;
    DROP TABLE stacksaga.citus_guard;
END
$$;
COMMENT ON FUNCTION stacksaga.citus_disable IS
    'Undoes citus_enable(): the tables of the dedupe ladder come back to the coordinator with all their rows. Needed before DROP EXTENSION, pg_dump and removing Citus. Raises SG409, 42501';

CREATE OR REPLACE FUNCTION stacksaga_internal.citus_problems()
RETURNS TABLE (severity text, problem text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT 'error', 'not_enabled',
           'a transaction that writes tables of stacksaga and rows on one other node can commit the one without the other',
           'SELECT stacksaga.citus_enable();'
     WHERE to_regclass('stacksaga.citus_guard') IS NULL;
    RETURN QUERY EXECUTE $query$
    SELECT 'error', 'coordinator_unknown', 'Citus does not know the coordinator as a node',
           'SELECT citus_set_coordinator_host(''the name by which workers reach it'', its port);'
     WHERE NOT EXISTS (SELECT FROM pg_dist_node WHERE groupid = 0)
    UNION ALL
    SELECT 'error', 'wrongly_distributed',
           format('%s is distributed, but stacksaga reads it as a local table: it would seem to be empty', p.logicalrelid),
           format('SELECT undistribute_table(%L);', p.logicalrelid)
      FROM pg_dist_partition p JOIN pg_class c ON c.oid = p.logicalrelid
     WHERE c.relnamespace = 'stacksaga'::regnamespace
       AND c.relname NOT IN ('idempotency_key', 'accepted_message', 'producer_sequence', 'versioned_value',
                             'citus_guard')
    UNION ALL
    SELECT 'warning', 'local_table',
           format('%s is a table of this node that Citus does not know: a transaction that writes it and one other node without a call of stacksaga can commit the one without the other', c.oid::regclass),
           format('SELECT citus_add_local_table_to_metadata(%L); -- or create_distributed_table()', c.oid::regclass)
      FROM pg_class c
     WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
       AND c.relnamespace NOT IN (SELECT oid FROM pg_namespace
                                   WHERE nspname ~ '^pg_' OR nspname IN ('information_schema', 'stacksaga', 'stacksaga_internal'))
       AND NOT EXISTS (SELECT FROM pg_depend d
                        WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
       AND NOT EXISTS (SELECT FROM pg_dist_partition p WHERE p.logicalrelid = c.oid)
       AND NOT EXISTS (SELECT FROM pg_dist_shard s
                        WHERE c.relname = (SELECT l.relname || '_' || s.shardid FROM pg_class l
                                            WHERE l.oid = s.logicalrelid))
    UNION ALL
    SELECT 'warning', 'not_tried', format('stacksaga was tried with Citus 13.2, not with %s', extversion),
           'Run the tests test/tap/citus_*.pl with this version.'
      FROM pg_extension WHERE extname = 'citus' AND extversion !~ '^13\.2'
    UNION ALL
    SELECT 'warning', 'node_inactive',
           format('node %s:%s is not active: keys of its shards cannot be used', nodename, nodeport),
           format('SELECT citus_activate_node(%L, %s);', nodename, nodeport)
      FROM pg_dist_node WHERE noderole = 'primary' AND NOT isactive
    UNION ALL
    SELECT 'error', 'other_version',
           format('node %s:%s answers %s for the version of stacksaga, this one has %s', n.nodename, n.nodeport,
                  w.result, e.extversion),
           'Install one version of stacksaga on all nodes, then run ALTER EXTENSION stacksaga UPDATE on the coordinator.'
      FROM pg_extension e,
           run_command_on_workers('SELECT extversion FROM pg_extension WHERE extname = ''stacksaga''') w
      JOIN pg_dist_node n USING (nodename, nodeport)
     WHERE e.extname = 'stacksaga' AND w.success AND w.result IS DISTINCT FROM e.extversion
       AND to_regclass('stacksaga.citus_guard') IS NOT NULL
    UNION ALL
    SELECT 'error', 'sagas_on_worker',
           format('node %s:%s defines sagas of its own: a saga started with the same key there and here runs twice',
                  n.nodename, n.nodeport),
           'Define and start each saga on one node only.'
      FROM run_command_on_workers('SELECT count(*) FROM stacksaga.saga_definition') w
      JOIN pg_dist_node n USING (nodename, nodeport)
     WHERE w.success AND w.result <> '0'
    UNION ALL
    SELECT 'warning', 'node_unreachable',
           format('node %s:%s does not answer: %s', n.nodename, n.nodeport, w.result), 'Start it, or remove its shards.'
      FROM run_command_on_workers('SELECT 1') w JOIN pg_dist_node n USING (nodename, nodeport)
     WHERE NOT w.success
    $query$;
END
$$;
COMMENT ON FUNCTION stacksaga_internal.citus_problems IS
    'Internal: returns the rows of citus_check() on the coordinator of Citus';

CREATE OR REPLACE FUNCTION stacksaga.citus_check()
RETURNS TABLE (severity text, problem text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    node_group integer;
BEGIN
    PERFORM stacksaga_internal.require_citus('citus_check()');
    EXECUTE 'SELECT groupid FROM pg_dist_local_group' INTO node_group;
    IF node_group <> 0 THEN
        RAISE EXCEPTION 'citus_check() is for the coordinator' USING ERRCODE = 'SG409',
            DETAIL = format('This node is a worker, of group %s.', node_group),
            HINT = 'Call it on the coordinator of Citus.';
    END IF;
    RETURN QUERY SELECT * FROM stacksaga_internal.citus_problems() AS p ORDER BY p.severity, p.problem, p.detail;
END
$$;
COMMENT ON FUNCTION stacksaga.citus_check IS
    'Returns what would break exactly-once on Citus, or stops calls, and what to do about it; on the coordinator. Raises SG409';
