// What is remembered of a key is what was found out about it, in the state it was found in.
#include "core/common/session_cache.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

TEST(SessionCache, FindsOutOnceAsLongAsKeyAndStateStay) {
    SessionCache<int, 4> cache;
    int found_out = 0;
    const auto ask = [&](std::uint64_t key, std::uint64_t state) {
        return cache.value(
            key, [&] { return ++found_out; }, state);
    };
    EXPECT_EQ(ask(5, 1), 1);
    EXPECT_EQ(ask(5, 1), 1);
    EXPECT_EQ(ask(6, 1), 2) << "another place";
    EXPECT_EQ(ask(5, 1), 1);
    EXPECT_EQ(ask(9, 1), 3) << "the same place";
    EXPECT_EQ(ask(5, 1), 4);
    EXPECT_EQ(ask(5, 2), 5) << "another state";
    EXPECT_EQ(ask(6, 1), 2);
}

TEST(SessionCache, FindsOutAboutKeyZeroToo) {
    SessionCache<int, 4> cache;
    EXPECT_EQ(cache.value(0, [] { return 7; }), 7);
    EXPECT_EQ(cache.value(0, [] { return 8; }), 7);
}

TEST(SessionCache, KeepsWhatIsWrittenToItsValue) {
    SessionCache<int, 4> cache;
    ++cache.value(3, [] { return 0; });
    ++cache.value(3, [] { return 0; });
    EXPECT_EQ(cache.value(3, [] { return 0; }), 2);
}

TEST(SessionCache, MayBeAskedWhileItFindsOut) {
    SessionCache<int, 1> cache;
    const int value = cache.value(1, [&] { return 10 + cache.value(2, [] { return 5; }); });
    EXPECT_EQ(value, 15);
    EXPECT_EQ(cache.value(1, [] { return 0; }), 15);
}

} // namespace
} // namespace stacksaga::core
