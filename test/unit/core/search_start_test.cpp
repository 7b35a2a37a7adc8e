// Where a session begins to search: at the oldest, unless it meets others there.
#include "core/work/search_start.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

TEST(SearchStart, WhoMeetsNobodyBeginsAtTheOldest) {
    SearchStart start;
    start.note(0);
    EXPECT_EQ(start.passed(0.999), 0);
    EXPECT_FALSE(start.is_elsewhere());
}

TEST(SearchStart, WhoMeetsOthersPassesOverSomeAtRandom) {
    SearchStart start;
    start.note(2);
    EXPECT_EQ(start.items(), 32);
    EXPECT_EQ(start.passed(0), 0);
    EXPECT_EQ(start.passed(0.999), 31);
}

TEST(SearchStart, PassesOverNoMoreThanAThousandHoweverManyItMeets) {
    SearchStart start;
    for (int i = 0; i < 1000; ++i)
        start.note(100);
    EXPECT_EQ(start.items(), 1024);
}

TEST(SearchStart, IsAtTheOldestAgainSoonAfterTheOthersAreGone) {
    SearchStart start;
    start.note(1000);
    int searches = 0;
    for (; start.items() > 0; ++searches)
        start.note(0);
    EXPECT_LT(searches, 50);
    EXPECT_FALSE(start.is_elsewhere());
}

TEST(SearchStart, OneSearchOfEightIsAtTheOldestHoweverManyItMeets) {
    SearchStart start;
    int in_a_row = 0, longest = 0, at_oldest = 0;
    for (int i = 0; i < 800; ++i) {
        start.note(1);
        in_a_row = start.is_elsewhere() ? in_a_row + 1 : 0;
        longest = std::max(longest, in_a_row);
        at_oldest += in_a_row == 0 ? 1 : 0;
    }
    EXPECT_EQ(longest, 7);
    EXPECT_EQ(at_oldest, 100);
}

TEST(LastClaim, IsWhereToGoOn) {
    LastClaim last;
    EXPECT_EQ(last.take(5), std::nullopt);
    last.note(-40, 1000);
    EXPECT_EQ(last.take(101'000), -40);
}

TEST(LastClaim, IsTakenOnceSoThatASearchWithoutAClaimIsNotRepeated) {
    LastClaim last;
    last.note(40, 1000);
    EXPECT_EQ(last.take(1000), 40);
    EXPECT_EQ(last.take(1000), std::nullopt);
}

TEST(LastClaim, OfLongAgoOrOfTheFutureIsNotBelieved) {
    LastClaim last;
    last.note(40, 1000);
    EXPECT_EQ(last.take(101'001), std::nullopt);
    last.note(40, 1000);
    EXPECT_EQ(last.take(999), std::nullopt);
}

} // namespace
} // namespace stacksaga::core
