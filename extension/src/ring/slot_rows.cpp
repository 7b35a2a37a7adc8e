#include "src/ring/slot_rows.hpp"

#include "core/ring/slot_owner.hpp"

#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"

namespace stacksaga {

namespace {

#define LIST_SLOTS "SELECT slot, owner, epoch, next_owner, next_from FROM stacksaga.slot"
enum class SlotColumn : uint8_t { slot, owner, epoch, next_owner, next_from };
constinit pg::Select<SlotColumn> list_all{LIST_SLOTS " WHERE ring_id = $1 ORDER BY slot"};
constinit pg::Select<SlotColumn> list_some{LIST_SLOTS " WHERE ring_id = $1 AND slot = ANY ($2)"
                                                      " ORDER BY slot"};
constinit pg::Select<SlotColumn> list_of_node{
    LIST_SLOTS " WHERE ring_id = $1 AND (owner = $2 OR next_owner = $2)"
               " ORDER BY slot"};
#undef LIST_SLOTS
constinit pg::Statement write_slots{
    "UPDATE stacksaga.slot s"
    "   SET owner = nullif(c.owner, 0), epoch = c.epoch, next_owner = nullif(c.next_owner, 0),"
    "       next_from = CASE WHEN c.next_owner <> 0 THEN c.next_from END"
    "  FROM unnest($2, $3, $4, $5, $6) AS c(slot, owner, epoch, next_owner, next_from)"
    " WHERE s.ring_id = $1 AND s.slot = c.slot"};

std::span<SlotRow> slots_of_rows(const pg::RowsOf<SlotColumn> &rows) {
    using Column = SlotColumn;
    const auto count = static_cast<size_t>(rows.count());
    auto *slots =
        static_cast<SlotRow *>(palloc_extended(sizeof(SlotRow) * (count + 1), MCXT_ALLOC_HUGE));
    for (size_t i = 0; i < count; ++i)
        slots[i] = {
            {.owner = rows.optional_int8(i, Column::owner).value_or(core::no_owner),
             .epoch = rows.int8(i, Column::epoch),
             .next_owner = rows.optional_int8(i, Column::next_owner).value_or(core::no_owner),
             .next_from = rows.optional_time(i, Column::next_from).value_or(0)},
            rows.int4(i, Column::slot)};
    return {slots, count};
}

template <class T, class Value>
std::span<const T> column(std::span<const SlotRow> slots, Value &&value) {
    auto *values = static_cast<T *>(palloc(sizeof(T) * slots.size()));
    for (size_t i = 0; i < slots.size(); ++i)
        values[i] = value(slots[i]);
    return {values, slots.size()};
}

} // namespace

std::span<SlotRow> read_slots(int32 ring_id) {
    return slots_of_rows(list_all.run(pg::param(ring_id)));
}

std::span<SlotRow> read_slots(int32 ring_id, std::span<const int32> slots) {
    return slots_of_rows(list_some.run(pg::param(ring_id), pg::param_array(slots)));
}

std::span<SlotRow> read_slots_of(int32 ring_id, core::Incarnation node) {
    return slots_of_rows(list_of_node.run(pg::param(ring_id), pg::param(int64{node})));
}

void LockedSlots::write(std::span<const SlotRow> changed) const {
    if (changed.empty())
        return;
    write_slots.run(
        pg::param(ring_id_),
        pg::param_array(column<int32>(changed, [](const SlotRow &s) { return s.slot; })),
        pg::param_array(column<int64>(changed, [](const SlotRow &s) { return s.owner; })),
        pg::param_array(column<int64>(changed, [](const SlotRow &s) { return s.epoch; })),
        pg::param_array(column<int64>(changed, [](const SlotRow &s) { return s.next_owner; })),
        pg::param_time_array(column<int64>(changed, [](const SlotRow &s) { return s.next_from; })));
}

} // namespace stacksaga
