#include "core/hand_over.hpp"
#include "core/ring_settings.hpp"

#include "src/ring/hand_over.hpp"

#include "pg/clock.hpp"
#include "pg/query.hpp"
#include "pg/settings.hpp"
#include "src/common/wake.hpp"
#include "src/ring/ring_nodes.hpp"
#include "src/ring/ring_settings.hpp"
#include "src/ring/take_over.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement find_held{
    "SELECT FROM stacksaga.slot WHERE ring_id = $1 AND (owner = $2 OR next_owner = $2) LIMIT 1"};
constinit pg::Statement list_slots{"SELECT epoch, owner, next_owner FROM stacksaga.slot"
                                   " WHERE ring_id = $1 ORDER BY slot"};
// The successor may take a slot that the leaver owns at once, and one that a window assigns to the
// leaver from that window on. Without a successor the owner keeps the slot.
constinit pg::Statement propose{
    "UPDATE stacksaga.slot s"
    "   SET next_owner = nullif(p.successor, 0),"
    "       next_from = CASE WHEN p.successor = 0 THEN NULL WHEN s.owner = $2 THEN $3"
    "                        ELSE s.next_from END,"
    "       next_epoch = CASE WHEN p.successor <> 0 THEN $4 END"
    "  FROM unnest($5, $6) AS p(slot, successor)"
    " WHERE s.ring_id = $1 AND s.slot = p.slot AND $2 IN (s.owner, s.next_owner)"};

struct Slot {
    int64 epoch;
    int32 owner; ///< a node of the ring, or core::nobody
    int32 next_owner;
};

/// Everything that decides a hand-over.
struct View {
    RingNodes ring;
    std::span<Slot> slots;
    core::Strategy strategy;
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
    view.strategy = core::Strategy::contiguous;
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
              .strategy = read_settings(ring).strategy,
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
    pg::Rows rows = list_slots.run(pg::param(ring.ring_id));
    view.slots = make_list<Slot>(rows.count());
    for (uint64 i = 0; i < rows.count(); ++i) {
        const std::optional<int64> owner = rows.optional_int8(i, 1),
                                   next = rows.optional_int8(i, 2);
        view.slots[i] = {.epoch = rows.int8(i, 0),
                         .owner = owner ? view.ring.find(*owner) : core::nobody,
                         .next_owner = next ? view.ring.find(*next) : core::nobody};
    }
    return view;
}

/// The new owner of each slot of the leaver, and of each that was proposed to it and has no owner
/// that keeps it. A slot that a window assigns to another node is that node's already.
std::span<int32> choose_successors(const View &view) {
    const std::span<int32> owners = make_list<int32>(view.slots.size());
    for (size_t i = 0; i < view.slots.size(); ++i)
        owners[i] = core::planned_owner(view.ring.nodes, view.leaver, view.slots[i].owner,
                                        view.slots[i].next_owner);
    const size_t bytes = core::HandOver::scratch_bytes(view.ring.nodes.size(), owners.size());
    auto *memory = static_cast<std::byte *>(MemoryContextAllocHuge(CurrentMemoryContext, bytes));
    const std::span<int32> successors = make_list<int32>(owners.size());
    core::HandOver(view.ring.nodes, view.strategy, view.leaver, owners, core::Scratch(memory))
        .choose_for_all(successors);
    return successors;
}

/// The slots that get another owner now.
SlotChanges changes_of(const View &view, std::span<const int32> successors) {
    const auto limit = static_cast<size_t>(take_limit());
    SlotChanges changes{
        .list = make_list<SlotChange>(successors.size()).data(), .count = 0, .cut = false};
    for (size_t i = 0; i < successors.size() && changes.count < limit; ++i)
        if (view.slots[i].owner == view.leaver && successors[i] != core::nobody)
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

/// The slots that the leaver still owns, or was to own.
int propose_rest(const Ring &ring, const NodeIdentity &node, const View &view,
                 std::span<const int32> successors) {
    const std::span<int32> slots = make_list<int32>(successors.size());
    const std::span<int64> chosen = make_list<int64>(successors.size());
    size_t count = 0;
    int left = 0;
    pg::Rows rows = list_slots.run(pg::param(ring.ring_id));
    for (uint64 i = 0; i < rows.count() && i < successors.size(); ++i) {
        const bool owns = rows.optional_int8(i, 1) == node.incarnation;
        if (!owns && rows.optional_int8(i, 2) != node.incarnation)
            continue;
        const bool is_kept = !owns && view.takes(view.slots[i].owner);
        if (owns && successors[i] == core::nobody)
            continue;
        slots[count] = static_cast<int32>(i);
        chosen[count++] =
            is_kept || successors[i] == core::nobody ? 0 : view.incarnation_of(successors[i]);
        left += owns ? 1 : 0;
    }
    if (count > 0)
        propose.run(pg::param(ring.ring_id), pg::param(node.incarnation),
                    pg::param_time(pg::clock_now()), pg::param(raise_epoch(ring.ring_id)),
                    pg::param_array(std::span<const int32>{slots.data(), count}),
                    pg::param_array(std::span<const int64>{chosen.data(), count}));
    return left;
}

} // namespace

int hand_over(const Ring &ring, const NodeIdentity &node, int looks) {
    if (find_held.run(pg::param(ring.ring_id), pg::param(node.incarnation)).empty())
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
