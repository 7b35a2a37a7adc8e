// One schedule: a ring, its coordinators, agents and nodes, faults for some windows, then quiet,
// and the checks that all is well again.
#pragma once

#include "coordinator_actor.hpp"
#include "node_actor.hpp"

#include <memory>
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
    /// What was drawn, and every fault, for people who replay a seed.
    [[nodiscard]] const std::vector<std::string> &story() const { return story_; }

private:
    void tell(const std::string &what);
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
    void check_agents();
    [[nodiscard]] bool is_dealt_to(const NodeRow &worker, const NodeRow &agent) const;
    [[nodiscard]] std::string agent_of(const NodeRow &node) const;

    static constexpr std::int32_t slot_count = 64;
    static constexpr Time windows_of_faults = 5;

    static core::RingSettings draw_settings(std::mt19937_64 &random);

    std::mt19937_64 random_; ///< draws the settings, before there is a world
    core::RingSettings settings_;
    World world_;
    // Destroyed before the world: nothing refers to them but its events, which no longer happen.
    std::vector<std::unique_ptr<NodeActor>> nodes_;
    std::vector<std::unique_ptr<CoordinatorActor>> coordinators_;
    std::vector<std::unique_ptr<AgentActor>> agents_; ///< none: a ring without, for good
    std::vector<std::string> story_;
    std::uint64_t faults_ = 0;
    Time jumped_back_ = 0;
    Time still_ = 0; ///< how long after the calm began somebody stands still yet
    std::uint64_t seed_;
};

} // namespace stacksaga::sim
