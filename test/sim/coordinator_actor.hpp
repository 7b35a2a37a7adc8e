// The coordinator's own code (coordinator/master.cpp) on a simulated clock and simulated tables.
#pragma once

#include "world.hpp"

#include "clock.hpp"
#include "control_store.hpp"
#include "log.hpp"
#include "master.hpp"

#include <string>

namespace stacksaga::sim {

/// The steady clock of a process, which drifts.
class ActorClock final : public coordinator::Clock {
public:
    ActorClock(World &world, const Process &process) : world_(world), process_(process) {}

    [[nodiscard]] coordinator::SteadyTime now() const override;
    asio::awaitable<void> wait_until(coordinator::SteadyTime at) override;

    /// Lets true time pass, and a pause of the process; throws when it was killed.
    asio::awaitable<void> pass(Time duration);

private:
    World &world_;
    const Process &process_;
};

class ActorStore final : public coordinator::ControlStore {
public:
    ActorStore(World &world, const Process &process, ActorClock &clock,
               coordinator::Strategy strategy)
        : world_(world), process_(process), clock_(clock), strategy_(strategy) {}

    asio::awaitable<coordinator::ServerInfo> open() override;
    void close() noexcept override { open_ = false; }
    asio::awaitable<coordinator::RingState> ring_state(const coordinator::RingName &ring) override;
    asio::awaitable<std::vector<coordinator::Node>>
    nodes(const coordinator::RingName &ring) override;
    asio::awaitable<std::vector<coordinator::Slot>>
    slots(const coordinator::RingName &ring) override;
    asio::awaitable<std::optional<std::int64_t>>
    publish_window(const coordinator::RingName &ring, const coordinator::Proposal &proposal,
                   const std::string &publisher) override;

private:
    /// The way there; throws when the message is lost.
    asio::awaitable<Passage> go();
    /// The way back.
    asio::awaitable<void> come_back(Passage passage, bool is_publication);
    void check_moves(const coordinator::Proposal &proposal) const;

    World &world_;
    const Process &process_;
    ActorClock &clock_;
    coordinator::Strategy strategy_;
    bool open_ = false;
    std::vector<coordinator::Node> nodes_;           ///< as last told
    std::vector<std::optional<std::string>> owners_; ///< as they were then
};

/// Lifecycle: start() once; killed by its process, never destroyed before the world's end.
class CoordinatorActor {
public:
    CoordinatorActor(World &world, std::string name, coordinator::Strategy strategy,
                     std::uint64_t seed);
    void start();

    Process process;

private:
    World &world_;
    ActorClock clock_;
    ActorStore store_;
    coordinator::Log log_;
    coordinator::Master master_;
};

} // namespace stacksaga::sim
