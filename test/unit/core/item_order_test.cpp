// The order of a worker's due items: ranks, the turns of lower ones, and how far a saga may run
// ahead.
#include "core/work/item_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace stacksaga::core {
namespace {

struct Item {
    ItemPlace place;
    std::int32_t steps = 1; ///< that follow each other at once
};

/// Of these ranks, each longer due than the one behind it.
std::vector<Item> items_of(std::initializer_list<std::int16_t> ranks) {
    std::vector<Item> items;
    for (const std::int16_t rank : ranks) {
        const auto number = static_cast<std::int32_t>(items.size());
        items.push_back({.place = {rank, number, number, false}});
    }
    return items;
}

/// The ranks of the steps in the order in which they are done, one digit each.
std::string done_in_order(std::vector<Item> items, LowerRankTurn turn = {}) {
    std::string order;
    std::span<Item> waiting{items};
    while (Item *next = next_item(waiting, turn)) {
        std::rotate(waiting.data(), next, next + 1);
        const std::span<const Item> others = waiting.subspan(1);
        for (bool goes_on = true; goes_on;) {
            goes_on = --waiting[0].steps > 0 && may_run_ahead<Item>(waiting[0], others, turn);
            order += static_cast<char>('0' + waiting[0].place.rank);
            note_step(turn);
        }
        if (waiting[0].steps == 0)
            waiting = waiting.subspan(1);
        else
            waiting[0].place.due_at += 1000; // what follows is due later
    }
    return order;
}

TEST(ItemOrder, ByRankThenByDueTime) {
    std::vector<Item> items = items_of({3, 1, 5, 0, 3, 1});
    std::string numbers;
    std::span<Item> waiting{items};
    while (Item *next = next_item(waiting, LowerRankTurn{})) {
        numbers += static_cast<char>('0' + next->place.number);
        std::rotate(waiting.data(), next, next + 1);
        waiting = waiting.subspan(1);
    }
    EXPECT_EQ(numbers, "315042");
}

TEST(ItemOrder, OneOfEightIsTheLongestWaitingOfTheLowerRanks) {
    EXPECT_EQ(done_in_order(items_of({1, 1, 1, 1, 5, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1, 1, 1, 5})),
              "111111151111111415");
    // Nobody waits of a lower rank: the usual order.
    EXPECT_EQ(done_in_order(items_of({3, 3, 3, 3, 3, 3, 3, 3, 3})), "333333333");
    // The turn is of ranks below that of the one that would be next.
    EXPECT_EQ(done_in_order(items_of({3, 3, 3, 3, 3, 3, 3, 3, 1, 5})), "1333333533");
}

TEST(ItemOrder, AReserveIsForTurnsAlone) {
    std::vector<Item> items = items_of({1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 5});
    items[9].place.is_reserve = items[10].place.is_reserve = true;
    EXPECT_EQ(done_in_order(items), "1111111511");
}

TEST(ItemOrder, SagasRunAheadUntilTheTurnOfOthers) {
    std::vector<Item> items = items_of({1, 5, 1});
    for (Item &i : items)
        i.steps = 20;
    // A lower one has its turn, and one step in it; alone it runs to its end.
    EXPECT_EQ(done_in_order(items), "11111115"
                                    "11111115"
                                    "11111115"
                                    "11111115"
                                    "11111115"
                                    "11111"
                                    "555555555555555");
    items = items_of({3, 3});
    for (Item &i : items)
        i.steps = 20;
    EXPECT_EQ(done_in_order(items), std::string(40, '3'));
}

TEST(ItemOrder, AnyMixKeepsEveryWindowOfEight) {
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        std::vector<Item> items;
        int steps[6] = {};
        for (std::int32_t i = 0; i < 60; ++i) {
            const auto rank = static_cast<std::int16_t>(random() % 3 == 0 ? random() % 6 : 1);
            items.push_back({.place = {rank, static_cast<std::int64_t>(random() % 100), i, false},
                             .steps = static_cast<std::int32_t>(1 + random() % 12)});
            steps[rank] += items.back().steps;
        }
        const std::string order =
            done_in_order(items, LowerRankTurn(static_cast<double>(round % 8) / 8));
        int since = 0; // a step of a lower rank than the first that waits
        for (const char c : order) {
            const int rank = c - '0';
            int *first = std::find_if(steps, steps + 6, [](int n) { return n > 0; });
            const int best = static_cast<int>(first - steps);
            const bool lower_waits = std::any_of(first + 1, steps + 6, [](int n) { return n > 0; });
            ASSERT_GE(rank, best);
            since = rank > best || !lower_waits ? 0 : since + 1;
            ASSERT_LT(since, steps_per_turn) << order;
            --steps[rank];
        }
        EXPECT_EQ(std::count(std::begin(steps), std::end(steps), 0), 6);
    }
}

} // namespace
} // namespace stacksaga::core
