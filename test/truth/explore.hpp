// Explores all orders of what can happen to one saga, breadth first, so that the first history that
// breaks a rule is a shortest one.
#pragma once
#include "judge.hpp"

#include <map>

namespace stacksaga::truth {

struct Violation {
    std::size_t length;
    std::string shape;
    std::vector<std::string> history;
    long shapes = 0; ///< in how many it was found
};

/// By what is wrong.
using Violations = std::map<std::string, Violation>;

struct Settings {
    Bounds bounds;
    std::size_t states_max = 400'000; ///< of one shape
    bool looks_for_ways = true;       ///< out of every park
    bool swaps_answers = true;
};

struct Counts {
    long shapes = 0;
    long states = 0;
    long cut = 0; ///< shapes that have more states
    long swaps = 0;
    long ways = 0;
    Counts &operator+=(const Counts &other);
};

/// One shape, alone or with its child's.
struct Family {
    Shape saga;
    std::optional<Shape> child;

    [[nodiscard]] std::string text() const;
};

Counts explore(const Family &family, const Settings &settings, Violations &found);

/// Follows one random history of at most `length` moves.
Counts walk(const Family &family, const Settings &settings, std::uint64_t seed, int length,
            Violations &found);

/// Adds one: the shortest history of each kind stays.
void add(Violations &found, const std::string &what, Violation violation);

} // namespace stacksaga::truth
