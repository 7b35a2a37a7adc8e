-- pg_dump keeps every table and sequence but those whose COMMENT begins "Runtime:"
SELECT pg_describe_object(d.classid, d.objid, 0)
FROM pg_depend d
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
WHERE d.deptype = 'e' AND e.extname = 'stacksaga' AND c.relkind IN ('r', 'p', 'S')
  AND (c.oid = ANY (e.extconfig)) IS NOT TRUE
  AND coalesce(obj_description(c.oid, 'pg_class'), '') NOT LIKE 'Runtime:%'
ORDER BY 1;
