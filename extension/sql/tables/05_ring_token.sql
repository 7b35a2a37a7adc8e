-- The type of the column "token" of every ring table: a place on the ring, bigint on disk and in
-- text. It is a type of its own for its hash, the top half of the token: tables distributed by
-- hash then hold contiguous ranges of the ring. A bigint turns into a ring_token by itself, a
-- ring_token into a bigint only by assignment, and there are no operators but its own: a
-- comparison is made by them, which the indexes serve, or is refused. They are of LANGUAGE c: see
-- extension/src/ring/token_functions.cpp.

CREATE TYPE stacksaga.ring_token;

CREATE FUNCTION stacksaga_internal.ring_token_in(cstring) RETURNS stacksaga.ring_token
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8in';
COMMENT ON FUNCTION stacksaga_internal.ring_token_in(cstring) IS
    'Internal: reads a ring_token from text; raises 22P02 and 22003 as bigint does';

CREATE FUNCTION stacksaga_internal.ring_token_out(stacksaga.ring_token) RETURNS cstring
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8out';
COMMENT ON FUNCTION stacksaga_internal.ring_token_out(stacksaga.ring_token) IS
    'Internal: writes a ring_token as text';

CREATE FUNCTION stacksaga_internal.ring_token_recv(internal) RETURNS stacksaga.ring_token
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8recv';
COMMENT ON FUNCTION stacksaga_internal.ring_token_recv(internal) IS
    'Internal: reads a ring_token from its binary form, that of bigint';

CREATE FUNCTION stacksaga_internal.ring_token_send(stacksaga.ring_token) RETURNS bytea
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8send';
COMMENT ON FUNCTION stacksaga_internal.ring_token_send(stacksaga.ring_token) IS
    'Internal: writes the binary form of a ring_token, that of bigint';

CREATE TYPE stacksaga.ring_token (
    INPUT = stacksaga_internal.ring_token_in,
    OUTPUT = stacksaga_internal.ring_token_out,
    RECEIVE = stacksaga_internal.ring_token_recv,
    SEND = stacksaga_internal.ring_token_send,
    LIKE = pg_catalog.int8
);
COMMENT ON TYPE stacksaga.ring_token IS
    'place on the token ring, a bigint whose hash is its top half';

CREATE CAST (bigint AS stacksaga.ring_token) WITHOUT FUNCTION AS IMPLICIT;
COMMENT ON CAST (bigint AS stacksaga.ring_token) IS 'a bigint is a token as it is';
CREATE CAST (stacksaga.ring_token AS bigint) WITHOUT FUNCTION AS ASSIGNMENT;
COMMENT ON CAST (stacksaga.ring_token AS bigint) IS 'a token is a bigint, when asked for';

CREATE FUNCTION stacksaga_internal.ring_token_of_integer(integer) RETURNS stacksaga.ring_token
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'stacksaga_ring_token_of_integer';
COMMENT ON FUNCTION stacksaga_internal.ring_token_of_integer(integer) IS
    'Internal: makes a ring_token of an integer';

CREATE CAST (integer AS stacksaga.ring_token)
    WITH FUNCTION stacksaga_internal.ring_token_of_integer(integer) AS IMPLICIT;
COMMENT ON CAST (integer AS stacksaga.ring_token) IS 'lets integer literals stand for tokens';

CREATE FUNCTION stacksaga_internal.ring_token_eq(stacksaga.ring_token, stacksaga.ring_token) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
    AS 'MODULE_PATHNAME', 'stacksaga_ring_token_eq';
COMMENT ON FUNCTION stacksaga_internal.ring_token_eq(stacksaga.ring_token, stacksaga.ring_token) IS
    'Internal: returns whether two tokens are the same';

CREATE FUNCTION stacksaga_internal.ring_token_ne(stacksaga.ring_token, stacksaga.ring_token) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
    AS 'MODULE_PATHNAME', 'stacksaga_ring_token_ne';
COMMENT ON FUNCTION stacksaga_internal.ring_token_ne(stacksaga.ring_token, stacksaga.ring_token) IS
    'Internal: returns whether two tokens differ';

CREATE FUNCTION stacksaga_internal.ring_token_lt(stacksaga.ring_token, stacksaga.ring_token) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
    AS 'MODULE_PATHNAME', 'stacksaga_ring_token_lt';
COMMENT ON FUNCTION stacksaga_internal.ring_token_lt(stacksaga.ring_token, stacksaga.ring_token) IS
    'Internal: returns whether a token is before another';

CREATE FUNCTION stacksaga_internal.ring_token_le(stacksaga.ring_token, stacksaga.ring_token) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
    AS 'MODULE_PATHNAME', 'stacksaga_ring_token_le';
