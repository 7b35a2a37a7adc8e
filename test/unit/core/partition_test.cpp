#include "core/outbox/partition.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

constexpr int counts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};

TEST(Partition, CountsArePowersOfTwoUpTo256) {
    int found = 0;
    for (int n = -1; n <= 1024; ++n)
        found += is_partition_count(n) ? 1 : 0;
    EXPECT_EQ(found, 9);
    for (int n : counts)
        EXPECT_TRUE(is_partition_count(n)) << n;
}

TEST(Partition, StripesOfAPartitionHoldItsTokensAndNoStripeIsMissing) {
    for (int n : counts)
        for (int p = 0; p < n; ++p) {
            const Range range = range_of_slots(p, p, n);
            const Stripes stripes = stripes_of(p, p, n);
            EXPECT_EQ(stripes.first, stripe_of(range.first)) << p << " of " << n;
            EXPECT_EQ(stripes.last, stripe_of(range.last)) << p << " of " << n;
            EXPECT_EQ(partition_of(range.first, n), p);
            EXPECT_EQ(partition_of(range.last, n), p);
        }
}

TEST(Partition, PartitionsReadTogetherHaveTheSameStripes) {
    for (int n : counts) {
        const int together = partitions_together(n);
        EXPECT_EQ(n % together, 0);
        for (int p = 0; p < n; p += together) {
            const Stripes all = stripes_of(p, p + together - 1, n);
            EXPECT_EQ(all.first, stripes_of(p, p, n).first);
            EXPECT_EQ(all.last, stripes_of(p, p, n).last);
        }
        EXPECT_LE(n / together, log_stripes);
    }
}

TEST(Partition, BeginsInTheSlotOfItsFirstToken) {
    for (int slots : {64, 256, 4096})
        for (int n : counts)
            for (int p = 0; p < n; ++p)
                EXPECT_EQ(first_slot_of(p, n, slots), slot_of(range_of_slots(p, p, n).first, slots))
                    << p << " of " << n << " in " << slots;
}

} // namespace
} // namespace stacksaga::core
