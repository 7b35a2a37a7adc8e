// The names of an enum's values, which count from 0, as the compiler knows them.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace stacksaga::core {

namespace enum_names_detail {

/// "... value = stacksaga::Column::name; ..." or "... value = stacksaga::Column::name]"; of a
/// number that is no value of the enum "(stacksaga::Column)7".
template <auto value> constexpr std::string_view name_of_value() {
    constexpr std::string_view before = "value = ";
    std::string_view text = __PRETTY_FUNCTION__;
    text.remove_prefix(text.find(before) + before.size());
    text = text.substr(0, text.find_first_of(";]"));
    return text.substr(text.find_last_of(":)") + 1);
}

template <class Enum, std::size_t number> constexpr bool has_value() {
    constexpr std::string_view name = name_of_value<static_cast<Enum>(number)>();
    return name.front() < '0' || name.front() > '9';
}

template <class Enum, std::size_t first = 0> constexpr std::size_t count_values() {
    if constexpr (has_value<Enum, first>())
        return count_values<Enum, first + 1>();
    else
        return first;
}

template <class Enum, std::size_t... number>
constexpr std::array<std::string_view, sizeof...(number)>
list_names(std::index_sequence<number...>) {
    return {name_of_value<static_cast<Enum>(number)>()...};
}

} // namespace enum_names_detail

template <class Enum>
inline constexpr std::array enum_names = enum_names_detail::list_names<Enum>(
    std::make_index_sequence<enum_names_detail::count_values<Enum>()>());

} // namespace stacksaga::core