COMMENT ON FUNCTION stacksaga_internal.ring_token_le(stacksaga.ring_token, stacksaga.ring_token) IS
    'Internal: returns whether a token is not behind another';

CREATE FUNCTION stacksaga_internal.ring_token_gt(stacksaga.ring_token, stacksaga.ring_token) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
    AS 'MODULE_PATHNAME', 'stacksaga_ring_token_gt';
COMMENT ON FUNCTION stacksaga_internal.ring_token_gt(stacksaga.ring_token, stacksaga.ring_token) IS
    'Internal: returns whether a token is behind another';

CREATE FUNCTION stacksaga_internal.ring_token_ge(stacksaga.ring_token, stacksaga.ring_token) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
    AS 'MODULE_PATHNAME', 'stacksaga_ring_token_ge';
COMMENT ON FUNCTION stacksaga_internal.ring_token_ge(stacksaga.ring_token, stacksaga.ring_token) IS
    'Internal: returns whether a token is not before another';

CREATE FUNCTION stacksaga_internal.ring_token_cmp(stacksaga.ring_token, stacksaga.ring_token) RETURNS integer
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
    AS 'MODULE_PATHNAME', 'stacksaga_ring_token_cmp';
COMMENT ON FUNCTION stacksaga_internal.ring_token_cmp(stacksaga.ring_token, stacksaga.ring_token) IS
    'Internal: compares two tokens for indexes and sorting: less than, equal to or greater than 0';

CREATE OPERATOR stacksaga.= (
    LEFTARG = stacksaga.ring_token, RIGHTARG = stacksaga.ring_token,
    FUNCTION = stacksaga_internal.ring_token_eq,
    COMMUTATOR = OPERATOR(stacksaga.=), NEGATOR = OPERATOR(stacksaga.<>),
    RESTRICT = pg_catalog.eqsel, JOIN = pg_catalog.eqjoinsel, HASHES, MERGES
);
COMMENT ON OPERATOR stacksaga.= (stacksaga.ring_token, stacksaga.ring_token) IS
    'same token';

CREATE OPERATOR stacksaga.<> (
    LEFTARG = stacksaga.ring_token, RIGHTARG = stacksaga.ring_token,
    FUNCTION = stacksaga_internal.ring_token_ne,
    COMMUTATOR = OPERATOR(stacksaga.<>), NEGATOR = OPERATOR(stacksaga.=),
    RESTRICT = pg_catalog.neqsel, JOIN = pg_catalog.neqjoinsel
);
COMMENT ON OPERATOR stacksaga.<> (stacksaga.ring_token, stacksaga.ring_token) IS
    'different tokens';

CREATE OPERATOR stacksaga.< (
    LEFTARG = stacksaga.ring_token, RIGHTARG = stacksaga.ring_token,
    FUNCTION = stacksaga_internal.ring_token_lt,
    COMMUTATOR = OPERATOR(stacksaga.>), NEGATOR = OPERATOR(stacksaga.>=),
    RESTRICT = pg_catalog.scalarltsel, JOIN = pg_catalog.scalarltjoinsel
);
COMMENT ON OPERATOR stacksaga.< (stacksaga.ring_token, stacksaga.ring_token) IS
    'before on the ring';

CREATE OPERATOR stacksaga.<= (
    LEFTARG = stacksaga.ring_token, RIGHTARG = stacksaga.ring_token,
    FUNCTION = stacksaga_internal.ring_token_le,
    COMMUTATOR = OPERATOR(stacksaga.>=), NEGATOR = OPERATOR(stacksaga.>),
    RESTRICT = pg_catalog.scalarlesel, JOIN = pg_catalog.scalarlejoinsel
);
COMMENT ON OPERATOR stacksaga.<= (stacksaga.ring_token, stacksaga.ring_token) IS
    'before on the ring or the same';

CREATE OPERATOR stacksaga.> (
    LEFTARG = stacksaga.ring_token, RIGHTARG = stacksaga.ring_token,
    FUNCTION = stacksaga_internal.ring_token_gt,
    COMMUTATOR = OPERATOR(stacksaga.<), NEGATOR = OPERATOR(stacksaga.<=),
    RESTRICT = pg_catalog.scalargtsel, JOIN = pg_catalog.scalargtjoinsel
);
COMMENT ON OPERATOR stacksaga.> (stacksaga.ring_token, stacksaga.ring_token) IS
    'behind on the ring';

