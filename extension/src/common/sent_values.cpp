#include "src/common/sent_values.hpp"

#include "pg/json_text.hpp"
#include "pg/settings.hpp"

namespace stacksaga {

namespace {

constexpr uint64 row_bytes_max = MaxAllocSize - 1024 * 1024; // the rest of a row
// A larger one is read again when it is printed, and does not fill the memory of the call until
// then.
constexpr Size kept_bytes_max = 8 * 1024;
// Maximum ratio of a value's text to its size: a number has twelve bytes or more.
constexpr uint64 sent_factor_max = 147'458 / 12;
constexpr Size plain_bytes_max = 16 * 1024; // of each of some values of a row
// Minimum ratio: a number of twelve bytes has three as text, with its comma. Less what a value has
// besides, and one that is no array or object.
constexpr uint64 text_divisor_max = 4, text_bytes_besides = 8;

bool is_in_memory(Datum value) {
    const void *pointer = DatumGetPointer(value);
    return !VARATT_IS_EXTERNAL(pointer) && !VARATT_IS_COMPRESSED(pointer);
}

/// Calls `use` with the value as it is in memory. A small one has its header in one byte there, and
/// would be copied to be aligned.
template <class Use> uint64 with_value(Datum value, Use &&use) {
    const void *pointer = DatumGetPointer(value);
    if (!VARATT_IS_EXTERNAL(pointer) && VARATT_IS_SHORT(pointer)) {
        alignas(MAXIMUM_ALIGNOF) std::array<char, VARATT_SHORT_MAX + VARHDRSZ> copy;
        const Size size = VARSIZE_SHORT(pointer) - VARHDRSZ_SHORT;
        SET_VARSIZE(copy.data(), size + VARHDRSZ);
        memcpy(copy.data() + VARHDRSZ, VARDATA_SHORT(pointer), size);
        return use(reinterpret_cast<const Jsonb *>(copy.data()));
    }
    Jsonb *json = DatumGetJsonbP(value);
    const uint64 bytes = use(json);
    if (JsonbPGetDatum(json) != value)
        pfree(json);
    return bytes;
}

} // namespace

bool SentText::is_surely_sent(Datum value) {
    return is_in_memory(value) && VARSIZE_ANY(DatumGetPointer(value)) <= plain_bytes_max;
}

SentValue SentText::add(Datum value) {
    const Size size = toast_raw_datum_size(value);
    const bool is_here = is_in_memory(value);
    const uint64 bytes = uint64{size} * sent_factor_max;
    if (is_here && bytes_ + bytes <= row_bytes_max) {
        bytes_ += bytes;
        return {.value = value};
    }
    Jsonb *json = DatumGetJsonbP(value);
    const uint64 text_bytes = pg::json_text_bytes(json);
    bytes_ += std::min(bytes, text_bytes);
    if (bytes_ > row_bytes_max)
        ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                        errmsg("the value to be sent is too long as text"),
                        errdetail("It has " UINT64_FORMAT
                                  " bytes or more, and a row has at most " UINT64_FORMAT ".",
                                  bytes_, row_bytes_max)));
    if (is_here || size <= kept_bytes_max)
        return {.value = JsonbPGetDatum(json), .text_bytes = text_bytes};
    pfree(json);
    return {.value = value, .text_bytes = text_bytes};
}

void BatchBytes::add(const SentValue &value) {
    if (value.value == 0)
        return;
    if (value.text_bytes != 0)
        counted_ += value.text_bytes;
    else if (is_in_memory(value.value))
        keep({.value = value.value, .at_most = with_value(value.value, pg::json_text_at_most)});
    else
        counted_ += with_value(value.value, pg::json_text_bytes);
}

void BatchBytes::keep(const Estimate &estimate) {
    if (count_ == capacity_) {
        capacity_ = std::max<size_t>(64, capacity_ * 2);
        auto *grown = static_cast<Estimate *>(palloc(sizeof(Estimate) * capacity_));
        std::copy(estimates_ + next_, estimates_ + count_, grown);
        if (estimates_ != nullptr)
            pfree(estimates_);
        estimates_ = grown;
        count_ -= next_;
        next_ = 0;
    }
    estimates_[count_++] = estimate;
    at_most_ += estimate.at_most;
}

bool BatchBytes::are_passed() {
    const auto limit = static_cast<uint64>(pg::settings.batch_bytes);
    for (; counted_ <= limit && counted_ + at_most_ > limit; ++next_) {
        const Estimate &estimate = estimates_[next_];
        at_most_ -= estimate.at_most;
        counted_ += with_value(estimate.value, pg::json_text_bytes);
    }
    return counted_ > limit;
}

uint64 BatchBytes::left() const {
    const auto limit = static_cast<uint64>(pg::settings.batch_bytes);
    return counted_ < limit ? limit - counted_ : 0;
}

uint64 text_at_least(Datum value) {
    const uint64 size = toast_raw_datum_size(value) / text_divisor_max;
    return size > text_bytes_besides ? size - text_bytes_besides : 0;
}

} // namespace stacksaga
