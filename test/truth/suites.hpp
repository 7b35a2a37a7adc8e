// The sagas that are explored, in suites: by the number of steps, and with a child.
#pragma once
#include "explore.hpp"

#include <string_view>

namespace stacksaga::truth {

struct Suite {
    std::string_view name;
    std::vector<Family> families;
    Settings settings;
};

/// `at_length`: with more kinds of steps, more losses and more operations.
std::vector<Suite> suites(bool at_length);

/// A saga of two or three steps as `seed` draws it, one in three with a child.
Family random_family(std::uint64_t seed);

} // namespace stacksaga::truth
