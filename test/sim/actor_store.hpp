// The simulated environment of the daemon's code: a clock that drifts, and tables behind messages
// that may be lost or delayed.
#pragma once

#include "world.hpp"

#include "base/time.hpp"
#include "roles/control_store.hpp"

#include <string>

namespace stacksaga::sim {

/// The steady clock of a process, which drifts.
class ActorClock final : public coordinator::Clock {
public:
    ActorClock(World &world, const Process &process) : world_(world), process_(process) {}

    [[nodiscard]] coordinator::SteadyTime now() const override;
    asio::awaitable<void> wait_until(coordinator::SteadyTime at) override;

    /// Waits for true time and for a pause of the process; throws when it was killed or stopped.
    asio::awaitable<void> pass(Time duration);

private:
    World &world_;
    const Process &process_;
};

class ActorStore final : public coordinator::AgentStore {
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
    asio::awaitable<std::int64_t> register_agent(const coordinator::RingName &ring,
                                                 const std::string &name, double weight) override;
    asio::awaitable<coordinator::Beat> beat(const coordinator::RingName &ring,
                                            const coordinator::AgentIdentity &agent) override;
    asio::awaitable<void> leave(const coordinator::AgentIdentity &agent) override;
    asio::awaitable<std::vector<coordinator::Slot>>
    assigned_slots(const std::string &agent, coordinator::Instant window_start) override;

private:
    /// Sends a statement that reads; throws when the message is lost.
    asio::awaitable<Passage> go();
    /// Waits for the answer.
    asio::awaitable<void> come_back(Passage passage);
    /// A statement that writes: it runs when it arrives, even if the process is paused, has given
    /// up or is dead by then.
    template <class Statement>
    asio::awaitable<std::invoke_result_t<Statement, ControlTables &>> write(Statement statement);

    World &world_;
    const Process &process_;
    ActorClock &clock_;
    coordinator::Strategy strategy_;
    bool open_ = false;
    // The values of the last answers; of nodes without their states.
    std::vector<coordinator::Node> nodes_;
    std::vector<coordinator::Slot> slots_; ///< of the ring or of an agent
};

} // namespace stacksaga::sim
