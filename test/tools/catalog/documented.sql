-- docs/reference and README.md describe every function, view and setting
-- Operators, casts, types, operator classes, aggregates and triggers have functions of their own that nobody calls;
-- a COMMENT that begins "Internal:" says so of another one.
\set reference `test -e docs/reference.md && cat docs/reference.md docs/reference/*.md README.md`
WITH member AS (
    SELECT d.classid, d.objid
    FROM pg_depend d
    JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
    WHERE d.deptype = 'e' AND e.extname = 'stacksaga'
), behind AS (
    SELECT oprcode AS oid FROM pg_operator
    UNION ALL SELECT oprrest FROM pg_operator
    UNION ALL SELECT oprjoin FROM pg_operator
    UNION ALL SELECT castfunc FROM pg_cast
    UNION ALL SELECT amproc FROM pg_amproc
    UNION ALL SELECT unnest(ARRAY[aggtransfn, aggfinalfn, aggcombinefn]) FROM pg_aggregate
    UNION ALL SELECT unnest(ARRAY[typinput, typoutput, typreceive, typsend, typmodin, typmodout])
              FROM pg_type
), public AS (
    SELECT 'function' AS kind, p.proname::text AS name
    FROM member m JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
    WHERE p.prorettype <> 'trigger'::regtype
      AND p.oid NOT IN (SELECT oid::oid FROM behind)
      AND coalesce(obj_description(p.oid, 'pg_proc'), '') NOT LIKE 'Internal:%'
    UNION
    SELECT 'view', c.relname
    FROM member m JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
    WHERE c.relkind = 'v' AND coalesce(obj_description(c.oid, 'pg_class'), '') NOT LIKE 'Internal:%'
    UNION
    SELECT 'setting', name FROM pg_settings WHERE name LIKE 'stacksaga.%'
)
SELECT format('%s %s', kind, name)
FROM public
WHERE :'reference' <> ''
  AND :'reference' !~ ('(^|[^a-z_.])(stacksaga\.)?' || replace(name, '.', '\.') || '($|[^a-z_])')
ORDER BY 1;
