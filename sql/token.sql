-- The ring's functions: published vectors, exact tiling, and every bad input.
-- Vectors and their sources: test/vectors/murmur3.tsv.

-- Tokens as Cassandra and its drivers have them. Mismatches are listed; there is none.
CREATE TEMP TABLE published (input bytea, expected bigint);
INSERT INTO published SELECT decode(hex, 'hex'), expected FROM (VALUES
    ('313233', -7468325962851647638::bigint),
    ('00ff10fa9900ff10fa9900ff10fa9900ff10fa9900ff10fa9900ff10fa9900ff10fa9900ff10fa99'
     '00ff10fa9900ff10fa99', 5837342703291459765),
    ('fefefefefefefefe', -8927430733708461935),
    ('1010101010101010', 1446172840243228796),
    ('39323233333732303336383534373735383037', 7162290910810015547),
    ('', 0),
    ('30', 3083240331115144064),
    ('3031', 7250318944307867790),
    ('303132', -3573335766539617317),
    ('30313233', 1122932861426696788),
    ('3031323334', 1082240882612060097),
    ('303132333435', -8592682110383420889),
    ('30313233343536', 1435416519508424614),
    ('3031323334353637', -9064053233843489459),
    ('303132333435363738', 5484970180828674234),
    ('30313233343536373839', 4581940570640870180),
    ('3031323334353637383930', 4554113450393994950),
    ('303132333435363738393031', -5848194157083538255),
    ('30313233343536373839303132', -8491085681076064857),
    ('3031323334353637383930313233', 7082868485810964902),
    ('303132333435363738393031323334', -6579192003445081693),
    ('30313233343536373839303132333435', -6689751078119097958),
    ('3031323334353637383930313233343536', -4867265143268638648),
    ('303132333435363738393031323334353637', 4604274864316112093),
    ('30313233343536373839303132333435363738', 3243498561614631218),
    ('68656c6c6f', -3758069500696749310),
    ('68656c6c6f2c20776f726c64', 3760413751763713166),
    ('3139204a616e203230333820617420333a31343a303720414d', -5143575280686223364),
    ('54686520717569636b2062726f776e20666f78206a756d7073206f76657220746865206c617a7920'
     '646f672e', -3631792323850337591),
    ('00104327529fb645dd00b883ec39ae448bb800000400066a6b00', -9223371632693506265),
    ('d8775a706ea411e49fa70db22d2a6140', 6739078495667776670),
    ('075bcd15', -567416363967733925),
    ('00000000075bcd15', 5616923877423390342),
    ('01', 8849112093580131862),
    ('6162636465666768696a6b6c6d6e6f70', -4266531025627334877),
    ('0010d8775a706ea411e49fa70db22d2a614000000800000000075bcd150000106162636465666768'
     '696a6b6c6d6e6f7000', 3838437721532426513),
    ('000100000004075bcd1500000378797a00', 4466051201071860026)
) AS v (hex, expected);
INSERT INTO published
SELECT decode(string_agg(lpad(to_hex(i % 256), 2, '0'), '' ORDER BY i), 'hex'), 7627370222079200297
FROM generate_series(0, 1023) AS i;
SELECT count(*) FROM published;
SELECT input, expected, stacksaga.token_bytes(input) FROM published
WHERE stacksaga.token_bytes(input) <> expected;
SELECT stacksaga.token('hello'), stacksaga.token(''), stacksaga.token_bytes('');
SELECT stacksaga.token_uuid('d8775a70-6ea4-11e4-9fa7-0db22d2a6140');

-- The reference's hashes: 0 to 31 bytes of one sequence.
CREATE TEMP TABLE reference AS SELECT
    substring('\x2ef6f9b8f75463903e4dc3dc5c14969f26287cfcb91c3f0dd5ac55c6764a6d'::bytea FOR size)
        AS input, h1, h2, h32
