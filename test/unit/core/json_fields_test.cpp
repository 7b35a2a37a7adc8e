#include "core/json_fields.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stacksaga::core {
namespace {

std::vector<std::string> fields(std::string_view text) {
    std::vector<std::string> result;
    for_each_json_field(text, [&](std::string_view name, std::string_view value) {
        result.push_back(std::string{name} + "=" + std::string{value});
    });
    return result;
}

using List = std::vector<std::string>;

TEST(JsonFields, OfObjects) {
    EXPECT_EQ(fields("{}"), List{});
    EXPECT_EQ(fields(R"({"a": 1})"), List{"a=1"});
    EXPECT_EQ(fields(R"({"a": 1, "b": null, "cc": "x"})"), (List{"a=1", "b=null", R"(cc="x")"}));
}

TEST(JsonFields, NestedValuesAreOneField) {
    EXPECT_EQ(fields(R"({"a": {"b": [1, {"c": 2}], "d": {}}, "e": []})"),
              (List{R"(a={"b": [1, {"c": 2}], "d": {}})", "e=[]"}));
}

TEST(JsonFields, StringsHideWhatLooksLikeStructure) {
    EXPECT_EQ(fields(R"({"a": "},\"b\": {[", "\"}": "\\", "": ""})"),
              (List{R"(a="},\"b\": {[")", R"(\"}="\\")", R"(="")"}));
}

TEST(JsonFields, NothingElseHasFields) {
    for (std::string_view text : {"", "1", "null", R"("{")", R"([{"a": 1}])", "true"})
        EXPECT_EQ(fields(text), List{}) << text;
}

// Cut texts are not valid input, but must not be read beyond.
TEST(JsonFields, EveryPrefixIsSafe) {
    const std::string text = R"({"a": {"b": "\""}, "cc": [1, 2], "d": "x"})";
    for (std::size_t length = 0; length <= text.size(); ++length) {
        const std::string prefix = text.substr(0, length);
        std::size_t bytes = 0;
        for (const std::string &field : fields(prefix))
            bytes += field.size();
        EXPECT_LE(bytes, text.size()) << prefix;
    }
}

} // namespace
} // namespace stacksaga::core
