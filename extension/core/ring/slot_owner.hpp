// Owner and next owner of a slot: how a window, a take-over, a hand-over and a node that registers
// again change the slot's row, and the condition of the row before work begins.
//
// The extension and the simulator both decide by these functions.
#pragma once

#include "core/ring/ring_settings.hpp"

#include <cstdint>

namespace stacksaga::core {

/// One holder of a node's name: a name that is registered again gets a new one.
using Incarnation = std::int64_t;
inline constexpr Incarnation no_owner = 0;

struct SlotOwner {
    Incarnation owner = no_owner;
    std::int64_t epoch = 0;            ///< of the take-over that wrote the owner
    Incarnation next_owner = no_owner; ///< proposed
    std::int64_t next_from = 0;        ///< the instant from which next_owner may take over

    constexpr void withdraw() {
        next_owner = no_owner;
        next_from = 0;
    }
    friend constexpr bool operator==(const SlotOwner &, const SlotOwner &) = default;
};

/// The relation of an incarnation in a slot's row to the node that a window gives the slot to. A
/// slot of an agent's worker counts as the agent's, because the agent assigns it.
enum class Relation : std::uint8_t { none, itself, its_worker };

/// Whether a node may take a slot over because it was proposed.
constexpr bool may_take_over(const SlotOwner &slot, Incarnation node, std::int64_t now) {
    return node != no_owner && slot.next_owner == node && slot.next_from <= now;
}

/// A take-over, or a hand-over to a successor, under the exclusive lock. A proposal for a third
/// node stands; one for the older owner predates its giving the slot away.
constexpr void take(SlotOwner &slot, Incarnation node, std::int64_t epoch) {
    if (slot.next_owner == node || slot.next_owner == slot.owner)
        slot.withdraw();
    slot.owner = node;
    slot.epoch = epoch;
}

/// Whether a window may propose a node: a worker that drains is given nothing.
constexpr bool may_be_proposed(bool is_worker, bool draining) {
    return !(is_worker && draining);
}

/// A window gives the slot to `node`. Returns whether that proposes a change. A proposal that
/// stands for the same node keeps its earlier instant: so windows may be published several ahead,
/// and one that opens before all its slots are taken over does not lose them to the publication of
/// the next. What an agent assigned to its worker stands, too.
constexpr bool propose(SlotOwner &slot, Incarnation node, std::int64_t window_start, Relation owner,
                       Relation next) {
    if (owner != Relation::none) {
        if (next != Relation::its_worker)
            slot.withdraw();
        return false;
    }
    if (next != Relation::none && slot.next_from <= window_start)
        return false;
    slot.next_owner = node;
    slot.next_from = window_start;
    return true;
}

/// Whether an agent may assign the slot in a window.
constexpr bool is_assigned_to_agent(const SlotOwner &slot, std::int64_t window_start,
                                    Relation owner, Relation next) {
    if (slot.next_owner == no_owner)
        return owner == Relation::its_worker;
    return next != Relation::none && slot.next_from <= window_start;
}

/// A name is registered again: its new incarnation may take over at once what the older one owns,
/// and from its window on what was proposed to it. Returns whether it may.
constexpr bool inherit(SlotOwner &slot, Incarnation older, Incarnation newer, std::int64_t now) {
    if (slot.next_owner == older) {
        slot.next_owner = newer;
        return true;
    }
    if (slot.owner != older || slot.next_owner != no_owner)
        return false;
    slot.next_owner = newer;
    slot.next_from = now;
    return true;
}

/// A node that leaves or drains proposes its successor for a slot that it could not give away at
/// once or that was proposed to it. Without a successor it keeps what it owns; `owner_keeps`: the
/// slot has another owner that stays. Returns whether that proposes a change.
constexpr bool propose_successor(SlotOwner &slot, Incarnation leaver, Incarnation successor,
                                 bool owner_keeps, std::int64_t now) {
    if (slot.owner == leaver) {
        if (successor == no_owner)
            return false;
        slot.next_owner = successor;
        slot.next_from = now;
        return true;
    }
    if (slot.next_owner != leaver)
        return false;
    if (owner_keeps || successor == no_owner) {
        slot.withdraw();
        return false;
    }
    slot.next_owner = successor;
    return true;
}

/// Whether the slot's owner may begin work: always, but in a ring that pauses only while a
/// published window is open that gives the slot to no other.
constexpr bool is_open(const SlotOwner &slot, MissingWindow on_missing_window, bool window_is_open,
                       std::int64_t now) {
    return on_missing_window == MissingWindow::keep ||
           (window_is_open &&
            (slot.next_owner == no_owner || slot.next_owner == slot.owner || slot.next_from > now));
}

} // namespace stacksaga::core
