-- Arguments with a collation of their own are arguments like any others: no call is 42P22.

CREATE FUNCTION pg_temp.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN sqlstate;
END $$;
SET client_min_messages = error;
BEGIN;
SELECT c.call, t.sqlstate
  FROM (SELECT format('SELECT * FROM stacksaga.%I(%s)', p.proname,
                   string_agg(CASE WHEN a.type IN ('text'::regtype, 'name'::regtype)
                                   THEN format('%L::%s COLLATE "POSIX"',
                                               CASE a.type WHEN 'name'::regtype THEN current_user ELSE 'service' END, a.type)
                                   WHEN a.type = 'text[]'::regtype THEN 'ARRAY[''x'' COLLATE "POSIX"]'
                                   WHEN a.type = 'uuid'::regtype THEN '''00000000-0000-0000-0000-000000000000'''
                                   ELSE format('NULL::%s', a.type) END, ', ' ORDER BY a.n)) AS call
          FROM pg_proc AS p, unnest(p.proargtypes::regtype[]) WITH ORDINALITY AS a(type, n)
         WHERE p.pronamespace = 'stacksaga'::regnamespace AND p.prokind = 'f'
         GROUP BY p.oid, p.proname) AS c
 CROSS JOIN LATERAL (SELECT pg_temp.try(c.call)) AS t(sqlstate)
 WHERE t.sqlstate = '42P22' ORDER BY 1;
SELECT stacksaga.grant_usage(r.role COLLATE "POSIX", k.kind COLLATE "POSIX") IS NOT NULL AS granted
  FROM (SELECT current_user) AS r(role), (SELECT 'service'::text COLLATE "C") AS k(kind);
ROLLBACK;
