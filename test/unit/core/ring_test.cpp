// Equal parts and slots: exact tiling for every count, nested for every pair.
#include "core/ring/slots.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace stacksaga::core {
namespace {

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

Range range(std::int64_t first, std::int64_t last) {
    return {Token::from_int64(first), Token::from_int64(last)};
}

/// Whether the parts of `whole` follow each other from its first place to its last, their sizes
/// being size / parts, the first size % parts of them one more.
testing::AssertionResult tiles(const Range &whole, std::int64_t parts) {
    const uint128 size = whole.size() / static_cast<uint128>(parts);
    const uint128 larger = whole.size() % static_cast<uint128>(parts);
    uint128 next = whole.first.position();
    for (std::int64_t i = 0; i < parts; ++i) {
        const Range part = part_of_range(whole, i, parts);
        const uint128 expected = size + (static_cast<uint128>(i) < larger ? 1 : 0);
        if (part.first.position() != next)
            return testing::AssertionFailure() << "gap or overlap before part " << i;
        if (part.last < part.first || part.size() != expected)
            return testing::AssertionFailure() << "part " << i << " has the wrong size";
        next += expected;
    }
    if (next != uint128{whole.last.position()} + 1)
        return testing::AssertionFailure() << "the parts do not end with the range";
    return testing::AssertionSuccess();
}

TEST(Parts, TileTheRingForEveryCount) {
    for (std::int64_t parts = 1; parts <= 4096; ++parts)
        ASSERT_TRUE(tiles(whole_ring, parts)) << parts << " parts";
}

TEST(Parts, TileEveryPartForEveryPair) {
    for (std::int64_t outer = 1; outer <= 64; ++outer)
        for (std::int64_t inner = 1; inner <= 64; ++inner)
            for (std::int64_t i = 0; i < outer; ++i)
                ASSERT_TRUE(tiles(part_of_ring(i, outer), inner))
                    << "part " << i << " of " << outer << " in " << inner;
}

TEST(Parts, OfSmallAndOddRanges) {
    for (const Range &whole : {range(0, 0), range(-1, 0), range(-3, 5), range(lowest, lowest),
                               range(highest, highest), range(highest - 9, highest),
                               range(lowest, lowest + 12), range(lowest, -1), range(lowest, 0)})
        for (std::int64_t parts = 1; is_splittable(whole, parts) && parts <= 100; ++parts)
            ASSERT_TRUE(tiles(whole, parts)) << whole.first.value() << " in " << parts;
}

TEST(Parts, KnownSplits) {
    EXPECT_EQ(part_of_ring(0, 1), whole_ring);
    EXPECT_EQ(part_of_ring(0, 2), range(lowest, -1));
    EXPECT_EQ(part_of_ring(1, 2), range(0, highest));
    // 2^64 = 3 * 6148914691236517205 + 1: the first part is one larger.
    EXPECT_EQ(part_of_ring(0, 3), range(lowest, -3074457345618258603));
    EXPECT_EQ(part_of_ring(1, 3), range(-3074457345618258602, 3074457345618258602));
    EXPECT_EQ(part_of_ring(2, 3), range(3074457345618258603, highest));
}

TEST(Parts, CountsThatCannotBe) {
    EXPECT_FALSE(is_splittable(whole_ring, 0));
    EXPECT_FALSE(is_splittable(whole_ring, -1));
    EXPECT_FALSE(is_splittable(whole_ring, lowest));
    EXPECT_TRUE(is_splittable(whole_ring, highest));
    EXPECT_TRUE(is_splittable(range(5, 5), 1));
    EXPECT_FALSE(is_splittable(range(5, 5), 2));
    EXPECT_TRUE(is_splittable(range(5, 9), 5));
    EXPECT_FALSE(is_splittable(range(5, 9), 6));
}

TEST(Parts, OfTheLargestCount) {
    EXPECT_EQ(part_of_ring(0, highest).size(), uint128{3}); // 2^64 = 2 * (2^63-1) + 2
    EXPECT_EQ(part_of_ring(1, highest).size(), uint128{3});
    EXPECT_EQ(part_of_ring(2, highest).size(), uint128{2});
    EXPECT_EQ(part_of_ring(highest - 1, highest), range(highest - 1, highest));
}

TEST(Slots, CountsThatMayBe) {
    for (int bits = 0; bits <= 30; ++bits)
        EXPECT_TRUE(is_slot_count(std::int64_t{1} << bits)) << bits;
    for (std::int64_t slots :
         {lowest, std::int64_t{-256}, std::int64_t{0}, std::int64_t{3}, std::int64_t{255},
          std::int64_t{257}, std::int64_t{1} << 31, std::int64_t{1} << 62, highest})
        EXPECT_FALSE(is_slot_count(slots)) << slots;
    for (std::int64_t slots : {1, 32, 100, 8192})
        EXPECT_FALSE(is_ring_slot_count(slots)) << slots;
    for (std::int64_t slots : {64, 128, 256, 512, 1024, 2048, 4096})
        EXPECT_TRUE(is_ring_slot_count(slots)) << slots;
}

TEST(Slots, AgreeWithTheirRangesAtEveryBorder) {
    for (int slots = 1; slots <= 4096; slots *= 2)
        for (int slot = 0; slot < slots; ++slot) {
            const Range part = slot_range(slot, slots);
            ASSERT_EQ(part, part_of_ring(slot, slots));
            ASSERT_EQ(slot_of(part.first, slots), slot);
            ASSERT_EQ(slot_of(part.last, slots), slot);
            const std::uint64_t middle =
                part.first.position() + (part.last.position() - part.first.position()) / 2;
            ASSERT_EQ(slot_of(Token::from_position(middle), slots), slot);
        }
}

TEST(Slots, OfTheLargestCount) {
    const int slots = 1 << 30;
    EXPECT_EQ(slot_of(Token::last_of_ring(), slots), slots - 1);
    EXPECT_EQ(slot_of(Token::from_int64(0), slots), slots / 2);
    EXPECT_EQ(slot_range(slots - 1, slots), part_of_ring(slots - 1, slots));
}

TEST(Slots, EveryTokenIsInItsSlot) {
    std::mt19937_64 random(3);
    for (int i = 0; i < 100000; ++i) {
        const Token token = Token::from_position(random());
        const int slots = 1 << (random() % 31);
        ASSERT_TRUE(slot_range(slot_of(token, slots), slots).contains(token));
    }
}

TEST(Slots, RunsOfNeighbours) {
    const auto runs = [](const std::vector<int> &held) {
        std::vector<std::pair<int, int>> result;
        for_each_run(held, [&](int first, int last) { result.emplace_back(first, last); });
        return result;
    };
    using Runs = std::vector<std::pair<int, int>>;
    EXPECT_EQ(runs({}), Runs{});
    EXPECT_EQ(runs({7}), (Runs{{7, 7}}));
    EXPECT_EQ(runs({0, 1, 2, 255}), (Runs{{0, 2}, {255, 255}}));
    EXPECT_EQ(runs({0, 2, 4, 5, 6, 9}), (Runs{{0, 0}, {2, 2}, {4, 6}, {9, 9}}));
    EXPECT_EQ(range_of_slots(0, 255, 256), whole_ring);
    EXPECT_EQ(range_of_slots(128, 255, 256), range(0, highest));
}

TEST(Ranges, AreAdjacentOnlyInOrder) {
    EXPECT_TRUE(is_adjacent(range(1, 2), range(3, 4)));
    EXPECT_FALSE(is_adjacent(range(1, 2), range(4, 4)));
    EXPECT_FALSE(is_adjacent(range(3, 4), range(1, 2)));
    EXPECT_TRUE(is_adjacent(range(lowest, -1), range(0, highest)));
    EXPECT_FALSE(is_adjacent(range(0, highest), range(lowest, -1))); // the ring is not wrapped
}

} // namespace
} // namespace stacksaga::core
