-- Every action of an operator is recorded, wherever it is recorded: who took it, for whom, on what and why.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
TRUNCATE stacksaga.operator_action, stacksaga.saga_action, stacksaga.schedule_action, stacksaga.ring_adoption,
    stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
CREATE ROLE actions_operator;
CREATE ROLE actions_support;
CREATE ROLE actions_monitor;
CREATE ROLE actions_service;
SELECT stacksaga.grant_usage('actions_operator', 'operator'), stacksaga.grant_usage('actions_support', 'support'),
       stacksaga.grant_usage('actions_monitor', 'monitor'), stacksaga.grant_usage('actions_service', 'service');
-- The actions since the last look, in their order; ids are not printed.
CREATE TABLE actions_seen (seen_to timestamptz);
INSERT INTO actions_seen VALUES ('-infinity');
CREATE FUNCTION new_actions()
RETURNS TABLE (role_name text, on_behalf_of text, action text, object text, reason text, detail text)
LANGUAGE plpgsql AS $$
DECLARE
    from_then timestamptz := (SELECT seen_to FROM actions_seen);
BEGIN
    UPDATE actions_seen SET seen_to = stacksaga.clock_now();
    RETURN QUERY SELECT a.role_name, a.on_behalf_of, a.action, regexp_replace(a.object, '[0-9a-f]{8}-[-0-9a-f]{27}', 'ID'), a.reason, a.detail
                   FROM stacksaga.operator_actions a WHERE a.at > from_then ORDER BY a.at;
END $$;

-- On definitions and sagas. A definition that changes nothing is no action.
SET ROLE actions_operator;
SELECT stacksaga.define_saga('actions', ARRAY[stacksaga.queue_step('charge', 'actions', compensable => true)]);
SELECT stacksaga.define_saga('actions', ARRAY[stacksaga.queue_step('charge', 'actions', compensable => true)]);
SELECT stacksaga.define_saga('actions', ARRAY[stacksaga.queue_step('charge', 'actions', compensable => false)]);
SELECT stacksaga.define_saga('actions', ARRAY[stacksaga.queue_step('charge', 'actions', compensable => true)]);
SELECT saga_id AS id FROM stacksaga.start_saga('actions') \gset
SELECT saga_id AS other FROM stacksaga.start_saga('actions') \gset
SET ROLE actions_support;
SET stacksaga.on_behalf_of = 'alice@example.com';
SELECT stacksaga.suspend_saga(:'id', 'ticket 1');
SELECT stacksaga.resume_saga(:'id', 'ticket 1 is closed');
SET ROLE actions_service;
SELECT count(stacksaga.fail_step(saga_id, step, lease, 'no answer')) FROM stacksaga.claim_steps('actions', 'teller', 1);
SET ROLE actions_support;
SELECT stacksaga.resolve_step(saga_id, 'charge', 'never', reason => 'the bank says so') FROM stacksaga.sagas WHERE status = 'running';
SET stacksaga.on_behalf_of = '';
SELECT status_after, error FROM stacksaga.cancel_sagas(ARRAY(SELECT saga_id FROM stacksaga.sagas WHERE finished_at IS NULL), 'too late', dry_run => true);
SELECT status_after, error FROM stacksaga.cancel_sagas(ARRAY(SELECT saga_id FROM stacksaga.sagas WHERE finished_at IS NULL), 'too late', dry_run => false);
RESET ROLE;
SELECT * FROM new_actions();

-- On schedules.
SET ROLE actions_operator;
SELECT stacksaga.create_schedule('actions', 'actions', '0 0 1 1 *');
SET ROLE actions_support;
SET stacksaga.on_behalf_of = 'bob';
SELECT stacksaga.pause_schedule('actions', 'holiday');
SELECT stacksaga.resume_schedule('actions', 'back');
RESET stacksaga.on_behalf_of;
SET ROLE actions_operator;
SELECT stacksaga.drop_schedule('actions');
RESET ROLE;
SELECT * FROM new_actions();

