// The agent against a model of the control tables, in virtual time, with a master or alone.
#include "fakes.hpp"
#include "roles/agent_role.hpp"

#include <gtest/gtest.h>

namespace stacksaga::coordinator::test {
namespace {

using namespace std::chrono_literals;

Node worker(std::string name, std::string of) {
    return {std::move(name), NodeKind::worker, NodeState::active, 1, std::move(of)};
}

class AgentTest : public ::testing::Test {
protected:
    AgentTest() {
        database.ring().nodes = {{"a", NodeKind::agent, NodeState::active, 1},
                                 {"b", NodeKind::agent, NodeState::active, 1},
                                 worker("a1", "a"),
                                 worker("a2", "a"),
                                 worker("b1", "b")};
    }

    /// Runs the master, if there is one, and the agent until the clock's time is up or one fails.
    std::optional<StoreError> run(bool with_master = true) {
        asio::io_context io(1);
        std::optional<StoreError> failure;
        const auto ended = [&](const std::exception_ptr &thrown) {
            --clock.daemons;
            try {
                if (thrown)
                    std::rethrow_exception(thrown);
            } catch (const StoreError &error) {
                failure = error;
            } catch (const asio::system_error &error) {
                if (error.code() != asio::error::operation_aborted)
                    throw;
            }
        };
        clock.daemons = with_master ? 2 : 1;
        if (with_master)
            asio::co_spawn(io, master.master.run(), ended);
        asio::co_spawn(io, agent.run(), ended);
        io.run();
        return failure;
    }

    [[nodiscard]] std::size_t count_lines(std::string_view text) const {
        return static_cast<std::size_t>(std::ranges::count_if(
            lines, [&](const std::string &line) { return line.find(text) != std::string::npos; }));
    }

    VirtualClock clock;
    FakeDatabase database{clock};
    FakeDaemon master{
        database,
        clock,
        {.rings = {{"default", "default"}}, .publisher = "m", .once = false, .seed = 1}};
    FakeStore store{database};
    std::vector<std::string> lines;
    Log log{LogFormat::logfmt, LogLevel::debug,
            [this](std::string_view line) { lines.emplace_back(line); }};
    Agent agent{
        store, clock, log, {.ring = {"default", "default"}, .name = "a", .weight = 1, .seed = 2}};
};

TEST_F(AgentTest, PublishesItsPartOfEachWindowBeforeItOpens) {
    clock.run_for(10min);
    EXPECT_FALSE(run());
    const FakeRing &ring = database.ring();
    ASSERT_GE(ring.windows.size(), 10U);
    for (const auto &[start, window] : ring.windows) {
        const auto part = ring.parts.find({start, "a"});
        ASSERT_NE(part, ring.parts.end());
        EXPECT_LE(part->second.published_at - window.published_at, 1s);
        EXPECT_EQ(part->second.publisher, "a");
        EXPECT_EQ(part->second.proposal.nodes, 2U);
    }
}

TEST_F(AgentTest, BeatsTwiceAsOftenAsItIsAskedTo) {
    clock.run_for(1min);
    EXPECT_FALSE(run());
    EXPECT_GE(store.calls["beat"], 24);
    EXPECT_LE(store.calls["beat"], 25);
    EXPECT_EQ(store.calls["register_agent"], 1);
}

TEST_F(AgentTest, WithoutAMasterItReassignsItsSlotsWhenAWindowOpens) {
    FakeRing &ring = database.ring();
    const Instant first = window_after(database.now(), ring.window_length);
    ring.windows[first] = {"m",
                           {first,
                            {{"a", ring.slots[0].range_start, ring.slots[9].range_end},
                             {"b", ring.slots[10].range_start, ring.slots[63].range_end}}},
                           database.now()};
    clock.run_for(5min);
    EXPECT_FALSE(run(false));
    for (Instant start = first; start < first + 4min; start += 1min) {
        const auto part = ring.parts.find({start, "a"});
        ASSERT_NE(part, ring.parts.end());
        EXPECT_LE(part->second.published_at, start + 1s);
    }
}

TEST_F(AgentTest, PublishesNothingWhileItDrains) {
    database.ring().draining = true;
    clock.run_for(5min);
    EXPECT_FALSE(run());
    EXPECT_TRUE(database.ring().parts.empty());
    EXPECT_EQ(count_lines("draining"), 1U);
}

TEST_F(AgentTest, EndsWhenAnotherTakesItsName) {
    clock.at(90s, [&] { ++database.ring().incarnations["a"]; });
    clock.run_for(5min);
    const auto failure = run(false);
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->sqlstate, "SG412");
}

TEST_F(AgentTest, RegistersAgainWhenItWasRemoved) {
    clock.at(90s, [&] { database.ring().incarnations.clear(); });
    clock.run_for(5min);
    EXPECT_FALSE(run());
    EXPECT_EQ(store.calls["register_agent"], 2);
}

TEST_F(AgentTest, SurvivesAFaultOfEveryCall) {
    for (const char *call : {"open", "register_agent", "beat", "ring_state", "nodes",
                             "assigned_slots", "publish_window"}) {
        for (const ErrorClass kind : {ErrorClass::reconnect, ErrorClass::retry_now})
            store.faults.push_back({call, kind});
    }
    store.faults.erase(store.faults.begin() + 1); // opening a connection causes no conflict
    store.faults.push_back({"publish_window", ErrorClass::in_doubt, true});
    clock.run_for(5min);
    EXPECT_FALSE(run());
    for (const auto &[start, window] : database.ring().windows)
        EXPECT_TRUE(database.ring().parts.contains({start, "a"}));
}

TEST_F(AgentTest, LeavesTheRing) {
    clock.run_for(1min);
    EXPECT_FALSE(run(false));
    asio::io_context io(1);
    asio::co_spawn(io, agent.leave(), [](const std::exception_ptr &thrown) {
        if (thrown)
            std::rethrow_exception(thrown);
    });
    io.run();
    EXPECT_TRUE(database.ring().incarnations.empty());
}

} // namespace
} // namespace stacksaga::coordinator::test
