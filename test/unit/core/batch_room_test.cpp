// A message that ends its consumers among others that do not: only it is charged, and it is charged
// after few losses, wherever it is and however large the batches are.
#include "core/outbox/batch_room.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

TEST(BatchRoom, HalvesDownToOne) {
    EXPECT_EQ(room_after_loss(501, Company::none), 250);
    EXPECT_EQ(room_after_loss(3, Company::lost), 1);
    EXPECT_EQ(room_after_loss(1, Company::none), 1);
}

TEST(BatchRoom, WhatIsLostInCompanyComesAlone) {
    for (const Company company : {Company::open, Company::lost}) {
        EXPECT_FALSE(is_charged_for_loss(1, company));
        EXPECT_EQ(room_after_loss(1, company), lone_room);
    }
    EXPECT_TRUE(is_charged_for_loss(1, Company::none));
    EXPECT_FALSE(is_charged_for_loss(2, Company::none));
    EXPECT_EQ(room_in_batch(lone_room, 0, 5), 1);
    EXPECT_EQ(room_in_batch(lone_room, 1, 5), 0);
    EXPECT_EQ(room_after_answer(lone_room), 2);
}

TEST(BatchRoom, ALoneMessageIsOfferedToConsumersThatHoldNothing) {
    EXPECT_EQ(offer_to(false, false, false), Offer::any);
    EXPECT_EQ(offer_to(true, false, false), Offer::any);
    EXPECT_EQ(offer_to(false, false, true), Offer::lone);
    EXPECT_EQ(offer_to(true, false, true), Offer::nothing);
    EXPECT_EQ(offer_to(true, true, false), Offer::nothing);
}

TEST(BatchRoom, DoublesUntilThereIsNoLimit) {
    EXPECT_EQ(room_after_answer(any_room), any_room);
    std::int32_t room = 1, answers = 0;
    for (; room != any_room; room = room_after_answer(room))
        ++answers;
    EXPECT_EQ(answers, 14); // 2^13 < 10,000 < 2^14
}

TEST(BatchRoom, TheWholeBatchIsWithinTheRoomOfEachPartition) {
    EXPECT_EQ(room_in_batch(any_room, 7, 93), 93);
    EXPECT_EQ(room_in_batch(8, 7, 93), 1);
    EXPECT_EQ(room_in_batch(8, 8, 92), 0);
    EXPECT_EQ(room_in_batch(8, 50, 50), 0);
    EXPECT_EQ(room_in_batch(8, 0, 5), 5);
}

struct Message {
    int partition;
    bool kills;
    int charged = 0;
};

/// One batch of what is left: partitions in a random order, each with as many as may be added.
std::vector<size_t> batch_of(const std::vector<Message> &left,
                             const std::vector<std::int32_t> &rooms, std::int32_t asked,
                             std::mt19937 &random) {
    std::vector<int> order(rooms.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    std::vector<size_t> batch;
    for (int partition : order) {
        const std::int32_t room = rooms[static_cast<size_t>(partition)];
        const auto held = static_cast<std::int32_t>(batch.size());
        std::int32_t more = room_in_batch(room, held, asked - held);
        for (size_t i = 0; i < left.size() && more > 0; ++i)
            if (left[i].partition == partition) {
                batch.push_back(i);
                --more;
            }
        if (room != any_room && static_cast<std::int32_t>(batch.size()) > held)
            asked = std::min(asked, room);
    }
    return batch;
}

TEST(BatchRoom, OnlyTheMessageThatEndsItsConsumersIsCharged) {
    constexpr int attempts = 5;
    std::mt19937 random{7};
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (int round = 0; round < 2000; ++round) {
        const int partitions = 1 << below(5);
        const int count = 1 + below(300), killers = below(4);
        std::vector<Message> left;
        for (int i = 0; i < count; ++i)
            left.push_back({.partition = below(partitions), .kills = i < killers});
        std::ranges::shuffle(left, random);
        std::vector<std::int32_t> rooms(static_cast<size_t>(partitions), any_room);
        const std::int32_t asked = 1 << below(10);
        int losses = 0;
        while (!left.empty()) {
            const std::vector<size_t> batch = batch_of(left, rooms, asked, random);
            ASSERT_FALSE(batch.empty());
            const auto total = static_cast<std::int32_t>(batch.size());
            const bool is_lost =
                std::ranges::any_of(batch, [&](size_t i) { return left[i].kills; });
            losses += is_lost ? 1 : 0;
            ASSERT_LT(losses, 400);
            std::vector<char> is_held(rooms.size(), 0), is_over(left.size(), 0);
            for (size_t i : batch) {
                is_held[static_cast<size_t>(left[i].partition)] = 1;
                left[i].charged += is_lost && is_charged_for_loss(total, Company::none) ? 1 : 0;
                ASSERT_TRUE(left[i].kills || left[i].charged == 0) << "an innocent one is charged";
                ASSERT_LE(left[i].charged, attempts);
                is_over[i] = !is_lost || left[i].charged == attempts ? 1 : 0;
            }
            for (size_t p = 0; p < rooms.size(); ++p)
                if (is_held[p] != 0)
                    rooms[p] = is_lost ? room_after_loss(total, Company::none)
                                       : room_after_answer(rooms[p]);
            std::vector<Message> next;
            for (size_t i = 0; i < left.size(); ++i)
                if (is_over[i] == 0)
                    next.push_back(left[i]);
            left = std::move(next);
        }
    }
}

} // namespace
} // namespace stacksaga::core
