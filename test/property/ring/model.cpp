#include "model.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace stacksaga::property::ring {

namespace {

// A sweep takes an eighth of the ring at a time, and at least so many slots.
constexpr int sweep_min = 16;
constexpr int missed_windows = 2;
constexpr int removed_after = 10; // times dead_after

} // namespace

const char *name_of(State state) {
    constexpr const char *names[] = {"active", "suspected", "dead", "draining"};
    return names[static_cast<size_t>(state)];
}

std::string text_of(const Node &n) {
    return fmt::format(
        "{} {}{}, incarnation {}{}, registered at {}, heartbeat at {}, checkpoint at {}{}", n.kind,
        n.name, n.agent.empty() ? "" : " of " + n.agent, n.incarnation,
        n.draining ? ", draining" : "", n.registered_at, n.heartbeat_at, n.checkpoint_at,
        n.has_confirmed ? ", has confirmed" : "");
}

std::string text_of(const Slot &s) {
    return fmt::format("owner {}, epoch {}{}", s.owner, s.epoch,
                       s.next != 0 ? fmt::format(", proposed to {} from {}", s.next, s.next_from)
                                   : "");
}

SlotSet all_slots() {
    SlotSet slots;
    for (int i = 0; i < slot_count; ++i)
        slots.insert(i);
    return slots;
}

const Node *Ring::find(long long incarnation) const {
    for (const auto &[name, node] : nodes)
        if (node.incarnation == incarnation)
            return &node;
    return nullptr;
}

State Ring::state_of(const Node &node, int now) const {
    const int age = now - node.heartbeat_at;
    if (age >= settings.dead_after * hours)
        return State::dead;
    if (node.draining)
        return State::draining;
    // Its heartbeats arrive, but it does not confirm its progress though it was asked.
    const int asked_for = now - node.checkpoint_at - settings.checkpoint_interval * hours;
    const bool hangs = node.has_confirmed && asked_for >= settings.suspect_after * hours;
    return hangs || age >= settings.suspect_after * hours ? State::suspected : State::active;
}

bool Ring::is_taker(const Node &node, int now) const {
    return node.is_worker() && state_of(node, now) == State::active;
}

bool Ring::is_frozen(const std::string &agent, int now) const {
    const auto found = nodes.find(agent);
    if (found == nodes.end())
        return false;
    const State state = state_of(found->second, now);
    return (state == State::suspected || state == State::dead) &&
           now - found->second.heartbeat_at <
               (settings.suspect_after + settings.rebalance_delay) * hours;
}

bool Ring::may_be_removed(const Node &node, int now) const {
    return now - node.heartbeat_at >= removed_after * settings.dead_after * hours;
}

bool Ring::is_published(int start, const std::string &agent) const {
    return std::ranges::any_of(
        windows, [&](const Window &w) { return w.start == start && w.agent == agent; });
}

bool Ring::may_work(long long incarnation, int slot, int now) const {
    const Slot &s = slots[static_cast<size_t>(slot)];
    if (s.owner != incarnation || find(incarnation) == nullptr)
        return false;
    if (!settings.pauses)
        return true;
    const bool is_open = std::ranges::any_of(
        windows, [&](const Window &w) { return w.agent.empty() && w.start <= now && now < w.end; });
    const bool goes_to_another = s.next != 0 && s.next != s.owner && s.next_from <= now;
    return is_open && !goes_to_another;
}

bool Ring::stands_for(const Node &node, long long incarnation) const {
    if (incarnation == 0)
        return false;
    const Node *other = find(incarnation);
    return incarnation == node.incarnation || (other != nullptr && other->agent == node.name);
}

SlotSet Ring::slots_of_agent(const std::string &agent, int start) const {
    const Node &node = nodes.at(agent);
    SlotSet found;
    for (int i = 0; i < slot_count; ++i) {
        const Slot &s = slots[static_cast<size_t>(i)];
        if (s.next != 0 ? stands_for(node, s.next) && s.next_from <= start
                        : stands_for(node, s.owner))
            found.insert(i);
    }
    return found;
}

std::string Ring::agent_for(const std::string &name, int now) const {
    std::string best;
    long best_count = 0;
    for (const auto &[agent, node] : nodes) {
        if (node.kind != "agent" || state_of(node, now) != State::active)
            continue;
        if (const auto older = nodes.find(name);
            older != nodes.end() && older->second.agent == agent)
            return agent;
        const long count = std::ranges::count_if(
            nodes, [&](const auto &entry) { return entry.second.agent == agent; });
        if (best.empty() || count < best_count) {
            best = agent;
            best_count = count;
        }
    }
    return best;
}

