#include "control_tables.hpp"

#include "core/ring/sweep.hpp"

#include <algorithm>
#include <string>

namespace stacksaga::sim {
namespace {

[[noreturn]] void violated(std::string_view what, const std::string &detail) {
    throw Violation(std::string(what) + ": " + detail);
}

} // namespace

// ---------------------------------------------------------------------------- nodes

const NodeRow *ControlTables::find(const std::string &name) const {
    const auto found = nodes_.find(name);
    return found == nodes_.end() ? nullptr : &found->second;
}

const NodeRow *ControlTables::find(Incarnation incarnation) const {
    const auto name = names_.find(incarnation);
    if (name == names_.end())
        return nullptr;
    const NodeRow *node = find(name->second);
    return node != nullptr && node->incarnation == incarnation ? node : nullptr;
}

NodeRow &ControlTables::current(const std::string &name, Incarnation incarnation) {
    const auto found = nodes_.find(name);
    if (found == nodes_.end())
        throw Refusal("SG404");
    if (found->second.incarnation != incarnation)
        throw Refusal("SG412");
    return found->second;
}

void ControlTables::remove_dead() {
    std::erase_if(nodes_, [&](const auto &entry) {
        return core::age_of(entry.second.heartbeat_at, now) >= timing().removed_after();
    });
}

std::string ControlTables::agent_for(const std::string &older) const {
    std::vector<core::AgentChoice> agents;
    for (const auto &[name, node] : nodes_) {
        if (!node.is_agent)
            continue;
        const auto workers = std::ranges::count_if(
            nodes_, [&](const auto &entry) { return entry.second.agent == node.name; });
        agents.push_back({node.name, state_of(node), workers});
    }
    const std::int32_t chosen = core::choose_agent(agents, older);
    return chosen == core::nobody ? std::string()
                                  : std::string(agents[static_cast<std::size_t>(chosen)].name);
}

Incarnation ControlTables::register_agent(const std::string &name, double weight) {
    remove_dead();
    return register_node({.name = name, .weight = weight, .is_agent = true, .agent = {}});
}

Incarnation ControlTables::register_worker(const std::string &name, double weight,
                                           const std::string &chosen) {
    const NodeRow *agent = chosen.empty() ? nullptr : find(chosen);
    if (!chosen.empty() && (agent == nullptr || !agent->is_agent))
        throw Refusal("SG404");
    remove_dead();
    const NodeRow *older = find(name);
    return register_node(
        {.name = name,
         .weight = weight,
         .is_agent = false,
         .agent = chosen.empty() ? agent_for(older == nullptr ? "" : older->agent) : chosen});
}

Incarnation ControlTables::register_node(NodeRow made) {
    NodeRow &node = nodes_[made.name];
    const Incarnation older = node.incarnation;
    node = std::move(made);
    node.incarnation = ++last_incarnation_;
    node.registered_at = node.heartbeat_at = now;
    names_[node.incarnation] = node.name;
    if (older == nobody)
        return node.incarnation;
    ++epoch_;
    for (SlotRow &slot : slots_)
        if (core::inherit(slot, older, node.incarnation, now))
            proposed_moves += node.is_agent ? 0 : 1;
    return node.incarnation;
}

void ControlTables::beat(const std::string &name, Incarnation incarnation) {
    NodeRow &node = current(name, incarnation);
    node.heartbeat_at = now;
    if (node.draining && !node.is_agent)
        drain(node);
}

void ControlTables::drain(NodeRow &node) {
    node.draining = true;
    hand_over(node);
    check_given_away(node);
}

void ControlTables::drain(const std::string &name, Incarnation incarnation) {
    drain(current(name, incarnation));
}

void ControlTables::drain(const std::string &name) {
    if (const auto found = nodes_.find(name); found != nodes_.end())
        drain(found->second);
}

void ControlTables::leave(const std::string &name, Incarnation incarnation) {
    const NodeRow &node = current(name, incarnation);
    hand_over(node);
    check_given_away(node);
    nodes_.erase(name);
}

core::NodeState ControlTables::state_of(const NodeRow &node) const {
    return core::node_state(core::age_of(node.heartbeat_at, now), node.draining, timing());
}

core::NodeState ControlTables::shown_state(const NodeRow &node) const {
    return mutant_ == Mutant::dead_look_alive ? core::NodeState::active : state_of(node);
}

// ---------------------------------------------------------------------------- ownership

/// Whether a sweep leaves a node's slots alone.
bool ControlTables::keeps_slots(const NodeRow &node) const {
    const std::int64_t heartbeat_age = core::age_of(node.heartbeat_at, now);
    return !node.is_agent &&
           (mutant_ == Mutant::sweeps_living ? heartbeat_age < settings_.heartbeat_interval
                                             : core::sweep::spares(heartbeat_age, settings_));
}

bool ControlTables::is_uncoordinated(const NodeRow &self) const {
    const auto later = windows_.upper_bound(now);
    const Time last_end = later == windows_.begin()
                              ? self.registered_at
                              : std::prev(later)->first + settings_.window_length;
    return core::sweep::is_uncoordinated(last_end, self.registered_at, settings_.window_length,
                                         now);
}

std::vector<Candidate> ControlTables::slots_to_sweep(const NodeRow &self) const {
    const auto takers = std::ranges::count_if(nodes_, [&](const auto &entry) {
        return !entry.second.is_agent && state_of(entry.second) == core::NodeState::active;
    });
    std::vector<Candidate> found;
    std::int64_t held = 0;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        const NodeRow *holder = find(slots_[i].owner);
        if (holder == &self)
            ++held;
        else if (holder == nullptr || !keeps_slots(*holder))
            found.push_back({static_cast<std::int32_t>(i), slots_[i].epoch, true, now});
    }
    found.resize(core::sweep::choose(std::span(found), self.incarnation,
                                     static_cast<std::int64_t>(slots_.size()), takers, held));
    return found;
}

