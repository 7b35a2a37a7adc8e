// The top-level fields of a JSON object in PostgreSQL's text form of jsonb, where keys are unique
// and sorted, and one space follows ":" and ",". Only texts of that form may be passed.
#pragma once
#ifdef POSTGRES_H
#error "core comes before PostgreSQL headers"
#endif

#include <cstddef>
#include <string_view>

namespace stacksaga::core {

namespace json {

/// text[begin, end), cut to what there is.
constexpr std::string_view piece(std::string_view text, std::size_t begin, std::size_t end) {
    const std::size_t last = end < text.size() ? end : text.size();
    const std::size_t first = begin < last ? begin : last;
    return {text.data() + first, last - first};
}

/// The index behind the string that begins at `begin` with its quote.
constexpr std::size_t end_of_string(std::string_view text, std::size_t begin) {
    for (std::size_t i = begin + 1; i < text.size(); ++i) {
        if (text[i] == '\\')
            ++i;
        else if (text[i] == '"')
            return i + 1;
    }
    return text.size();
}

/// The index behind the value that begins at `begin`: of the "," or "}" that ends it.
constexpr std::size_t end_of_value(std::string_view text, std::size_t begin) {
    std::size_t depth = 0, i = begin;
    while (i < text.size()) {
        const char c = text[i];
        if (c == '"') {
            i = end_of_string(text, i);
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}'))
            return i;
        if (c == '{' || c == '[')
            ++depth;
        else if ((c == '}' || c == ']') && depth > 0)
            --depth;
        ++i;
    }
    return i;
}

} // namespace json

constexpr bool is_json_object(std::string_view text) {
    return text.starts_with('{');
}

/// Calls `each(name, value)` for every field of an object, in the order of the text; the name is as
/// written between its quotes, escapes included. Anything else than an object has no fields.
template <class F> constexpr void for_each_json_field(std::string_view text, F &&each) {
    if (!is_json_object(text))
        return;
    std::size_t i = 1;
    while (i < text.size() && text[i] == '"') {
        const std::size_t name_end = json::end_of_string(text, i);
        const std::size_t value = name_end + 2; // behind ": "
        const std::size_t value_end = json::end_of_value(text, value);
        each(json::piece(text, i + 1, name_end - 1), json::piece(text, value, value_end));
        i = value_end + 2; // behind ", " or the end
    }
}

} // namespace stacksaga::core
