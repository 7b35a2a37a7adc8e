// The token ring's SQL functions: hashes, tokens, slots, equal parts, and the hash and comparisons
// of ring_token. All are IMMUTABLE and read no table.
#include "src/ring/token_functions.hpp"

#include "core/ring/murmur3.hpp"
#include "core/ring/slots.hpp"
#include "core/ring/token.hpp"

#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"

namespace stacksaga {

std::string_view utf8_of_text(std::string_view text) {
    const int encoding = GetDatabaseEncoding();
    const int size = static_cast<int>(text.size());
    if (text.empty() || encoding == PG_UTF8)
        return text;
    if (encoding == PG_SQL_ASCII) {
        // Nobody knows the encoding: what is UTF-8 is taken as such.
        pg_verify_mbstr(PG_UTF8, text.data(), size, false);
        return text;
    }
    // The built-in conversion, whatever the search_path: these functions are IMMUTABLE.
    const Oid conversion = FindDefaultConversion(PG_CATALOG_NAMESPACE, encoding, PG_UTF8);
    if (!OidIsValid(conversion))
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION),
                        errmsg("no conversion from encoding \"%s\" to \"%s\" exists",
                               pg_encoding_to_char(encoding), pg_encoding_to_char(PG_UTF8))));
    const Size space = text.size() * MAX_CONVERSION_GROWTH + 1;
    auto *utf8 = static_cast<char *>(MemoryContextAllocHuge(CurrentMemoryContext, space));
    OidFunctionCall6(conversion, Int32GetDatum(encoding), Int32GetDatum(PG_UTF8),
                     CStringGetDatum(text.data()), CStringGetDatum(utf8), Int32GetDatum(size),
                     BoolGetDatum(false));
    return {utf8, strlen(utf8)};
}

namespace {

std::string_view bytes_argument(FunctionCallInfo fcinfo, int i) {
    bytea *value = PG_GETARG_BYTEA_PP(i);
    return {VARDATA_ANY(value), static_cast<size_t>(VARSIZE_ANY_EXHDR(value))};
}

std::string_view text_argument(FunctionCallInfo fcinfo, int i) {
    return utf8_of_text(pg::view_of_text(PG_GETARG_DATUM(i)));
}

uint32 seed_argument(FunctionCallInfo fcinfo, int i) {
    constexpr int64 seed_max = std::numeric_limits<uint32>::max();
    const int64 seed = PG_GETARG_INT64(i);
    if (seed < 0 || seed > seed_max)
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("argument \"seed\" is out of range"),
                 errdetail("The seed is %lld.", static_cast<long long>(seed)),
                 errhint("Use a seed between 0 and %lld.", static_cast<long long>(seed_max))));
    return static_cast<uint32>(seed);
}

core::Token token_argument(FunctionCallInfo fcinfo, int i) {
    return core::Token::from_int64(PG_GETARG_INT64(i));
}

/// The rows of split_ring and split_range: (part, range_start, range_end).
Datum split(FunctionCallInfo fcinfo, const core::Range &range, int32 parts) {
    if (!core::is_splittable(range, parts))
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"parts\" is out of range"),
                        errdetail("The range from %lld to %lld cannot be cut into %d parts.",
                                  static_cast<long long>(range.first.value()),
                                  static_cast<long long>(range.last.value()), parts),
                        errhint("Use at least 1 part, and not more than the range has tokens.")));
    pg::ResultSet rows(fcinfo);
    for (int32 part = 0; part < parts; ++part) {
        CHECK_FOR_INTERRUPTS();
        const core::Range piece = core::part_of_range(range, part, parts);
        rows.add(pg::of(Int32GetDatum(part)), pg::of(Int64GetDatum(piece.first.value())),
                 pg::of(Int64GetDatum(piece.last.value())));
    }
    return pg::ResultSet::finish();
}

} // namespace

STACKSAGA_FUNCTION(token) {
    PG_RETURN_INT64(core::cassandra_token(text_argument(fcinfo, 0)).value());
}

STACKSAGA_FUNCTION(token_bytes) {
    PG_RETURN_INT64(core::cassandra_token(bytes_argument(fcinfo, 0)).value());
}

STACKSAGA_FUNCTION(token_uuid) {
    PG_RETURN_INT64(token_of_uuid(*PG_GETARG_UUID_P(0)).value());
}

STACKSAGA_FUNCTION(murmur3_x64_128) {
    const core::Hash128 hash =
        core::murmur3_x64_128(bytes_argument(fcinfo, 0), seed_argument(fcinfo, 1));
    const std::array<uint64, 2> halves{hash.h1, hash.h2};
    auto *result = static_cast<bytea *>(palloc(VARHDRSZ + sizeof halves));
    SET_VARSIZE(result, VARHDRSZ + sizeof halves);
    char *out = VARDATA(result);
    for (uint64 half : halves)
        for (int shift = 0; shift < 64; shift += 8)
            *out++ = static_cast<char>(half >> shift);
    PG_RETURN_BYTEA_P(result);
}

