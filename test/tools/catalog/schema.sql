-- every object of the extension that has a schema is in stacksaga, which is the extension's own
-- The script runs with pg_catalog first: what it names without a schema would be made there.
SELECT format('%s %s is in schema %s', o.type, o.identity, o.schema)
FROM pg_depend d
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid,
     pg_identify_object(d.classid, d.objid, 0) AS o
WHERE d.deptype = 'e' AND e.extname = 'stacksaga' AND o.schema <> 'stacksaga'
UNION ALL
SELECT 'the schema stacksaga is not a member of the extension'
WHERE NOT EXISTS (
    SELECT FROM pg_depend d
    JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
    WHERE d.deptype = 'e' AND e.extname = 'stacksaga'
      AND d.classid = 'pg_namespace'::regclass AND d.objid = 'stacksaga'::regnamespace)
ORDER BY 1;
