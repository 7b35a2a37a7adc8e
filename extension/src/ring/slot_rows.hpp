// The rows of `slot`: loaded, changed by the rules of core/ring/slot_owner.hpp, and written back.
#pragma once
#include "core/ring/slot_owner.hpp"

#include "src/ring/rings.hpp"

namespace stacksaga {

/// The owner of one slot of a ring, and its next one.
struct SlotRow : core::SlotOwner {
    int32 slot;

    bool concerns(core::Incarnation node) const { return owner == node || next_owner == node; }
};
static_assert(std::is_trivially_destructible_v<SlotRow>);

/// The rows committed now, ascending by slot. Another session may change it unless the ring's slots
/// are locked. Inside with_spi; the lists are the current context's.
std::span<SlotRow> read_slots(int32 ring_id);
std::span<SlotRow> read_slots(int32 ring_id, std::span<const int32> slots);
/// Those that a node owns or that are proposed to it.
std::span<SlotRow> read_slots_of(int32 ring_id, core::Incarnation node);

/// The slots of a ring, locked against every other change until the end of the transaction: who
/// changes a slot's row raises the ring's epoch first, and so waits for its turn. Comes after every
/// lock on a slot (raise_epoch). Inside with_spi.
class LockedSlots {
public:
    explicit LockedSlots(int32 ring_id) : ring_id_(ring_id), epoch_(raise_epoch(ring_id)) {}

    int64 epoch() const { return epoch_; }

    /// Applies `rule` to each slot and writes those that it changed; returns for how many of them
    /// the rule returned true.
    template <class Rule> int change(std::span<SlotRow> slots, Rule &&rule) {
        int count = 0;
        size_t changed = 0;
        for (SlotRow &slot : slots) {
            const core::SlotOwner before = slot;
            count += rule(slot) ? 1 : 0;
            if (before != slot)
                slots[changed++] = slot;
        }
        write(slots.first(changed));
        return count;
    }

private:
    void write(std::span<const SlotRow> changed) const;

    int32 ring_id_;
    int64 epoch_;
};

} // namespace stacksaga
