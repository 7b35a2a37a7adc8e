// The last hour of the page's charts: rates from counters, gaps where nothing is known.
#include "cli/output.hpp"
#include "web/metrics.hpp"

#include <gtest/gtest.h>

namespace stacksaga::coordinator {
namespace {

Instant at(int seconds) {
    return Instant(std::chrono::seconds(seconds));
}

std::vector<Sample> finished(double completed, double failed) {
    return {{"stacksaga_sagas_finished_total", {{"status", "completed"}}, completed},
            {"stacksaga_sagas_finished_total", {{"status", "failed"}}, failed},
            {"stacksaga_attempts_failed_total", {{"class", "retryable"}}, failed},
            {"stacksaga_attempts_failed_total", {{"class", "unknown"}}, failed}};
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

TEST(History, TurnsCountersIntoRates) {
    History history;
    EXPECT_TRUE(has(history.json(), "\"completed\": []"));
    history.add(finished(10, 0), {}, at(0));
    history.add(finished(14, 1), {{"payments", {7, 2}}}, at(30));
    history.add(finished(3, 1), {}, at(60)); // another server: its counters began anew
    history.add(finished(5, 2), {{"payments", {8, 0}}}, at(90));
    const std::string json = history.json();
    EXPECT_TRUE(has(json, "\"at\": [30, 60, 90]")) << json;
    EXPECT_TRUE(has(json, "\"completed\": [4, null, 2]")) << json;
    EXPECT_TRUE(has(json, "\"failed\": [1, 0, 1]")) << json;
    EXPECT_TRUE(has(json, "\"failures\": [2, 0, 2]")) << "of all labels: " << json;
    EXPECT_TRUE(has(json, "\"started\": [null, null, null]")) << json;
    EXPECT_TRUE(has(json, R"("payments": {"waiting": [7, null, 8], "running": [2, null, 0], )"))
        << json;
}

TEST(History, HasTheRatesOfEachQueue) {
    History history;
    history.add({}, {{"payments", {0, 0, 10, 3}}, {"mails", {0, 0}}}, at(0));
    history.add({}, {{"payments", {0, 0, 15, 3}}, {"mails", {0, 0}}, {"new", {0, 0, 9, 9}}},
                at(30));
    history.add({}, {{"payments", {0, 0, 2, 4}}, {"mails", {0, 0}}, {"new", {0, 0, 9, 9}}}, at(60));
    const std::string json = history.json();
    EXPECT_TRUE(has(json, R"("completed": [5, null], "failed": [0, 1]})"))
        << "a counter fell: " << json;
    EXPECT_TRUE(has(json, R"("completed": [null, 0], "failed": [null, 0]})"))
        << "a new one: " << json;
    EXPECT_TRUE(has(json, R"("completed": [null, null], "failed": [null, null]})")) << json;
}

TEST(History, KeepsAnHour) {
    History history;
    for (int i = 0; i <= 500; ++i)
        history.add(finished(i, 0), {{"a \"queue\"", {1, 1}}}, at(30 * i));
    const std::string json = history.json();
    EXPECT_TRUE(has(json, "\"at\": [11430, ")) << json.substr(0, 200);
    EXPECT_EQ(std::ranges::count(json.substr(0, json.find(']')), ','), 120) << "120 points";
    EXPECT_TRUE(has(json, R"("a \"queue\"")"));
}

TEST(EscapeControls, LeavesNothingThatATerminalObeys) {
    EXPECT_EQ(escape_controls("plain ä €"), "plain ä €");
    EXPECT_EQ(escape_controls("a\nb\tc"), "a\\nb\\tc");
    EXPECT_EQ(escape_controls("a\u202Eb\u200Bc\u2028\U000E0041"),
              "a\\u202eb\\u200bc\\u2028\\U000e0041");
    EXPECT_EQ(escape_controls("\033[2J\r\x7f"), "\\x1b[2J\\x0d\\x7f");
    EXPECT_EQ(escape_controls("\xc2\x9b"
                              "31m"),
              "\\x9b31m");
    EXPECT_EQ(escape_controls(std::string_view("\0x", 2)), "\\x00x");
    EXPECT_EQ(format_table({"n"}, {{"a\nb"}}), "n\n----\na\\nb\n");
}

} // namespace
} // namespace stacksaga::coordinator
