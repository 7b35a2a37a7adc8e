// An event is one line, and a value stays one value, with any content.
#include "base/log.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace stacksaga::coordinator {
namespace {

using namespace std::chrono_literals;

constexpr Instant at{std::chrono::sys_days{std::chrono::year{2026} / 1 / 31} + 12h + 7ms};

std::string logfmt(std::string_view message, const std::vector<LogField> &fields = {}) {
    return format_event(LogFormat::logfmt, at, LogLevel::warn, message, fields);
}

std::string json(std::string_view message, const std::vector<LogField> &fields = {}) {
    return format_event(LogFormat::json, at, LogLevel::warn, message, fields);
}

TEST(Log, WritesLogfmt) {
    EXPECT_EQ(logfmt("published window", {{"epoch", 42}, {"ring", "eu/a"}, {"name", "a b"}}),
              "ts=2026-01-31T12:00:00.007Z level=warn msg=\"published window\" epoch=42 ring=eu/a "
              "name=\"a b\"");
}

TEST(Log, WritesJson) {
    EXPECT_EQ(json("published", {{"epoch", -42}, {"ring", "eu/a"}}),
              R"({"ts":"2026-01-31T12:00:00.007Z","level":"warn","msg":"published","epoch":-42,)"
              R"("ring":"eu/a"})");
}

TEST(Log, KeepsLibpqsManyLinesInOne) {
    const std::string_view message =
        "connection to server at \"db\" failed: refused\n\tIs the server running?\n";
    const std::string escaped =
        R"("connection to server at \"db\" failed: refused\n\tIs the server running?\n")";
    EXPECT_EQ(logfmt(message), "ts=2026-01-31T12:00:00.007Z level=warn msg=" + escaped);
    EXPECT_EQ(json(message),
              R"({"ts":"2026-01-31T12:00:00.007Z","level":"warn","msg":)" + escaped + "}");
}

TEST(Log, EscapesCharactersThatEndOrFakeAValue) {
    const std::vector<std::pair<std::string, std::string>> cases{
        {"", "\"\""},
        {"a=b", "\"a=b\""},
        {"level=info msg=fake", "\"level=info msg=fake\""},
        {"back\\slash", "\"back\\\\slash\""},
        {"\r\x1b[31m\x7f", "\"\\r\\u001b[31m\\u007f\""},
        {"a\u202Eb\U000E0041", "\"a\\u202eb\\udb40\\udc41\""},
        {std::string("nul\0byte", 8), "\"nul\\u0000byte\""},
        {"Zürich", "\"Zürich\""},
        {"\xf0\x9f\x90\x98", "\"\xf0\x9f\x90\x98\""},
    };
    for (const auto &[value, written] : cases)
        EXPECT_EQ(logfmt("m", {{"v", value}}),
                  "ts=2026-01-31T12:00:00.007Z level=warn msg=m v=" + written);
}

TEST(Log, ReplacesBytesThatAreNotUtf8) {
    for (const std::string_view bad :
         {"\xff", "\xc0\xaf", "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80"}) {
        const std::string line = json(bad);
        EXPECT_NE(line.find("\\ufffd"), std::string::npos);
        for (const char byte : line)
            EXPECT_GE(byte, 0x20);
    }
}

TEST(Log, DropsEventsBelowItsLevel) {
    std::vector<std::string> lines;
    Log log(LogFormat::logfmt, LogLevel::warn,
            [&](std::string_view line) { lines.emplace_back(line); });
    log.debug("no");
    log.info("no");
    log.warn("yes", {{"a", 1}});
    log.error("yes");
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_TRUE(lines[0].ends_with(" level=warn msg=yes a=1\n"));
    EXPECT_TRUE(lines[1].ends_with(" level=error msg=yes\n"));
}

TEST(Log, AppliesANewLevelToTheLogsThatItMade) {
    std::vector<std::string> lines;
    Log log(LogFormat::logfmt, LogLevel::error,
            [&](std::string_view line) { lines.emplace_back(line); });
    Log of_database = log.with({"on", "shop"});
    of_database.warn("no");
    log.configure(LogFormat::logfmt, LogLevel::warn);
    of_database.warn("yes");
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_TRUE(lines[0].ends_with(" level=warn msg=yes on=shop\n"));
}

TEST(Log, WritesDurationsShort) {
    EXPECT_EQ(format_duration(60s), "60s");
    EXPECT_EQ(format_duration(0s), "0s");
    EXPECT_EQ(format_duration(1500ms), "1500ms");
    EXPECT_EQ(format_duration(-7us), "-7us");
}

} // namespace
} // namespace stacksaga::coordinator
