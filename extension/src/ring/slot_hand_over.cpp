#include "src/ring/slot_hand_over.hpp"

#include "core/common/scratch.hpp"
#include "core/ring/assignment.hpp"
#include "core/ring/hand_over.hpp"
#include "core/ring/members.hpp"
#include "core/ring/node_state.hpp"
#include "core/ring/ring_settings.hpp"
#include "core/ring/slot_owner.hpp"

#include "pg/clock.hpp"
#include "pg/settings.hpp"
#include "src/common/wake.hpp"
#include "src/ring/ring_nodes.hpp"
#include "src/ring/ring_options.hpp"
#include "src/ring/slot_rows.hpp"
#include "src/ring/take_over.hpp"

namespace stacksaga {

namespace {

/// Everything that decides a hand-over.
struct View {
    RingNodes ring;
    std::span<SlotRow> slots;
    core::AssignmentRule rule;
    int32 leaver;

    bool takes(int32 node) const { return core::keeps_slots(ring.nodes, leaver, node); }
    int64 incarnation_of(int32 node) const {
        return ring.facts[static_cast<size_t>(node)].incarnation;
    }
};

template <class T> std::span<T> make_list(size_t count) {
    return {static_cast<T *>(palloc0(sizeof(T) * std::max<size_t>(count, 1))), count};
}

/// The background workers of a standalone server share the ring as if it had no other nodes.
void keep_processes_alone(View &view) {
    bool has_process = false;
    for (size_t i = 0; i < view.ring.nodes.size(); ++i)
        has_process =
            has_process || (view.ring.facts[i].is_process && view.takes(static_cast<int32>(i)));
    if (!has_process)
        return;
    view.rule = core::Strategy::contiguous;
    for (size_t i = 0; i < view.ring.nodes.size(); ++i) {
        core::RingNode &node = view.ring.nodes[i];
        node.weight = 1;
        node.agent = {};
        if (!view.ring.facts[i].is_process)
            node.kind = core::NodeKind::unknown;
    }
}

View view_of(const Ring &ring, const NodeIdentity &node) {
    View view{.ring = read_ring_nodes(ring, pg::clock_now(), true),
              .slots = {},
              .rule = read_settings(ring).rule(),
              .leaver = core::nobody};
    view.leaver = view.ring.find(node.incarnation);
    if (view.leaver == core::nobody)
        return view;
    core::RingNode &leaver = view.ring.nodes[static_cast<size_t>(view.leaver)];
    leaver.state = core::NodeState::draining;
    leaver.frozen = false; // no slots wait for an agent that leaves
    for (size_t i = 0; i < view.ring.nodes.size(); ++i)
        if (!view.ring.facts[i].may_run)
            view.ring.nodes[i].state = core::NodeState::dead;
    if (static_cast<pg::Coordination>(pg::settings.coordination) == pg::Coordination::standalone)
        keep_processes_alone(view);
    view.slots = read_slots(ring.ring_id);
    return view;
}

/// The new owner of each slot of the leaver, and of each that was proposed to it and has no owner
/// that keeps it. A slot that a window assigns to another node is that node's already.
std::span<int32> choose_successors(const View &view) {
    const std::span<int32> owners = make_list<int32>(view.slots.size());
    for (size_t i = 0; i < view.slots.size(); ++i)
        owners[i] =
            core::planned_owner(view.ring.nodes, view.leaver, view.ring.find(view.slots[i].owner),
                                view.ring.find(view.slots[i].next_owner));
    const size_t bytes =
        core::HandOver::scratch_bytes(view.ring.nodes.size(), owners.size(), view.rule);
    auto *memory = static_cast<std::byte *>(MemoryContextAllocHuge(CurrentMemoryContext, bytes));
    const std::span<int32> successors = make_list<int32>(owners.size());
    core::HandOver(view.ring.nodes, view.rule, view.leaver, owners, core::Scratch(memory))
        .choose_for_all(successors);
    return successors;
}

/// The slots that get another owner now.
SlotChanges changes_of(const View &view, std::span<const int32> successors) {
    const auto limit = static_cast<size_t>(take_limit());
    SlotChanges changes{
        .list = make_list<SlotChange>(successors.size()).data(), .count = 0, .cut = false};
    for (size_t i = 0; i < successors.size() && changes.count < limit; ++i)
        if (view.slots[i].owner == view.incarnation_of(view.leaver) &&
            successors[i] != core::nobody)
            changes.list[changes.count++] = {static_cast<int32>(i), view.slots[i].epoch,
                                             view.incarnation_of(successors[i])};
    return changes;
}

void give_away(const Ring &ring, SlotChanges &changes, int looks) {
    for (; looks > 0 && changes.count > 0; --looks) {
        CHECK_FOR_INTERRUPTS();
        changes.count = static_cast<size_t>(take_over(ring.ring_id, changes).contended);
    }
}

/// The slots that the leaver still owns, or was to own, go to their successors. Returns how many of
/// those that it owns.
int propose_rest(const Ring &ring, const NodeIdentity &node, const View &view,
                 std::span<const int32> successors) {
    const TimestampTz now = pg::clock_now();
    const auto rule = [&](SlotRow &slot) {
        const int32 chosen = successors[static_cast<size_t>(slot.slot)];
        const bool owns = slot.owner == node.incarnation;
        const bool is_proposed = core::propose_successor(
            slot, node.incarnation,
            chosen == core::nobody ? core::no_owner : view.incarnation_of(chosen),
            view.takes(view.ring.find(slot.owner)), now);
        return owns && is_proposed;
    };
    const auto is_changed = [&rule](SlotRow slot) {
        const core::SlotOwner before = slot;
        rule(slot);
        return slot != before;
    };
    // A node that nobody succeeds does not raise the epoch at each heartbeat.
    if (std::ranges::none_of(read_slots_of(ring.ring_id, node.incarnation), is_changed))
        return 0;
    return LockedSlots(ring.ring_id).change(read_slots_of(ring.ring_id, node.incarnation), rule);
}

} // namespace

int hand_over(const Ring &ring, const NodeIdentity &node, int looks) {
    if (read_slots_of(ring.ring_id, node.incarnation).empty())
        return 0;
    const View view = view_of(ring, node);
    if (view.leaver == core::nobody)
        return 0;
    const std::span<int32> successors = choose_successors(view);
    SlotChanges changes = changes_of(view, successors);
    if (changes.count > 0)
        wake_workers_at_commit();
    give_away(ring, changes, looks);
    return propose_rest(ring, node, view, successors);
}

} // namespace stacksaga
