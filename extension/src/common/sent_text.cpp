#include "src/common/sent_text.hpp"

#include "pg/json_text.hpp"

namespace stacksaga {

namespace {

constexpr uint64 row_bytes_max = MaxAllocSize - 1024 * 1024; // the rest of a row
// A larger one is read again when it is printed, and does not fill the memory of the call until
// then.
constexpr Size kept_bytes_max = 8 * 1024;
// Maximum ratio of a value's text to its size: a number has twelve bytes or more.
constexpr uint64 text_factor_max = 147'458 / 12;
constexpr Size plain_bytes_max = 16 * 1024; // of each of some values of a row

bool is_in_memory(Datum value) {
    const void *pointer = DatumGetPointer(value);
    return !VARATT_IS_EXTERNAL(pointer) && !VARATT_IS_COMPRESSED(pointer);
}

} // namespace

bool SentText::is_surely_sent(Datum value) {
    return is_in_memory(value) && VARSIZE_ANY(DatumGetPointer(value)) <= plain_bytes_max;
}

Datum SentText::add(Datum value) {
    const Size size = toast_raw_datum_size(value);
    const bool is_here = is_in_memory(value);
    const uint64 bytes = uint64{size} * text_factor_max;
    if (is_here && bytes_ + bytes <= row_bytes_max) {
        bytes_ += bytes;
        return value;
    }
    Jsonb *json = DatumGetJsonbP(value);
    bytes_ += std::min(bytes, pg::json_text_bytes(json));
    if (bytes_ > row_bytes_max)
        ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                        errmsg("the value to be sent is too long as text"),
                        errdetail("It has " UINT64_FORMAT
                                  " bytes or more, and a row has at most " UINT64_FORMAT ".",
                                  bytes_, row_bytes_max)));
    if (is_here || size <= kept_bytes_max)
        return JsonbPGetDatum(json);
    pfree(json);
    return value;
}

} // namespace stacksaga
