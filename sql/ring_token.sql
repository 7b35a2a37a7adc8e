-- The type ring_token: its operators, classes and casts, and the plans that they make possible.
CREATE FUNCTION pg_temp.refused(statement text, OUT code text, OUT message text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    message := 'not refused';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT;
END
$$;

-- Both operator classes are complete and well formed.
SELECT opcname, amname, opcdefault, amvalidate(c.oid)
FROM pg_opclass AS c JOIN pg_am AS a ON a.oid = opcmethod
WHERE opcintype = 'stacksaga.ring_token'::regtype ORDER BY amname;
SELECT typlen, typbyval, typalign, typstorage, typcategory, typispreferred
FROM pg_type WHERE oid = 'stacksaga.ring_token'::regtype;
SELECT castsource::regtype, casttarget::regtype, castcontext, castmethod FROM pg_cast
WHERE 'stacksaga.ring_token'::regtype IN (castsource, casttarget) ORDER BY castsource;
SELECT oprname, oprcom::regoperator, oprnegate::regoperator, oprcanmerge, oprcanhash,
       oprrest, oprjoin
FROM pg_operator WHERE oprleft = 'stacksaga.ring_token'::regtype ORDER BY oprname;
-- None of the functions depends on anything but its arguments; none is granted or revoked.
SELECT count(*), bool_and(provolatile = 'i' AND proparallel = 's' AND proacl IS NULL) AS pure
FROM pg_proc WHERE pronamespace IN ('stacksaga'::regnamespace, 'stacksaga_internal'::regnamespace)
  AND (proname ~ '^ring_token_' OR 'stacksaga.ring_token'::regtype = ANY (proargtypes)
       AND proname IN ('min', 'max'));

-- In and out: what a bigint can be.
SELECT '-9223372036854775808'::stacksaga.ring_token AS lowest,
       '9223372036854775807'::stacksaga.ring_token AS highest,
       ' 42 '::stacksaga.ring_token AS spaced;
SELECT statement, r.*
FROM (VALUES ('SELECT ''9223372036854775808''::stacksaga.ring_token'),
             ('SELECT ''''::stacksaga.ring_token'), ('SELECT ''1.5''::stacksaga.ring_token'),
             ('SELECT 1.5::stacksaga.ring_token'),
             ('SELECT ''5''::stacksaga.ring_token = 5'),
             ('SELECT ''5''::stacksaga.ring_token + 1')) AS v (statement),
     pg_temp.refused(statement) AS r;
SELECT stacksaga_internal.ring_token_send('-2'::stacksaga.ring_token), int8send(-2);

-- Order, and the first and last of a set.
CREATE TABLE place (token stacksaga.ring_token PRIMARY KEY, key text NOT NULL);
INSERT INTO place SELECT stacksaga.token(i::text), i::text FROM generate_series(1, 2000) AS i;
INSERT INTO place VALUES (-9223372036854775808, 'lowest'), (9223372036854775807, 'highest'),
                         (-1, 'before 0'), (0, 'zero'), (1, 'after 0');
ANALYZE place;
SELECT bool_and(token::bigint > before) AS ascending
FROM (SELECT token, lag(token::bigint) OVER (ORDER BY token) AS before FROM place) AS s;
SELECT stacksaga.min(token), stacksaga.max(token) FROM place;
SELECT stacksaga.min(token), stacksaga.max(token) FROM place WHERE key = 'none';
SELECT a, b, a OPERATOR(stacksaga.<) b AS lt, a OPERATOR(stacksaga.<=) b AS le,
       a OPERATOR(stacksaga.=) b AS eq, a OPERATOR(stacksaga.<>) b AS ne,
       a OPERATOR(stacksaga.>=) b AS ge, a OPERATOR(stacksaga.>) b AS gt,
       stacksaga_internal.ring_token_cmp(a, b) AS cmp
FROM (SELECT x::stacksaga.ring_token, y::stacksaga.ring_token
      FROM (VALUES (-1, 0), (0, 0), (1, 0), (-9223372036854775808, 9223372036854775807)) AS v (x, y)
     ) AS s (a, b);

-- Every way to give a token finds it by the index.
\set explain 'EXPLAIN (COSTS OFF) SELECT key FROM place WHERE token'
SET enable_seqscan = off;
SET enable_bitmapscan = off;
:explain OPERATOR(stacksaga.=) 5;
:explain OPERATOR(stacksaga.=) 5000000000;
:explain OPERATOR(stacksaga.=) '5';
:explain OPERATOR(stacksaga.=) ANY ('{5,6}'::bigint[]);
:explain OPERATOR(stacksaga.>=) -5 AND token OPERATOR(stacksaga.<=) 5;
PREPARE by_token (bigint) AS SELECT key FROM place WHERE token OPERATOR(stacksaga.=) $1;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE by_token (0);
EXECUTE by_token (-1);
RESET plan_cache_mode;
-- (how max() is shown differs between versions of PostgreSQL)
CREATE FUNCTION pg_temp.plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE 'EXPLAIN (COSTS OFF) ' || query;
END
$$;
SELECT trim(line) FROM pg_temp.plan('SELECT stacksaga.max(token) FROM place') AS line
WHERE line LIKE '%Scan%';
SET search_path = public, stacksaga;
:explain = 5;
:explain BETWEEN -5 AND 5000000000;
RESET search_path;
-- Without the schema in the search_path a bare operator is refused, not scanned for.
SELECT * FROM pg_temp.refused('SELECT key FROM place WHERE token = 5');
-- As a bigint it can be compared anywhere, without the index.
SELECT key FROM place WHERE token::bigint = 0;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- Joins by hash and by merge, groups, and a hash index.
CREATE TABLE other (token stacksaga.ring_token, n integer);
INSERT INTO other SELECT token, 1 FROM place UNION ALL SELECT token, 2 FROM place;
SET enable_mergejoin = off;
SET enable_nestloop = off;
EXPLAIN (COSTS OFF)
SELECT count(*) FROM place JOIN other ON place.token OPERATOR(stacksaga.=) other.token;
SELECT count(*) FROM place JOIN other ON place.token OPERATOR(stacksaga.=) other.token;
RESET enable_mergejoin;
SET enable_hashjoin = off;
SELECT count(*) FROM place JOIN other ON place.token OPERATOR(stacksaga.=) other.token;
RESET enable_hashjoin;
RESET enable_nestloop;
SELECT count(*) FROM (SELECT token FROM other GROUP BY token HAVING sum(n) = 3) AS s;
CREATE INDEX ON other USING hash (token);
SET enable_seqscan = off;
SELECT count(*) FROM other WHERE token OPERATOR(stacksaga.=) 9223372036854775807;
RESET enable_seqscan;

-- The hash is the top half; with a seed it is another one, and seed 0 keeps the low half.
SELECT token, stacksaga_internal.ring_token_hash(token),
       stacksaga_internal.ring_token_hash_extended(token, 0) & 4294967295 =
           stacksaga_internal.ring_token_hash(token)::bigint & 4294967295 AS low_half
FROM (VALUES (-9223372036854775808), (-1), (0), (4294967296), (9223372036854775807)) AS v (token);
SELECT bool_and(stacksaga_internal.ring_token_hash(token) = token::bigint >> 32) AS top_half,
       count(DISTINCT stacksaga_internal.ring_token_hash_extended(token, 7)) AS distinct_seeded,
       bool_or(stacksaga_internal.ring_token_hash_extended(token, 7) =
               stacksaga_internal.ring_token_hash_extended(token, 8)) AS seed_ignored
FROM place;

-- Partitions by range prune; partitions by hash hold every row.
CREATE TABLE ranged (token stacksaga.ring_token) PARTITION BY RANGE (token);
CREATE TABLE ranged_low PARTITION OF ranged FOR VALUES FROM (MINVALUE) TO (0);
CREATE TABLE ranged_high PARTITION OF ranged FOR VALUES FROM (0) TO (MAXVALUE);
INSERT INTO ranged SELECT token FROM place;
EXPLAIN (COSTS OFF) SELECT * FROM ranged WHERE token OPERATOR(stacksaga.<) -7;
SELECT bool_and(token::bigint < 0) AS low FROM ranged_low;
CREATE TABLE hashed (token stacksaga.ring_token) PARTITION BY HASH (token);
CREATE TABLE hashed_0 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE hashed_1 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO hashed SELECT token FROM place;
SELECT count(*),
       count(*) FILTER (WHERE tableoid = 'hashed_0'::regclass) BETWEEN 900 AND 1100 AS even
FROM hashed;

-- A bigint becomes a token by itself, a token a bigint only where it is assigned or asked for.
CREATE TABLE plain (value bigint);
INSERT INTO plain SELECT token FROM place WHERE key = 'highest';
INSERT INTO place SELECT value - 1, 'from bigint' FROM plain;
SELECT value FROM plain;
SELECT token::bigint - 1 AS reduced FROM place WHERE key = 'from bigint';
SELECT '{1,2}'::bigint[]::stacksaga.ring_token[];

-- A key twice is one key, and equal entries of an index are stored once.
SELECT * FROM pg_temp.refused('INSERT INTO place VALUES (0, ''again'')');
SELECT amname, amprocnum, amproc
FROM pg_amproc JOIN pg_opfamily AS f ON f.oid = amprocfamily JOIN pg_am AS a ON a.oid = opfmethod
WHERE amproclefttype = 'stacksaga.ring_token'::regtype ORDER BY amname, amprocnum;

DROP TABLE place, other, ranged, hashed, plain;
