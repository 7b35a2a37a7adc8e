// Saga trees: sagas that have sagas as steps, run without the reference model and held to the
// promises of saga_tree.sql.
#pragma once

#include "plan.hpp"
#include "postgres.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace stacksaga::property {

inline constexpr int trees_per_definition = 10;
/// Trees of a background worker come in rounds: in one of them nothing fails, so that steps run
/// ahead without subtransactions; in the next one attempts fail; in the third the worker is killed
/// as well.
inline constexpr int trees_per_round = 60;
inline constexpr int rounds = 3;

/// A saga, its children and theirs: the statements that define them, and the one to start.
struct SagaTreeDefinition {
    std::string root;
    std::vector<std::string> statements;
};
/// So many of a hundred steps of its own are SQL steps.
SagaTreeDefinition make_saga_tree(uint64_t seed, int number, int sql_percent);
/// The input of one tree, the same for all its sagas.
std::string tree_input(uint64_t seed, int number, bool may_fail);
std::string tree_id(uint64_t seed, int number);

class LiveWorker;

class SagaTreeDatabase {
public:
    /// Uses the database of a Database. Its sagas are run by run_pending().
    SagaTreeDatabase(const std::string &database, const std::string &script, uint64_t seed);
    /// By a background worker, which is killed so often.
    SagaTreeDatabase(const std::string &database, const std::string &script, uint64_t seed,
                     int kills);
    ~SagaTreeDatabase();

    /// Runs the trees first..last-1, and adds a report for each that broke a promise, or for all
    /// of them. Returns how many broke one.
    int run(int first, int last, bool report_all, std::vector<std::string> &reports);

private:
    void start(int first, int last, bool may_fail);
    SagaTreeDefinition definition_of(int number) const;
    bool run_tick(int tick);
    void begin_hour(int tick);
    void end_hour();
    bool run_steps();
    std::string report(int number, const std::string &broken);

    uint64_t seed_;
    support::Session session_;
    std::unique_ptr<LiveWorker> worker_; ///< none: run_pending()
};

} // namespace stacksaga::property