std::vector<Candidate> ControlTables::find_candidates(Incarnation node) const {
    const NodeRow *self = find(node);
    if (self == nullptr || self->draining ||
        (self->is_agent && mutant_ != Mutant::agents_take_over))
        return {};
    std::vector<Candidate> found;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        const SlotRow &slot = slots_[i];
        if (core::may_take_over(slot, node, now))
            found.push_back({static_cast<std::int32_t>(i), slot.epoch, false, now});
    }
    if (found.empty() && mutant_ != Mutant::no_sweep &&
        state_of(*self) == core::NodeState::active && is_uncoordinated(*self))
        return slots_to_sweep(*self);
    return found;
}

void ControlTables::take(Incarnation node, const Candidate &candidate) {
    SlotRow &slot = slots_[static_cast<std::size_t>(candidate.slot)];
    const std::string what = "slot " + std::to_string(candidate.slot);
    if (mutant_ != Mutant::epoch_stays)
        ++epoch_;
    if (epoch_ <= slot.epoch)
        violated("a take-over does not raise the epoch", what);
    if (candidate.swept) {
        const NodeRow *owner = find(slot.owner);
        // An owner that came back after the taker found it dead may lose the slot: it is fenced.
        if (owner != nullptr && owner->heartbeat_at <= candidate.found_at &&
            core::age_of(owner->heartbeat_at, candidate.found_at) <
                settings_.dead_after + settings_.rebalance_delay)
            violated("a sweep takes from the living", what + " of " + owner->name);
        ++counts.sweeps;
        ++proposed_moves;
    }
    core::take(slot, node, epoch_);
    if (++counts.take_overs > proposed_moves)
        violated("more take-overs than windows, sweeps and registrations caused", what);
}

int ControlTables::take_over(Incarnation node, std::vector<Candidate> &candidates) {
    int taken = 0;
    std::vector<Candidate> contended;
    for (const Candidate &candidate : candidates) {
        SlotRow &slot = slots_[static_cast<std::size_t>(candidate.slot)];
        if (mutant_ != Mutant::taker_never_checks && slot.epoch != candidate.epoch)
            continue;
        if (mutant_ != Mutant::taker_never_locks && !slot.sharers.empty()) {
            contended.push_back(candidate);
            continue;
        }
        take(node, candidate);
        ++taken;
    }
    candidates = std::move(contended);
    return taken;
}

// ---------------------------------------------------------------------------- work

std::vector<std::int32_t> ControlTables::slots_of(Incarnation node) const {
    std::vector<std::int32_t> owned;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].owner == node)
            owned.push_back(static_cast<std::int32_t>(i));
    }
    return owned;
}

bool ControlTables::owns(Incarnation node, const SlotRow &slot) const {
    if (mutant_ == Mutant::owner_by_name)
        return slot.owner != nobody && names_.at(slot.owner) == names_.at(node);
    return slot.owner == node;
}

/// Whether the owner of a slot may work in it now.
bool ControlTables::is_open(const SlotRow &slot) const {
    const bool has_part = std::ranges::any_of(parts_, [&](const auto &part) {
        return part.first.first == core::window::align(now, settings_.window_length);
    });
    return core::is_open(slot,
                         mutant_ == Mutant::never_pauses ? core::MissingWindow::keep
                                                         : settings_.on_missing_window,
                         is_window_open() || (mutant_ == Mutant::parts_open && has_part), now);
}

std::optional<Hold> ControlTables::begin_work(std::uint64_t session, Incarnation node,
                                              std::int32_t number,
                                              std::optional<std::int64_t> read_before) {
    SlotRow &slot = slots_[static_cast<std::size_t>(number)];
    Hold hold{number, node, slot.epoch, true};
    if (mutant_ == Mutant::no_fence) {
        hold.locked = false;
        return hold;
    }
    const bool believed = mutant_ == Mutant::row_before_lock && read_before;
    if (slot.takers_waiting > 0 || !is_open(slot) || !(believed || owns(node, slot)) ||
        (find(node) == nullptr && mutant_ != Mutant::owner_by_name && !believed)) {
        ++counts.fenced;
        return std::nullopt;
    }
    if (settings_.on_missing_window == core::MissingWindow::pause && !is_window_open())
        violated("work begins in an unpublished window", "slot " + std::to_string(number));
    slot.sharers.insert(session);
    return hold;
}

void ControlTables::commit_work(std::uint64_t session, const Hold &hold) {
    const SlotRow &slot = slots_[static_cast<std::size_t>(hold.slot)];
    if (slot.owner != hold.node || slot.epoch != hold.epoch)
        violated("a commit by a replaced owner",
                 "slot " + std::to_string(hold.slot) + ", incarnation " +
                     std::to_string(hold.node) + " under epoch " + std::to_string(hold.epoch) +
                     ", the slot is incarnation " + std::to_string(slot.owner) + "'s under epoch " +
                     std::to_string(slot.epoch));
    ++counts.commits;
    end_work(session, hold);
}

void ControlTables::end_work(std::uint64_t session, const Hold &hold) {
    if (!hold.locked)
        return;
    auto &sharers = slots_[static_cast<std::size_t>(hold.slot)].sharers;
    sharers.erase(sharers.find(session));
}

} // namespace stacksaga::sim
