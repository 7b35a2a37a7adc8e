// Which characters are invisible, and how they are written.
#include "core/common/invisible.hpp"

#include <gtest/gtest.h>

#include <string>

namespace stacksaga::core {
namespace {

std::string escaped(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const Character c = first_character(text);
        if (is_invisible(c.code)) {
            const Escape escape = escape_of(c.code);
            out.append(escape.text.data(), escape.size);
        } else {
            out += text.substr(0, c.bytes);
        }
        text.remove_prefix(c.bytes);
    }
    return out;
}

TEST(Invisible, IsEscaped) {
    EXPECT_EQ(escaped("a\u202Eb"), "a\\u202eb");
    EXPECT_EQ(escaped("\u2028"), "\\u2028");
    EXPECT_EQ(escaped("\u00AD\u200B\u200D\uFEFF"), "\\u00ad\\u200b\\u200d\\ufeff");
    EXPECT_EQ(escaped("x\U000E0041"), "x\\U000e0041");
}

TEST(Invisible, WhatShowsStays) {
    for (const std::string_view text :
         {"plain", "caf\u00E9", "\u65E5\u672C", "\U0001F600", "\u00A0", "\u2027\u202F"})
        EXPECT_EQ(escaped(text), text);
}

// Not valid, but never read beyond its end.
TEST(Invisible, ACutCharacterEndsWithTheText) {
    EXPECT_EQ(first_character("\xE2").bytes, 1u);
    EXPECT_EQ(first_character("\xF0\x9F").bytes, 2u);
    EXPECT_EQ(first_character("\x80").bytes, 1u);
}

} // namespace
} // namespace stacksaga::core
