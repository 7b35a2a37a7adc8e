// Random numbers that depend on a seed and a place, and on nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace stacksaga::property {

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). Every
/// place that decides something has a stream of its own, so that one more decision in one of them
/// moves no other, and a saga's trace is the same whichever other sagas run.
class Random {
public:
    Random(uint64_t seed, std::initializer_list<uint64_t> place) : state_(seed) {
        for (uint64_t number : place)
            state_ = next() ^ number;
    }

    uint64_t next() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    /// 0..n-1.
    int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
    int between(int low, int high) { return low + below(high - low + 1); }
    bool chance(int percent) { return below(100) < percent; }
    template <class T> T one_of(std::initializer_list<T> values) {
        return values.begin()[below(static_cast<int>(values.size()))];
    }
    template <class T> void shuffle(std::vector<T> &values) {
        for (std::size_t i = values.size(); i > 1; --i)
            std::swap(values[i - 1], values[next() % i]);
    }

private:
    uint64_t state_;
};

} // namespace stacksaga::property
