// The claims that a rate lets through: at most its number in any window of its interval, wherever
// the window begins. (A token bucket lets twice as many through in some of them.)
//
// It keeps instants and the number of steps claimed at each. There is room for a fixed
// number; when it is full the two that lie closest together become one, at the later instant, so
// claims are at most taken for later than they were, and the bound holds. With fewer claims in an
// interval than there is room it is exact.
#pragma once

#include "core/time/instant.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace stacksaga::core {

struct ClaimsAt {
    std::int64_t at;
    std::int64_t count;
};

class ClaimWindow {
public:
    static constexpr std::size_t room = 64;

    constexpr ClaimWindow() = default;

    std::span<const ClaimsAt> entries() const { return {entries_.data(), size_}; }

    /// Adds what was kept, in order of time; what does not fit is merged.
    void load(std::int64_t at, std::int64_t count) { add(at, count); }

    /// How many more may be claimed at `now`, with at most `limit` in `interval`.
    std::int64_t left(std::int64_t now, std::int64_t limit, std::int64_t interval) const {
        return std::max<std::int64_t>(0, limit - used(now, interval));
    }

    /// From when on at least one may be claimed: `now` when that is so already.
    std::int64_t next(std::int64_t now, std::int64_t limit, std::int64_t interval) const {
        std::int64_t total = used(now, interval);
        std::int64_t at = now;
        for (const ClaimsAt &e : entries()) { // the oldest ones leave the window first
            if (total < limit)
                break;
            if (!counts(e, now, interval))
                continue;
            total -= e.count;
            at = time_plus(std::min(e.at, now), interval);
        }
        return at;
    }

    /// Notes claims at `now`, and forgets what no window that ends now or later reaches.
    void note(std::int64_t now, std::int64_t count, std::int64_t interval) {
        const auto kept =
            std::remove_if(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(size_),
                           [&](const ClaimsAt &e) { return !counts(e, now, interval); });
        size_ = static_cast<std::size_t>(kept - entries_.begin());
        for (std::size_t i = 0; i < size_; ++i) // the clock was set back
            entries_[i].at = std::min(entries_[i].at, now);
        add(now, count);
    }

private:
    /// Whether a window of the interval that ends at `now` holds it. Instants that lie ahead, after
    /// the clock was set back, count as now.
    static bool counts(const ClaimsAt &e, std::int64_t now, std::int64_t interval) {
        return time_plus(e.at, interval) > now;
    }

    std::int64_t used(std::int64_t now, std::int64_t interval) const {
        std::int64_t sum = 0;
        for (const ClaimsAt &e : entries())
            sum += counts(e, now, interval) ? e.count : 0;
        return sum;
    }

    void add(std::int64_t at, std::int64_t count) {
        if (size_ > 0 && entries_[size_ - 1].at == at) {
            entries_[size_ - 1].count += count;
            return;
        }
        if (size_ == room)
            merge_closest();
        entries_[size_++] = {.at = at, .count = count};
    }

    void merge_closest() {
        std::size_t best = 0;
        for (std::size_t i = 1; i + 1 < size_; ++i)
            if (entries_[i + 1].at - entries_[i].at < entries_[best + 1].at - entries_[best].at)
                best = i;
        entries_[best + 1].count += entries_[best].count;
        std::copy(entries_.begin() + static_cast<std::ptrdiff_t>(best) + 1,
                  entries_.begin() + static_cast<std::ptrdiff_t>(size_),
                  entries_.begin() + static_cast<std::ptrdiff_t>(best));
        --size_;
    }

    std::array<ClaimsAt, room> entries_{};
    std::size_t size_ = 0;
};

} // namespace stacksaga::core
