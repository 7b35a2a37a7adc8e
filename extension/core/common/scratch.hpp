// Working memory that a caller lends to a computation of the core, which allocates none itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

namespace stacksaga::core {

/// Gives out pieces of one block, which is aligned as malloc() and palloc() align theirs. The
/// caller that lends it asks the computation how many bytes it takes; there is no check for more.
class Scratch {
public:
    explicit Scratch(std::byte *block) : next_(block) {}

    /// `count` elements, each as T{} makes them.
    template <class T> std::span<T> take(std::size_t count) {
        static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
        std::span<T> piece{reinterpret_cast<T *>(next_), count};
        next_ += bytes_of<T>(count);
        std::fill(piece.begin(), piece.end(), T{});
        return piece;
    }

    /// How many bytes take<T>(count) needs.
    template <class T> static constexpr std::size_t bytes_of(std::size_t count) {
        constexpr std::size_t alignment = 16;
        static_assert(alignof(T) <= alignment);
        return (count * sizeof(T) + alignment - 1) / alignment * alignment;
    }

private:
    std::byte *next_;
};

} // namespace stacksaga::core
