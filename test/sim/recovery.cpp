// Recovery: the state that the ring must reach after the faults, and the time that it may take.
#include "schedule.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

namespace stacksaga::sim {
namespace {

/// The daemon reads a ring at least this often, and reconnects after at most this time.
constexpr Time daemon_interval = 5 * second;

bool may_run(core::NodeState state) {
    return state == core::NodeState::active || state == core::NodeState::draining;
}

} // namespace

/// The longest time from the last fault until every token has the right owner.
///
/// First, delayed messages arrive and paused statements end. With a coordinator: then unresponsive
/// nodes are suspected, after `rebalance_delay` those of unresponsive agents too, and two windows
/// pass, because the next one may just have been published. Without a coordinator: then the
/// published windows end, two more are missed, and unresponsive nodes are dead; nodes sweep some
/// slots with each beat, and agents assign those with the next window. A window that was published
/// before the clock went back is not published again.
Time Schedule::time_to_recover() const {
    const Time beats = 12 * settings_.heartbeat_interval;
    const Time settle_time =
        std::max({latest_message, settings_.window_length, still_}) + jumped_back_ + beats;
    if (!is_coordinated())
        return settle_time + settings_.dead_after + settings_.rebalance_delay +
               (agents_.empty() ? 5 : 6) * settings_.window_length;
    const Time frozen = agents_.empty() ? 0 : settings_.rebalance_delay;
    return settle_time + settings_.suspect_after + frozen + 2 * settings_.window_length +
           2 * daemon_interval;
}

void Schedule::check_ownership() {
    ControlTables &tables = world_.database();
    for (std::size_t i = 0; i < tables.slots().size(); ++i) {
        const SlotRow &slot = tables.slots()[i];
        const NodeRow *owner = tables.find(slot.owner);
        if (owner == nullptr || owner->is_agent ||
            tables.state_of(*owner) == core::NodeState::dead) {
            const NodeRow *next = tables.find(slot.next_owner);
            throw Violation(
                fmt::format("a token is not owned again: slot {} is {}; {} may take it in {} ms", i,
                            slot.owner == nobody ? "nobody's"
                            : owner == nullptr   ? "a removed node's"
                            : owner->is_agent    ? owner->name + "'s, an agent"
                                                 : owner->name + "'s, who is dead",
                            slot.next_owner == nobody ? "nobody"
                            : next == nullptr         ? "a removed node"
                                                      : next->name,
                            (slot.next_from - tables.now) / millisecond));
        }
        const auto hold = tables.begin_work(~std::uint64_t{0}, slot.owner,
                                            static_cast<std::int32_t>(i), slot.epoch);
        const bool pauses =
            settings_.on_missing_window == core::MissingWindow::pause && !is_coordinated();
        if (hold.has_value() == pauses)
            throw Violation(fmt::format("slot {} is {} to its owner", i,
                                        pauses ? "open, in a ring that pauses," : "closed"));
        if (hold)
            tables.end_work(~std::uint64_t{0}, *hold);
    }
}

bool Schedule::is_assigned_by(const NodeRow &worker, const NodeRow &agent) const {
    return worker.agent == agent.name && world_.tables.state_of(worker) == core::NodeState::active;
}

/// The agent that assigns slots to a worker; empty: a coordinator does.
std::string Schedule::agent_of(const NodeRow &node) const {
    const NodeRow *agent = node.agent.empty() ? nullptr : world_.tables.find(node.agent);
    const bool assigns =
        agent != nullptr && world_.tables.state_of(*agent) == core::NodeState::active;
    return assigns ? agent->name : std::string();
}

/// With a coordinator, every active node holds the share of its weight within one slot, a worker of
/// an agent within two, as its agent's part is rounded and then its own. Under `contiguous` the
/// agents' own weights decide their parts, also those of agents that are lost.
void Schedule::check_balance() const {
    const ControlTables &tables = world_.tables;
    const bool is_nested = settings_.strategy == core::Strategy::contiguous;
    const auto part_of = [&](const NodeRow &node) {
        return is_nested ? node.agent : agent_of(node);
    };
    std::map<std::string, double> workers; // their weight, by agent
    for (const auto &[name, node] : tables.nodes()) {
        if (!node.is_agent && tables.state_of(node) == core::NodeState::active)
            workers[part_of(node)] += node.weight;
    }
    const auto weight_of = [&](const std::string &agent) {
        const NodeRow *row = tables.find(agent);
        return (row != nullptr ? row->weight : 1) * (is_nested ? 1 : workers[agent]);
    };
    double total = 0;
    for (const auto &[agent, weight] : workers)
        total += agent.empty() ? weight : weight_of(agent);
    for (const auto &[name, node] : tables.nodes()) {
        const std::string agent = part_of(node);
        const bool takes = !node.is_agent && tables.state_of(node) == core::NodeState::active;
        const double share = !takes ? 0
                                    : slot_count * node.weight / total *
                                          (agent.empty() ? 1 : weight_of(agent) / workers[agent]);
        const auto held = std::ranges::count(tables.slots(), node.incarnation, &SlotRow::owner);
        const double most = !takes ? 0 : agent.empty() ? 1 : 2;
        if (std::abs(static_cast<double>(held) - share) >= most + 1e-6)
            throw Violation(fmt::format(
                "the ring is not balanced: {} holds {} slots, its share is {}", name, held, share));
    }
}

/// Every running agent is in the ring, and the workers of an active one share its slots by weight
/// within one slot, with a coordinator or without.
void Schedule::check_agents() {
    const ControlTables &tables = world_.database();
    for (const AgentActor *actor : running(agents_)) {
        const NodeRow *agent = tables.find(actor->name());
        if (agent == nullptr || !may_run(tables.state_of(*agent)))
            throw Violation("an agent is not in the ring again: " + actor->name());
        if (tables.state_of(*agent) != core::NodeState::active)
            continue;
        double total = 0;
        for (const auto &[name, node] : tables.nodes())
            total += is_assigned_by(node, *agent) ? node.weight : 0;
        std::map<Incarnation, double> held;
        double assigned = 0;
        for (const SlotRow &slot : tables.slots()) {
            if (!tables.is_assigned(slot, *agent, tables.now))
                continue;
            ++assigned;
            ++held[slot.owner];
        }
        for (const auto &[name, node] : tables.nodes()) {
            const double share = is_assigned_by(node, *agent) ? assigned * node.weight / total : 0;
            if (total > 0 && std::abs(held[node.incarnation] - share) >= (share > 0 ? 1 : 0) + 1e-6)
                throw Violation(fmt::format("an agent's part is not balanced: of {}'s {} slots {} "
                                            "holds {}, its share is {}",
                                            agent->name, assigned, name, held[node.incarnation],
                                            share));
        }
    }
}

/// Agents that workers name and that the ring has removed.
std::set<std::string> Schedule::removed_agents() const {
    std::set<std::string> removed;
    for (const auto &[name, node] : world_.tables.nodes())
        if (!node.agent.empty() && world_.tables.find(node.agent) == nullptr)
            removed.insert(node.agent);
    return removed;
}

/// With the row of a lost agent its weight is forgotten, which decided its workers' part: the next
/// window goes by that. So two windows pass in which no agent is removed.
void Schedule::await_window_after_removals() {
    std::set<std::string> before;
    for (auto removed = removed_agents(); removed != before; removed = removed_agents()) {
        before = removed;
        world_.run_until(world_.now() + 2 * settings_.window_length + 2 * daemon_interval);
    }
}

void Schedule::run() {
    world_.run_until(windows_of_faults * settings_.window_length);
    calm();
    world_.run_until(world_.now() + time_to_recover());
    if (is_coordinated())
        await_window_after_removals();
    check_ownership();
    check_agents();
    if (is_coordinated())
        check_balance();
}

} // namespace stacksaga::sim
