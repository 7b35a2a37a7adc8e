// A list in memory that is lent: it grows, and gives nothing back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

namespace stacksaga::core {

/// Where lists take their memory from. allocate() never returns nullptr; what it returns is aligned
/// as malloc() and palloc() align it, and lives as long as the lists.
struct Memory {
    void *(*allocate)(void *owner, std::size_t bytes);
    void *owner;
};

template <class T> class List {
public:
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

    void push(const Memory &memory, const T &element) {
        if (size_ == capacity_)
            grow(memory, std::max<std::size_t>(4, 2 * capacity_));
        data_[size_++] = element;
    }
    /// `count` elements, each as T{} makes them, instead of what was there.
    void assign(const Memory &memory, std::size_t count) {
        size_ = 0;
        if (count > capacity_)
            grow(memory, count);
        std::fill_n(data_, count, T{});
        size_ = count;
    }
    void clear() { size_ = 0; }
    void pop() { --size_; }

    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T &operator[](std::size_t i) { return data_[i]; }
    const T &operator[](std::size_t i) const { return data_[i]; }
    T &back() { return data_[size_ - 1]; }
    T *begin() { return data_; }
    T *end() { return data_ + size_; }
    const T *begin() const { return data_; }
    const T *end() const { return data_ + size_; }

private:
    void grow(const Memory &memory, std::size_t capacity) {
        auto *larger = static_cast<T *>(memory.allocate(memory.owner, capacity * sizeof(T)));
        std::copy_n(data_, size_, larger);
        data_ = larger;
        capacity_ = capacity;
    }

    T *data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

} // namespace stacksaga::core
