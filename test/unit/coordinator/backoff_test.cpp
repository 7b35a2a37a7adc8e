#include "base/time.hpp"

#include <gtest/gtest.h>

namespace stacksaga::coordinator {
namespace {

using namespace std::chrono_literals;

TEST(Backoff, DoublesToItsCapWithJitter) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        Backoff backoff(100ms, 5s, seed);
        Duration step = 100ms;
        for (int i = 0; i < 20; ++i) {
            const Duration wait = backoff.next();
            EXPECT_GE(wait, step / 2);
            EXPECT_LE(wait, step);
            step = std::min<Duration>(step * 2, 5s);
        }
        backoff.reset();
        EXPECT_LE(backoff.next(), 100ms);
    }
}

TEST(Backoff, DiffersBetweenDaemons) {
    Backoff one(100ms, 5s, 1);
    Backoff other(100ms, 5s, 2);
    EXPECT_NE(one.next(), other.next());
}

} // namespace
} // namespace stacksaga::coordinator
