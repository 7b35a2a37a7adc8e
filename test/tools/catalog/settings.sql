-- docs/reference.md has the default of each setting, and who may change it
-- Servers of tests set check_plans.
\set reference `cat docs/reference.md`
SELECT format('the database has %s', expected)
FROM pg_settings,
     format('| `%s` | %s | %s |', name,
            CASE current_setting(name) WHEN '' THEN 'empty' ELSE format('`%s`', current_setting(name)) END,
            CASE context WHEN 'user' THEN 'session' WHEN 'sighup' THEN 'reload' WHEN 'postmaster' THEN 'restart'
            ELSE context END) AS expected
WHERE name LIKE 'stacksaga.%' AND name <> 'stacksaga.check_plans' AND strpos(:'reference', expected) = 0
ORDER BY 1;
