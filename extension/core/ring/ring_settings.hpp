// The settings of a ring as data: their names, defaults and limits. Intervals are in microseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stacksaga::core {

/// How a coordinator assigns slots to nodes.
enum class Strategy : std::uint8_t {
    consistent, ///< consistent hashing with bounded load: few slots move
    contiguous, ///< equal runs of slots
};
inline constexpr std::array<std::string_view, 2> strategy_names{"consistent", "contiguous"};

/// Points of one node on the hash ring of the `consistent` strategy.
inline constexpr std::int32_t virtual_nodes_default = 128;
inline constexpr std::int32_t virtual_nodes_max = 1024;

/// From 1 to `virtual_nodes_max`, in digits.
constexpr std::optional<std::int32_t> virtual_nodes_of(std::string_view text) {
    std::int32_t value = 0;
    for (const char digit : text) {
        if (digit < '0' || digit > '9' || value > virtual_nodes_max)
            return std::nullopt;
        value = 10 * value + (digit - '0');
    }
    if (value < 1 || value > virtual_nodes_max)
        return std::nullopt;
    return value;
}

/// The settings that decide which node gets which slot.
struct AssignmentRule {
    constexpr AssignmentRule(Strategy the_strategy, // NOLINT: a strategy alone is a rule
                             std::int32_t points = virtual_nodes_default)
        : strategy(the_strategy), virtual_nodes(points) {}

    Strategy strategy;
    std::int32_t virtual_nodes;
};

/// Whether ownership holds in a window that nobody published.
enum class MissingWindow : std::uint8_t {
    keep,  ///< it stays until the slot is taken over
    pause, ///< it ends with the last published window
};
inline constexpr std::array<std::string_view, 2> missing_window_names{"keep", "pause"};

inline constexpr std::int64_t millisecond_us = 1000;
inline constexpr std::int64_t second_us = 1000 * millisecond_us;
inline constexpr std::int64_t day_us = 24 * 60 * 60 * second_us;
/// Longer is an accident, and sums of such intervals stay far from the end of 64 bits.
inline constexpr std::int64_t ring_interval_max_us = 366 * day_us;

struct RingSettings {
    std::int64_t window_length = 60 * second_us;
    std::int64_t publish_lead = 30 * second_us;
    std::int64_t heartbeat_interval = 5 * second_us;
    std::int64_t suspect_after = 15 * second_us;
    std::int64_t dead_after = 30 * second_us;
    std::int64_t rebalance_delay = 0;
    std::int64_t checkpoint_interval = 10 * second_us;
    Strategy strategy = Strategy::consistent;
    std::int32_t virtual_nodes = virtual_nodes_default;
    MissingWindow on_missing_window = MissingWindow::keep;

    constexpr AssignmentRule rule() const { return {strategy, virtual_nodes}; }
    friend constexpr bool operator==(const RingSettings &, const RingSettings &) = default;
};

/// A setting that is an interval, and the least that it may be.
struct IntervalSetting {
    std::string_view name;
    std::int64_t RingSettings::*value;
    std::int64_t least;
};
inline constexpr std::array interval_settings{
    IntervalSetting{"window_length", &RingSettings::window_length, 100 * millisecond_us},
    IntervalSetting{"publish_lead", &RingSettings::publish_lead, 0},
    IntervalSetting{"heartbeat_interval", &RingSettings::heartbeat_interval, 10 * millisecond_us},
    IntervalSetting{"suspect_after", &RingSettings::suspect_after, 10 * millisecond_us},
    IntervalSetting{"dead_after", &RingSettings::dead_after, 10 * millisecond_us},
    IntervalSetting{"rebalance_delay", &RingSettings::rebalance_delay, 0},
    IntervalSetting{"checkpoint_interval", &RingSettings::checkpoint_interval, 10 * millisecond_us},
};
inline constexpr std::string_view strategy_setting = "strategy";
inline constexpr std::string_view virtual_nodes_setting = "virtual_nodes";
inline constexpr std::string_view missing_window_setting = "on_missing_window";

constexpr const IntervalSetting *find_interval_setting(std::string_view name) {
    for (const IntervalSetting &setting : interval_settings)
        if (setting.name == name)
            return &setting;
    return nullptr;
}

/// The place of `name` among `names`.
template <std::size_t N>
constexpr std::optional<std::uint8_t> find_name(const std::array<std::string_view, N> &names,
                                                std::string_view name) {
    for (std::size_t i = 0; i < N; ++i)
        if (names[i] == name)
            return static_cast<std::uint8_t>(i);
    return std::nullopt;
}

/// The first interval that is out of its limits; nullptr when all are within.
constexpr const IntervalSetting *find_out_of_range(const RingSettings &settings) {
    for (const IntervalSetting &setting : interval_settings) {
        const std::int64_t value = settings.*setting.value;
        if (value < setting.least || value > ring_interval_max_us)
            return &setting;
    }
    return nullptr;
}

/// A node is suspected after it missed a beat, and dead after it was suspected.
constexpr bool is_ordered(const RingSettings &settings) {
    return settings.heartbeat_interval <= settings.suspect_after &&
           settings.suspect_after <= settings.dead_after;
}

static_assert(find_out_of_range(RingSettings{}) == nullptr && is_ordered(RingSettings{}));

} // namespace stacksaga::core
