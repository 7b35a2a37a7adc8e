// How many of the messages that a handler has published remain: those of a subtransaction that is
// rolled back are not counted.
//
// Rolling back takes away the last ones, since a subtransaction ends before anything follows it. So
// of the first messages of a list, those remain whose number is below the count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace stacksaga::core {

class PublishedCount {
public:
    /// So many nested subtransactions may have published something.
    static constexpr std::size_t levels_max = 64;

    std::int64_t count() const { return count_; }
    void clear() {
        count_ = 0;
        size_ = 0;
    }

    /// One is published at this nesting level of the transaction. False: too many nested levels
    /// have published, and it does not count.
    bool note(std::int32_t level) {
        if (size_ == 0 || levels_[size_ - 1].level < level) {
            if (size_ == levels_max)
                return false;
            levels_[size_++] = {.level = level, .count_before = count_};
        }
        ++count_;
        return true;
    }

    /// The subtransaction of this level ends; what it has published belongs to the one around it.
    void committed(std::int32_t level) {
        if (size_ == 0 || levels_[size_ - 1].level != level)
            return;
        if (size_ > 1 && levels_[size_ - 2].level == level - 1)
            --size_;
        else
            levels_[size_ - 1].level = level - 1;
    }

    void rolled_back(std::int32_t level) {
        while (size_ > 0 && levels_[size_ - 1].level >= level)
            count_ = levels_[--size_].count_before;
    }

private:
    struct Level {
        std::int32_t level;
        std::int64_t count_before; ///< before the first one of this level
    };
    std::int64_t count_ = 0;
    std::size_t size_ = 0;
    std::array<Level, levels_max> levels_{}; ///< rising
};

} // namespace stacksaga::core
