-- no table or sequence whose COMMENT begins "Runtime:" is kept by pg_dump
SELECT pg_describe_object('pg_class'::regclass, c.oid, 0)
FROM pg_extension e
JOIN pg_class c ON c.oid = ANY (e.extconfig)
WHERE e.extname = 'stacksaga' AND obj_description(c.oid, 'pg_class') LIKE 'Runtime:%'
ORDER BY 1;
