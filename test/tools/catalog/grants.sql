-- nothing is granted to anybody, whatever the default privileges, but IMMUTABLE functions to PUBLIC
-- PUBLIC's USAGE on the schema lets it reach those functions, and types have no rows to guard.
-- lint has altered the default privileges in favour of PUBLIC and of a role.
WITH member AS (
    SELECT d.classid, d.objid
    FROM pg_depend d
    JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
    WHERE d.deptype = 'e' AND e.extname = 'stacksaga'
)
SELECT format('%s on schema %s', a.privilege_type, n.nspname)
FROM pg_namespace n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
WHERE n.nspname IN ('stacksaga', 'stacksaga_internal') AND a.grantee <> n.nspowner
  AND NOT (a.grantee = 0 AND a.privilege_type = 'USAGE')
UNION ALL
-- (A table or a sequence without a list of grants grants PUBLIC nothing, a function its EXECUTE.)
SELECT format('%s on %s', a.privilege_type, pg_describe_object(m.classid, m.objid, 0))
FROM member m
JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid,
     aclexplode(c.relacl) a
WHERE a.grantee <> c.relowner
UNION ALL
SELECT format('%s on column %s of %s', a.privilege_type, t.attname,
              pg_describe_object(m.classid, m.objid, 0))
FROM member m
JOIN pg_attribute t ON m.classid = 'pg_class'::regclass AND t.attrelid = m.objid,
     aclexplode(t.attacl) a
UNION ALL
SELECT format('%s on %s', a.privilege_type, pg_describe_object(m.classid, m.objid, 0))
FROM member m
JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
JOIN pg_language l ON l.oid = p.prolang,
     aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
WHERE a.grantee <> p.proowner
  AND NOT (a.grantee = 0 AND p.prokind IN ('f', 'a') AND p.provolatile = 'i' AND NOT p.prosecdef
           AND l.lanname IN ('c', 'internal', 'sql'))
UNION ALL
SELECT format('%s on %s', a.privilege_type, pg_describe_object(m.classid, m.objid, 0))
FROM member m
JOIN pg_type t ON m.classid = 'pg_type'::regclass AND t.oid = m.objid,
     aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) a
WHERE a.grantee NOT IN (0, t.typowner)
ORDER BY 1;
