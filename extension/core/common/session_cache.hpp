// A small memory of a session by key: one place for all keys with the same remainder, so a key may
// push out another one, which is found out again when it is asked for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace stacksaga::core {

template <class Value, std::size_t size> class SessionCache {
public:
    /// The known value of the key, or else the result of `find_out`, which may use the cache
    /// itself. A value from another `state` is not used.
    template <class F>
    constexpr Value &value(std::uint64_t key, F &&find_out, std::uint64_t state = 0) {
        Place &place = places_[key % size];
        if (!place.is_taken || place.key != key || place.state != state) {
            const Value found = find_out();
            place = {.key = key, .state = state, .value = found, .is_taken = true};
        }
        return place.value;
    }

private:
    struct Place {
        std::uint64_t key = 0;
        std::uint64_t state = 0;
        Value value{};
        bool is_taken = false;
    };
    std::array<Place, size> places_{};
};

} // namespace stacksaga::core
