// Metrics: Prometheus' text format, and the last hour of the page's charts: rates from counters,
// gaps where nothing is known.
#include "web/metrics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

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
    history.add(finished(3, 1), {}, at(60)); // another server: its counters started again
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

} // namespace
} // namespace stacksaga::coordinator
