// The check that ranges tile the ring at slot borders: what it accepts, and which rule it names.
#include "core/ring/slots.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace stacksaga::core {
namespace {

constexpr int slots = 256;
constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

Range range(std::int64_t first, std::int64_t last) {
    return {Token::from_int64(first), Token::from_int64(last)};
}

std::vector<Range> runs(const std::vector<int> &cuts, int count = slots) {
    std::vector<Range> ranges;
    for (std::size_t i = 0; i < cuts.size(); ++i)
        ranges.push_back(
            range_of_slots(cuts[i], (i + 1 < cuts.size() ? cuts[i + 1] : count) - 1, count));
    return ranges;
}

TilingFault check(const std::vector<Range> &ranges, int count = slots) {
    std::vector<std::int32_t> table(static_cast<std::size_t>(count), slot_is_free);
    return cut_at_slots(ranges, table);
}

TEST(Tiling, AcceptsTheWholeRing) {
    EXPECT_EQ(check({whole_ring}), TilingFault{});
    for (int count = 64; count <= 4096; count *= 2) {
        std::vector<int> every(static_cast<std::size_t>(count));
        for (int slot = 0; slot < count; ++slot)
            every[static_cast<std::size_t>(slot)] = slot;
        EXPECT_EQ(check(runs(every, count), count), TilingFault{});
    }
}

TEST(Tiling, SaysWhichRangeHoldsEachSlotInAnyOrder) {
    std::mt19937 random(11);
    for (int round = 0; round < 200; ++round) {
        std::vector<int> cuts{0};
        for (int slot = 1; slot < slots; ++slot)
            if (random() % 16 == 0)
                cuts.push_back(slot);
        std::vector<Range> ranges = runs(cuts);
        std::shuffle(ranges.begin(), ranges.end(), random);
        std::vector<std::int32_t> table(slots, slot_is_free);
        ASSERT_EQ(cut_at_slots(ranges, table), TilingFault{});
        for (int slot = 0; slot < slots; ++slot) {
            const auto holder = static_cast<std::size_t>(table[static_cast<std::size_t>(slot)]);
            ASSERT_TRUE(ranges.at(holder).contains(slot_range(slot, slots).first));
            ASSERT_TRUE(ranges.at(holder).contains(slot_range(slot, slots).last));
        }
    }
}

TEST(Tiling, NamesTheGap) {
    const TilingFault at_start{TilingRule::gap, -1, -1, Token::first_of_ring()};
    EXPECT_EQ(check({}), at_start);
    EXPECT_EQ(check({range(0, highest)}), at_start);
    EXPECT_EQ(check({range(lowest, -1)}),
              (TilingFault{TilingRule::gap, -1, -1, Token::from_int64(0)}));
    std::vector<Range> holed = runs({0, 100, 101});
    holed.erase(holed.begin() + 1);
    EXPECT_EQ(check(holed), (TilingFault{TilingRule::gap, -1, -1, slot_range(100, slots).first}));
}

TEST(Tiling, NamesTheOverlap) {
    EXPECT_EQ(check({range(lowest, -1), range(0, highest), range(0, highest)}),
              (TilingFault{TilingRule::overlap, 2, 1, Token::from_int64(0)}));
    EXPECT_EQ(check({range_of_slots(0, 128, slots), range(0, highest)}),
              (TilingFault{TilingRule::overlap, 1, 0, Token::from_int64(0)}));
    EXPECT_EQ(check({whole_ring, whole_ring}),
              (TilingFault{TilingRule::overlap, 1, 0, Token::first_of_ring()}));
}

TEST(Tiling, NamesTheReversedRange) {
    EXPECT_EQ(check({range(lowest, -1), range(5, 4)}),
              (TilingFault{TilingRule::reversed, 1, -1, Token::from_int64(5)}));
    EXPECT_EQ(check({range(highest, lowest)}),
              (TilingFault{TilingRule::reversed, 0, -1, Token::last_of_ring()}));
}

TEST(Tiling, NamesTheCutThatIsOff) {
    EXPECT_EQ(check({range(lowest, 0), range(1, highest)}),
              (TilingFault{TilingRule::end_off_cut, 0, -1, Token::from_int64(0)}));
    EXPECT_EQ(check({range(1, highest)}),
              (TilingFault{TilingRule::start_off_cut, 0, -1, Token::from_int64(1)}));
    EXPECT_EQ(check({range(lowest, highest - 1)}),
              (TilingFault{TilingRule::end_off_cut, 0, -1, Token::from_int64(highest - 1)}));
    // Parts of the ring are cut at slot borders only when their number divides that of the slots.
    for (int parts = 1; parts <= 64; ++parts) {
        std::vector<Range> ranges;
        for (int i = 0; i < parts; ++i)
            ranges.push_back(part_of_ring(i, parts));
        EXPECT_EQ(check(ranges).rule == TilingRule::ok, slots % parts == 0) << parts;
    }
}

TEST(Tiling, KeepsToTheSlotsOfThePublisher) {
    std::vector<std::int32_t> assignable(slots, slot_not_ours);
    std::fill(assignable.begin() + 64, assignable.begin() + 128, slot_is_free);
    const Range ours = range_of_slots(64, 127, slots);

    std::vector<std::int32_t> table = assignable;
    EXPECT_EQ(cut_at_slots(std::vector{ours}, table), TilingFault{});
    EXPECT_EQ(table[63], slot_not_ours);
    EXPECT_EQ(table[64], 0);

    table = assignable;
    EXPECT_EQ(cut_at_slots(std::vector{range_of_slots(64, 128, slots)}, table),
              (TilingFault{TilingRule::not_assignable, 0, -1, slot_range(128, slots).first}));
    table = assignable;
    EXPECT_EQ(cut_at_slots(std::vector{range_of_slots(64, 126, slots)}, table),
              (TilingFault{TilingRule::gap, -1, -1, slot_range(127, slots).first}));
}

TEST(Tiling, EveryRuleHasItsSentence) {
    for (TilingRule a = TilingRule::ok; a <= TilingRule::gap;
         a = static_cast<TilingRule>(static_cast<int>(a) + 1))
        EXPECT_NE(describe(a), describe(static_cast<TilingRule>(99)));
}

} // namespace
} // namespace stacksaga::core
