#include "actor_store.hpp"

#include "errors.hpp"
#include "moves.hpp"

#include <asio/error.hpp>
#include <asio/system_error.hpp>

namespace stacksaga::sim {

using coordinator::ErrorClass;
using coordinator::Instant;
using coordinator::RingName;
using coordinator::StoreError;

namespace {

Instant instant_of(Time time) {
    return Instant{coordinator::Duration{time - core::unix_epoch_us}};
}

Time time_of(Instant at) {
    return at.time_since_epoch().count() + core::unix_epoch_us;
}

coordinator::NodeState state_shown(core::NodeState state) {
    switch (state) {
    case core::NodeState::active:
        return coordinator::NodeState::active;
    case core::NodeState::suspected:
        return coordinator::NodeState::suspected;
    case core::NodeState::draining:
        return coordinator::NodeState::draining;
    default:
        return coordinator::NodeState::dead;
    }
}

coordinator::Slot slot_of(std::int32_t number, std::int32_t count, const NodeRow *owner) {
    const core::Range range = core::slot_range(number, count);
    return {number, range.first.value(), range.last.value(),
            owner == nullptr ? std::nullopt : std::optional(owner->name)};
}

[[noreturn]] void throw_aborted() {
    throw asio::system_error(asio::error::operation_aborted);
}

} // namespace

// ---------------------------------------------------------------------------- clock

coordinator::SteadyTime ActorClock::now() const {
    const auto own = static_cast<std::int64_t>(static_cast<double>(world_.now()) * process_.rate);
    return coordinator::SteadyTime(std::chrono::hours(1000)) + std::chrono::microseconds(own);
}

asio::awaitable<void> ActorClock::pass(Time duration) {
    Time until = world_.now() + duration;
    do {
        co_await world_.suspend_until(until);
        if (process_.killed || process_.stopped)
            throw_aborted();
        until = process_.paused_until;
    } while (world_.now() < until);
}

asio::awaitable<void> ActorClock::wait_until(coordinator::SteadyTime at) {
    const auto own = std::chrono::ceil<std::chrono::microseconds>(at - now()).count();
    co_await pass(process_.truly(std::max<Time>(own, 0)));
}

// ---------------------------------------------------------------------------- store

asio::awaitable<Passage> ActorStore::go() {
    const Passage passage = passage_of(world_, process_);
    co_await clock_.pass(passage.there);
    if (passage.lost_before) {
        open_ = false;
        throw StoreError(ErrorClass::reconnect, "lost on the way there");
    }
    co_return passage;
}

asio::awaitable<void> ActorStore::come_back(Passage passage, bool is_publication) {
    co_await clock_.pass(passage.back);
    if (passage.lost_after) {
        open_ = false;
        throw StoreError(is_publication ? ErrorClass::in_doubt : ErrorClass::reconnect,
                         "lost on the way back");
    }
}

asio::awaitable<coordinator::ServerInfo> ActorStore::open() {
    const Passage passage = co_await go();
    open_ = true;
    co_await come_back(passage, false);
    co_return coordinator::ServerInfo{};
}

asio::awaitable<coordinator::RingState> ActorStore::ring_state(const RingName &) {
    const Passage passage = co_await go();
    ControlTables &tables = world_.database();
    const core::RingSettings &settings = tables.settings();
    coordinator::RingState state{.database_time = instant_of(tables.now),
                                 .window_length = coordinator::Duration{settings.window_length},
                                 .publish_lead = coordinator::Duration{settings.publish_lead},
                                 .strategy = strategy_,
                                 .slots = static_cast<std::int32_t>(tables.slots().size()),
                                 .epoch = tables.epoch(),
                                 .last_window = std::nullopt};
    if (const auto last = tables.last_window())
        state.last_window = instant_of(*last);
    co_await come_back(passage, false);
    co_return state;
}

asio::awaitable<std::vector<coordinator::Node>> ActorStore::nodes(const RingName &) {
    const Passage passage = co_await go();
    const ControlTables &tables = world_.database();
    nodes_.clear();
    for (const auto &[name, node] : tables.nodes())
        nodes_.push_back(
            {name, node.is_agent ? coordinator::NodeKind::agent : coordinator::NodeKind::worker,
             state_shown(tables.shown_state(node)), node.weight,
             node.agent.empty() ? std::nullopt : std::optional(node.agent),
             tables.is_frozen(node)});
    std::vector<coordinator::Node> told = nodes_;
    for (coordinator::Node &node : told)
        node.frozen = node.frozen && tables.mutant() != Mutant::frozen_ignored;
    co_await come_back(passage, false);
    co_return told;
}

asio::awaitable<std::vector<coordinator::Slot>> ActorStore::slots(const RingName &) {
    const Passage passage = co_await go();
    const ControlTables &tables = world_.database();
    const auto count = static_cast<std::int32_t>(tables.slots().size());
    slots_.clear();
    for (std::int32_t i = 0; i < count; ++i) {
        const NodeRow *owner = tables.find(tables.slots()[static_cast<std::size_t>(i)].owner);
        slots_.push_back(slot_of(i, count, owner));
    }
    std::vector<coordinator::Slot> told = slots_;
    for (coordinator::Slot &slot : told) {
        if (tables.mutant() == Mutant::owners_forgotten)
            slot.owner.reset();
    }
    co_await come_back(passage, false);
    co_return told;
}

asio::awaitable<std::vector<coordinator::Slot>> ActorStore::dealt_slots(const std::string &agent,
                                                                        Instant window_start) {
    const Passage passage = co_await go();
    const ControlTables &tables = world_.database();
    const NodeRow *self = tables.find(agent);
    if (self == nullptr)
        throw StoreError(ErrorClass::refused, "refused", "SG404");
    const auto count = static_cast<std::int32_t>(tables.slots().size());
    slots_.clear();
    for (std::int32_t i = 0; i < count; ++i) {
        const SlotRow &slot = tables.slots()[static_cast<std::size_t>(i)];
        if (tables.is_dealt(slot, *self, time_of(window_start)))
            slots_.push_back(slot_of(i, count, tables.worker_of(slot, *self)));
    }
    std::vector<coordinator::Slot> told = slots_;
    co_await come_back(passage, false);
    co_return told;
}

asio::awaitable<std::optional<std::int64_t>>
ActorStore::publish_window(const RingName &, const coordinator::Proposal &proposal,
                           const std::string &publisher) {
    const Passage passage = co_await go();
    check_moves(proposal, strategy_, nodes_, slots_);
    std::vector<Grant> grants;
    for (const coordinator::Grant &grant : proposal.grants)
        grants.push_back({grant.node,
                          {core::Token::from_int64(grant.range_start),
                           core::Token::from_int64(grant.range_end)}});
    std::optional<std::int64_t> epoch;
    try {
        epoch = world_.database().publish(time_of(proposal.window_start), grants, publisher,
                                          proposal.agent);
    } catch (const Refusal &refusal) {
        throw StoreError(ErrorClass::refused, "refused", refusal.what());
    }
    co_await come_back(passage, true);
    co_return epoch;
}

asio::awaitable<std::int64_t> ActorStore::register_agent(const RingName &, const std::string &name,
                                                         double weight) {
    const Passage passage = co_await go();
    const Incarnation incarnation = world_.database().register_agent(name, weight);
    co_await come_back(passage, false);
    co_return incarnation;
}

asio::awaitable<coordinator::Beat> ActorStore::beat(const RingName &,
                                                    const coordinator::AgentIdentity &agent) {
    const Passage passage = co_await go();
    ControlTables &tables = world_.database();
    try {
        tables.beat(agent.name, agent.incarnation);
    } catch (const Refusal &refusal) {
        ++tables.counts.fenced;
        throw StoreError(ErrorClass::refused, "refused", refusal.what());
    }
    auto candidates = tables.find_candidates(agent.incarnation);
    tables.take_over(agent.incarnation, candidates);
    const NodeRow *self = tables.find(agent.name);
    const coordinator::Beat answer{self->draining ? coordinator::NodeState::draining
                                                  : coordinator::NodeState::active,
                                   coordinator::Duration{tables.settings().heartbeat_interval}};
    co_await come_back(passage, false);
    co_return answer;
}

asio::awaitable<void> ActorStore::leave(const coordinator::AgentIdentity &agent) {
    const Passage passage = co_await go();
    try {
        world_.database().leave(agent.name, agent.incarnation);
    } catch (const Refusal &refusal) {
        throw StoreError(ErrorClass::refused, "refused", refusal.what());
    }
    co_await come_back(passage, false);
}

} // namespace stacksaga::sim
