-- Citus: the tables of the dedupe ladder and of sagas distributed by token, definitions copied to each node, and
-- transactions that write here and on another node committed in two phases (extension/pg/citus/two_phase.cpp).
-- Statements that name what Citus makes are dynamic, since Citus may not be there.

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

-- These stay members of the extension: views depend on them.
CREATE OR REPLACE FUNCTION stacksaga_internal.saga_tables() RETURNS regclass[]
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ARRAY['stacksaga.saga', 'stacksaga.saga_attribute', 'stacksaga.removed_saga', 'stacksaga.work', 'stacksaga.effect',
                 'stacksaga.failure', 'stacksaga.step_release', 'stacksaga.saga_signal', 'stacksaga.saga_action',
                 'stacksaga.saga_contradiction', 'stacksaga.parked_saga']::regclass[]
$$;
COMMENT ON FUNCTION stacksaga_internal.saga_tables IS
    'Internal: returns the tables of sagas that citus_enable() distributes by token';

CREATE OR REPLACE FUNCTION stacksaga_internal.definition_tables() RETURNS regclass[]
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ARRAY['stacksaga.saga_definition', 'stacksaga.definition_step', 'stacksaga.definition_pause']::regclass[]
$$;
COMMENT ON FUNCTION stacksaga_internal.definition_tables IS
    'Internal: returns the tables that citus_enable() copies to each node';

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

-- A saga's rows lie beside the rows of an idempotency key with the same token.
CREATE OR REPLACE FUNCTION stacksaga_internal.distribute_sagas(beside regclass) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    a_table regclass;
    node text;
BEGIN
    PERFORM stacksaga_internal.require_citus_coordinator('distribute_sagas()');
    EXECUTE $query$SELECT format('%s:%s', nodename, nodeport) FROM run_command_on_workers(
        'SELECT EXISTS (SELECT FROM stacksaga.saga_definition)') WHERE success AND result = 't' LIMIT 1$query$ INTO node;
    IF node IS NOT NULL THEN
        RAISE EXCEPTION 'a worker of Citus has sagas of its own' USING ERRCODE = 'SG409',
            DETAIL = format('Node %s defines some. They would be hidden by those of the coordinator.', node),
            HINT = 'Have them end there, and DROP EXTENSION stacksaga on that node before it joins again.';
    END IF;
    -- Citus distributes no table that has a trigger. The extension does itself what these do.
    DROP TRIGGER saga_transition ON stacksaga.saga;
    DROP TRIGGER saga_definition_definer ON stacksaga.saga_definition;
    DROP TRIGGER saga_definition_guard ON stacksaga.saga_definition;
    DROP TRIGGER definition_step_guard ON stacksaga.definition_step;
    FOREACH a_table IN ARRAY stacksaga_internal.definition_tables() LOOP
        EXECUTE 'SELECT create_reference_table($1)' USING a_table;
        EXECUTE 'SELECT truncate_local_data_after_distributing_table($1)' USING a_table;
    END LOOP;
    FOREACH a_table IN ARRAY stacksaga_internal.saga_tables() LOOP
        EXECUTE 'SELECT create_distributed_table($1, ''token'', colocate_with => $2)' USING a_table, beside::text;
        EXECUTE 'SELECT truncate_local_data_after_distributing_table($1)' USING a_table;
    END LOOP;
END
$$;
COMMENT ON FUNCTION stacksaga_internal.distribute_sagas IS
    'Internal: distributes the tables of sagas like a table that is distributed, and copies definitions to each node';

-- As undistribute_table() does, which refuses members of an extension.
CREATE OR REPLACE FUNCTION stacksaga_internal.undistribute(a_table regclass) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    schema_name text;
    table_name text;
BEGIN
    PERFORM stacksaga_internal.require_citus_coordinator('undistribute()');
    SELECT n.nspname, c.relname INTO schema_name, table_name
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = a_table;
    EXECUTE format('CREATE TEMPORARY TABLE citus_rows ON COMMIT DROP AS SELECT * FROM %s', a_table);
    -- What Citus does when one of its tables is dropped.
    EXECUTE 'SELECT master_remove_distributed_table_metadata_from_workers($1, $2, $3)'
      USING a_table, schema_name, table_name;
    EXECUTE 'SELECT citus_drop_all_shards($1, $2, $3, drop_shards_metadata_only => false)'
      USING a_table, schema_name, table_name;
    EXECUTE 'SELECT master_remove_partition_metadata($1, $2, $3)' USING a_table, schema_name, table_name;
    EXECUTE format('INSERT INTO %s OVERRIDING SYSTEM VALUE SELECT * FROM pg_temp.citus_rows', a_table);
    DROP TABLE pg_temp.citus_rows;
END
$$;
COMMENT ON FUNCTION stacksaga_internal.undistribute IS
    'Internal: makes a member of the extension that Citus manages a table of the coordinator again, with its rows';