FROM (VALUES
    (0, 0::bigint, 0::bigint, 0),
    (1, -2808653841080383123, -2531784594030660343, -1353253853),
    (2, -1284575471001240306, -8226941173794461820, 915381745),
    (3, 1645529003294647142, 4109127559758330427, -734983419),
    (4, -4117979116203940765, -8362902660322042742, 1271125654),
    (5, 2559943399590596158, 4738005461125350075, -1042265893),
    (6, -1651760031591552651, -5386079254924224461, -1204521619),
    (7, -6208043960690815609, 7862371518025305074, 735845843),
    (8, -5150023478423646337, 8346305334874564507, 138310876),
    (9, 7658274117911906792, -4962914659382404165, -1918938664),
    (10, 1309458104226302269, 570003296096149119, 1399647898),
    (11, 7440169453173347487, -3489345781066813740, -1126342309),
    (12, -5698784298612201352, 3595618450161835420, 2067593280),
    (13, -3822574792738072442, 6878153771369862041, 1220975287),
    (14, 3705084673301918328, 3202155281274291907, 1941281084),
    (15, -6797166743928506931, -4447271093653551597, -1289513180),
    (16, 5240533565589385084, -5575481185288758327, 942412060),
    (17, -8467620131382649428, -6450630367251114468, -618173583),
    (18, 3632866961828686471, -5957695976089313500, -269546647),
    (19, -6450283648077271139, -7908632714374518059, -1645631262),
    (20, 226350826556351719, 8225586794606475685, 1162379906),
    (21, -2382996224496980401, 2188369078123678011, -1960125577),
    (22, -1337544762358780825, 7004253486151757299, -1856773195),
    (23, 2889033453638709716, -4099509333153901374, 1980513522),
    (24, -8644950936809596954, -5144522919639618331, 1174612855),
    (25, -5628571865255520773, -839021001655132087, 905810751),
    (26, -5226774667293212446, -505255961194269502, 1044578220),
    (27, 1337107025517938142, 3260952073019398505, -1758486689),
    (28, 9149852874328582511, 1880188360994521535, -491393913),
    (29, -4035957988359881846, -7709057850766490780, 839836946),
    (30, -3842593823306330815, 3805147088291453755, -435014415),
    (31, 4030161393619149616, -2813603781312455238, 2044851178)
) AS v (size, h1, h2, h32);
-- int8send writes the high byte first, the hash its low byte.
CREATE FUNCTION pg_temp.reversed(bytes bytea) RETURNS bytea LANGUAGE sql AS $$
    SELECT string_agg(substring(bytes FROM i FOR 1), '' ORDER BY i DESC)
    FROM generate_series(1, length(bytes)) AS i
$$;
SELECT input FROM reference
WHERE stacksaga.murmur3_x64_128(input) <>
          pg_temp.reversed(int8send(h1)) || pg_temp.reversed(int8send(h2))
   OR stacksaga.murmur3_x86_32(input) <> h32
   OR stacksaga.murmur3_x86_32(input, 0) <> h32;

-- SMHasher's VerificationTest, which covers seeds: keys {}, {0}, {0,1}, ... with seed 256 - size,
-- all results hashed again. It expects 6384BA69 and B0F57EE3.
WITH keys AS (
    SELECT size, substring((SELECT input FROM published WHERE length(input) = 1024) FOR size) AS key
    FROM generate_series(0, 255) AS size
), results AS (
    SELECT string_agg(stacksaga.murmur3_x64_128(key, 256 - size), '' ORDER BY size) AS x64_128,
           string_agg(pg_temp.reversed(int4send(stacksaga.murmur3_x86_32(key, 256 - size))), ''
                      ORDER BY size) AS x86_32
    FROM keys
)
SELECT pg_temp.reversed(substring(stacksaga.murmur3_x64_128(x64_128) FOR 4)) AS x64_128,
       to_hex(stacksaga.murmur3_x86_32(x86_32)) AS x86_32
FROM results;
SELECT stacksaga.murmur3_x86_32('', 1) = x'514E28B7'::integer,
       stacksaga.murmur3_x86_32('', 4294967295) = x'81F16F39'::integer;

-- Only the token extends the sign of bytes from 80 on, and only behind the last whole block.
SELECT stacksaga.token_bytes(input) =
           ('x' || encode(pg_temp.reversed(substring(stacksaga.murmur3_x64_128(input) FOR 8)),
                          'hex'))::bit(64)::bigint AS same
FROM (VALUES ('\x7f'::bytea), ('\x80'), ('\xff'), ('\x00000000000000000000000000000080'),
             ('\xffffffffffffffffffffffffffffffff'), ('\xffffffffffffffffffffffffffffffff80'))
     AS v (input);
-- The hash -2^63 is the token 2^63-1.
SELECT stacksaga.token_bytes(input), stacksaga.murmur3_x64_128(input)
FROM (VALUES ('\x977e71054626d519d11da719da0210a9'::bytea)) AS v (input);