-- On queues. Limits that are set to none are an action too.
SET ROLE actions_support;
SET stacksaga.on_behalf_of = 'bob';
SELECT stacksaga.set_queue('actions', 2, 1, 5, '1 minute');
SELECT stacksaga.pause_queue('actions', 'the bank is down');
SELECT stacksaga.resume_queue('actions', 'the bank is up');
SELECT stacksaga.set_queue('actions');
SELECT stacksaga.set_queue('actions', 1);
SELECT stacksaga.drop_queue('actions');
RESET stacksaga.on_behalf_of;
RESET ROLE;
SELECT * FROM new_actions();

-- On sagas that are over, and on many at once.
SET ROLE actions_support;
SELECT stacksaga.redact_saga(:'id', 'ticket 2');
SELECT saga_id AS third FROM stacksaga.start_saga('actions') \gset
SELECT count(*) FROM stacksaga.suspend_sagas(ARRAY[:'third']::uuid[], 'ticket 3', false);
SELECT count(*) FROM stacksaga.resume_sagas(ARRAY[:'third']::uuid[], 'ticket 3 is closed', false);
SELECT sqlstate FROM stacksaga.retry_sagas(ARRAY[:'third']::uuid[], 'it is not parked', false);
RESET ROLE;
SELECT * FROM new_actions();

-- On subscriptions and dead messages. The same settings again are no action, and what fails is none.
SET ROLE actions_operator;
SELECT stacksaga.create_subscription('actions', 'actions', retry => stacksaga.retry_policy(max_attempts => 1));
SELECT stacksaga.create_subscription('actions', 'actions', retry => stacksaga.retry_policy(max_attempts => 1));
SELECT stacksaga.alter_subscription('actions', stop_on_first_failure => false);
SELECT count(stacksaga.publish('actions', '{}')) FROM generate_series(1, 2);
SET ROLE actions_service;
SELECT message_id AS first, batch_id AS batch FROM stacksaga.receive_messages('actions', 'c') ORDER BY message_id LIMIT 1 \gset
SELECT stacksaga.fail_message(:batch, :'first', 'bad', 'non_retryable');
SELECT stacksaga.ack_messages(:batch);
SET ROLE actions_support;
SET stacksaga.on_behalf_of = 'carol';
SELECT stacksaga.redrive_message('actions', :'first');
\set VERBOSITY sqlstate
SELECT stacksaga.redrive_message('actions', :'first');
\set VERBOSITY default
SET ROLE actions_service;
SELECT batch_id AS batch FROM stacksaga.receive_messages('actions', 'c') WHERE message_id = :'first' \gset
SELECT stacksaga.fail_message(:batch, :'first', 'bad', 'non_retryable');
SELECT stacksaga.ack_messages(:batch);
SET ROLE actions_support;
SELECT stacksaga.discard_message('actions', :'first', 'nobody wants it');
SELECT stacksaga.pause_subscription('actions', 'INC-1');
SELECT stacksaga.resume_subscription('actions', 'INC-1 is over');
SET ROLE actions_service;
SELECT count(stacksaga.idempotency_finish('actions', 'k', lease, '"x"')) FROM stacksaga.idempotency_begin('actions', 'k');
SET ROLE actions_support;
SELECT stacksaga.idempotency_forget('actions', 'k', 'ticket 4');
RESET stacksaga.on_behalf_of;
SET ROLE actions_operator;
SELECT stacksaga.drop_subscription('actions', true);
RESET ROLE;
SELECT * FROM new_actions();

