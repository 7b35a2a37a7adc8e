// State that follows savepoints: it lasts as long as the subtransaction in which it came about,
// becomes part of the one around it when that ends, and goes when that is rolled back.
//
// A level is a subtransaction's nesting: the transaction itself has 1. A subtransaction ends before
// any other of its level begins, so levels tell apart those that are open.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stacksaga::core {

/// How long one thing lasts: for what is kept in a list of its own.
class Lasting {
public:
    constexpr Lasting() = default; ///< it has not happened
    constexpr explicit Lasting(std::int32_t level) : level_(level) {}

    constexpr bool has_happened() const { return level_ != 0; }
    /// Whether it goes with the subtransaction of this level.
    constexpr bool is_undone_with(std::int32_t level) const { return level_ >= level; }
    constexpr void release(std::int32_t level) { level_ = std::min(level_, level - 1); }
    /// Both have happened, and this one goes when the other does, or later.
    constexpr bool is_as_lasting_as(const Lasting &other) const {
        return has_happened() && level_ <= other.level_;
    }

private:
    std::int32_t level_ = 0;
};

/// A value for each level that has one: what was counted in it. `+=` makes an inner one part of the
/// one around it.
template <class Value> class SavepointStack {
public:
    /// Room for one; the caller gives it, and keeps it as long as the stack is used.
    struct Level {
        Level *outer;
        std::int32_t level;
        Value value;
    };

    /// The value of the innermost level, which is this one. `make_room` returns an empty Level, for
    /// a level that has no value yet.
    template <class F> constexpr Value &at(std::int32_t level, F &&make_room) {
        if (innermost_ == nullptr || innermost_->level < level) {
            Level *added = make_room();
            added->outer = innermost_;
            added->level = level;
            innermost_ = added;
        }
        return innermost_->value;
    }

    constexpr void release(std::int32_t level) {
        if (innermost_ == nullptr || innermost_->level < level)
            return;
        Level *outer = innermost_->outer;
        if (outer == nullptr || outer->level < level - 1) {
            innermost_->level = level - 1;
            return;
        }
        outer->value += innermost_->value;
        innermost_ = outer;
    }

    constexpr void roll_back(std::int32_t level) {
        while (innermost_ != nullptr && innermost_->level >= level)
            innermost_ = innermost_->outer;
    }

    constexpr void clear() { innermost_ = nullptr; }

    template <class F> constexpr void each(F &&visit) const {
        for (const Level *l = innermost_; l != nullptr; l = l->outer)
            visit(l->value);
    }

private:
    Level *innermost_ = nullptr;
};

} // namespace stacksaga::core
