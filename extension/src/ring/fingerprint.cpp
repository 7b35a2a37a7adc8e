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
    const Datum bytes = PointerGetDatum(
        cstring_to_text_with_len(canonical.data(), static_cast<int>(canonical.size())));
    return DirectFunctionCall1(sha256_bytea, bytes);
}

Datum fingerprint_of(Datum jsonb) {
    return fingerprint_of_text(canonical_text(jsonb));
}

pg_uuid_t keyed_saga_id(std::string_view saga, std::string_view key, int32 run) {
    std::string_view saga_utf8 = utf8_of_text(saga), key_utf8 = utf8_of_text(key);
    // The length of the name is part of it: whatever name and key hold, no two pairs are the same
    // text.
    const char *identity =
        psprintf("%zu %d %.*s%.*s", saga_utf8.size(), run, static_cast<int>(saga_utf8.size()),
                 saga_utf8.data(), static_cast<int>(key_utf8.size()), key_utf8.data());
    pg_uuid_t id;
    memcpy(id.data, VARDATA(DatumGetByteaP(fingerprint_of_text(identity))), UUID_LEN);
    id.data[6] = static_cast<unsigned char>((id.data[6] & 0x0f) | 0x80);
    id.data[8] = static_cast<unsigned char>((id.data[8] & 0x3f) | 0x80);
    return id;
}

// fingerprint(request jsonb) -> bytea
STACKSAGA_FUNCTION(fingerprint) {
    return fingerprint_of(PG_GETARG_DATUM(0));
}

} // namespace stacksaga
