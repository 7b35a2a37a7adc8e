#include "src/outbox/delivery/delivery_owner.hpp"

#include "core/outbox/partition.hpp"

#include "pg/crash_point.hpp"
#include "pg/statement/query.hpp"
#include "src/ring/fence.hpp"
#include "src/ring/rings.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement find_owned{
    "SELECT slot FROM stacksaga.slot WHERE ring_id = $1 AND slot = ANY ($3)"
    " AND (owner = $2 OR owner IN (SELECT incarnation FROM stacksaga.node WHERE pid IS NULL))"
    " ORDER BY slot"};

/// The first slots of partitions. Where the ring has fewer slots, several begin in one.
struct FirstSlots {
    int32 partitions;
    int32 of_ring;
    std::array<int32, core::partitions_max> slots; ///< ascending, each once
    size_t count;

    int32 slot_of(int partition) const {
        return core::first_slot_of(partition, partitions, of_ring);
    }
    std::span<const int32> distinct() const { return {slots.data(), count}; }
    void set(PartitionSet &set, int32 slot, bool value) const {
        for (int p = slot * partitions / of_ring; p < partitions && slot_of(p) <= slot; ++p)
            if (slot_of(p) == slot)
                set[static_cast<size_t>(p)] = value;
    }
};

FirstSlots slots_of(const NodeIdentity &node, int32 partitions, const PartitionSet &wanted) {
    FirstSlots found{.partitions = partitions,
                     .of_ring = ring_of_id(node.ring_id).slots,
                     .slots = {},
                     .count = 0};
    for (int p = 0; p < partitions; ++p) {
        const int32 slot = found.slot_of(p);
        if (wanted[static_cast<size_t>(p)] &&
            (found.count == 0 || found.slots[found.count - 1] != slot))
            found.slots[found.count++] = slot;
    }
    return found;
}

} // namespace

PartitionSet owned_partitions(const NodeIdentity &node, int32 partitions) {
    PartitionSet all{};
    all.fill(true);
    const FirstSlots slots = slots_of(node, partitions, all);
    pg::Rows rows = find_owned.run(pg::param(node.ring_id), pg::param(node.incarnation),
                                   pg::param_array(slots.distinct()));
    PartitionSet owned{};
    for (uint64 row = 0; row < rows.count(); ++row)
        slots.set(owned, rows.int4(row), true);
    return owned;
}

PartitionSet lock_owned_partitions(const NodeIdentity &node, int32 partitions,
                                   const PartitionSet &wanted) {
    const FirstSlots slots = slots_of(node, partitions, wanted);
    std::array<bool, core::partitions_max> owned{};
    lock_slots(node, slots.distinct(), {owned.data(), slots.count});
    CRASH_POINT("delivery: slots locked");
    PartitionSet locked{};
    for (size_t i = 0; i < slots.count; ++i)
        slots.set(locked, slots.slots[i], owned[i]);
    for (size_t i = 0; i < locked.size(); ++i)
        locked[i] = locked[i] && wanted[i];
    return locked;
}

} // namespace stacksaga
