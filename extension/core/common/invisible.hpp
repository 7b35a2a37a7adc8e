// Characters that show nothing or change the order in which others are shown: two names that differ
// by one look alike, and what stands behind one may be read backwards. Source: Unicode 15,
// Default_Ignorable_Code_Point of DerivedCoreProperties.txt, with the line and paragraph
// separators, the directional characters and the interlinear annotations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stacksaga::core {

constexpr bool is_invisible(std::uint32_t code) {
    struct Range {
        std::uint32_t first, last;
    };
    constexpr std::array ranges{
        Range{0xAD, 0xAD},       Range{0x34F, 0x34F},     Range{0x61C, 0x61C},
        Range{0x115F, 0x1160},   Range{0x17B4, 0x17B5},   Range{0x180B, 0x180F},
        Range{0x200B, 0x200F},   Range{0x2028, 0x202E},   Range{0x2060, 0x206F},
        Range{0x3164, 0x3164},   Range{0xFE00, 0xFE0F},   Range{0xFEFF, 0xFEFF},
        Range{0xFFA0, 0xFFA0},   Range{0xFFF0, 0xFFFB},   Range{0x1BCA0, 0x1BCA3},
        Range{0x1D173, 0x1D17A}, Range{0xE0000, 0xE0FFF},
    };
    for (const Range &range : ranges)
        if (code >= range.first && code <= range.last)
            return true;
    return false;
}

struct Character {
    std::uint32_t code;
    std::size_t bytes;
};

/// The character that valid UTF-8, not empty, begins with.
constexpr Character first_character(std::string_view utf8) {
    const auto byte = [&](std::size_t i) {
        return i < utf8.size() ? static_cast<std::uint8_t>(utf8[i]) : std::uint8_t{0x80};
    };
    const std::uint8_t first = byte(0);
    if (first < 0xC0)
        return {first, 1};
    const std::size_t bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    std::uint32_t code = first & (0x7Fu >> bytes);
    for (std::size_t i = 1; i < bytes; ++i)
        code = code << 6 | (byte(i) & 0x3Fu);
    return {code, bytes < utf8.size() ? bytes : utf8.size()};
}

/// The escape of an invisible character: \u202e, or \U000e0001 above U+FFFF. `size` of `text`
/// count.
struct Escape {
    std::array<char, 10> text;
    std::size_t size;
};

constexpr Escape escape_of(std::uint32_t code) {
    const std::size_t digits = code > 0xFFFF ? 8 : 4;
    Escape escape{.text = {'\\', code > 0xFFFF ? 'U' : 'u'}, .size = 2 + digits};
    for (std::size_t i = 0; i < digits; ++i)
        escape.text[2 + i] = "0123456789abcdef"[code >> 4 * (digits - 1 - i) & 0xF];
    return escape;
}

} // namespace stacksaga::core
