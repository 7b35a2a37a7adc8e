#include "otlp/exporter.hpp"

#include <gtest/gtest.h>

namespace stacksaga::coordinator {
namespace {

TEST(TracesUrl, IsBelowTheEndpoint) {
    EXPECT_EQ(traces_url("http://collector:4318"), "http://collector:4318/v1/traces");
    EXPECT_EQ(traces_url("http://collector:4318/"), "http://collector:4318/v1/traces");
    EXPECT_EQ(traces_url("https://example.com/otlp//"), "https://example.com/otlp/v1/traces");
    EXPECT_EQ(traces_url("https://example.com/v1/traces"), "https://example.com/v1/traces");
}

TEST(PostResult, KnowsWhichRequestsMayBeRepeated) {
    for (const int status : {0, 429, 502, 503, 504})
        EXPECT_TRUE((PostResult{status, {}}).may_be_repeated()) << status;
    for (const int status : {200, 202, 301, 400, 401, 404, 413, 500})
        EXPECT_FALSE((PostResult{status, {}}).may_be_repeated()) << status;
    EXPECT_TRUE((PostResult{202, {}}).is_accepted());
    EXPECT_FALSE((PostResult{301, {}}).is_accepted());
}

constexpr std::int64_t minute = 60'000'000;
constexpr std::int64_t begun = 1'000 * minute;

TEST(ExportWindow, BeginsAMinuteBack) {
    ExportWindow window;
    const auto start = window.begin(begun);
    EXPECT_EQ(start.after, (FinishedSaga{begun - minute, ""}));
    EXPECT_FALSE(start.has_given_up);
}

TEST(ExportWindow, RemembersSagasThatTheNextRoundFindsAgain) {
    ExportWindow window;
    const FinishedSaga early{begun - minute / 2, "a"}, late{begun, "b"};
    window.begin(begun);
    window.note_sent(early);
    window.note_sent(late);
    window.complete(begun);
    EXPECT_TRUE(window.is_sent(early));
    window.begin(begun + minute);
    window.complete(begun + minute);
    EXPECT_FALSE(window.is_sent(early)) << "the next look begins after it";
    EXPECT_TRUE(window.is_sent(late)) << "the next look begins with it";
    EXPECT_LE(window.begin(begun + minute).after, late);
}

TEST(ExportWindow, WaitsForACollectorForAnHour) {
    ExportWindow window;
    const FinishedSaga first = window.begin(begun).after;
    EXPECT_EQ(window.begin(begun + 30 * minute).after, first);
    const auto start = window.begin(begun + 90 * minute);
    EXPECT_TRUE(start.has_given_up);
    EXPECT_EQ(start.after, (FinishedSaga{begun + 30 * minute, ""}));
    EXPECT_FALSE(window.begin(begun + 91 * minute).has_given_up) << "it is said once";
    window.complete(begun + 91 * minute);
    EXPECT_TRUE(window.begin(begun + 200 * minute).has_given_up) << "and again another time";
}

TEST(ExportWindow, BeginsAnewAfterAnotherExporter) {
    ExportWindow window;
    const FinishedSaga saga{begun, "a"};
    window.begin(begun);
    window.note_sent(saga);
    window.forget();
    EXPECT_FALSE(window.is_sent(saga));
    EXPECT_EQ(window.begin(begun + 90 * minute).after, (FinishedSaga{begun + 89 * minute, ""}));
}

} // namespace
} // namespace stacksaga::coordinator
