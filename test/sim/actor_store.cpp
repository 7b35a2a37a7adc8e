#include "actor_store.hpp"

#include "db/store_error.hpp"
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

coordinator::Slot slot_of(std::int32_t number, std::int32_t count, const NodeRow *owner,
                          const NodeRow *next_owner) {
    const core::Range range = core::slot_range(number, count);
    const auto name = [](const NodeRow *node) {
        return node == nullptr ? std::nullopt : std::optional(node->name);
    };
    return {number, range.first.value(), range.last.value(), name(owner), name(next_owner)};
}

/// The longest time that a process waits for an answer.
constexpr Time patience = 10 * second;

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
    ++world_.statements.reads;
    const Passage passage = passage_of(world_, process_);
    co_await clock_.pass(passage.there);
    if (passage.lost_before) {
        open_ = false;
        throw StoreError(ErrorClass::reconnect, "the request is lost");
    }
    co_return passage;
}

asio::awaitable<void> ActorStore::come_back(Passage passage) {
    co_await clock_.pass(passage.back);
    if (passage.lost_after) {
        open_ = false;
        throw StoreError(ErrorClass::reconnect, "the answer is lost");
    }
}

template <class Statement>
asio::awaitable<std::invoke_result_t<Statement, ControlTables &>>
ActorStore::write(Statement statement) {
    struct Answer {
        std::optional<std::invoke_result_t<Statement, ControlTables &>> value;
        std::string refusal;
    };
    ++world_.statements.writes;
    const Passage passage = passage_of(world_, process_);
    const auto answer = std::make_shared<Answer>();
    if (!passage.lost_before)
        world_.at(world_.now() + passage.there, [this, answer, statement = std::move(statement)] {
            try {
                answer->value = statement(world_.database());
            } catch (const Refusal &refusal) {
                ++world_.tables.counts.fenced;
                answer->refusal = refusal.what();
            }
        });
    const bool in_time = passage.there <= patience;
    co_await clock_.pass(in_time ? passage.there + passage.back : patience);
    if (passage.lost_before || passage.lost_after || !in_time) {
        open_ = false;
        throw StoreError(ErrorClass::in_doubt, "no answer");
    }
    if (!answer->value)
        throw StoreError(ErrorClass::refused, "refused", answer->refusal);
    co_return *answer->value;
}

asio::awaitable<coordinator::ServerInfo> ActorStore::open() {
    const Passage passage = co_await go();
    open_ = true;
    co_await come_back(passage);
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
    co_await come_back(passage);
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
    std::vector<coordinator::Node> answered = nodes_;
    for (coordinator::Node &node : answered)
        node.frozen = node.frozen && tables.mutant() != Mutant::frozen_ignored;
    co_await come_back(passage);
    co_return answered;
}

asio::awaitable<std::vector<coordinator::Slot>> ActorStore::slots(const RingName &) {
    const Passage passage = co_await go();
    const ControlTables &tables = world_.database();
    const auto count = static_cast<std::int32_t>(tables.slots().size());
    slots_.clear();
    for (std::int32_t i = 0; i < count; ++i) {
        const SlotRow &slot = tables.slots()[static_cast<std::size_t>(i)];
        slots_.push_back(slot_of(i, count, tables.find(slot.owner), tables.find(slot.next_owner)));
    }
    std::vector<coordinator::Slot> answered = slots_;
    for (coordinator::Slot &slot : answered) {
        if (tables.mutant() == Mutant::owners_forgotten)
            slot.owner = slot.next_owner = std::nullopt;
    }
    co_await come_back(passage);
    co_return answered;
}

asio::awaitable<std::vector<coordinator::Slot>> ActorStore::assigned_slots(const std::string &agent,
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
        if (tables.is_assigned(slot, *self, time_of(window_start)))
            slots_.push_back(slot_of(i, count, tables.worker_of(slot, *self), nullptr));
    }
    std::vector<coordinator::Slot> answered = slots_;
    co_await come_back(passage);
    co_return answered;
}

asio::awaitable<std::optional<std::int64_t>>
ActorStore::publish_window(const RingName &, const coordinator::Proposal &proposal,
                           const std::string &publisher) {
    check_moves(proposal, strategy_, nodes_, slots_);
    std::vector<Grant> grants;
    for (const coordinator::Grant &grant : proposal.grants)
        grants.push_back({grant.node,
                          {core::Token::from_int64(grant.range_start),
                           core::Token::from_int64(grant.range_end)}});
    return write([window_start = time_of(proposal.window_start), grants, publisher,
                  agent = proposal.agent](ControlTables &tables) {
        return tables.publish(window_start, grants, publisher, agent);
    });
}

asio::awaitable<std::int64_t> ActorStore::register_agent(const RingName &, const std::string &name,
                                                         double weight) {
    return write(
        [name, weight](ControlTables &tables) { return tables.register_agent(name, weight); });
}

asio::awaitable<coordinator::Beat> ActorStore::beat(const RingName &,
                                                    const coordinator::AgentIdentity &agent) {
    return write([agent](ControlTables &tables) {
        tables.beat(agent.name, agent.incarnation);
        auto candidates = tables.find_candidates(agent.incarnation);
        tables.take_over(agent.incarnation, candidates);
        return coordinator::Beat{tables.find(agent.name)->draining
                                     ? coordinator::NodeState::draining
                                     : coordinator::NodeState::active,
                                 coordinator::Duration{tables.settings().heartbeat_interval}};
    });
}

asio::awaitable<void> ActorStore::leave(const coordinator::AgentIdentity &agent) {
    // Named: g++ 12 destroys a temporary that holds a string twice.
    const auto statement = [agent](ControlTables &tables) {
        tables.leave(agent.name, agent.incarnation);
        return true;
    };
    co_await write(statement);
}

} // namespace stacksaga::sim
