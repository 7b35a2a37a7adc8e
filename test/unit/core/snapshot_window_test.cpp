// Snapshots, ticks and windows: every message is in exactly one window, whatever order transactions
// begin, take numbers and commit in.
#include "core/outbox/snapshot_window.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace stacksaga::core {
namespace {

std::optional<Snapshot> parse(std::string_view text, std::vector<std::uint64_t> &ids) {
    ids.resize(snapshot_ids_max(text));
    return parse_snapshot(text, ids);
}

TEST(Snapshot, SeesWhatHadEnded) {
    const std::uint64_t running[] = {12, 15};
    const Snapshot s{10, 20, running};
    EXPECT_TRUE(s.sees(9));
    EXPECT_TRUE(s.sees(10));
    EXPECT_FALSE(s.sees(12));
    EXPECT_TRUE(s.sees(13));
    EXPECT_FALSE(s.sees(15));
    EXPECT_TRUE(s.sees(19));
    EXPECT_FALSE(s.sees(20));
    EXPECT_FALSE(Snapshot{}.sees(1));
}

TEST(Snapshot, IsReadAsPostgreSqlPrintsIt) {
    std::vector<std::uint64_t> ids;
    auto s = parse("10:20:12,15", ids);
    ASSERT_TRUE(s);
    EXPECT_EQ(s->xmin, 10u);
    EXPECT_EQ(s->xmax, 20u);
    EXPECT_EQ(std::vector<std::uint64_t>(s->running.begin(), s->running.end()),
              (std::vector<std::uint64_t>{12, 15}));
    s = parse("730:730:", ids);
    ASSERT_TRUE(s);
    EXPECT_TRUE(s->running.empty());
    s = parse("4294967297:18446744073709551615:4294967298", ids);
    ASSERT_TRUE(s);
    EXPECT_EQ(s->running[0], 4294967298u);
    for (const char *bad : {"", "1", "1:", "1:2", ":2:", "1:2:3,", "1:2:,3", "1:2:x", "1:2:3 4",
                            "1:9:5,4", "-1:2:", "1:2:99999999999999999999"})
        EXPECT_FALSE(parse(bad, ids)) << bad;
}

TEST(Snapshot, CountsTheOwnTransactionAsRunning) {
    const std::uint64_t running[] = {12};
    std::uint64_t room[2];
    const Snapshot own = with_running({12, 20, running}, 15, room);
    EXPECT_FALSE(own.sees(15));
    EXPECT_FALSE(own.sees(12));
    EXPECT_TRUE(own.sees(14));
    const Snapshot lower = with_running({12, 20, running}, 11, room);
    EXPECT_EQ(lower.xmin, 11u);
    EXPECT_FALSE(lower.sees(11));
    EXPECT_EQ(with_running({12, 20, running}, 25, room).running.size(), 1u) << "it is not seen";
}

TEST(Tick, DoesNotAskForTransactionsOfAnotherCluster) {
    const Tick here{.tick = 2, .before = 10, .after = 12, .origin = 2, .snapshot = {5, 5, {}}};
    EXPECT_TRUE(here.sees({.xid = 900, .number = 8, .origin = 1})) << "brought along by a dump";
    EXPECT_FALSE(here.sees({.xid = 900, .number = 8, .origin = 2}));
    EXPECT_FALSE(here.sees({.xid = 1, .number = 13, .origin = 1})) << "published after the tick";
}

// Random transactions take an id, then numbers, then commit or stay open, with ticks in between.
// Against what was committed at each tick: windows hold each message once, and no later than the
// tick after its commit; numbers and running transactions find all of them.
TEST(Windows, HoldEachMessageOnce) {
    std::mt19937_64 random{1};
    for (int run = 0; run < 200; ++run) {
        std::uint64_t next_xid = 100;
        std::int64_t number = 0;
        std::map<std::uint64_t, std::vector<std::int64_t>> open;
        std::vector<LogEntry> committed;
        std::vector<std::vector<std::uint64_t>> ids;
        std::vector<Tick> ticks{Tick{}};
        std::vector<std::size_t> committed_at_tick{0};
        ids.reserve(100);
        for (int step = 0; step < 200; ++step) {
            switch (random() % 5) {
            case 0:
                open[next_xid++];
                break;
            case 1:
            case 2:
                if (!open.empty())
                    std::next(open.begin(), static_cast<long>(random() % open.size()))
                        ->second.push_back(++number);
                break;
            case 3:
                if (!open.empty()) {
                    auto t = std::next(open.begin(), static_cast<long>(random() % open.size()));
                    for (std::int64_t n : t->second)
                        committed.push_back({.xid = t->first, .number = n, .origin = 7});
                    open.erase(t);
                }
                break;
            default: {
                if (ids.size() == 99)
                    break;
                auto &running = ids.emplace_back();
                for (const auto &[xid, numbers] : open)
                    running.push_back(xid);
                ticks.push_back(
                    {.tick = static_cast<std::int64_t>(ticks.size()),
                     .before = number,
                     .after = number,
                     .origin = 7,
                     .snapshot = {running.empty() ? next_xid : running[0], next_xid, running}});
                committed_at_tick.push_back(committed.size());
            }
            }
        }
        for (std::size_t i = 0; i < committed.size(); ++i) {
            const std::size_t window = window_of(ticks, committed[i]);
            const auto expected = static_cast<std::size_t>(
                std::upper_bound(committed_at_tick.begin(), committed_at_tick.end(), i) -
                committed_at_tick.begin());
            ASSERT_EQ(window, expected);
            if (window == ticks.size())
                continue;
            const Tick &before = ticks[window - 1];
            const bool is_late = std::binary_search(
                before.snapshot.running.begin(), before.snapshot.running.end(), committed[i].xid);
            EXPECT_TRUE(committed[i].number > before.before || is_late) << "it would not be read";
        }
    }
}

} // namespace
} // namespace stacksaga::core
