// Saga trees: sagas that have sagas as steps, run without the reference model and held to the
// promises of saga_tree.sql.
#pragma once

#include "plan.hpp"
#include "postgres.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace stacksaga::property {

inline constexpr int trees_per_definition = 10;

/// A saga, its children and theirs: the statements that define them, and the one to start.
struct SagaTreeDefinition {
    std::string root;
    std::vector<std::string> statements;
};
SagaTreeDefinition make_saga_tree(uint64_t seed, int number);
/// The input of one tree, the same for all its sagas.
std::string tree_input(uint64_t seed, int number);
std::string tree_id(uint64_t seed, int number);

class SagaTreeDatabase {
public:
    /// Uses the database of a Database.
    SagaTreeDatabase(const std::string &database, const std::string &script, uint64_t seed);

    /// Runs the trees first..last-1, and adds a report for each that broke a promise, or for all
    /// of them. Returns how many broke one.
    int run(int first, int last, bool report_all, std::vector<std::string> &reports);

private:
    void start(int first, int last);
    bool run_tick(int tick);
    std::string report(int number, const std::string &broken);

    uint64_t seed_;
    support::Session session_;
};

} // namespace stacksaga::property
