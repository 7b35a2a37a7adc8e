// How many sessions have left the line of a queue's waiters for its steps and have not claimed yet.
//
// They are counted in words of shared memory, one for each of some periods of time, without a lock:
// a session adds to the word of the present period and takes itself off the same word. A word of a
// period that is long past counts nothing, so a session that never claims is forgotten, and no
// count can drift. A word belongs to one queue at a time; another one whose hash leads there counts
// nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace stacksaga::core {

/// Instants are microseconds of a clock that all sessions share.
struct PromiseCount {
    /// The claim of a session that left the line comes within this time, and some of a period more;
    /// else the steps that it left for are offered to others.
    static constexpr std::int64_t period_us = 4096;
    static constexpr std::uint32_t periods_counted = 3;
    static constexpr std::size_t words = 4;

    static constexpr std::uint32_t period_of(std::int64_t now) {
        return static_cast<std::uint32_t>(now / period_us);
    }
    static constexpr std::size_t word_of(std::uint32_t period) { return period % words; }

    /// The word with one more; nullopt: another queue's is counted in it, or it is full.
    static constexpr std::optional<std::uint64_t> added(std::uint64_t word, std::uint32_t period,
                                                        std::uint16_t tag) {
        if (period_in(word) != period)
            return make(period, tag, 1);
        if (tag_in(word) != tag || count_in(word) == UINT16_MAX)
            return std::nullopt;
        return word + 1;
    }

    /// The word with one less; nullopt: it is forgotten already.
    static constexpr std::optional<std::uint64_t> removed(std::uint64_t word, std::uint32_t period,
                                                          std::uint16_t tag) {
        if (period_in(word) != period || tag_in(word) != tag || count_in(word) == 0)
            return std::nullopt;
        return word - 1;
    }

    /// How many of a word count in this period.
    static constexpr std::size_t counted(std::uint64_t word, std::uint32_t period,
                                         std::uint16_t tag) {
        return tag_in(word) == tag && period - period_in(word) < periods_counted ? count_in(word)
                                                                                 : 0;
    }

private:
    static constexpr std::uint64_t make(std::uint32_t period, std::uint16_t tag,
                                        std::uint16_t count) {
        return std::uint64_t{period} << 32 | std::uint64_t{tag} << 16 | count;
    }
    static constexpr std::uint32_t period_in(std::uint64_t word) {
        return static_cast<std::uint32_t>(word >> 32);
    }
    static constexpr std::uint16_t tag_in(std::uint64_t word) {
        return static_cast<std::uint16_t>(word >> 16);
    }
    static constexpr std::uint16_t count_in(std::uint64_t word) {
        return static_cast<std::uint16_t>(word);
    }
};

} // namespace stacksaga::core