-- On rings and nodes.
SET ROLE actions_operator;
SET stacksaga.on_behalf_of = 'dave';
SELECT stacksaga.create_ring('actions', 'old', slots => 64) > 0 AS created, stacksaga.create_ring('actions', 'new', slots => 64) > 0 AS created;
SELECT stacksaga.create_ring('actions', 'new', slots => 64) > 0 AS there_already;
SELECT stacksaga.alter_ring('actions', 'new', 'dead_after', '1 minute');
SELECT stacksaga.adopt_ring('actions', 'old', 'actions', 'new', 'the region is down');
SET ROLE actions_service;
SELECT stacksaga.register_node('actions-1', 'actions', 'new') AS incarnation \gset
SET ROLE actions_operator;
SELECT stacksaga.drain_node('actions-1', :incarnation);
SET ROLE actions_service;
SELECT stacksaga.leave_ring('actions-1', :incarnation);
RESET stacksaga.on_behalf_of;
RESET ROLE;
SELECT * FROM new_actions();

-- An action that is rolled back has not happened.
BEGIN;
SELECT stacksaga.alter_ring('actions', 'new', 'dead_after', '2 minutes');
ROLLBACK;
SELECT * FROM new_actions();

-- For whom: free text of at most 255 bytes, settable by anybody.
SELECT setting, context FROM pg_settings WHERE name = 'stacksaga.on_behalf_of';
SELECT set_config('stacksaga.on_behalf_of', repeat('é', 127) || 'x', false) IS NOT NULL AS fits;
SELECT set_config('stacksaga.on_behalf_of', repeat('é', 128), false) IS NOT NULL AS fits;
RESET stacksaga.on_behalf_of;

-- What else an operator may call, and a service or a monitor may not, changes nothing that anybody decided: it says
-- what a definition consists of, or does what is due anyway. (The others are above, and in the files of their own: saga_park,
-- pause_definition, forget_work, reset_instants.)
SELECT p.object FROM stacksaga.privilege p JOIN pg_proc f ON f.proname = p.object AND f.pronamespace = 'stacksaga'::regnamespace
 WHERE p.kind IN ('operator', 'support')
   AND p.object NOT IN (SELECT object FROM stacksaga.privilege WHERE kind IN ('service', 'monitor'))
   AND p.object <> ALL ('{define_saga,cancel_saga,suspend_saga,resume_saga,retry_saga,resolve_step,acknowledge_contradiction,redact_saga,cancel_sagas,suspend_sagas,
        resume_sagas,retry_sagas,set_queue,drop_queue,pause_queue,resume_queue,create_schedule,drop_schedule,pause_schedule,resume_schedule,
        create_subscription,alter_subscription,drop_subscription,pause_subscription,resume_subscription,redrive_message,redrive_messages,discard_message,create_ring,alter_ring,
        adopt_ring,drain_node,idempotency_forget,compensate_saga,compensate_sagas,pause_definition,resume_definition,forget_work,reset_instants}'::text[])
 GROUP BY p.object ORDER BY p.object;

-- Who reads them.
SELECT role, has_table_privilege(role, 'stacksaga.operator_actions', 'SELECT') AS reads,
       has_table_privilege(role, 'stacksaga.operator_action', 'SELECT, INSERT, UPDATE, DELETE') AS has_table
  FROM unnest('{actions_operator,actions_support,actions_monitor,actions_service}'::text[]) AS role;


