#include "check.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace stacksaga::property::ring {

namespace {

[[noreturn]] void object(const Change &c, int slot, const std::string &why) {
    const auto i = static_cast<size_t>(slot);
    throw Disagreement(fmt::format("slot {} {}\nit was: {}\nit is:  {}", slot, why,
                                   text_of(c.before.slots[i]), text_of(c.after.slots[i])));
}

/// Calls `check(slot number, before, after)` for each slot.
template <class F> void for_each_slot(const Change &c, F &&check) {
    for (int i = 0; i < slot_count; ++i)
        check(i, c.before.slots[static_cast<size_t>(i)], c.after.slots[static_cast<size_t>(i)]);
}

/// What is left of a proposal when `taker` has taken the slot.
void check_rest_of_proposal(const Change &c, int i, const Slot &b, const Slot &a) {
    const bool is_over = b.next == a.owner || b.next == b.owner;
    if (is_over ? a.next != 0 : a.next != b.next || a.next_from != b.next_from)
        object(c, i, is_over ? "should have lost its proposal" : "should have kept its proposal");
}

/// The slot of a leaver, or one that was proposed to it and has no owner that stays: it goes to a
/// successor at once, or is proposed to one.
void check_passed_on(const Change &c, int i, const Slot &b, const Slot &a, const Node &leaver,
                     const std::set<long long> &successors) {
    const Node *planned = c.before.find(b.next);
    const bool is_planned = b.owner == leaver.incarnation && planned != nullptr &&
                            planned->incarnation != leaver.incarnation &&
                            c.before.is_taker(*planned, c.now);
    const auto is_right = [&](long long node) {
        return is_planned ? node == planned->incarnation : successors.contains(node);
    };
    if (a.owner != b.owner) {
        if (!is_right(a.owner))
            object(c, i, fmt::format("should not have gone there from node {}", leaver.name));
        check_rest_of_proposal(c, i, b, a);
        return;
    }
    const bool must = c.before.has_successor(leaver, c.now);
    if (b.owner == leaver.incarnation && must && !c.busy.contains(i))
        object(c, i, fmt::format("should have been given away by node {}", leaver.name));
    if (a == b && (!must || is_planned))
        return;
    if (a.next != 0 ? !is_right(a.next) : b.next != leaver.incarnation)
        object(c, i, fmt::format("should be proposed to a successor of node {}", leaver.name));
    if (b.owner == leaver.incarnation && a.next_from > c.now && !is_planned)
        object(c, i, "should be free to be taken over at once");
}

} // namespace

void check_epochs(const Change &c) {
    if (c.after.epoch < c.before.epoch)
        throw Disagreement("the epoch of the ring has fallen");
    for_each_slot(c, [&](int i, const Slot &b, const Slot &a) {
        // Of several calls one may take a slot, and another one give it back.
        const bool has_changed = a.owner != b.owner || (!c.is_one_call && a.epoch != b.epoch);
        if (a.epoch < b.epoch)
            object(c, i, "has a lower epoch");
        if (has_changed && (a.epoch <= c.before.epoch || a.epoch > c.after.epoch))
            object(c, i, "has changed hands without a new epoch");
        if (!has_changed && a.epoch != b.epoch)
            object(c, i, "has a new epoch and its old owner");
        if (has_changed && c.busy.contains(i))
            object(c, i, "has changed hands while a transaction works in it");
    });
}

void check_slots(const Change &c, const Slots &expected) {
    for_each_slot(c, [&](int i, const Slot &, const Slot &a) {
        const Slot &e = expected[static_cast<size_t>(i)];
        if (a.owner != e.owner || a.next != e.next || (a.next != 0 && a.next_from != e.next_from))
            object(c, i, "should be: " + text_of(e));
    });
}