STACKSAGA_FUNCTION(murmur3_x86_32) {
    const uint32 hash = core::murmur3_x86_32(bytes_argument(fcinfo, 0), seed_argument(fcinfo, 1));
    PG_RETURN_INT32(static_cast<int32>(hash));
}

STACKSAGA_FUNCTION(hash_partition) {
    const int32 partitions = PG_GETARG_INT32(1);
    if (partitions < 1)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"partitions\" is out of range"),
                        errdetail("The number of partitions is %d.", partitions),
                        errhint("Use at least 1 partition.")));
    const uint32 hash = core::murmur3_x86_32(text_argument(fcinfo, 0));
    PG_RETURN_INT32(static_cast<int32>(hash & 0x7fffffffU) % partitions);
}

STACKSAGA_FUNCTION(slot) {
    const int32 slots = PG_GETARG_INT32(1);
    if (!core::is_slot_count(slots))
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"slots\" is not a power of two"),
                        errdetail("The number of slots is %d; the ring has no such number of equal "
                                  "slots.",
                                  slots),
                        errhint("Use the number of slots of the ring, such as 256.")));
    PG_RETURN_INT32(core::slot_of(token_argument(fcinfo, 0), slots));
}

STACKSAGA_FUNCTION(split_ring) {
    return split(fcinfo, core::whole_ring, PG_GETARG_INT32(0));
}

STACKSAGA_FUNCTION(split_range) {
    const core::Range range{token_argument(fcinfo, 0), token_argument(fcinfo, 1)};
    if (range.last < range.first)
        ereport(ERROR, (errcode(pg::sg400), errmsg("the range ends before it starts"),
                        errdetail("The range is from %lld to %lld.",
                                  static_cast<long long>(range.first.value()),
                                  static_cast<long long>(range.last.value())),
                        errhint("Ranges include both ends: range_start must not be greater than "
                                "range_end.")));
    return split(fcinfo, range, PG_GETARG_INT32(2));
}

STACKSAGA_FUNCTION(ring_token_hash) {
    PG_RETURN_INT32(core::top_half(token_argument(fcinfo, 0)));
}

STACKSAGA_FUNCTION(ring_token_hash_extended) {
    const auto seed = static_cast<uint64>(PG_GETARG_INT64(1));
    PG_RETURN_UINT64(core::seeded_hash(token_argument(fcinfo, 0), seed));
}

// The comparisons of the type ring_token do what those of bigint do, but are functions of this
// module: PostgreSQL finds a function of LANGUAGE internal that is not one of its own by its name,
// one after the other, each time that a statement begins, which took longer than all else that a
// statement on a few rows does.

namespace {

int64 left(FunctionCallInfo fcinfo) {
    return PG_GETARG_INT64(0);
}

int64 right(FunctionCallInfo fcinfo) {
    return PG_GETARG_INT64(1);
}

} // namespace

STACKSAGA_FUNCTION(ring_token_eq) {
    PG_RETURN_BOOL(left(fcinfo) == right(fcinfo));
}

STACKSAGA_FUNCTION(ring_token_ne) {
    PG_RETURN_BOOL(left(fcinfo) != right(fcinfo));
}

STACKSAGA_FUNCTION(ring_token_lt) {
    PG_RETURN_BOOL(left(fcinfo) < right(fcinfo));
}

STACKSAGA_FUNCTION(ring_token_le) {
    PG_RETURN_BOOL(left(fcinfo) <= right(fcinfo));
}

STACKSAGA_FUNCTION(ring_token_gt) {
    PG_RETURN_BOOL(left(fcinfo) > right(fcinfo));
}

STACKSAGA_FUNCTION(ring_token_ge) {
    PG_RETURN_BOOL(left(fcinfo) >= right(fcinfo));
}

STACKSAGA_FUNCTION(ring_token_cmp) {
    PG_RETURN_INT32((left(fcinfo) > right(fcinfo)) - (left(fcinfo) < right(fcinfo)));
}

STACKSAGA_FUNCTION(ring_token_of_integer) {
    PG_RETURN_INT64(PG_GETARG_INT32(0));
}

STACKSAGA_FUNCTION(ring_token_smaller) {
    PG_RETURN_INT64(std::min(left(fcinfo), right(fcinfo)));
}

STACKSAGA_FUNCTION(ring_token_larger) {
    PG_RETURN_INT64(std::max(left(fcinfo), right(fcinfo)));
}

} // namespace stacksaga
