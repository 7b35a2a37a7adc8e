-- What each kind of user may call and read, whole: a grant that appears here is one that somebody decided on.
SELECT object, string_agg(kind, ' ' ORDER BY kind) AS kinds FROM stacksaga.privilege GROUP BY object
 ORDER BY object COLLATE "C";

-- A service does not operate, and a monitor only reads.
CREATE ROLE kinds_service;
CREATE ROLE kinds_monitor;
SELECT stacksaga.grant_usage('kinds_service', 'service'), stacksaga.grant_usage('kinds_monitor', 'monitor');
SELECT role, p.proname AS may_call
  FROM unnest(ARRAY['kinds_service', 'kinds_monitor']) AS role, pg_proc p
 WHERE p.pronamespace = 'stacksaga'::regnamespace
   AND p.proname IN ('start_saga', 'complete_step', 'cancel_saga', 'retry_saga', 'define_saga', 'create_ring', 'status')
   AND has_function_privilege(role, p.oid, 'EXECUTE')
 ORDER BY role, p.proname;

-- Support operates what is there: all that an operator may, but define, run due work and change rings.
SELECT object AS operator_alone FROM stacksaga.privilege WHERE kind = 'operator'
EXCEPT SELECT object FROM stacksaga.privilege WHERE kind = 'support' ORDER BY 1;
SELECT object AS support_alone FROM stacksaga.privilege WHERE kind = 'support'
EXCEPT SELECT object FROM stacksaga.privilege WHERE kind = 'operator';
SELECT object AS monitor_not_support FROM stacksaga.privilege WHERE kind = 'monitor'
EXCEPT SELECT object FROM stacksaga.privilege WHERE kind = 'support';
CREATE ROLE kinds_support;
SELECT stacksaga.grant_usage('kinds_support', 'support');
SELECT stacksaga.define_saga('kinds', ARRAY[stacksaga.queue_step('wait', 'kinds', compensable => true)]);
SELECT stacksaga.create_schedule('kinds', 'kinds', '0 0 1 1 *');
SELECT saga_id AS id FROM stacksaga.start_saga('kinds') \gset
SET ROLE kinds_support;
SELECT stacksaga.suspend_saga(:'id', 'look at it'), stacksaga.resume_saga(:'id', 'looked'), stacksaga.cancel_saga(:'id', 'not wanted');
SELECT stacksaga.pause_schedule('kinds', 'holiday'), stacksaga.resume_schedule('kinds', 'back');
SELECT count(*) > 0 AS lines FROM stacksaga.saga_timeline(:'id');
SELECT count(*) FROM stacksaga.dedupe_state('kinds', 'k');
SELECT action, reason FROM stacksaga.saga_actions WHERE saga_id = :'id' ORDER BY acted_at;
SELECT stacksaga.define_saga('kinds', ARRAY[stacksaga.queue_step('other', 'kinds', compensable => true)]);
SELECT stacksaga.create_schedule('mine', 'kinds', '0 0 1 1 *');
SELECT stacksaga.run_pending();
SELECT stacksaga.alter_ring('default', 'default', 'dead_after', '1 minute');
SELECT stacksaga.create_subscription('mine', 'kinds');
SELECT stacksaga.register_node('mine');
SELECT count(*) FROM stacksaga.saga;
RESET ROLE;
SELECT stacksaga.drop_schedule('kinds');
TRUNCATE stacksaga.saga, stacksaga.work, stacksaga.saga_action, stacksaga.effect, stacksaga.failure, stacksaga.schedule_action;
DELETE FROM stacksaga.definition_step USING stacksaga.saga_definition d WHERE d.definition_id = definition_step.definition_id AND d.saga = 'kinds';
DELETE FROM stacksaga.saga_definition WHERE saga = 'kinds';
DELETE FROM stacksaga.usage_grant WHERE role IN ('kinds_service', 'kinds_monitor', 'kinds_support');
DROP OWNED BY kinds_service, kinds_monitor, kinds_support;
DROP ROLE kinds_service, kinds_monitor, kinds_support;
