// Families: sagas that have sagas as steps, run without the reference model and held to the
// promises of saga_tree.sql.
#pragma once

#include "plan.hpp"
#include "postgres.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace stacksaga::property {

inline constexpr int families_per_definition = 10;

/// A saga, its children and theirs: the statements that define them, and the one to start.
struct FamilyDefinition {
    std::string root;
    std::vector<std::string> statements;
};
FamilyDefinition make_family(uint64_t seed, int number);
/// The input of one family: the same for all its sagas.
std::string family_input(uint64_t seed, int number);
std::string family_id(uint64_t seed, int number);

class FamilyLane {
public:
    /// Uses the database of a Lane.
    FamilyLane(const std::string &database, const std::string &script, uint64_t seed);

    /// Runs the families first..last-1, and adds a report for each that broke a promise, or for all
    /// of them. Returns how many broke one.
    int run(int first, int last, bool tell_all, std::vector<std::string> &reports);

private:
    void start(int first, int last);
    bool run_tick(int tick);
    std::string report(int number, const std::string &broken);

    uint64_t seed_;
    support::Session session_;
};

} // namespace stacksaga::property
