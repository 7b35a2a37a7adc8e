#include "core/sha256.hpp"
#include "core/token.hpp"

#include "src/ring/fingerprint.hpp"

#include "pg/function.hpp"
#include "src/ring/token.hpp"

namespace stacksaga {

std::string_view canonical_text(Datum jsonb) {
    Jsonb *value = DatumGetJsonbP(jsonb);
    return utf8_of_text(JsonbToCString(nullptr, &value->root, static_cast<int>(VARSIZE(value))));
}

Datum fingerprint_of_text(std::string_view canonical) {
    const core::Sha256Digest digest = core::sha256(std::array{canonical});
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
    const core::Sha256Digest digest = core::sha256(std::array{frame, saga_utf8, key_utf8});
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