void check_take_over(const Change &c, const Node &node) {
    const SlotSet due = c.before.due_for(node.incarnation, c.now);
    const bool sweeps =
        due.empty() && c.before.is_uncoordinated(node, c.now) && c.before.is_taker(node, c.now);
    if (!sweeps) {
        Slots expected = c.before.slots;
        for (int i : due)
            if (!c.busy.contains(i))
                expected[static_cast<size_t>(i)] = {.owner = node.incarnation};
        return check_slots(c, expected);
    }
    int taken = 0, left = 0;
    for_each_slot(c, [&](int i, const Slot &b, const Slot &a) {
        const bool is_abandoned = c.before.is_abandoned(b, c.now);
        if (a == b) {
            left += is_abandoned ? 1 : 0;
            return;
        }
        if (!is_abandoned || a.owner != node.incarnation)
            object(c, i, fmt::format("should not have been swept by node {}", node.name));
        check_rest_of_proposal(c, i, b, a);
        ++taken;
    });
    const int room = c.before.room_to_sweep(node, c.now);
    if (taken > room)
        throw Disagreement(
            fmt::format("node {} has swept {} slots, of at most {}", node.name, taken, room));
    if (taken == 0 && left > 0 && room > 0 && c.busy.empty())
        throw Disagreement(
            fmt::format("node {} should have swept some of {} slots", node.name, left));
}

void check_hand_over(const Change &c, const Node &leaver, bool leaves) {
    const std::set<long long> successors = c.before.successors(leaver, c.now);
    for_each_slot(c, [&](int i, const Slot &b, const Slot &a) {
        if (leaves && a.next == leaver.incarnation)
            object(c, i, "is proposed to a node that has left");
        if (b.owner != leaver.incarnation && b.next != leaver.incarnation) {
            if (!(a == b))
                object(c, i, fmt::format("is none of node {}", leaver.name));
            return;
        }
        const Node *owner = c.before.find(b.owner);
        const bool owner_stays =
            b.owner != leaver.incarnation && owner != nullptr && c.before.is_taker(*owner, c.now);
        if (!owner_stays)
            return check_passed_on(c, i, b, a, leaver, successors);
        if (a.owner != b.owner || (a.next != 0 && !successors.contains(a.next)))
            object(c, i, "should stay with its owner or be proposed to a successor");
    });
}

void check_together(const Change &c, const std::vector<Node> &workers) {
    const auto is_due_for = [&](const Slot &b, const Node &node) {
        return b.next == node.incarnation && b.next_from <= c.now;
    };
    // A worker that was dead before may take over what is proposed to it, and lose it at once to
    // one that sweeps and has not seen yet that it lives.
    const auto next_beats = [&](const Slot &b) {
        return std::ranges::any_of(workers, [&](const Node &node) { return is_due_for(b, node); });
    };
    const auto next_was_dead = [&](const Slot &b) {
        Slot taken = b;
        taken.owner = b.next;
        return next_beats(b) && c.before.is_abandoned(taken, c.now);
    };
    const auto may_take = [&](const Slot &b, const Node &node) {
        return is_due_for(b, node) || (c.before.is_uncoordinated(node, c.now) &&
                                       (c.before.is_abandoned(b, c.now) || next_was_dead(b)));
    };
    const bool sweep_some = std::ranges::any_of(
        workers, [&](const Node &node) { return c.before.is_uncoordinated(node, c.now); });
    for_each_slot(c, [&](int i, const Slot &b, const Slot &a) {
        const auto taker = std::ranges::find_if(
            workers, [&](const Node &node) { return node.incarnation == a.owner; });
        if (a.epoch != b.epoch) {
            if (taker == workers.end() || !may_take(b, *taker))
                object(c, i, "should not have been taken over");
            if (!next_was_dead(b))
                check_rest_of_proposal(c, i, b, a);
            return;
        }
        if (!(a == b))
            object(c, i, "should not have changed");
        if (next_beats(b) && !sweep_some && !c.busy.contains(i))
            object(c, i, "should have been taken over");
    });
}

} // namespace stacksaga::property::ring
