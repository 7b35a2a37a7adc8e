// Goal: texts of jsonb values that are equal are the same without the zeros that end fractions,
// and nothing else of a text changes.
#include "core/dedupe/json_numbers.hpp"

#include <gtest/gtest.h>

#include <string>

namespace stacksaga::core {
namespace {

std::string shorten(std::string_view json) {
    std::string out(json.size(), '\0');
    out.resize(shorten_numbers(json, out.data()));
    EXPECT_EQ(has_padded_number(json), out != json) << json;
    EXPECT_FALSE(has_padded_number(out)) << json;
    return out;
}

TEST(JsonNumbers, ZerosThatEndAFractionGo) {
    EXPECT_EQ(shorten("10.0"), "10");
    EXPECT_EQ(shorten("10.00"), "10");
    EXPECT_EQ(shorten("0.0"), "0");
    EXPECT_EQ(shorten("-1.50"), "-1.5");
    EXPECT_EQ(shorten("0.0500"), "0.05");
    EXPECT_EQ(shorten(R"([1.0, {"a": 2.10, "b": [3.000]}, 4.0])"),
              R"([1, {"a": 2.1, "b": [3]}, 4])");
}

TEST(JsonNumbers, WhatIsNotPaddedStays) {
    for (const char *json :
         {"10", "100", "0.5", "-3.25", "0.001", "null", "true", "[]", "{}", R"("1.0")",
          R"({"1.0": "2.50"})", R"("a\"1.0\\")", R"("\\")", R"(["\\", "x.0", 1.5])", ""})
        EXPECT_EQ(shorten(json), json);
}

TEST(JsonNumbers, StringsBesideNumbersStay) {
    EXPECT_EQ(shorten(R"({"v": "1.0", "n": 1.0, "q": "\"2.0", "m": 2.0})"),
              R"({"v": "1.0", "n": 1, "q": "\"2.0", "m": 2})");
}

} // namespace
} // namespace stacksaga::core
