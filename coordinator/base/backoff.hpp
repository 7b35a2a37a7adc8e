// Waiting between attempts: exponential, capped, jittered.
#pragma once

#include "base/types.hpp"

#include <algorithm>
#include <random>

namespace stacksaga::coordinator {

/// Lifecycle: one per operation that is retried; reset() after a success. Deterministic for a seed.
/// Each wait is drawn from the upper half of the current step, so that daemons that lost the same
/// server do not return all at once or immediately.
class Backoff {
public:
    Backoff(Duration initial, Duration cap, std::uint64_t seed)
        : initial_(initial), cap_(cap), step_(initial), random_(seed) {}

    [[nodiscard]] Duration next() {
        std::uniform_int_distribution<Duration::rep> drawn(step_.count() / 2, step_.count());
        const Duration wait{drawn(random_)};
        step_ = std::min(cap_, step_ * 2);
        return wait;
    }

    void reset() noexcept { step_ = initial_; }

private:
    Duration initial_;
    Duration cap_;
    Duration step_;
    std::mt19937_64 random_;
};

} // namespace stacksaga::coordinator
