// The order of claims: turns of groups, and those of lower ranks.
#include "core/queue/claim_order.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace stacksaga::core {
namespace {

std::string groups_in_order(std::vector<WaitingStep> steps, std::string_view after) {
    order_by_turns(steps, after);
    std::string order;
    for (const WaitingStep &s : steps)
        order += s.group.empty() ? std::string_view{"-"} : s.group;
    return order;
}

TEST(ClaimOrder, GroupsTakeTurns) {
    const std::vector<WaitingStep> steps{{"a", 1, 0}, {"a", 2, 1}, {"a", 3, 2},
                                         {"b", 9, 3}, {"c", 8, 4}, {"c", 9, 5}};
    EXPECT_EQ(groups_in_order(steps, ""), "abcaca");
    EXPECT_EQ(groups_in_order(steps, "a"), "bcacaa");
    EXPECT_EQ(groups_in_order(steps, "b"), "cabcaa");
    EXPECT_EQ(groups_in_order(steps, "c"), "abcaca");
    EXPECT_EQ(groups_in_order(steps, "aa"), "bcacaa"); // a group that is gone
}

/// The share of each group in what sessions get that claim one step each and leave.
std::map<std::string_view, double> shares_of_first(const std::vector<WaitingStep> &steps) {
    constexpr int sessions = 20000;
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> fraction(0, 1);
    std::map<std::string_view, double> shares;
    for (int i = 0; i < sessions; ++i) {
        std::vector<WaitingStep> list = steps;
        order_by_turns(list, "");
        const std::string_view drawn = draw_group(list, [&] { return fraction(random); });
        list = steps;
        order_by_turns(list, drawn);
        shares[list[0].group] += 1.0 / sessions;
    }
    return shares;
}

TEST(ClaimOrder, SessionsThatClaimOnceServeAllGroupsAlike) {
    for (const auto &[group, share] : shares_of_first({{"a", 1, 0}, {"b", 2, 1}}))
        EXPECT_NEAR(share, 0.5, 0.02) << group;
    // However many steps each of them has.
    for (const auto &[group, share] : shares_of_first({{"a", 1, 0},
                                                       {"a", 1, 1},
                                                       {"a", 1, 2},
                                                       {"a", 1, 3},
                                                       {"b", 2, 4},
                                                       {"", 3, 5},
                                                       {"", 3, 6}}))
        EXPECT_NEAR(share, 1.0 / 3, 0.02) << group;
}

TEST(ClaimOrder, ADrawShowsNoPreference) {
    std::mt19937_64 random(11);
    std::uniform_real_distribution<double> fraction(0, 1);
    constexpr int draws = 20000;
    std::map<int, double> shares;
    for (int i = 0; i < draws; ++i) {
        GroupDraw draw;
        int drawn = -1;
        for (int group = 0; group < 5; ++group)
            if (draw.takes(fraction(random)))
                drawn = group;
        shares[drawn] += 1.0 / draws;
    }
    ASSERT_EQ(shares.size(), 5);
    for (const auto &[group, share] : shares)
        EXPECT_NEAR(share, 0.2, 0.02) << group;
}

TEST(ClaimOrder, StepsWithoutAGroupShareATurn) {
    const std::vector<WaitingStep> steps{{"", 1, 0}, {"", 2, 1}, {"", 3, 2}, {"a", 9, 3}};
    EXPECT_EQ(groups_in_order(steps, ""), "a---");
    EXPECT_EQ(groups_in_order(steps, "a"), "-a--");
}

TEST(ClaimOrder, WithinAGroupTheOldestIsFirst) {
    std::vector<WaitingStep> steps{{"a", 5, 0}, {"a", 3, 1}, {"a", 4, 2}, {"a", 3, 3}};
    order_by_turns(steps, "");
    std::vector<std::size_t> order;
    for (const WaitingStep &s : steps)
        order.push_back(s.index);
    EXPECT_EQ(order, (std::vector<std::size_t>{1, 3, 2, 0}));
}

TEST(ClaimOrder, NoGroupIsTwoRoundsAheadOfAnotherThatWaits) {
    std::mt19937_64 random(1);
    for (int i = 0; i < 200; ++i) {
        std::vector<std::string> names;
        std::vector<WaitingStep> steps;
        std::map<std::string_view, int> left;
        for (int g = 0; g < 5; ++g)
            names.push_back("group " + std::to_string(random() % 20));
        for (std::size_t s = 0; s < 30; ++s) {
            steps.push_back({names[random() % 5], static_cast<std::int64_t>(random() % 10), s});
            ++left[steps.back().group];
        }
        order_by_turns(steps, names[0]);
        std::map<std::string_view, int> taken;
        for (const WaitingStep &s : steps) {
            for (const auto &[group, waiting] : left) {
                if (waiting > 0) {
                    ASSERT_LE(taken[s.group], taken[group]);
                }
            }
            ++taken[s.group];
            --left[s.group];
        }
    }
}

TEST(LowerRankTurn, ComesOnceInEight) {
    for (const double begin : {0.0, 0.3, 0.999}) {
        LowerRankTurn turn(begin);
        int since = 0, most = 0, lower = 0;
        for (int i = 0; i < 800; ++i) {
            const bool is_lower = turn.has_come();
            turn.note(is_lower);
            since = is_lower ? 0 : since + 1;
            most = std::max(most, since);
            lower += is_lower ? 1 : 0;
        }
        EXPECT_EQ(most, steps_per_turn - 1);
        EXPECT_EQ(lower, 100);
    }
}

TEST(LowerRankTurn, ATurnThatNobodyTakesIsStillDue) {
    LowerRankTurn turn;
    for (int i = 0; i < 20; ++i)
        turn.note(false);
    EXPECT_TRUE(turn.has_come());
    EXPECT_TRUE(turn.may_come_within(1));
    turn.note(true);
    EXPECT_FALSE(turn.may_come_within(7));
    EXPECT_TRUE(turn.may_come_within(8));
}

TEST(LowerRankTurn, SessionsThatClaimOnceGiveLowerRanksTheirPart) {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> fraction(0, 1);
    int lower = 0;
    for (int i = 0; i < 8000; ++i)
        lower += LowerRankTurn(fraction(random)).has_come() ? 1 : 0;
    EXPECT_NEAR(lower, 1000, 150);
}

} // namespace
} // namespace stacksaga::core
