-- Who may do what: granted by kind of user, from one list.

CREATE OR REPLACE VIEW stacksaga.privilege AS
SELECT kind, object
  FROM (VALUES
        ('service', '{start_saga,claim_steps,complete_step,fail_step,extend_step,saga_result,
                      await_saga,saga_timeline,clock_now,register_node,heartbeat_node,node_ranges,
                      acknowledge_checkpoint,drain_node,leave_ring,sagas,saga_history,
                      idempotency_begin,idempotency_checkpoint,idempotency_finish,
                      idempotency_release,accept_message,accept_sequence,compare_and_set,
                      read_value,effects}'::text[]),
        ('coordinator', '{register_node,heartbeat_node,node_ranges,publish_window,ring_state,
                          ring_slots,drain_node,leave_ring,acknowledge_checkpoint,worker_ensure,
                          clock_now,nodes,ring_settings,ring_status,oldest_due}'),
        ('operator', '{define_saga,define_saga_content,sql_step,queue_step,start_saga,saga_result,await_saga,
                       saga_timeline,clock_now,run_pending,worker_ensure,create_ring,alter_ring,
                       node_ranges,drain_node,ring_state,ring_slots,sagas,saga_history,nodes,
                       ring_settings,ring_status,oldest_due,worker_stats,
                       saga_diagram,parked_sagas,expire_dedupe,effects}'),
        ('monitor', '{saga_result,saga_timeline,clock_now,node_ranges,ring_state,ring_slots,sagas,
                      saga_history,nodes,ring_settings,ring_status,oldest_due,
                      worker_stats,
                      saga_diagram,parked_sagas,effects}')) AS p(kind, objects),
       unnest(objects) AS object;
COMMENT ON VIEW stacksaga.privilege IS
    'Says which functions and views grant_usage() grants to which kind of user';

CREATE OR REPLACE FUNCTION stacksaga.grant_usage(role name, kind text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    target text;
BEGIN
    IF role IS NULL OR NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = grant_usage.role) THEN
        RAISE EXCEPTION USING ERRCODE = 'SG404',
            MESSAGE = format('role "%s" does not exist', coalesce(role, 'NULL')),
            DETAIL = 'No role of this server has this name.',
            HINT = 'Create the role first.';
    END IF;
    IF kind IS NULL OR NOT EXISTS (
        SELECT FROM stacksaga.privilege p WHERE p.kind = grant_usage.kind) THEN
        RAISE EXCEPTION USING ERRCODE = 'SG400',
            MESSAGE = format('"%s" is not a kind of user', coalesce(left(kind, 80), 'NULL')),
            DETAIL = 'A kind stands for a list of functions and views, in stacksaga.privilege.',
            HINT = 'Use service, coordinator, operator or monitor.';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA stacksaga TO %I', role);
    FOR target IN
        SELECT format('FUNCTION %s', f.oid::regprocedure)
          FROM stacksaga.privilege p
          JOIN pg_proc f ON f.proname = p.object AND f.pronamespace = 'stacksaga'::regnamespace
         WHERE p.kind = grant_usage.kind
    LOOP
        EXECUTE format('GRANT EXECUTE ON %s TO %I', target, role);
    END LOOP;
    FOR target IN
        SELECT format('%s', c.oid::regclass)
          FROM stacksaga.privilege p
          JOIN pg_class c ON c.relname = p.object AND c.relnamespace = 'stacksaga'::regnamespace
         WHERE p.kind = grant_usage.kind AND c.relkind = 'v'
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO %I', target, role);
    END LOOP;
    INSERT INTO stacksaga.usage_grant VALUES (grant_usage.role, grant_usage.kind)
        ON CONFLICT DO NOTHING;
END
$$;
COMMENT ON FUNCTION stacksaga.grant_usage IS
    'Grants a role what a service, coordinator, operator or monitor needs; only the owner of the extension may. Raises SG400, SG404';
