#include "core/ring/ring_settings.hpp"

#include <gtest/gtest.h>

namespace {

using namespace stacksaga::core;

TEST(RingSettings, DefaultsAreInOrderAndWithinLimits) {
    EXPECT_TRUE(is_ordered(RingSettings{}));
    EXPECT_EQ(find_out_of_range(RingSettings{}), nullptr);
}

TEST(RingSettings, EveryIntervalHasLimitsOfItsOwn) {
    for (const IntervalSetting &setting : interval_settings) {
        RingSettings settings{};
        settings.*setting.value = setting.least;
        EXPECT_EQ(find_out_of_range(settings), nullptr) << setting.name;
        settings.*setting.value = setting.least - 1;
        EXPECT_EQ(find_out_of_range(settings), &setting);
        settings.*setting.value = ring_interval_max_us;
        EXPECT_EQ(find_out_of_range(settings), nullptr) << setting.name;
        settings.*setting.value = ring_interval_max_us + 1;
        EXPECT_EQ(find_out_of_range(settings), &setting);
        EXPECT_EQ(find_interval_setting(setting.name), &setting);
    }
    EXPECT_EQ(find_interval_setting("strategy"), nullptr);
}

TEST(RingSettings, NamesAreFound) {
    EXPECT_EQ(find_name(strategy_names, "contiguous"), std::uint8_t{1});
    EXPECT_EQ(find_name(missing_window_names, "keep"), std::uint8_t{0});
    EXPECT_FALSE(find_name(strategy_names, "").has_value());
}

} // namespace