CREATE OPERATOR stacksaga.>= (
    LEFTARG = stacksaga.ring_token, RIGHTARG = stacksaga.ring_token,
    FUNCTION = stacksaga_internal.ring_token_ge,
    COMMUTATOR = OPERATOR(stacksaga.<=), NEGATOR = OPERATOR(stacksaga.<),
    RESTRICT = pg_catalog.scalargesel, JOIN = pg_catalog.scalargejoinsel
);
COMMENT ON OPERATOR stacksaga.>= (stacksaga.ring_token, stacksaga.ring_token) IS
    'behind on the ring or the same';

CREATE OPERATOR FAMILY stacksaga.ring_token_order USING btree;
COMMENT ON OPERATOR FAMILY stacksaga.ring_token_order USING btree IS 'order of the ring';
CREATE OPERATOR CLASS stacksaga.ring_token_order DEFAULT FOR TYPE stacksaga.ring_token
    USING btree FAMILY stacksaga.ring_token_order AS
    OPERATOR 1 stacksaga.<,
    OPERATOR 2 stacksaga.<=,
    OPERATOR 3 stacksaga.=,
    OPERATOR 4 stacksaga.>=,
    OPERATOR 5 stacksaga.>,
    FUNCTION 1 stacksaga_internal.ring_token_cmp(stacksaga.ring_token, stacksaga.ring_token),
    FUNCTION 2 pg_catalog.btint8sortsupport(internal),
    FUNCTION 4 pg_catalog.btequalimage(oid);
COMMENT ON OPERATOR CLASS stacksaga.ring_token_order USING btree IS 'order of the ring';

CREATE FUNCTION stacksaga_internal.ring_token_hash(stacksaga.ring_token) RETURNS integer
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'stacksaga_ring_token_hash';
COMMENT ON FUNCTION stacksaga_internal.ring_token_hash(stacksaga.ring_token) IS
    'Internal: returns the top half of a token as its hash';

CREATE FUNCTION stacksaga_internal.ring_token_hash_extended(stacksaga.ring_token, bigint) RETURNS bigint
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'stacksaga_ring_token_hash_extended';
COMMENT ON FUNCTION stacksaga_internal.ring_token_hash_extended(stacksaga.ring_token, bigint) IS
    'Internal: returns a 64-bit hash of a token for a seed; with seed 0 its low half is the hash';

CREATE OPERATOR FAMILY stacksaga.ring_token_hash USING hash;
COMMENT ON OPERATOR FAMILY stacksaga.ring_token_hash USING hash IS
    'hash that keeps ranges of the ring together';
CREATE OPERATOR CLASS stacksaga.ring_token_hash DEFAULT FOR TYPE stacksaga.ring_token
    USING hash FAMILY stacksaga.ring_token_hash AS
    OPERATOR 1 stacksaga.=,
    FUNCTION 1 stacksaga_internal.ring_token_hash(stacksaga.ring_token),
    FUNCTION 2 stacksaga_internal.ring_token_hash_extended(stacksaga.ring_token, bigint);
COMMENT ON OPERATOR CLASS stacksaga.ring_token_hash USING hash IS
    'hash that keeps ranges of the ring together';

CREATE FUNCTION stacksaga_internal.ring_token_smaller(stacksaga.ring_token, stacksaga.ring_token)
    RETURNS stacksaga.ring_token LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'stacksaga_ring_token_smaller';
COMMENT ON FUNCTION stacksaga_internal.ring_token_smaller(stacksaga.ring_token, stacksaga.ring_token) IS
    'Internal: returns the one of two tokens that comes first';

CREATE AGGREGATE stacksaga.min(stacksaga.ring_token) (
    SFUNC = stacksaga_internal.ring_token_smaller, STYPE = stacksaga.ring_token,
    COMBINEFUNC = stacksaga_internal.ring_token_smaller, SORTOP = OPERATOR(stacksaga.<), PARALLEL = SAFE
);
COMMENT ON AGGREGATE stacksaga.min(stacksaga.ring_token) IS
    'Returns the first token on the ring of those given.';

CREATE FUNCTION stacksaga_internal.ring_token_larger(stacksaga.ring_token, stacksaga.ring_token)
    RETURNS stacksaga.ring_token LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'stacksaga_ring_token_larger';
COMMENT ON FUNCTION stacksaga_internal.ring_token_larger(stacksaga.ring_token, stacksaga.ring_token) IS
    'Internal: returns the one of two tokens that comes last';

CREATE AGGREGATE stacksaga.max(stacksaga.ring_token) (
    SFUNC = stacksaga_internal.ring_token_larger, STYPE = stacksaga.ring_token,
    COMBINEFUNC = stacksaga_internal.ring_token_larger, SORTOP = OPERATOR(stacksaga.>), PARALLEL = SAFE
);
COMMENT ON AGGREGATE stacksaga.max(stacksaga.ring_token) IS
    'Returns the last token on the ring of those given.';