-- A Namastack outbox's partition: the low 31 bits of the 32-bit hash.
SELECT key, stacksaga.hash_partition(key), stacksaga.hash_partition(key, 1),
       stacksaga.hash_partition(key, 2147483647) =
           (stacksaga.murmur3_x86_32(convert_to(key, 'UTF8')) & 2147483647) % 2147483647 AS largest
FROM (VALUES ('order-123'), ('user-456'), (''), ('Grüße')) AS v (key);

-- Huge keys, plain and out of a compressed row.
SELECT stacksaga.token(repeat('saga', 16000000)) =
       stacksaga.token_bytes(convert_to(repeat('saga', 16000000), 'UTF8')) AS same;
CREATE TEMP TABLE stored AS SELECT repeat('saga', 1000000) AS key;
SELECT pg_column_size(key) < 1000000 AS compressed,
       stacksaga.token(key) = stacksaga.token(repeat('saga', 1000000)) AS same FROM stored;

-- Slots: the top bits of the token.
SELECT token, stacksaga.slot(token), stacksaga.slot(token, 1) AS of_1,
       stacksaga.slot(token, 2) AS of_2, stacksaga.slot(token, 4096) AS of_4096,
       stacksaga.slot(token, 1073741824) AS of_2_30
FROM (VALUES (-9223372036854775808), (-9151314442816847873), (-9151314442816847872), (-1), (0), (1),
             (9223372036854775807)) AS v (token);

-- The ring in any number of parts: no gap, no overlap, the first (2^64 mod parts) one larger.
SELECT * FROM stacksaga.split_ring(1);
SELECT * FROM stacksaga.split_ring(3);
SELECT * FROM stacksaga.split_range(-3, 5, 4);
SELECT * FROM stacksaga.split_range(-9223372036854775808, -9223372036854775808, 1);
SELECT * FROM stacksaga.split_range(9223372036854775806, 9223372036854775807, 2);
SELECT stacksaga.split_ring(2);

-- Whether the parts of a range tile it by the rule. numeric, for 2^64 is not a bigint.
CREATE FUNCTION pg_temp.tiles(first bigint, last bigint, parts integer) RETURNS boolean
LANGUAGE sql AS $$
    SELECT count(*) = parts AND min(range_start) = first AND max(range_end) = last
       AND bool_and(part = number - 1 AND range_start = coalesce(before + 1, first)
                    AND range_end::numeric - range_start + 1 =
                        div(places, parts) + CASE WHEN part < places % parts THEN 1 ELSE 0 END)
    FROM (SELECT part, range_start, range_end, last::numeric - first + 1 AS places,
                 lag(range_end) OVER (ORDER BY part) AS before,
                 row_number() OVER (ORDER BY part) AS number
          FROM stacksaga.split_range(first, last, parts)) AS s
$$;
SELECT count(*) AS counts,
       bool_and(pg_temp.tiles(-9223372036854775808, 9223372036854775807, parts)) AS tiled
FROM generate_series(1, 4096, 65) AS parts;
SELECT count(*) AS ranges,
       bool_and(pg_temp.tiles(outer_part.range_start, outer_part.range_end, inner_parts)) AS tiled
FROM generate_series(1, 64, 7) AS outer_parts, generate_series(1, 64, 9) AS inner_parts,
     stacksaga.split_ring(outer_parts) AS outer_part;
SELECT count(*) FROM (
    SELECT * FROM stacksaga.split_ring(100)
    EXCEPT SELECT * FROM stacksaga.split_range(-9223372036854775808, 9223372036854775807, 100)
) AS differing;

-- A slot is a part of the ring.
SELECT slots, bool_and(stacksaga.slot(range_start, slots) = part
                       AND stacksaga.slot(range_end, slots) = part) AS agree
FROM (VALUES (1), (2), (64), (256), (4096)) AS v (slots), stacksaga.split_ring(slots)
GROUP BY slots ORDER BY slots;

-- NULL in, NULL or nothing out.
SELECT num_nonnulls(
    stacksaga.token(NULL), stacksaga.token_bytes(NULL), stacksaga.token_uuid(NULL),
    stacksaga.murmur3_x64_128(NULL), stacksaga.murmur3_x64_128('', NULL),
    stacksaga.murmur3_x86_32(NULL), stacksaga.hash_partition(NULL),
    stacksaga.hash_partition('a', NULL), stacksaga.slot(NULL), stacksaga.slot(0, NULL));
SELECT * FROM stacksaga.split_ring(NULL);
SELECT * FROM stacksaga.split_range(NULL, 1, 1);

