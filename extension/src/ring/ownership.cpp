#include "src/ring/ownership.hpp"

#include "core/ring/assignment.hpp"
#include "core/ring/members.hpp"
#include "core/ring/node_state.hpp"
#include "core/ring/ring_settings.hpp"
#include "core/ring/slot_owner.hpp"
#include "core/ring/sweep.hpp"

#include "pg/clock.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/ring/ring_nodes.hpp"
#include "src/ring/ring_options.hpp"
#include "src/ring/slot_hand_over.hpp"
#include "src/ring/slot_rows.hpp"
#include "src/ring/take_over.hpp"

namespace stacksaga {

namespace {

enum class ForeignColumn : uint8_t { slot, epoch };
constinit pg::Select<ForeignColumn> find_foreign{
    "SELECT slot, epoch FROM stacksaga.slot"
    " WHERE ring_id = $1 AND slot BETWEEN $3 AND $4 AND owner IS DISTINCT FROM $2"
    " ORDER BY slot LIMIT $5"};
constinit pg::Statement find_window_end{"SELECT window_end FROM stacksaga.token_window"
                                        " WHERE ring_id = $1 AND window_start <= $2 AND agent = ''"
                                        " ORDER BY window_start DESC LIMIT 1"};
enum class SelfColumn : uint8_t { kind, draining, registered_at };
constinit pg::Select<SelfColumn> find_self{
    "SELECT kind, draining, registered_at FROM stacksaga.node"
    " WHERE ring_id = $1 AND incarnation = $2"};

SlotChanges make_changes(size_t capacity) {
    return {.list = static_cast<SlotChange *>(palloc(sizeof(SlotChange) * (capacity + 1))),
            .count = 0,
            .cut = false};
}

SlotChanges changes_for(const NodeIdentity &node, const pg::RowsOf<ForeignColumn> &rows,
                        int limit) {
    SlotChanges found = make_changes(rows.count());
    for (uint64 i = 0; i < rows.count(); ++i)
        found.list[found.count++] = {rows.int4(i, ForeignColumn::slot),
                                     rows.int8(i, ForeignColumn::epoch), node.incarnation};
    found.cut = rows.count() == static_cast<uint64>(limit);
    return found;
}

/// Whether a node may be given slots to work in by itself.
bool takes(const RingNodes &ring, size_t i) {
    return ring.nodes[i].kind == core::NodeKind::worker && ring.facts[i].may_run &&
           ring.nodes[i].state == core::NodeState::active;
}

// ------------------------------------------------------------------------------ what to take

/// This server's workers share the ring: equal runs of slots in the order of their names, the first
/// ones one larger.
SlotChanges share_of_standalone(const Ring &ring, const NodeIdentity &node, TimestampTz now,
                                int limit) {
    const RingNodes all = read_ring_nodes(ring, now);
    int32 count = 0, place = -1;
    for (size_t i = 0; i < all.nodes.size(); ++i) {
        if (!all.facts[i].is_process || !takes(all, i))
            continue;
        if (all.facts[i].incarnation == node.incarnation)
            place = count;
        ++count;
    }
    if (place < 0)
        return {};
    const int32 size = ring.slots / count, larger = ring.slots % count;
    const int32 first = size * place + std::min(place, larger);
    const int32 last = first + size + (place < larger ? 1 : 0) - 1;
    return changes_for(node,
                       find_foreign.run(pg::param(ring.ring_id), pg::param(node.incarnation),
                                        pg::param(first), pg::param(last),
                                        pg::param(static_cast<int64>(limit))),
                       limit);
}

/// The slots that windows and other nodes have proposed to the node, and until when the next window
/// that does so opens.
SlotChanges proposed_slots(const NodeIdentity &node, TimestampTz now, int limit, int64 &opens_in) {
    const std::span<SlotRow> slots = read_slots_of(node.ring_id, node.incarnation);
    SlotChanges found = make_changes(slots.size());
    for (const SlotRow &slot : slots) {
        if (slot.next_owner == node.incarnation && slot.next_from > now)
            opens_in =
                opens_in == 0 ? slot.next_from - now : std::min(opens_in, slot.next_from - now);
        if (!core::may_take_over(slot, node.incarnation, now))
            continue;
        if (found.count == static_cast<size_t>(limit)) {
            found.cut = true;
            break;
        }
        found.list[found.count++] = {slot.slot, slot.epoch, node.incarnation};
    }
    return found;
}

/// Whether no coordinator has published for some windows: counted from the end of the last window
/// that opened, or from the node's registration where there was none.
bool is_uncoordinated(const Ring &ring, TimestampTz registered_at, TimestampTz now) {
    pg::Rows last = find_window_end.run(pg::param(ring.ring_id), pg::param_time(now));
    return core::sweep::is_uncoordinated(last.empty() ? registered_at : last.time(0), registered_at,
                                         read_settings(ring).window_length, now);
}

/// Slots whose owner is dead or removed, until the node has its equal share.
SlotChanges slots_to_sweep(const Ring &ring, const NodeIdentity &node, TimestampTz now) {
    const RingNodes all = read_ring_nodes(ring, now);
    const int32 self = all.find(node.incarnation);
    if (self == core::nobody || !takes(all, static_cast<size_t>(self)))
        return {};
    int64 takers = 0;
    for (size_t i = 0; i < all.nodes.size(); ++i)
        takers += takes(all, i) ? 1 : 0;
    const core::RingSettings settings = read_settings(ring);
    const auto keeps = [&](int32 owner) {
        const NodeFacts &facts = all.facts[static_cast<size_t>(owner)];
        return all.nodes[static_cast<size_t>(owner)].kind == core::NodeKind::worker &&
               facts.may_run && core::sweep::spares(facts.heartbeat_age, settings);
    };
    const std::span<SlotRow> slots = read_slots(ring.ring_id);
    SlotChanges found = make_changes(slots.size());
    int64 held = 0;
    for (const SlotRow &slot : slots) {
        const int32 holder = all.find(slot.owner);
        if (holder == self)
            ++held;
        else if (holder == core::nobody || !keeps(holder))
            found.list[found.count++] = {slot.slot, slot.epoch, node.incarnation};
    }
    found.count = core::sweep::choose(std::span<SlotChange>{found.list, found.count},
                                      node.incarnation, ring.slots, takers, held);
    return found;
}

OwnershipChange settle(const NodeIdentity &node, bool standalone) {
    const auto self = find_self.run(pg::param(node.ring_id), pg::param(node.incarnation));
    // Without its row the node has been fenced: another process registered under its name, or it
    // was removed. It must not take anything more.
    if (self.empty())
        return {.taken = 0, .contended = 0, .superseded = true, .more = false, .opens_in = 0};
    OwnershipChange change{};
    if (self.text(0, SelfColumn::kind) != "worker")
        return change; // an agent assigns what it is given to others
    const Ring ring = ring_of_id(node.ring_id);
    if (self.boolean(
            0,
            SelfColumn::draining)) { // a draining node is given nothing, and gives away what it has
        change.contended = hand_over(ring, node, 1);
        return change;
    }
    // All that follows reads without locks and is a choice only: take_over() compares each slot's
    // epoch under its lock. So two nodes that choose the same slot do no harm, and no lock is held
    // while the rules are worked out.
    const TimestampTz registered_at = self.time(0, SelfColumn::registered_at);
    const TimestampTz now = pg::clock_now();
    const int limit = take_limit();
    ensure_slots(ring);
    SlotChanges wanted = standalone ? share_of_standalone(ring, node, now, limit)
                                    : proposed_slots(node, now, limit, change.opens_in);
    // A proposal comes before a sweep: slots that a coordinator has planned are no business of a
    // sweep, and a sweep while a coordinator publishes would undo its plan.
    if (!standalone && wanted.count == 0 && is_uncoordinated(ring, registered_at, now))
        wanted = slots_to_sweep(ring, node, now);
    const TakeOver result = take_over(node.ring_id, wanted);
    change.taken = result.taken;
    change.contended = result.contended;
    change.more = wanted.cut && result.taken > 0;
    return change;
}

} // namespace

OwnershipChange settle_ownership(const NodeIdentity &node, bool standalone) {
    return pg::with_spi([&] { return settle(node, standalone); });
}

} // namespace stacksaga
