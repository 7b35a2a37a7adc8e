-- every object of the extension that has a schema is in one of the two that are the extension's own
-- The script runs with pg_catalog first: what it names without a schema would be made there.
SELECT format('%s %s is in schema %s', o.type, o.identity, o.schema)
FROM pg_depend d
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid,
     pg_identify_object(d.classid, d.objid, 0) AS o
WHERE d.deptype = 'e' AND e.extname = 'stacksaga' AND o.schema NOT IN ('stacksaga', 'stacksaga_internal')
UNION ALL
SELECT format('the schema %s is not a member of the extension', s)
FROM unnest(ARRAY['stacksaga', 'stacksaga_internal']) AS s
WHERE NOT EXISTS (
    SELECT FROM pg_depend d
    JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
    WHERE d.deptype = 'e' AND e.extname = 'stacksaga'
      AND d.classid = 'pg_namespace'::regclass AND d.objid = s::regnamespace)
UNION ALL
-- In the first one stands what people use.
SELECT format('%s begins with "Internal:", and is in the schema stacksaga', p.oid::regprocedure)
FROM pg_proc p WHERE p.pronamespace = 'stacksaga'::regnamespace AND obj_description(p.oid, 'pg_proc') LIKE 'Internal:%'
UNION ALL
SELECT format('%s does not begin with "Internal:", and is in the schema stacksaga_internal', p.oid::regprocedure)
FROM pg_proc p
WHERE p.pronamespace = 'stacksaga_internal'::regnamespace AND obj_description(p.oid, 'pg_proc') NOT LIKE 'Internal:%'
ORDER BY 1;
