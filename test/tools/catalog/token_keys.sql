-- every primary and unique key of a table with a token contains the token
SELECT format('%s of %s', i.indexrelid::regclass, i.indrelid::regclass)
FROM pg_depend d
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
JOIN pg_attribute a ON d.classid = 'pg_class'::regclass AND a.attrelid = d.objid
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_namespace n ON n.oid = t.typnamespace
JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisunique
WHERE d.deptype = 'e' AND e.extname = 'stacksaga'
  AND n.nspname = 'stacksaga' AND t.typname = 'ring_token'
  AND NOT a.attnum = ANY (i.indkey)
ORDER BY 1;