CREATE OR REPLACE FUNCTION stacksaga_internal.undistribute_sagas() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM stacksaga_internal.require_citus_coordinator('undistribute_sagas()');
    PERFORM stacksaga_internal.undistribute(t)
       FROM unnest(stacksaga_internal.saga_tables() || stacksaga_internal.definition_tables()) AS t;
    CREATE TRIGGER saga_transition BEFORE UPDATE ON stacksaga.saga FOR EACH ROW
        EXECUTE FUNCTION stacksaga_internal.enforce_transition();
    COMMENT ON TRIGGER saga_transition ON stacksaga.saga IS
        'Refuses changes that are not allowed, to the owner of the table too';
    CREATE TRIGGER saga_definition_definer BEFORE INSERT ON stacksaga.saga_definition
        FOR EACH ROW EXECUTE FUNCTION stacksaga_internal.find_definer();
    COMMENT ON TRIGGER saga_definition_definer ON stacksaga.saga_definition IS
        'Records the oid of the definer';
    CREATE TRIGGER saga_definition_guard BEFORE INSERT OR UPDATE OR DELETE ON stacksaga.saga_definition
        FOR EACH STATEMENT EXECUTE FUNCTION stacksaga_internal.guard_definers();
    COMMENT ON TRIGGER saga_definition_guard ON stacksaga.saga_definition IS
        'Lets nobody but the owner of the extension say who runs what';
    CREATE TRIGGER definition_step_guard BEFORE INSERT OR UPDATE OR DELETE ON stacksaga.definition_step
        FOR EACH STATEMENT EXECUTE FUNCTION stacksaga_internal.guard_definers();
    COMMENT ON TRIGGER definition_step_guard ON stacksaga.definition_step IS
        'Lets nobody but the owner of the extension say who runs what';
END
$$;
COMMENT ON FUNCTION stacksaga_internal.undistribute_sagas IS
    'Internal: undoes distribute_sagas()';

CREATE OR REPLACE FUNCTION stacksaga.citus_enable(shard_count integer DEFAULT 32, sagas boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ladder regclass[] := stacksaga_internal.ladder_tables();
    ladder_table regclass;
BEGIN
    PERFORM stacksaga_internal.require_citus_coordinator('citus_enable()');
    IF sagas IS NULL THEN
        RAISE EXCEPTION 'argument "sagas" is NULL' USING ERRCODE = 'SG400',
            DETAIL = 'It says whether sagas are distributed.', HINT = 'Use true or false.';
    END IF;
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
    IF sagas THEN
        PERFORM stacksaga_internal.distribute_sagas(ladder[1]);
    END IF;
END
$$;
COMMENT ON FUNCTION stacksaga.citus_enable IS
    'Distributes idempotency keys and the rest of the dedupe ladder over the nodes of Citus by token, with sagas => true sagas as well, and makes transactions that write here and on another node commit in two phases. For superusers, on the coordinator. Raises SG400, SG409, 42501';

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
    IF stacksaga_internal.is_of_citus('stacksaga.saga') THEN
        PERFORM stacksaga_internal.undistribute_sagas();
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
    'Undoes citus_enable(): sagas and the dedupe ladder come back to the coordinator with all their rows. Needed before DROP EXTENSION, pg_dump and removing Citus. Raises SG409, 42501';

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
       AND c.oid <> ALL (stacksaga_internal.ladder_tables() || stacksaga_internal.saga_tables()
                         || stacksaga_internal.definition_tables() || to_regclass('stacksaga.citus_guard'))
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
      FROM pg_extension WHERE extname = 'citus' AND extversion !~ E'^13\\.2'
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
           format('node %s:%s has sagas of its own', n.nodename, n.nodeport),
           'Define and start each saga on one node only: a saga started with the same key there and here runs twice.'
      FROM run_command_on_workers('SELECT EXISTS (SELECT FROM stacksaga.saga_definition)') w
      JOIN pg_dist_node n USING (nodename, nodeport)
     WHERE w.success AND w.result = 't' AND NOT stacksaga_internal.is_of_citus('stacksaga.saga')
    UNION ALL
    SELECT 'error', 'definitions_missing',
           format('node %s:%s has no copy of the definitions of sagas, and gets no shards before', n.nodename, n.nodeport),
           'SELECT replicate_reference_tables();'
      FROM pg_dist_node n
     WHERE n.noderole = 'primary' AND n.isactive AND stacksaga_internal.is_of_citus('stacksaga.saga')
       AND NOT EXISTS (SELECT FROM pg_dist_shard s JOIN pg_dist_placement p USING (shardid)
                        WHERE s.logicalrelid = 'stacksaga.saga_definition'::regclass AND p.groupid = n.groupid)
    UNION ALL
    SELECT 'warning', 'subscriptions_differ',
           format('node %s:%s has other subscriptions than the coordinator: %s; what its steps publish is delivered to these alone',
                  n.nodename, n.nodeport, coalesce(nullif(w.result, ''), 'none')),
           'Make the same subscriptions with stacksaga.create_subscription() on each node.'
      FROM run_command_on_workers($subscriptions$
               SELECT string_agg(subscription, ', ' ORDER BY subscription) FROM stacksaga.subscription$subscriptions$) w
      JOIN pg_dist_node n USING (nodename, nodeport),
           (SELECT string_agg(subscription, ', ' ORDER BY subscription) AS names FROM stacksaga.subscription) AS here
     WHERE w.success AND coalesce(w.result, '') <> coalesce(here.names, '')
       AND stacksaga_internal.is_of_citus('stacksaga.saga')
    UNION ALL
    SELECT 'error', 'rings_differ',
           format('node %s:%s has other rings than the coordinator: %s; sagas of the others are not run there',
                  n.nodename, n.nodeport, w.result),
           'Make the same rings with stacksaga.create_ring() on each node, in the same order.'
      FROM run_command_on_workers($rings$
               SELECT string_agg(format('%s %s/%s of %s slots', ring_id, region, cluster, slots), ', ' ORDER BY ring_id)
                 FROM stacksaga.ring$rings$) w
      JOIN pg_dist_node n USING (nodename, nodeport),
           (SELECT string_agg(format('%s %s/%s of %s slots', ring_id, region, cluster, slots), ', ' ORDER BY ring_id) AS rings
              FROM stacksaga.ring) AS here
     WHERE w.success AND w.result IS DISTINCT FROM here.rings AND stacksaga_internal.is_of_citus('stacksaga.saga')
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
