#include "src/dedupe/fingerprint.hpp"

#include "core/dedupe/json_numbers.hpp"
#include "core/ring/token.hpp"

#include "pg/json_text.hpp"
#include "pg/settings.hpp"
#include "pg/statement/attempt.hpp"
#include "pg/statement/function.hpp"
#include "src/common/limits.hpp"
#include "src/ring/token_functions.hpp"

namespace stacksaga {

namespace {

std::string_view printed_text(Datum jsonb) {
    Jsonb *value = DatumGetJsonbP(jsonb);
    return utf8_of_text(JsonbToCString(nullptr, &value->root, static_cast<int>(VARSIZE(value))));
}

Datum sha256_of(std::string_view text) {
    const Datum bytes =
        PointerGetDatum(cstring_to_text_with_len(text.data(), static_cast<int>(text.size())));
    return DirectFunctionCall1(sha256_bytea, bytes);
}

} // namespace

Datum fingerprint_of(Datum jsonb) {
    const std::string_view text = printed_text(jsonb);
    if (!core::has_padded_number(text))
        return sha256_of(text);
    auto *shorter = static_cast<char *>(palloc_extended(text.size() + 1, MCXT_ALLOC_HUGE));
    return sha256_of({shorter, core::shorten_numbers(text, shorter)});
}

Datum fingerprint_as_printed(Datum jsonb) {
    return sha256_of(printed_text(jsonb));
}

pg_uuid_t uuid_of_text(std::string_view text) {
    pg_uuid_t id;
    memcpy(id.data, VARDATA(DatumGetByteaP(sha256_of(text))), UUID_LEN);
    id.data[6] = static_cast<unsigned char>((id.data[6] & 0x0f) | 0x80);
    id.data[8] = static_cast<unsigned char>((id.data[8] & 0x3f) | 0x80);
    return id;
}

pg_uuid_t keyed_saga_id(std::string_view saga, std::string_view key, int32 run) {
    std::string_view saga_utf8 = utf8_of_text(saga), key_utf8 = utf8_of_text(key);
    // The length of the name is part of it: whatever name and key hold, no two pairs are the same
    // text.
    const char *identity =
        psprintf("%zu %d %.*s%.*s", saga_utf8.size(), run, static_cast<int>(saga_utf8.size()),
                 saga_utf8.data(), static_cast<int>(key_utf8.size()), key_utf8.data());
    return uuid_of_text(identity);
}

// fingerprint(request jsonb) -> bytea
STACKSAGA_FUNCTION(fingerprint) {
    const Datum request = PG_GETARG_DATUM(0);
    // A large request may have a large text: nothing is stored.
    check_text_of_json(
        request, "request",
        std::max(pg::settings.max_payload, static_cast<int>(toast_raw_datum_size(request))));
    return fingerprint_of(request);
}

// json_text_bytes(value jsonb) -> bigint; NULL when the value cannot be read
STACKSAGA_FUNCTION(json_text_bytes) {
    const Datum value = PG_GETARG_DATUM(0);
    uint64 bytes = 0;
    const auto count = [&] { bytes = pg::json_text_bytes(DatumGetJsonbP(value)); };
    if (!VARATT_IS_EXTERNAL(DatumGetPointer(value)))
        count();
    else if (!pg::attempt_expecting(
                 [](const ErrorData &error) { return error.sqlerrcode == ERRCODE_DATA_CORRUPTED; },
                 count))
        PG_RETURN_NULL();
    PG_RETURN_INT64(static_cast<int64>(bytes));
}

} // namespace stacksaga
