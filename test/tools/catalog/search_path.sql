-- no function has a mutable search_path
-- An IMMUTABLE function in C looks no name up. The exceptions resolve the names that their callers
-- give them, in the caller's path; those of subscriptions pin the path before they read a table.
-- Those that publish, the procedure that commits, and those that each request or step calls pin it
-- where they run SQL.
SELECT p.oid::regprocedure
FROM pg_depend d
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
JOIN pg_language l ON l.oid = p.prolang
WHERE d.deptype = 'e' AND e.extname = 'stacksaga'
  AND NOT EXISTS (SELECT FROM unnest(p.proconfig) AS setting WHERE setting = 'search_path=pg_catalog, pg_temp')
  AND (p.prosecdef OR NOT (l.lanname IN ('c', 'internal') AND p.provolatile = 'i'))
  AND (p.prosecdef OR p.proname NOT IN ('sql_step', 'queue_step', 'message_step', 'create_subscription',
                                           'alter_subscription'))
  AND p.proname NOT IN ('publish', 'publish_batch', 'run_pending', 'wait_for_steps', 'wait_for_messages', 'idempotency_begin', 'idempotency_finish')
  AND (p.prosecdef OR p.proname NOT IN ('start_saga', 'start_sagas', 'claim_steps', 'complete_step', 'complete_steps',
                                        'fail_step', 'release_step', 'release_steps', 'extend_step'))
ORDER BY 1;
