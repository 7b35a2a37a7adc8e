// Numbers in the text that PostgreSQL prints of a jsonb value: 10, 10.0 and 10.00 are equal, and
// differ in the zeros that they end with.
#pragma once

#include <cstddef>
#include <string_view>

namespace stacksaga::core {

namespace json_numbers {

constexpr bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/// Behind the string that begins at `at`.
constexpr std::size_t string_end(std::string_view json, std::size_t at) {
    for (++at; at < json.size() && json[at] != '"'; ++at)
        if (json[at] == '\\')
            ++at;
    return at + 1 < json.size() ? at + 1 : json.size();
}

/// Behind the fraction whose point is at `at`.
constexpr std::size_t fraction_end(std::string_view json, std::size_t at) {
    do
        ++at;
    while (at < json.size() && is_digit(json[at]));
    return at;
}

/// Calls `take` with each part of the text that stays, and `drop` where one is left out, which may
/// end the walk by returning false.
template <class Take, class Drop>
constexpr void walk(std::string_view json, Take &&take, Drop &&drop) {
    std::size_t from = 0, at = 0;
    while (at < json.size()) {
        if (json[at] == '"') {
            at = string_end(json, at);
        } else if (json[at] == '.') { // outside of strings only numbers have one
            const std::size_t end = fraction_end(json, at);
            std::size_t last = end;
            while (json[last - 1] == '0')
                --last;
            if (json[last - 1] == '.')
                --last;
            if (last < end) {
                take({json.data() + from, last - from});
                if (!drop())
                    return;
                from = end;
            }
            at = end;
        } else {
            ++at;
        }
    }
    take({json.data() + from, json.size() - from});
}

} // namespace json_numbers

/// Whether shorten_numbers() would change the text.
constexpr bool has_padded_number(std::string_view json) {
    if (json.find('.') == std::string_view::npos)
        return false;
    bool is_found = false;
    json_numbers::walk(
        json, [](std::string_view) {}, [&] { return !(is_found = true); });
    return is_found;
}

/// Writes the text without the zeros that end fractions, and returns its size; `out` has room for
/// all of it.
constexpr std::size_t shorten_numbers(std::string_view json, char *out) {
    std::size_t size = 0;
    const auto take = [&](std::string_view part) {
        for (const char c : part)
            out[size++] = c;
    };
    json_numbers::walk(json, take, [] { return true; });
    return size;
}

} // namespace stacksaga::core
