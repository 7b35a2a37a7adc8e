// Since when on commits may still bring rows that a look has not seen: learnt from looks alone.
//
// A snapshot says which transaction ids have ended (those below `oldest`) and which were not given
// out yet (those from `next` on). Once all ids that were given out at a look have ended, whatever
// is committed later is written by a transaction that got its id after that look.
#pragma once
#include <cstdint>
#include <optional>

namespace stacksaga::core {

/// A snapshot's knowledge of transaction ids, which wrap around.
struct SeenTransactions {
    std::uint32_t oldest; ///< those before it have ended
    std::uint32_t next;   ///< no transaction had it, or a later one
};

/// Instants are in microseconds.
class CommitHorizon {
public:
    constexpr CommitHorizon() = default;
    /// A look longer than `forgotten_us` ago is of no use, and ids wrap around.
    constexpr explicit CommitHorizon(std::int64_t forgotten_us) : forgotten_us_(forgotten_us) {}

    /// A look that began at `now` has seen these.
    constexpr void note(std::int64_t now, SeenTransactions seen) {
        if (!sampled_at_ || now < *sampled_at_ || now - *sampled_at_ > forgotten_us_)
            at_.reset();
        else if (static_cast<std::int32_t>(seen.oldest - sampled_next_) >= 0)
            at_ = sampled_at_;
        else
            return; // one that had begun by then goes on
        sampled_at_ = now;
        sampled_next_ = seen.next;
    }

    /// A row committed after the last look got its transaction id after this instant.
    /// nullopt: no look before it says so.
    constexpr std::optional<std::int64_t> at() const { return at_; }

private:
    std::int64_t forgotten_us_ = 0;
    std::optional<std::int64_t> at_{};
    std::optional<std::int64_t> sampled_at_{};
    std::uint32_t sampled_next_ = 0;
};

} // namespace stacksaga::core
