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
DELETE FROM stacksaga.usage_grant WHERE role IN ('kinds_service', 'kinds_monitor');
DROP OWNED BY kinds_service, kinds_monitor;
DROP ROLE kinds_service, kinds_monitor;
