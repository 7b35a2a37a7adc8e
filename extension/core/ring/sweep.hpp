// Sweeps: which slots of dead owners a live node takes while no coordinator publishes.
#pragma once

#include "core/ring/slot_owner.hpp"
#include "core/ring/token.hpp"
#include "core/ring/window.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace stacksaga::core::sweep {

inline constexpr std::int64_t windows_missed = 2;
inline constexpr std::int64_t least_slots = 16; ///< that a sweep may take
inline constexpr std::int64_t share = 8;        ///< or one slot in this number

/// Whether no coordinator has published for some windows, counted from the end of the last window
/// that opened, or from the node's registration if that was later.
constexpr bool is_uncoordinated(std::int64_t last_window_end, std::int64_t registered_at,
                                std::int64_t window_length, std::int64_t now) {
    const std::int64_t since = std::max(last_window_end, registered_at);
    return window::saturate(window::int128{since} + windows_missed * window_length) <= now;
}

/// Whether a worker that was last heard `heartbeat_age` ago keeps its slots.
constexpr bool spares(std::int64_t heartbeat_age, const RingSettings &settings) {
    return heartbeat_age < settings.dead_after + settings.rebalance_delay;
}

/// The order in which a node sweeps: a different one for each node, so that several nodes do not
/// reach for the same slots at once.
constexpr std::uint64_t rank(Incarnation node, std::int32_t slot) {
    char bytes[12] = {};
    for (std::size_t i = 0; i < 8; ++i)
        bytes[i] = static_cast<char>(static_cast<std::uint64_t>(node) >> (8 * i));
    for (std::size_t i = 0; i < 4; ++i)
        bytes[8 + i] = static_cast<char>(static_cast<std::uint32_t>(slot) >> (8 * i));
    return cassandra_token(std::string_view{bytes, sizeof bytes}).position();
}

/// Moves those of `found` that `node` takes now to the front, ascending by `slot`, and returns
/// their number. They bring the node, which holds `held`, at most to its equal share of `slots`
/// among `takers` nodes. `found` are the slots without an owner that keeps them.
template <class Slot>
constexpr std::size_t choose(std::span<Slot> found, Incarnation node, std::int64_t slots,
                             std::int64_t takers, std::int64_t held) {
    std::sort(found.begin(), found.end(), [&](const Slot &a, const Slot &b) {
        return rank(node, a.slot) < rank(node, b.slot);
    });
    const std::int64_t missing = (slots + takers - 1) / takers - held;
    const std::int64_t room =
        std::clamp<std::int64_t>(missing, 0, std::max(least_slots, slots / share));
    const auto count = std::min(found.size(), static_cast<std::size_t>(room));
    // Slots are locked in ascending order everywhere.
    std::sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count),
              [](const Slot &a, const Slot &b) { return a.slot < b.slot; });
    return count;
}

} // namespace stacksaga::core::sweep
