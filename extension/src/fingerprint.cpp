#include "core/token.hpp"

#include "src/fingerprint.hpp"

#include "pg/function.hpp"
#include "src/token.hpp"

namespace stacksaga {

namespace {

using Digest = std::array<uint8, PG_SHA256_DIGEST_LENGTH>;

Digest sha256(std::span<const std::string_view> parts) {
    Digest digest{};
    pg_cryptohash_ctx *context = pg_cryptohash_create(PG_SHA256);
    bool ok = context != nullptr && pg_cryptohash_init(context) == 0;
    for (std::string_view part : parts)
        ok = ok && pg_cryptohash_update(context, reinterpret_cast<const uint8 *>(part.data()),
                                        part.size()) == 0;
    ok = ok && pg_cryptohash_final(context, digest.data(), digest.size()) == 0;
    pg_cryptohash_free(context);
    if (!ok)
        ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not compute SHA-256")));
    return digest;
}

} // namespace

std::string_view canonical_text(Datum jsonb) {
    Jsonb *value = DatumGetJsonbP(jsonb);
    return utf8_of_text(JsonbToCString(nullptr, &value->root, static_cast<int>(VARSIZE(value))));
}

Datum fingerprint_of_text(std::string_view canonical) {
    Digest digest = sha256(std::array{canonical});
    auto *result = static_cast<bytea *>(palloc(VARHDRSZ + digest.size()));
    SET_VARSIZE(result, VARHDRSZ + digest.size());
    memcpy(VARDATA(result), digest.data(), digest.size());
    return PointerGetDatum(result);
}

Datum fingerprint_of(Datum jsonb) {
    return fingerprint_of_text(canonical_text(jsonb));
}

pg_uuid_t keyed_saga_id(std::string_view saga, std::string_view key, int32 run) {
    std::string_view saga_utf8 = utf8_of_text(saga), key_utf8 = utf8_of_text(key);
    // Its length says where the name ends, whatever characters it and the key hold.
    std::string_view frame{psprintf("%zu %d ", saga_utf8.size(), run)};
    Digest digest = sha256(std::array{frame, saga_utf8, key_utf8});
    pg_uuid_t id;
    memcpy(id.data, digest.data(), UUID_LEN);
    id.data[6] = static_cast<unsigned char>((id.data[6] & 0x0f) | 0x80);
    id.data[8] = static_cast<unsigned char>((id.data[8] & 0x3f) | 0x80);
    return id;
}

// fingerprint(request jsonb) -> bytea
STACKSAGA_FUNCTION(fingerprint) {
    return fingerprint_of(PG_GETARG_DATUM(0));
}

} // namespace stacksaga
