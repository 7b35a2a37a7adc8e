-- every object of the extension has a COMMENT, and every column of its tables, views and types
-- What the extension made by name: no indexes or TOAST tables, and no array types and row types, which are members
-- from PostgreSQL 17 on.
WITH member AS (
    SELECT d.classid, d.objid
    FROM pg_depend d
    JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
    WHERE d.deptype = 'e' AND e.extname = 'stacksaga' AND NOT EXISTS (
        SELECT FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
        WHERE d.classid = 'pg_type'::regclass AND t.oid = d.objid
          AND (c.relkind <> 'c' OR EXISTS (SELECT FROM pg_type element WHERE element.typarray = t.oid)))
), relation AS (
    SELECT objid AS oid FROM member WHERE classid = 'pg_class'::regclass
), object AS (
    SELECT classid, objid FROM member
    UNION ALL
    SELECT 'pg_trigger'::regclass, t.oid
    FROM pg_trigger t JOIN relation r ON r.oid = t.tgrelid WHERE NOT t.tgisinternal
    UNION ALL
    -- What makes a view a view is its rule _RETURN.
    SELECT 'pg_rewrite'::regclass, w.oid
    FROM pg_rewrite w JOIN relation r ON r.oid = w.ev_class WHERE w.rulename <> '_RETURN'
    UNION ALL
    SELECT 'pg_statistic_ext'::regclass, s.oid
    FROM pg_statistic_ext s JOIN relation r ON r.oid = s.stxrelid
)
SELECT pg_describe_object(o.classid, o.objid, 0)
FROM object o
WHERE NOT EXISTS (
    SELECT FROM pg_description c
    WHERE c.classoid = o.classid AND c.objoid = o.objid AND c.objsubid = 0 AND c.description <> '')
UNION ALL
SELECT pg_describe_object('pg_class'::regclass, c.oid, a.attnum)
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace) AND c.relkind IN ('r', 'p', 'v', 'c')
  AND coalesce(col_description(c.oid, a.attnum), '') = ''
ORDER BY 1;
