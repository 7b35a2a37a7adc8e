// The master against a model of the control tables, in virtual time: publication on time, and lost,
// delayed and repeated answers.
#include "fakes.hpp"

#include <gtest/gtest.h>

namespace stacksaga::coordinator::test {
namespace {

using namespace std::chrono_literals;

Node worker(std::string name) {
    return {std::move(name), NodeKind::worker, NodeState::active, 1};
}

class MasterTest : public ::testing::Test {
protected:
    MasterTest() { database.ring().nodes = {worker("a"), worker("b"), worker("c")}; }

    MasterSettings settings(bool once = false) {
        return {.rings = {{"default", "default"}}, .publisher = "m1", .once = once, .seed = 7};
    }

    /// Every window from the first to the last was published before it opened.
    void expect_unbroken(std::size_t at_least) {
        const FakeRing &ring = database.ring();
        ASSERT_GE(ring.windows.size(), at_least);
        Instant expected = ring.windows.begin()->first;
        for (const auto &[start, window] : ring.windows) {
            EXPECT_EQ(start, expected);
            EXPECT_LT(window.published_at, start);
            expected += ring.window_length;
        }
    }

    VirtualClock clock;
    FakeDatabase database{clock};
    FakeDaemon daemon{database, clock, settings()};
};

TEST_F(MasterTest, PublishesEachWindowAtItsLead) {
    clock.run_for(10min);
    EXPECT_FALSE(daemon.run());
    expect_unbroken(10);
    for (const auto &[start, window] : database.ring().windows) {
        EXPECT_EQ(window.published_at, start - 30s);
        EXPECT_EQ(window.publisher, "m1");
        EXPECT_EQ(window.proposal.nodes, 3U);
    }
    EXPECT_EQ(daemon.store.calls["publish_window"], 10);
}

TEST_F(MasterTest, PublishesWindowsOfTwoSeconds) {
    database.ring().window_length = 2s;
    database.ring().publish_lead = 1s;
    daemon.store.latency = 20ms;
    clock.run_for(1min);
    EXPECT_FALSE(daemon.run());
    expect_unbroken(29);
}

TEST_F(MasterTest, PublishesAtOnceWhenItStartsLate) {
    database.start_time += 50s;
    clock.run_for(1s);
    daemon.run();
    ASSERT_EQ(database.ring().windows.size(), 1U);
    EXPECT_EQ(database.ring().windows.begin()->second.published_at, database.start_time);
}

TEST_F(MasterTest, FollowsSettingsWhileItWaits) {
    clock.at(10s, [&] {
        database.ring().window_length = 2s;
        database.ring().publish_lead = 1s;
    });
    clock.run_for(25s);
    daemon.run();
    ASSERT_GE(database.ring().windows.size(), 4U);
    EXPECT_LE(database.ring().windows.begin()->first, database.start_time + 18s)
        << "not only after the old window";
}

TEST_F(MasterTest, KeepsPublishingWhenTheDatabaseClockJumps) {
    clock.at(5min, [&] { database.jumped = -1h; });
    clock.at(10min, [&] { database.jumped = 2h; });
    clock.run_for(15min);
    EXPECT_FALSE(daemon.run());
    const auto published_from = [&](Instant from) {
        return std::ranges::count_if(database.ring().windows,
                                     [&](const auto &entry) { return entry.first > from; });
    };
    EXPECT_GE(published_from(database.start_time + 2h + 10min), 4);
    EXPECT_EQ(database.ring().windows.begin()->first, database.start_time - 1h + 6min);
    EXPECT_EQ(daemon.count_lines("the database clock moved"), 2U);
}

TEST_F(MasterTest, ALostPublicationIsRepeated) {
    daemon.store.faults.push_back({"publish_window", ErrorClass::in_doubt, false});
    clock.run_for(2min);
    EXPECT_FALSE(daemon.run());
    expect_unbroken(2);
    EXPECT_EQ(daemon.store.calls["open"], 2);
}

TEST_F(MasterTest, ALostAnswerIsNotPublishedTwice) {
    daemon.store.faults.push_back({"publish_window", ErrorClass::in_doubt, true});
    clock.run_for(2min);
    EXPECT_FALSE(daemon.run());
    expect_unbroken(2);
    EXPECT_EQ(daemon.store.calls["publish_window"], 2) << "the control tables had the answer";
}

TEST_F(MasterTest, ASecondPublisherIsNotAnError) {
    daemon.store.before_publish = [&] {
        FakeRing &ring = database.ring();
        const Instant next = window_after(database.now(), ring.window_length);
        ring.windows.try_emplace(next, FakeRing::Window{"m2", {}, database.now()});
    };
    clock.run_for(3min);
    EXPECT_FALSE(daemon.run());
    expect_unbroken(3);
    for (const auto &[start, window] : database.ring().windows)
        EXPECT_EQ(window.publisher, "m2");
    EXPECT_EQ(daemon.store.calls["publish_window"], 3) << "asked once for each";
    EXPECT_EQ(daemon.count_lines("another coordinator published the window first"), 3U);
    EXPECT_EQ(daemon.count_lines("level=warn"), 0U);
}

TEST_F(MasterTest, AWindowThatOpensMeanwhileIsLeftBehind) {
    daemon.store.before_publish = [&] {
        if (database.ring().windows.empty() && database.now() < database.start_time + 60s)
            clock.pass(45s); // a long pause: the window opens while the call is under way
    };
    clock.run_for(3min);
    EXPECT_FALSE(daemon.run());
    EXPECT_EQ(database.ring().windows.begin()->first, database.start_time + 2min);
    expect_unbroken(2);
    EXPECT_EQ(daemon.count_lines("SG400"), 1U);
}

TEST_F(MasterTest, ANodeThatLeavesMeanwhileGetsNoSlots) {
    daemon.store.before_publish = [&] {
        std::erase_if(database.ring().nodes, [](const Node &node) { return node.name == "b"; });
    };
    clock.run_for(1min);
    EXPECT_FALSE(daemon.run());
    expect_unbroken(1);
    for (const Grant &grant : database.ring().windows.begin()->second.proposal.grants)
        EXPECT_NE(grant.node, "b");
    EXPECT_EQ(daemon.count_lines("SG404"), 1U);
}

TEST_F(MasterTest, PublishesNothingWithoutActiveNodesAndCatchesTheFirst) {
    database.ring().nodes.clear();
    clock.at(40s, [&] { database.ring().nodes = {worker("a")}; });
    clock.run_for(1min);
    EXPECT_FALSE(daemon.run());
    ASSERT_EQ(database.ring().windows.size(), 1U);
    EXPECT_LE(database.ring().windows.begin()->second.published_at, database.start_time + 42s);
    EXPECT_EQ(daemon.count_lines("no active node"), 1U) << "said once";
}

TEST_F(MasterTest, ComesBackAfterAnOutage) {
    for (int i = 0; i < 12; ++i)
        daemon.store.faults.push_back({"open", ErrorClass::reconnect});
    clock.run_for(3min);
    EXPECT_FALSE(daemon.run());
    EXPECT_EQ(daemon.store.calls["open"], 13);
    EXPECT_EQ(daemon.count_lines("database unavailable"), 12U);
    EXPECT_EQ(daemon.count_lines("coordinating"), 1U);
    expect_unbroken(3);
}

TEST_F(MasterTest, EveryOutageBeginsWithShortWaits) {
    for (int i = 0; i < 12; ++i)
        daemon.store.faults.push_back({"open", ErrorClass::reconnect});
    clock.at(3min, [&] {
        daemon.store.faults.push_back({"ring_state", ErrorClass::reconnect});
        daemon.store.faults.push_back({"open", ErrorClass::reconnect});
    });
    clock.run_for(3min + 1s);
    EXPECT_FALSE(daemon.run());
    EXPECT_EQ(daemon.store.calls["open"], 15) << "connected again within the second";
}

TEST_F(MasterTest, RetriesConflictsAtOnce) {
    for (int i = 0; i < 3; ++i)
        daemon.store.faults.push_back({"publish_window", ErrorClass::retry_now});
    clock.run_for(1min);
    EXPECT_FALSE(daemon.run());
    expect_unbroken(1);
    EXPECT_LT(database.ring().windows.begin()->second.published_at,
              database.start_time + 30s + 500ms);
    EXPECT_EQ(daemon.store.calls["open"], 1);
}

TEST_F(MasterTest, StopsForAnErrorThatARetryCannotFix) {
    for (const ErrorClass kind :
         {ErrorClass::permission, ErrorClass::missing_extension, ErrorClass::fatal}) {
        for (const char *call : {"open", "ring_state", "nodes", "slots", "publish_window"}) {
            FakeDaemon other(database, clock, settings());
            other.store.faults.push_back({call, kind});
            clock.run_for(2min);
            const auto end = other.run();
            ASSERT_TRUE(end) << call;
            EXPECT_EQ(end->kind, kind);
        }
    }
}

TEST_F(MasterTest, AMissingRingDelaysNoOther) {
    auto both = settings();
    both.rings.insert(both.rings.begin(), {"eu", "shop"});
    FakeDaemon other(database, clock, both);
    clock.at(5min, [&] { database.rings[{"eu", "shop"}].nodes = {worker("x")}; });
    clock.run_for(10min);
    EXPECT_FALSE(other.run());
    EXPECT_EQ(database.rings.at({"default", "default"}).windows.size(), 10U);
    EXPECT_GE((database.rings.at({"eu", "shop"}).windows.size()), 4U);
    EXPECT_GE(other.count_lines("class=ring_missing"), 5U);
}

TEST_F(MasterTest, TwoMastersPublishEachWindowOnce) {
    auto second = settings();
    second.publisher = "m2";
    FakeDaemon other(database, clock, second);
    clock.daemons = 2;
    clock.run_for(5min);
    asio::io_context io(1);
    std::vector<std::exception_ptr> ends;
    for (FakeDaemon *each : {&daemon, &other})
        asio::co_spawn(io, each->master.run(),
                       [&](std::exception_ptr thrown) { ends.push_back(std::move(thrown)); });
    io.run();
    for (const auto &end : ends)
        EXPECT_THROW(std::rethrow_exception(end), asio::system_error) << "stopped, nothing else";
    expect_unbroken(5);
    for (FakeDaemon *each : {&daemon, &other})
        EXPECT_EQ(each->count_lines("published window") +
                      each->count_lines("another coordinator published the window first"),
                  5U);
    EXPECT_EQ(daemon.count_lines("published window") + other.count_lines("published window"), 5U);
}

// ---------------------------------------------------------------------------- --once

TEST_F(MasterTest, OncePublishesTheNextWindowBeforeItsLead) {
    FakeDaemon once(database, clock, settings(true));
    EXPECT_FALSE(once.run());
    ASSERT_EQ(database.ring().windows.size(), 1U);
    EXPECT_EQ(database.ring().windows.begin()->first, database.start_time + 60s);

    FakeDaemon again(database, clock, settings(true));
    EXPECT_FALSE(again.run());
    EXPECT_EQ(database.ring().windows.size(), 1U);
    EXPECT_EQ(again.count_lines("already published"), 1U);
}

TEST_F(MasterTest, OnceEndsWithTheErrorInsteadOfWaiting) {
    for (const ErrorClass kind : {ErrorClass::reconnect, ErrorClass::in_doubt, ErrorClass::refused,
                                  ErrorClass::retry_now, ErrorClass::permission}) {
        FakeDaemon once(database, clock, settings(true));
        once.store.faults.push_back({"publish_window", kind});
        const auto end = once.run();
        ASSERT_TRUE(end);
        EXPECT_EQ(end->kind, kind);
    }
    EXPECT_EQ(clock.waits, 0U);
}

TEST_F(MasterTest, OnceServesEveryRingBeforeItReportsAMissingOne) {
    auto both = settings(true);
    both.rings.insert(both.rings.begin(), {"eu", "shop"});
    FakeDaemon once(database, clock, both);
    const auto end = once.run();
    ASSERT_TRUE(end);
    EXPECT_EQ(end->kind, ErrorClass::ring_missing);
    EXPECT_EQ(database.ring().windows.size(), 1U);
}

} // namespace
} // namespace stacksaga::coordinator::test
