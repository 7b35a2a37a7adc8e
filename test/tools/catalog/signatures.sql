-- docs/reference.md has the arguments, defaults and results that functions have
-- Compared without white space, casts and the schema.
\set reference `cat docs/reference.md`
WITH written AS (
    SELECT regexp_replace(string_agg(b[1], ' '), '\s|stacksaga\.', '', 'g') AS text
    FROM regexp_matches(:'reference', '```postgresql\n(.*?)```', 'g') AS b
), public AS (
    SELECT p.proname, regexp_replace(replace(replace(
               format('%s(%s)%s', p.proname, pg_get_function_arguments(p.oid),
                      CASE p.prokind WHEN 'p' THEN '' ELSE 'RETURNS' || pg_get_function_result(p.oid) END),
               'timestamp with time zone', 'timestamptz'), 'double precision', 'doubleprecision'),
               '::[a-z_.]+(\[\])?|\mIN\s|\s|stacksaga\.', '', 'g') AS signature
    FROM pg_depend d
    JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
    JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
    WHERE d.deptype = 'e' AND e.extname = 'stacksaga'
)
SELECT format('the database has %s', signature)
FROM public, written
WHERE strpos(text, proname || '(') > 0 AND strpos(text, signature) = 0
ORDER BY 1;
