// Messages of a subtransaction count as long as it is not rolled back.
#include "core/published_count.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace stacksaga::core {
namespace {

TEST(PublishedCount, RollingBackTakesAwayWhatWasPublishedSince) {
    PublishedCount published;
    EXPECT_TRUE(published.note(1));
    EXPECT_TRUE(published.note(3));
    published.committed(3);
    EXPECT_TRUE(published.note(2));
    EXPECT_EQ(published.count(), 3);
    published.rolled_back(2);
    EXPECT_EQ(published.count(), 1);
    EXPECT_TRUE(published.note(2));
    published.committed(2);
    EXPECT_EQ(published.count(), 2);
    published.rolled_back(1);
    EXPECT_EQ(published.count(), 0);
}

TEST(PublishedCount, CountsNothingThatItCouldNotTakeBack) {
    PublishedCount published;
    constexpr auto deepest = static_cast<std::int32_t>(PublishedCount::levels_max);
    for (std::int32_t level = 1; level <= deepest; ++level)
        EXPECT_TRUE(published.note(level));
    EXPECT_FALSE(published.note(deepest + 1));
    EXPECT_TRUE(published.note(deepest));
    EXPECT_EQ(published.count(), deepest + 1);
    published.rolled_back(deepest + 1);
    EXPECT_EQ(published.count(), deepest + 1);
    published.rolled_back(2);
    EXPECT_EQ(published.count(), 1);
}

/// A stack of the numbers of messages, one list for each open subtransaction.
class Model {
public:
    std::int32_t level() const { return static_cast<std::int32_t>(open_.size()); }
    void begin() { open_.emplace_back(); }
    void publish() { open_.back().push_back(next_++); }
    void commit() {
        const std::vector<int> ended = open_.back();
        open_.pop_back();
        open_.back().insert(open_.back().end(), ended.begin(), ended.end());
    }
    void roll_back() { open_.pop_back(); }
    std::vector<int> published() const {
        std::vector<int> all;
        for (const std::vector<int> &each : open_)
            all.insert(all.end(), each.begin(), each.end());
        return all;
    }

private:
    std::vector<std::vector<int>> open_{{}};
    int next_ = 0;
};

TEST(PublishedCount, FirstMessagesOfAnyRunAreThoseThatRemain) {
    constexpr std::size_t kept_max = 5;
    std::mt19937 random(20261123);
    for (int run = 0; run < 2000; ++run) {
        Model model;
        PublishedCount published;
        std::vector<int> kept(kept_max);
        int number = 0;
        for (int i = 0; i < 60; ++i) {
            switch (random() % 5) {
            case 0:
            case 1: {
                const auto place = static_cast<std::size_t>(published.count());
                ASSERT_TRUE(published.note(model.level()));
                model.publish();
                if (place < kept_max)
                    kept[place] = number;
                ++number;
                break;
            }
            case 2:
                model.begin();
                break;
            case 3:
                if (model.level() > 1) {
                    published.committed(model.level());
                    model.commit();
                }
                break;
            default:
                if (model.level() > 1) {
                    published.rolled_back(model.level());
                    model.roll_back();
                }
            }
            const std::vector<int> expected = model.published();
            ASSERT_EQ(published.count(), static_cast<std::int64_t>(expected.size()));
            for (std::size_t at = 0; at < std::min(kept_max, expected.size()); ++at)
                ASSERT_EQ(kept[at], expected[at]);
        }
    }
}

} // namespace
} // namespace stacksaga::core
