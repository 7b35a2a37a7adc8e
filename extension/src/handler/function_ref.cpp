#include "src/handler/function_ref.hpp"

#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/statement/function.hpp"

namespace stacksaga {

std::string_view copy_view(std::string_view s) {
    return {pnstrdup(s.data(), s.size()), s.size()};
}

const char *copy_text(std::optional<std::string_view> s) {
    return s ? pnstrdup(s->data(), s->size()) : nullptr;
}

std::span<const std::string_view> copy_list(Datum array) {
    Datum *values;
    bool *nulls;
    int count;
    deconstruct_array(DatumGetArrayTypeP(array), TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls,
                      &count);
    auto *list = static_cast<std::string_view *>(
        palloc(sizeof(std::string_view) * static_cast<size_t>(count + 1)));
    for (int i = 0; i < count; ++i)
        list[i] = copy_view(pg::view_of_text(values[i]));
    return {list, static_cast<size_t>(count)};
}

int64 longest_pause(Datum interval) {
    return core::longest(*pg::interval_in_range(interval, false));
}

} // namespace stacksaga
