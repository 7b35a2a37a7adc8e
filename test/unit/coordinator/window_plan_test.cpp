// The next window for every setting, for daemons that start late and for clocks that jump.
#include "roles/window_plan.hpp"

#include <gtest/gtest.h>

namespace stacksaga::coordinator {
namespace {

using namespace std::chrono_literals;

constexpr Instant noon = std::chrono::sys_days{std::chrono::year{2026} / 1 / 15} + 12h;

RingState ring(Duration length, Duration lead, std::optional<Instant> last = std::nullopt) {
    RingState state;
    state.window_length = length;
    state.publish_lead = lead;
    state.last_window = last;
    return state;
}

TEST(WindowPlan, WaitsForTheLeadOfTheNextWindow) {
    const WindowPlan next = plan_window(noon + 10s, ring(60s, 30s), std::nullopt);
    EXPECT_EQ(next.window_start, noon + 60s);
    EXPECT_EQ(next.due_at, noon + 30s);
    EXPECT_FALSE(next.due);
}

TEST(WindowPlan, IsDueFromTheLeadToTheWindowsStart) {
    const RingState state = ring(60s, 30s, noon);
    EXPECT_FALSE(plan_window(noon + 30s - 1us, state, std::nullopt).due);
    for (const Duration at : {Duration(30s), Duration(45s), Duration(60s) - 1us}) {
        const WindowPlan next = plan_window(noon + at, state, std::nullopt);
        EXPECT_TRUE(next.due);
        EXPECT_EQ(next.window_start, noon + 60s);
    }
    EXPECT_EQ(plan_window(noon + 60s, state, std::nullopt).window_start, noon + 120s);
}

TEST(WindowPlan, WithoutALeadAWindowIsPublishedJustBeforeItOpens) {
    EXPECT_EQ(plan_window(noon, ring(60s, 0s), std::nullopt).due_at, noon + 59s);
    EXPECT_EQ(plan_window(noon, ring(1s, 0s), std::nullopt).due_at, noon + 500ms);
    const WindowPlan due = plan_window(noon + 59s, ring(60s, 0s), std::nullopt);
    EXPECT_TRUE(due.due);
    EXPECT_EQ(due.window_start, noon + 60s);
}

TEST(WindowPlan, GoesOnAfterAPublishedWindow) {
    for (const bool by_table : {true, false}) {
        const RingState state = by_table ? ring(60s, 30s, noon + 60s) : ring(60s, 30s, noon);
        const auto settled = by_table ? std::nullopt : std::optional(noon + 60s);
        const WindowPlan next = plan_window(noon + 31s, state, settled);
        EXPECT_EQ(next.window_start, noon + 120s);
        EXPECT_EQ(next.due_at, noon + 90s);
        EXPECT_FALSE(next.due);
    }
}

TEST(WindowPlan, WindowsOfTwoSeconds) {
    const WindowPlan next = plan_window(noon + 500ms, ring(2s, 1s, noon), std::nullopt);
    EXPECT_EQ(next.window_start, noon + 2s);
    EXPECT_EQ(next.due_at, noon + 1s);
}

TEST(WindowPlan, WindowsOfAnyLengthCountFromThePostgresEpoch) {
    const Instant epoch{std::chrono::sys_days{std::chrono::year{2000} / 1 / 1}};
    for (const Duration length : {Duration(7us), Duration(7s), Duration(1001ms), Duration(7h)}) {
        const Instant start = window_after(noon, length);
        EXPECT_EQ((start - epoch) % length, Duration::zero());
        EXPECT_GT(start, noon);
        EXPECT_LE(start, noon + length);
        EXPECT_EQ(window_after(start, length), start + length);
        EXPECT_EQ(window_after(start - 1us, length), start);
    }
    EXPECT_EQ(window_after(epoch - 1us, 7s), epoch);
}

TEST(WindowPlan, ALeadLongerThanTheWindowPlansSeveralAhead) {
    RingState state = ring(2s, 5s, noon);
    std::vector<Instant> published;
    for (;;) {
        const WindowPlan next = plan_window(noon + 500ms, state, std::nullopt);
        if (!next.due) {
            EXPECT_EQ(next.due_at, noon + 1s);
            break;
        }
        published.push_back(next.window_start);
        state.last_window = next.window_start;
    }
    EXPECT_EQ(published, (std::vector<Instant>{noon + 2s, noon + 4s}));
}

TEST(WindowPlan, AClockThatJumpsForwardSkipsWindows) {
    const RingState state = ring(60s, 30s, noon + 60s);
    const WindowPlan next = plan_window(noon + 1h + 40s, state, noon + 60s);
    EXPECT_EQ(next.window_start, noon + 1h + 60s);
    EXPECT_TRUE(next.due);
}

TEST(WindowPlan, AClockThatJumpsBackALittleKeepsItsPlace) {
    const WindowPlan next = plan_window(noon + 5s, ring(60s, 30s, noon + 60s), noon + 60s);
    EXPECT_EQ(next.window_start, noon + 120s);
    EXPECT_FALSE(next.due);
}

TEST(WindowPlan, AClockThatJumpsFarBackDoesNotStopPublication) {
    for (const Duration jump : {Duration(10min), Duration(1h), Duration(24h * 365)}) {
        const Instant now = noon - jump + 40s;
        const WindowPlan next = plan_window(now, ring(60s, 30s, noon + 60s), noon + 60s);
        EXPECT_EQ(next.window_start, noon - jump + 60s);
        EXPECT_TRUE(next.due);
    }
}

TEST(WindowPlan, AfterAJumpBackEachWindowIsAskedForOnce) {
    const RingState state = ring(60s, 30s, noon + 60s);
    const Instant settled = noon - 1h + 60s; // the database answered: already published
    const WindowPlan next = plan_window(noon - 1h + 41s, state, settled);
    EXPECT_EQ(next.window_start, noon - 1h + 120s);
    EXPECT_FALSE(next.due);
}

TEST(WindowPlan, ANewWindowLengthHoldsFromTheNextBorder) {
    const WindowPlan shorter = plan_window(noon + 10s, ring(2s, 1s, noon + 60s), std::nullopt);
    EXPECT_EQ(shorter.window_start, noon + 12s) << "a window a minute ahead is not believed";
    const WindowPlan longer = plan_window(noon + 10s, ring(60s, 30s, noon + 12s), noon + 12s);
    EXPECT_EQ(longer.window_start, noon + 60s);
}

TEST(DatabaseClock, FollowsTheDatabaseBetweenReadings) {
    const SteadyTime start{1000s};
    DatabaseClock clock;
    EXPECT_FALSE(clock.observe(start, start + 10ms, noon));
    EXPECT_EQ(clock.now(start + 5ms), noon);
    EXPECT_EQ(clock.now(start + 2s + 5ms), noon + 2s);
    EXPECT_EQ(clock.when(noon + 3s), start + 3s + 5ms);
}

TEST(DatabaseClock, MeasuresHowFarTheDatabaseClockMoved) {
    const SteadyTime start{1000s};
    DatabaseClock clock;
    clock.observe(start, start, noon);
    EXPECT_EQ(clock.observe(start + 1s, start + 1s, noon + 1s), Duration::zero());
    EXPECT_EQ(clock.observe(start + 2s, start + 2s, noon - 1h + 2s), Duration(-1h));
    EXPECT_EQ(clock.now(start + 3s), noon - 1h + 3s);
}

} // namespace
} // namespace stacksaga::coordinator
