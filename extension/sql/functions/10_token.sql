-- The token ring: where a key lies, and the ring cut into equal parts. These functions read no
-- table and are free for all.

CREATE OR REPLACE FUNCTION stacksaga.token(key text)
    RETURNS bigint
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'stacksaga_token';
COMMENT ON FUNCTION stacksaga.token(text) IS
    'Returns the token of a key, that of Cassandra for its UTF-8 bytes.';

CREATE OR REPLACE FUNCTION stacksaga.token_bytes(key bytea)
    RETURNS bigint
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'stacksaga_token_bytes';
COMMENT ON FUNCTION stacksaga.token_bytes(bytea) IS
    'Returns the token of a key of bytes, that of Cassandra.';

CREATE OR REPLACE FUNCTION stacksaga.token_uuid(key uuid)
    RETURNS bigint
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'stacksaga_token_uuid';
COMMENT ON FUNCTION stacksaga.token_uuid(uuid) IS
    'Returns the token of a uuid, that of Cassandra for its 16 bytes.';

CREATE OR REPLACE FUNCTION stacksaga.murmur3_x64_128(data bytea, seed bigint DEFAULT 0)
    RETURNS bytea
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'stacksaga_murmur3_x64_128';
COMMENT ON FUNCTION stacksaga.murmur3_x64_128(bytea, bigint) IS
    'Returns the 128-bit MurmurHash3, two little-endian halves; raises SG400 for a bad seed.';

CREATE OR REPLACE FUNCTION stacksaga.murmur3_x86_32(data bytea, seed bigint DEFAULT 0)
    RETURNS integer
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'stacksaga_murmur3_x86_32';
COMMENT ON FUNCTION stacksaga.murmur3_x86_32(bytea, bigint) IS
    'Returns the 32-bit MurmurHash3, signed; raises SG400 for a bad seed.';

CREATE OR REPLACE FUNCTION stacksaga.hash_partition(key text, partitions integer DEFAULT 256)
    RETURNS integer
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'stacksaga_hash_partition';
COMMENT ON FUNCTION stacksaga.hash_partition(text, integer) IS
    'Returns the partition that a Namastack outbox gives a key; raises SG400 for less than one.';

CREATE OR REPLACE FUNCTION stacksaga.slot(token bigint, slots integer DEFAULT 256)
    RETURNS integer
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'stacksaga_slot';
COMMENT ON FUNCTION stacksaga.slot(bigint, integer) IS
    'Returns the slot that holds a token, from 0; raises SG400 unless slots is a power of two.';

CREATE OR REPLACE FUNCTION stacksaga.split_ring(parts integer)
    RETURNS TABLE (part integer, range_start bigint, range_end bigint)
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 256
    AS 'MODULE_PATHNAME', 'stacksaga_split_ring';
COMMENT ON FUNCTION stacksaga.split_ring(integer) IS
    'Cuts the ring into equal ranges; raises SG400 for less than one part.';

CREATE OR REPLACE FUNCTION stacksaga.split_range(
    range_start bigint, range_end bigint, parts integer
) RETURNS TABLE (part integer, range_start bigint, range_end bigint)
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 256
    AS 'MODULE_PATHNAME', 'stacksaga_split_range';
COMMENT ON FUNCTION stacksaga.split_range(bigint, bigint, integer) IS
    'Cuts a range into equal ranges; raises SG400 when it has fewer tokens than parts.';
