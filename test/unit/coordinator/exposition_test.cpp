#include "web/metrics.hpp"

#include "cli/command_line.hpp"
#include "cli/output.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace stacksaga::coordinator {
namespace {

TEST(Exposition, GroupsSamplesByNameAndEscapesLabels) {
    EXPECT_EQ(format_exposition({{"b_total", {{"x", "1"}}, 2},
                                 {"a", {}, 0.5},
                                 {"b_total", {{"x", "a\"b\\c\nd"}, {"y", "é"}}, 3}},
                                {{"a", {"gauge", "says \"a\\b\"\nand more"}}}),
              "# HELP a says \"a\\\\b\"\\nand more\n"
              "# TYPE a gauge\n"
              "a 0.5\n"
              "# TYPE b_total counter\n"
              "b_total{x=\"1\"} 2\n"
              "b_total{x=\"a\\\"b\\\\c\\nd\",y=\"é\"} 3\n");
}

TEST(Exposition, WritesNumbersAsPrometheusReadsThem) {
    EXPECT_EQ(format_value(std::numeric_limits<double>::quiet_NaN()), "NaN");
    EXPECT_EQ(format_value(std::numeric_limits<double>::infinity()), "+Inf");
    EXPECT_EQ(format_value(-std::numeric_limits<double>::infinity()), "-Inf");
    EXPECT_EQ(format_value(0.1), "0.1");
}

TEST(Commands, PadsTablesInCharacters) {
    EXPECT_EQ(format_table({"a", "name"}, {{"1", "é"}, {"22", ""}}), "a   name\n"
                                                                     "--  ----\n"
                                                                     "1   é\n"
                                                                     "22\n");
}

TEST(Config, ReadsHttpAddresses) {
    EXPECT_EQ(parse_http_address("127.0.0.1:9187")->port, 9187);
    EXPECT_EQ(parse_http_address("[::1]:80")->host, "::1");
    for (const char *bad : {"", "localhost", ":80", "h:", "h:x", "h:65536", "h:80x"})
        EXPECT_FALSE(parse_http_address(bad)) << bad;
}

} // namespace
} // namespace stacksaga::coordinator
