-- Who may do what: granted by kind of user, from one list.

CREATE OR REPLACE VIEW stacksaga.privilege AS
SELECT kind, object
  FROM (VALUES
        -- Sagas. A support role, such as that of a page, is an operator that defines nothing, runs
        -- no due work in its own session and leaves rings alone.
        ('{operator}'::text[],
         '{define_saga,define_saga_content,sql_step,queue_step,signal_step,timer_step,child_step,message_step}'::text[]),
        ('{service,operator,support}', '{start_saga,start_sagas,signal_saga}'),
        ('{service}', '{claim_steps,wait_for_steps,complete_step,complete_steps,fail_step,release_step,release_steps,extend_step,fencing_token}'),
        ('{service,operator,support}', '{await_saga}'),
        ('{service,operator,support,monitor}', '{saga_result,saga_timeline,clock_now,statement_clock,ring_region,ring_cluster,sagas,saga_history}'),
        ('{operator,support}',
         '{cancel_saga,suspend_saga,resume_saga,retry_saga,resolve_step,acknowledge_contradiction,redact_saga,cancel_sagas,suspend_sagas,
           resume_sagas,retry_sagas,compensate_saga,compensate_sagas}'),
        ('{operator,support,monitor}', '{find_sagas,saga_waits_for,definitions,live_sagas,saga_diagram,explain_retries,parked_sagas,saga_actions,operator_actions,saga_executions,saga_logs}'),
        ('{operator,support}', '{error_groups,saga_error_detail,message_error_detail}'),
        ('{operator,support,monitor}', '{saga_error_groups,parked_of_pattern,message_error_groups,error_pattern}'),
        ('{operator,support,monitor}', '{traced_sagas,saga_spans,hold_span_export}'),
        ('{operator,support}', '{pause_definition,resume_definition}'),
        ('{operator,support,monitor}', '{definition_pauses}'),
        ('{operator,support}', '{set_queue,drop_queue,pause_queue,resume_queue}'),
        ('{operator,support,monitor}', '{queues,queue_names,queue_settings,is_paused,queue_counts,waiting_by_rank,running_in_queue,suspended_leases}'),
        -- Schedules
        ('{operator}', '{create_schedule,drop_schedule,fire_schedules}'),
        ('{operator,support}', '{pause_schedule,resume_schedule}'),
        ('{operator,support,monitor}', '{next_runs,schedules}'),
        -- Dedupe
        ('{service}',
         '{idempotency_begin,idempotency_checkpoint,idempotency_finish,idempotency_release,
           accept_message,accept_sequence,compare_and_set,read_value}'),
        ('{service,operator,support,monitor}', '{effects,effect_placement}'),
        ('{operator,support}', '{expire_dedupe,idempotency_forget}'),
        ('{operator}', '{expire_sagas,expire_actions,reset_instants,forget_work}'),
        ('{operator,support,monitor}', '{dedupe_state}'),
        -- Outbox
        ('{service,operator,support}', '{publish,publish_batch}'),
        ('{service}', '{receive_messages,wait_for_messages,extend_batch,fail_message,ack_messages,release_batch}'),
        ('{operator}', '{create_subscription,alter_subscription,drop_subscription}'),
        ('{operator,support}', '{pause_subscription,resume_subscription}'),
        ('{operator,support}', '{redrive_message,redrive_messages,discard_message,maintain_outbox}'),
        ('{operator,support,monitor}', '{outbox_backlog,outbox_unread_since,last_release,subscriptions,blocked_keys,first_blocked_keys,dead_messages,discarded_messages,message_retries}'),
        -- Workers
        ('{operator}', '{run_pending}'),
        ('{coordinator,operator,support}', '{worker_ensure}'),
        ('{operator,support,monitor}', '{worker_stats,metrics,status,doctor}'),
        -- Ring
        ('{service,coordinator}',
         '{register_node,heartbeat_node,acknowledge_checkpoint,leave_ring}'),
        ('{service,coordinator,operator}', '{drain_node}'),
        ('{service,coordinator,operator,support,monitor}', '{node_ranges,node_agent}'),
        ('{coordinator}', '{publish_window,agent_slots,clock_now}'),
        ('{coordinator,operator,support,monitor}',
         '{ring_state,ring_slots,ring_nodes,nodes,ring_settings,ring_status,oldest_due}'),
        ('{operator,support,monitor}', '{locate,ring_adoptions}'),
        ('{operator}', '{create_ring,alter_ring,adopt_ring}')) AS p(kinds, objects),
       unnest(kinds) AS kind, unnest(objects) AS object;
COMMENT ON VIEW stacksaga.privilege IS
    'Says which functions and views grant_usage() grants to which kind of user';
COMMENT ON COLUMN stacksaga.privilege.kind IS 'A kind of user, as grant_usage() takes it';
COMMENT ON COLUMN stacksaga.privilege.object IS 'A function, view or table that the kind is granted';

CREATE OR REPLACE FUNCTION stacksaga.grant_usage(role name, kind text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    target text;
BEGIN
    IF role IS NULL OR NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = grant_usage.role COLLATE "C") THEN
        RAISE EXCEPTION USING ERRCODE = 'SG404',
            MESSAGE = format('role "%s" does not exist', coalesce(role, 'NULL')),
            DETAIL = 'No role of this server has this name.',
            HINT = 'Create the role first.';
    END IF;
    IF kind IS NULL OR NOT EXISTS (
        SELECT FROM stacksaga.privilege p WHERE p.kind = grant_usage.kind COLLATE "C") THEN
        RAISE EXCEPTION USING ERRCODE = 'SG400',
            MESSAGE = format('"%s" is not a kind of user', coalesce(left(kind, 80), 'NULL')),
            DETAIL = 'A kind stands for a list of functions and views, in stacksaga.privilege.',
            HINT = 'Use service, coordinator, operator, support or monitor.';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA stacksaga, stacksaga_internal TO %I', role);
    FOR target IN
        SELECT format('ROUTINE %s', f.oid::regprocedure)
          FROM stacksaga.privilege p
          JOIN pg_proc f ON f.proname = p.object AND f.pronamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace)
         WHERE p.kind = grant_usage.kind COLLATE "C"
    LOOP
        EXECUTE format('GRANT EXECUTE ON %s TO %I', target, role);
    END LOOP;
    FOR target IN
        SELECT format('%s', c.oid::regclass)
          FROM stacksaga.privilege p
          JOIN pg_class c ON c.relname = p.object AND c.relnamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace)
         WHERE p.kind = grant_usage.kind COLLATE "C" AND c.relkind = 'v'
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO %I', target, role);
    END LOOP;
    DELETE FROM stacksaga.usage_grant g
     WHERE g.role = grant_usage.role COLLATE "C" AND g.kind = grant_usage.kind COLLATE "C";
    INSERT INTO stacksaga.usage_grant VALUES (grant_usage.role, grant_usage.kind);
END
$$;
COMMENT ON FUNCTION stacksaga.grant_usage IS
    'Grants a role what a service, coordinator, operator, support or monitor needs; only the owner of the extension may. Raises SG400, SG404';
