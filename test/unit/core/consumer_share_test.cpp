// Goal: the shares of consumers are even, and together they are all partitions.
#include "core/outbox/consumer_share.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

TEST(ConsumerShare, AreEvenAndTogetherAllPartitions) {
    for (const std::int32_t partitions : {1, 2, 16, 64, 256})
        for (std::int32_t consumers = 1; consumers <= partitions; ++consumers) {
            std::int32_t all = 0;
            for (std::int32_t rank = 0; rank < consumers; ++rank) {
                const std::int32_t share = share_of_consumer(partitions, consumers, rank);
                EXPECT_GE(share, partitions / consumers);
                EXPECT_LE(share, (partitions + consumers - 1) / consumers);
                all += share;
            }
            EXPECT_EQ(all, partitions);
        }
}

TEST(ConsumerShare, OneIsTheLeast) {
    EXPECT_EQ(share_of_consumer(16, 100, 0), 1);
    EXPECT_EQ(share_of_consumer(16, 100, 99), 1);
}

} // namespace
} // namespace stacksaga::core
