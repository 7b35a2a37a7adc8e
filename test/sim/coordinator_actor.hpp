// The daemon's two roles, by their own code (coordinator/roles/master_role.cpp, agent_role.cpp).
#pragma once

#include "actor_store.hpp"

#include "base/log.hpp"
#include "roles/agent_role.hpp"
#include "roles/master_role.hpp"

#include <string>

namespace stacksaga::sim {

/// A daemon in role master. Lifecycle: start() once; killed by its process, never destroyed before
/// the world's end.
class CoordinatorActor {
public:
    CoordinatorActor(World &world, std::string name, coordinator::Strategy strategy,
                     std::uint64_t seed);
    void start();
    [[nodiscard]] const std::string &name() const { return name_; }

    Process process;

private:
    World &world_;
    std::string name_;
    ActorClock clock_;
    ActorStore store_;
    coordinator::Log log_;
    coordinator::Master master_;
};

/// A daemon in role agent, likewise; also killed when it has left, or when it notices that another
/// agent has its name.
class AgentActor {
public:
    AgentActor(World &world, std::string name, double weight, coordinator::Strategy strategy,
               std::uint64_t seed);
    void start();
    /// Stops it, so that it leaves the ring.
    void stop() { process.stopped = true; }
    [[nodiscard]] const std::string &name() const { return name_; }

    Process process;

private:
    void ended(std::exception_ptr thrown);

    World &world_;
    std::string name_;
    ActorClock clock_;
    ActorStore store_;
    coordinator::Log log_;
    coordinator::Agent agent_;
    bool leaves_ = false;
};

} // namespace stacksaga::sim