bool Ring::is_uncoordinated(const Node &node, int now) const {
    int since = node.registered_at;
    int latest = 0;
    bool any = false;
    for (const Window &w : windows)
        if (w.agent.empty() && w.start <= now && (!any || w.start > latest)) {
            any = true;
            latest = w.start;
            since = std::max(node.registered_at, w.end);
        }
    return since + missed_windows * settings.window_length * hours <= now;
}

bool Ring::is_abandoned(const Slot &slot, int now) const {
    const Node *owner = find(slot.owner);
    return owner == nullptr || !owner->is_worker() ||
           now - owner->heartbeat_at >= (settings.dead_after + settings.rebalance_delay) * hours;
}

int Ring::room_to_sweep(const Node &node, int now) const {
    const long takers = std::ranges::count_if(
        nodes, [&](const auto &entry) { return is_taker(entry.second, now); });
    const long held =
        std::ranges::count_if(slots, [&](const Slot &s) { return s.owner == node.incarnation; });
    const long share = (slot_count + std::max(takers, 1L) - 1) / std::max(takers, 1L);
    return static_cast<int>(
        std::clamp(share - held, 0L, static_cast<long>(std::max(sweep_min, slot_count / 8))));
}

std::set<long long> Ring::successors(const Node &leaver, int now) const {
    std::set<long long> all, of_agent;
    for (const auto &[name, node] : nodes) {
        if (node.incarnation == leaver.incarnation || !is_taker(node, now))
            continue;
        all.insert(node.incarnation);
        if (!leaver.agent.empty() && node.agent == leaver.agent)
            of_agent.insert(node.incarnation);
    }
    // Only an agent that is there assigns them by itself.
    const auto agent = nodes.find(leaver.agent);
    const bool is_assigned_by_agent =
        agent != nodes.end() && state_of(agent->second, now) == State::active;
    if (!of_agent.empty() && is_assigned_by_agent)
        return of_agent;
    return all;
}

bool Ring::has_successor(const Node &leaver, int now) const {
    if (is_frozen(leaver.agent, now))
        return false;
    const std::set<long long> all = successors(leaver, now);
    return std::ranges::any_of(
        all, [&](long long incarnation) { return !is_frozen(find(incarnation)->agent, now); });
}

void Ring::propose(int start, const std::map<int, std::string> &assignment) {
    for (const auto &[i, name] : assignment) {
        const Node &node = nodes.at(name);
        Slot &s = slots[static_cast<size_t>(i)];
        if (node.is_worker() && node.draining)
            continue;
        if (stands_for(node, s.owner)) {
            // It stays. What its agent assigned to another of its workers stands.
            const Node *next = find(s.next);
            if (next == nullptr || next->agent != name)
                s.next = s.next_from = 0;
        } else if (!stands_for(node, s.next) || s.next_from > start) {
            s.next = node.incarnation;
            s.next_from = start;
        }
    }
}

void Ring::inherit(long long older, long long newer, int now) {
    for (Slot &s : slots) {
        if (s.next == older) {
            s.next = newer;
        } else if (s.owner == older && s.next == 0) {
            s.next = newer;
            s.next_from = now;
        }
    }
}

SlotSet Ring::due_for(long long incarnation, int now) const {
    SlotSet due;
    for (int i = 0; i < slot_count; ++i) {
        const Slot &s = slots[static_cast<size_t>(i)];
        if (s.next == incarnation && s.next_from <= now)
            due.insert(i);
    }
    return due;
}

std::string Ring::describe(int now) const {
    std::string text = fmt::format(
        "at {}, epoch {}, window_length {}, suspect_after {}, dead_after {}, "
        "rebalance_delay {}, checkpoint_interval {}{}\n",
        now, epoch, settings.window_length, settings.suspect_after, settings.dead_after,
        settings.rebalance_delay, settings.checkpoint_interval, settings.pauses ? ", pauses" : "");
    for (const auto &[name, node] : nodes)
        text += fmt::format("  {}: {}\n", name_of(state_of(node, now)), text_of(node));
    for (const Window &w : windows)
        if (w.end >= now - 6 * hours)
            text += fmt::format("  window {} to {} {}\n", w.start, w.end, w.agent);
    for (int i = 0; i < slot_count;) {
        int last = i;
        while (last + 1 < slot_count &&
               slots[static_cast<size_t>(last) + 1] == slots[static_cast<size_t>(i)])
            ++last;
        text +=
            fmt::format("  slots {} to {}: {}\n", i, last, text_of(slots[static_cast<size_t>(i)]));
        i = last + 1;
    }
    return text;
}

} // namespace stacksaga::property::ring