-- The newest cost what they are, however many there are: pages that are touched, not seconds.
CREATE FUNCTION action_pages(statement text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || statement INTO plan;
    RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::integer + (plan->0->'Plan'->>'Shared Read Blocks')::integer;
END $$;
INSERT INTO stacksaga.operator_action (acted_at, role, action, object)
SELECT '2020-01-01'::timestamptz + n * interval '1 s', 'nobody', 'drain', 'node ' || n FROM generate_series(1, 20000) n;
INSERT INTO stacksaga.saga_action (saga_id, token, action_no, action, role, acted_at, status_before, status_after, reason)
SELECT gen_random_uuid(), n, 1, 'cancel', 'nobody', '2020-01-01'::timestamptz + n * interval '1 s', 'running', 'failed', 'many'
  FROM generate_series(1, 20000) n;
INSERT INTO stacksaga.schedule_action (schedule, token, action_no, action, role, acted_at)
SELECT 's' || n, n, 1, 'create', 'nobody', '2020-01-01'::timestamptz + n * interval '1 s' FROM generate_series(1, 20000) n;
ANALYZE stacksaga.operator_action, stacksaga.saga_action, stacksaga.schedule_action;
SELECT count(action_pages('SELECT * FROM stacksaga.operator_actions ORDER BY at DESC LIMIT 50')) FROM generate_series(1, 2);
SELECT pages < 400 AS a_page_costs_little, CASE WHEN pages >= 400 THEN pages END AS pages
  FROM action_pages('SELECT * FROM stacksaga.operator_actions ORDER BY at DESC LIMIT 50') AS pages;
SELECT pages < 600 AS a_later_page_too, CASE WHEN pages >= 600 THEN pages END AS pages
  FROM action_pages($$SELECT * FROM stacksaga.operator_actions WHERE at < '2020-01-01 02:00' ORDER BY at DESC LIMIT 50$$) AS pages;

-- They are kept as long as failed sagas are: thirty days. Those on sagas go with the sagas.
INSERT INTO stacksaga.operator_action (acted_at, role, action, object)
VALUES (stacksaga.clock_now() - interval '29 days', 'nobody', 'define', 'young'),
       (stacksaga.clock_now() - interval '31 days', 'nobody', 'define', 'old');
CREATE TABLE actions_before AS SELECT (SELECT count(*) FROM stacksaga.saga_action) AS of_sagas;
SELECT stacksaga.expire_actions(10) AS removed, min(acted_at) AS oldest FROM stacksaga.operator_action;
SELECT min(acted_at) AS oldest FROM stacksaga.operator_action;
SELECT stacksaga.expire_actions(100000) > 30000 AS removed;
SELECT count(*) FILTER (WHERE object = 'young') AS young, count(*) FILTER (WHERE object = 'old') AS old,
       count(*) FILTER (WHERE acted_at > stacksaga.clock_now() - interval '1 day') > 0 AS of_today,
       (SELECT count(*) FROM stacksaga.schedule_action WHERE role = 'nobody') AS of_schedules,
       (SELECT count(*) = of_sagas FROM stacksaga.saga_action, actions_before GROUP BY of_sagas) AS all_of_sagas
  FROM stacksaga.operator_action;
SELECT stacksaga.expire_actions(0);
DROP TABLE actions_before;

TRUNCATE stacksaga.operator_action, stacksaga.saga_action, stacksaga.schedule_action, stacksaga.ring_adoption,
    stacksaga.saga, stacksaga.work, stacksaga.effect, stacksaga.failure;
DELETE FROM stacksaga.definition_step USING stacksaga.saga_definition d
 WHERE d.definition_id = definition_step.definition_id AND d.saga = 'actions';
DELETE FROM stacksaga.saga_definition WHERE saga = 'actions';
DELETE FROM stacksaga.slot USING stacksaga.ring r WHERE slot.ring_id = r.ring_id AND r.region = 'actions';
DELETE FROM stacksaga.ring_setting USING stacksaga.ring r WHERE ring_setting.ring_id = r.ring_id AND r.region = 'actions';
DELETE FROM stacksaga.ring_epoch USING stacksaga.ring r WHERE ring_epoch.ring_id = r.ring_id AND r.region = 'actions';
DELETE FROM stacksaga.ring WHERE region = 'actions';
TRUNCATE stacksaga.outbox_message;
DELETE FROM stacksaga.usage_grant WHERE role::text LIKE 'actions_%';
DROP OWNED BY actions_operator, actions_support, actions_monitor, actions_service;
DROP ROLE actions_operator, actions_support, actions_monitor, actions_service;
DROP FUNCTION new_actions, action_pages;
DROP TABLE actions_seen;
