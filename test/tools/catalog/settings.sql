-- docs/reference.md has the default of each setting, its range, and who may change it
-- Servers of tests set check_plans.
\set reference `cat docs/reference.md`
CREATE FUNCTION pg_temp.stands_for(value numeric, unit text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN unit = 'B' AND value % 1048576 = 0 THEN div(value, 1048576) || ' MB'
                WHEN unit = 'B' THEN div(value, 1024) || ' kB'
                WHEN unit = 's' AND value % 86400 = 0 THEN div(value, 86400) || ' days'
                WHEN unit = 'ms' AND value % 60000 = 0 THEN div(value, 60000) || ' min'
                ELSE concat_ws(' ', value, unit) END
$$;
SELECT format('the database has %s', expected)
FROM pg_settings,
     format('| `%s` | %s | %s |', name,
            CASE current_setting(name) WHEN '' THEN 'empty' ELSE format('`%s`', current_setting(name)) END,
            CASE context WHEN 'user' THEN 'session' WHEN 'sighup' THEN 'reload' WHEN 'postmaster' THEN 'restart'
            ELSE context END) AS expected
WHERE name LIKE 'stacksaga.%' AND name <> 'stacksaga.check_plans' AND strpos(:'reference', expected) = 0
UNION ALL
SELECT format('the page has the setting %s, and the database has not', m[1])
FROM regexp_matches(:'reference', '\n\| `(stacksaga\.\w+)` \|', 'g') AS m
WHERE m[1] NOT IN (SELECT name FROM pg_settings)
UNION ALL
-- A range has an end, and -1 is a word of its own.
SELECT format('the database has %s of %s', expected, name)
FROM pg_settings,
     LATERAL (SELECT CASE WHEN max_val <> '2147483647'
                          THEN concat_ws(' to ', pg_temp.stands_for(greatest(min_val::numeric, 0), unit), pg_temp.stands_for(max_val::numeric, unit)) END
              UNION ALL SELECT '-1: ' WHERE min_val = '-1') AS range (expected)
WHERE name LIKE 'stacksaga.%' AND min_val IS NOT NULL AND expected IS NOT NULL
  AND strpos(substring(:'reference' FROM format('\n\| `%s` \|[^\n]*', name)), expected) = 0
ORDER BY 1;
