#include "coordinator_actor.hpp"

#include "errors.hpp"
#include "proposal.hpp"

#include <asio/co_spawn.hpp>
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
        asio::steady_timer timer(world_.io, asio::steady_timer::time_point::max());
        world_.at(until, [this, &timer] {
            timer.cancel();
            world_.wake();
        });
        asio::error_code woken;
        co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, woken));
        if (process_.killed)
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
    std::vector<coordinator::Node> nodes;
    for (const auto &[name, node] : tables.nodes())
        nodes.push_back({name, coordinator::NodeKind::worker, state_shown(tables.shown_state(node)),
                         node.weight});
    nodes_ = nodes;
    co_await come_back(passage, false);
    co_return nodes;
}

asio::awaitable<std::vector<coordinator::Slot>> ActorStore::slots(const RingName &) {
    const Passage passage = co_await go();
    const ControlTables &tables = world_.database();
    const auto count = static_cast<std::int32_t>(tables.slots().size());
    std::vector<coordinator::Slot> slots;
    owners_.clear();
    for (std::int32_t i = 0; i < count; ++i) {
        const core::Range range = core::slot_range(i, count);
        const NodeRow *owner = tables.find(tables.slots()[static_cast<std::size_t>(i)].owner);
        owners_.push_back(owner == nullptr ? std::nullopt : std::optional(owner->name));
        slots.push_back(
            {i, range.first.value(), range.last.value(),
             tables.mutant() == Mutant::owners_forgotten ? std::nullopt : owners_.back()});
    }
    co_await come_back(passage, false);
    co_return slots;
}

/// A consistent deal moves as few slots as balance allows: every member keeps what it has, up to
/// its quota.
void ActorStore::check_moves(const coordinator::Proposal &proposal) const {
    if (strategy_ != coordinator::Strategy::consistent)
        return;
    const auto members = coordinator::members_of(nodes_, strategy_);
    const auto slots = static_cast<std::int32_t>(owners_.size());
    std::vector<std::int32_t> held(members.size());
    std::size_t moved = 0;
    auto grant = proposal.grants.begin();
    for (std::int32_t i = 0; i < slots; ++i) {
        const auto &owner = owners_[static_cast<std::size_t>(i)];
        if (core::slot_range(i, slots).first.value() > grant->range_end)
            ++grant;
        moved += owner == grant->node ? 0 : 1;
        const auto found = std::ranges::find_if(
            members, [&](const coordinator::Member &member) { return owner == member.name; });
        if (found != members.end())
            ++held[static_cast<std::size_t>(found - members.begin())];
    }
    const auto quotas = coordinator::quotas(members, held, slots);
    std::int32_t kept = 0;
    for (std::size_t i = 0; i < members.size(); ++i)
        kept += std::min(held[i], quotas[i]);
    if (moved > static_cast<std::size_t>(slots - kept))
        throw Violation("a window moves more than balance asks for: " + std::to_string(moved) +
                        " slots instead of " + std::to_string(slots - kept));
}

asio::awaitable<std::optional<std::int64_t>>
ActorStore::publish_window(const RingName &, const coordinator::Proposal &proposal,
                           const std::string &publisher) {
    const Passage passage = co_await go();
    check_moves(proposal);
    std::vector<Grant> grants;
    for (const coordinator::Grant &grant : proposal.grants)
        grants.push_back({grant.node,
                          {core::Token::from_int64(grant.range_start),
                           core::Token::from_int64(grant.range_end)}});
    std::optional<std::int64_t> epoch;
    try {
        epoch = world_.database().publish(time_of(proposal.window_start), grants, publisher);
    } catch (const Refusal &refusal) {
        throw StoreError(ErrorClass::refused, "refused", refusal.what());
    }
    co_await come_back(passage, true);
    co_return epoch;
}

// ---------------------------------------------------------------------------- actor

CoordinatorActor::CoordinatorActor(World &world, std::string name, coordinator::Strategy strategy,
                                   std::uint64_t seed)
    : world_(world), clock_(world, process), store_(world, process, clock_, strategy),
      log_(coordinator::LogFormat::logfmt, coordinator::LogLevel::error, [](std::string_view) {}),
      master_(store_, clock_, log_,
              {.rings = {{"default", "default"}},
               .publisher = std::move(name),
               .once = false,
               .seed = seed}) {}

void CoordinatorActor::start() {
    asio::co_spawn(world_.io, master_.run(), [this](std::exception_ptr thrown) {
        if (!process.killed)
            world_.failure = std::move(thrown);
    });
    world_.wake();
}

} // namespace stacksaga::sim