-- Untyped literals and named arguments.
SELECT stacksaga.slot('5', '64'), stacksaga.slot(slots => 64, token => 5),
       stacksaga.hash_partition(partitions => 16, key => 'a'),
       stacksaga.murmur3_x86_32(seed => 1, data => '');

-- Bad input: what is wrong, and what to do.
CREATE FUNCTION pg_temp.refused(statement text, OUT code text, OUT message text,
                                OUT detail text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    message := 'not refused';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END
$$;
\x
SELECT call, r.*
FROM (VALUES
    ('murmur3_x64_128('''', -1)'), ('murmur3_x64_128('''', 4294967296)'),
    ('murmur3_x86_32('''', -9223372036854775808)'), ('murmur3_x86_32('''', 9223372036854775807)'),
    ('hash_partition(''a'', 0)'), ('hash_partition(''a'', -2147483648)'),
    ('slot(0, 0)'), ('slot(0, -256)'), ('slot(0, 100)'), ('slot(0, 2147483647)'),
    ('split_ring(0)'), ('split_ring(-1)'), ('split_range(0, 10, 0)'), ('split_range(0, 10, 12)'),
    ('split_range(5, 5, 2)'), ('split_range(1, 0, 1)'),
    ('split_range(9223372036854775807, -9223372036854775808, 1)'))
    AS v (call), pg_temp.refused('SELECT stacksaga.' || call) AS r;
\x
\set VERBOSITY sqlstate
SELECT stacksaga.token(convert_from('\xff', 'UTF8'));
SELECT stacksaga.token(convert_from('\x61ff62', 'UTF8'));
SELECT stacksaga.token(convert_from('\x610062', 'UTF8'));
SELECT stacksaga.token_uuid('not a uuid');
SELECT stacksaga.token_bytes('\xzz');
SELECT stacksaga.slot(9223372036854775808);
\set VERBOSITY default

-- Nothing here reads a table or depends on a setting.
SELECT proname FROM pg_proc
WHERE pronamespace = 'stacksaga'::regnamespace
  AND proname IN ('token', 'token_bytes', 'token_uuid', 'murmur3_x64_128', 'murmur3_x86_32',
                  'hash_partition', 'slot', 'split_ring', 'split_range')
  AND provolatile = 'i' AND proisstrict AND proparallel = 's' AND proacl IS NULL
  AND obj_description(oid, 'pg_proc') IS NOT NULL
ORDER BY proname;

-- Text is hashed as UTF-8 on a server of any encoding, by the conversion that is built in whatever
-- the search_path offers. On SQL_ASCII nobody knows the encoding: what is not UTF-8 is refused.
SELECT stacksaga.token(U&'caf\00e9 \00ff') AS utf8, stacksaga.hash_partition(U&'caf\00e9');
SELECT current_database() AS home \gset
CREATE DATABASE stacksaga_token_latin1
    TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE stacksaga_token_ascii
    TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C';
\c stacksaga_token_latin1
CREATE EXTENSION stacksaga;
SET search_path = public, pg_catalog;
CREATE FUNCTION trap(integer, integer, cstring, internal, integer, boolean) RETURNS integer
    LANGUAGE c STRICT AS '$libdir/utf8_and_iso8859_1', 'iso8859_1_to_utf8';
CREATE DEFAULT CONVERSION trap FOR 'LATIN1' TO 'UTF8' FROM trap;
CREATE OR REPLACE FUNCTION trap(integer, integer, cstring, internal, integer, boolean)
    RETURNS integer LANGUAGE internal STRICT AS 'nextval_oid'; -- an error whenever it is called
SELECT convert_to(chr(233), 'UTF8');
SELECT stacksaga.token('caf' || chr(233) || ' ' || chr(255)) AS latin1,
       stacksaga.hash_partition('caf' || chr(233)),
       stacksaga.token(repeat(chr(233), 10000000)) =
           stacksaga.token_bytes(decode(repeat('c3a9', 10000000), 'hex')) AS huge,
       stacksaga.token('') AS empty;
\c stacksaga_token_ascii
CREATE EXTENSION stacksaga;
SELECT stacksaga.token(convert_from('\x636166c3a920c3bf', 'SQL_ASCII')) AS sql_ascii,
       stacksaga.hash_partition(convert_from('\x636166c3a9', 'SQL_ASCII'));
\set VERBOSITY sqlstate
SELECT stacksaga.token(convert_from('\xff', 'SQL_ASCII'));
\set VERBOSITY default
\c :home
DROP DATABASE stacksaga_token_latin1;
DROP DATABASE stacksaga_token_ascii;
