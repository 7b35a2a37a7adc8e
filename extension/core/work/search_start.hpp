// Where a session begins to search for due work. A session without contention begins at the oldest;
// sessions that contend begin at different places, so that they do not all try the same ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace stacksaga::core {

/// The start by the number of conflicts that this session had.
class SearchStart {
    // Reading this number of candidates costs as much as some claims do.
    static constexpr std::int32_t items_max = 1024;
    static constexpr std::int32_t items_per_conflict = 16;
    static constexpr std::int32_t elsewhere_max = 7;

public:
    /// `conflicts` items had been locked by others.
    constexpr void note(std::int32_t conflicts) {
        if (conflicts > 0)
            items_ = std::min(items_max, items_ + items_per_conflict * conflicts);
        else
            items_ -= (items_ + 7) / 8;
    }

    /// The number of items among which the first one is chosen.
    constexpr std::int32_t items() const { return items_; }
    /// The number of them to pass over. `random01` in [0, 1).
    constexpr std::int32_t passed(double random01) const {
        return static_cast<std::int32_t>(random01 * items_);
    }

    /// Whether to search elsewhere than at the oldest. Not without contention, nor the eighth time
    /// in a row: old items that are free again must not wait until the contention is over.
    constexpr bool is_elsewhere() {
        elsewhere_ = items_ > 0 && elsewhere_ < elsewhere_max ? elsewhere_ + 1 : 0;
        return elsewhere_ > 0;
    }

private:
    std::int32_t items_ = 0;
    std::int32_t elsewhere_ = 0; ///< number of such searches in a row
};

/// The next free steps follow the one that this session claimed last; the oldest are uncommitted
/// claims of others. Instants are in microseconds.
class LastClaim {
public:
    /// A step that was due at this instant was claimed at `now`.
    constexpr void note(std::int64_t due_at, std::int64_t now) {
        due_at_ = due_at;
        at_ = now;
    }

    /// Where to search at `now`; nullopt: there was no claim recently, or none since the last call.
    constexpr std::optional<std::int64_t> take(std::int64_t now) {
        const std::optional<std::int64_t> at = std::exchange(at_, std::nullopt);
        if (!at || *at > now || now - *at > recent_us)
            return std::nullopt;
        return due_at_;
    }

private:
    // Steps that others claimed in the meantime lie behind this one, and are stepped over.
    static constexpr std::int64_t recent_us = 100'000;
    std::int64_t due_at_ = 0;
    std::optional<std::int64_t> at_{};
};

} // namespace stacksaga::core
