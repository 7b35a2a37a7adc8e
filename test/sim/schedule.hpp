// One schedule: a ring, its coordinators, agents and nodes, faults for some windows, then a calm,
// and the checks that the ring has recovered.
#pragma once

#include "coordinator_actor.hpp"
#include "node_actor.hpp"

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace stacksaga::sim {

class Schedule {
public:
    Schedule(std::uint64_t seed, Mutant mutant);

    /// Runs to the end; Violation when an invariant does not hold.
    void run();

    [[nodiscard]] const ControlTables::Counts &counts() const { return world_.tables.counts; }
    [[nodiscard]] std::uint64_t faults() const { return faults_; }
    /// The drawn settings and every fault, for people who replay a seed.
    [[nodiscard]] const std::vector<std::string> &trace() const { return trace_; }

private:
    void record(const std::string &what);
    NodeActor &add_node(const std::string &name, const std::string &agent = {});
    void add_coordinator();
    void add_agent(const std::string &name);
    [[nodiscard]] double draw_rate();
    [[nodiscard]] double draw_weight();
    template <class Actor>
    [[nodiscard]] static std::vector<Actor *>
    running(const std::vector<std::unique_ptr<Actor>> &actors) {
        std::vector<Actor *> found;
        for (const auto &actor : actors) {
            if (!actor->process.killed)
                found.push_back(actor.get());
        }
        return found;
    }
    void impede(Process &process, const std::string &who);
    void plan_faults();
    void strike();
    void strike_node();
    void strike_coordinator();
    void strike_agent();
    void calm();
    [[nodiscard]] bool is_coordinated() const;
    [[nodiscard]] Time time_to_recover() const;
    void check_ownership();
    void check_balance() const;
    [[nodiscard]] std::set<std::string> removed_agents() const;
    void await_window_after_removals();
    void check_agents();
    [[nodiscard]] bool is_assigned_by(const NodeRow &worker, const NodeRow &agent) const;
    [[nodiscard]] std::string agent_of(const NodeRow &node) const;

    static constexpr std::int32_t slot_count = 64;
    static constexpr Time windows_of_faults = 5;

    static core::RingSettings draw_settings(std::mt19937_64 &random);

    std::mt19937_64 random_; ///< draws the settings before the world exists
    core::RingSettings settings_;
    World world_;
    // Destroyed before the world: only its events refer to them, and these no longer happen.
    std::vector<std::unique_ptr<NodeActor>> nodes_;
    std::vector<std::unique_ptr<CoordinatorActor>> coordinators_;
    std::vector<std::unique_ptr<AgentActor>> agents_; ///< empty: a ring that never has agents
    std::vector<std::string> trace_;
    std::uint64_t faults_ = 0;
    Time jumped_back_ = 0;
    Time still_ = 0; ///< the longest pause that remained when the calm began
    std::uint64_t seed_;
};

} // namespace stacksaga::sim
