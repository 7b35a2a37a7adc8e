// The table `work`: a row for each thing that is to be done about a saga, and the indexes that find
// it.
#pragma once
#include "core/saga/work_purpose.hpp"

#include "pg/table/table.hpp"

namespace stacksaga {

enum class WorkColumn : uint8 {
    saga_id = 1,
    step_no,
    rank,
    direction,
    token,
    ring_id,
    slot,
    due_at,
    attempt,
    attempt_base,
    verify_attempts,
    lease,
    lease_until,
    started_at,
    resume_at,
    purpose,
    verifying,
    falling_back,
    deferred,
    queue,
    group_key,
    worker,
    postponed,
    place_at,
    releases,
    paused_saga,
    progress,
};

enum class WorkIndex : uint8 {
    primary_key,
    for_workers,
    for_workers_by_rank,
    for_services,
    by_rank,
    by_group,
    leased,
    leased_by_group,
    held_back,
};

extern constinit pg::Table work_table;

/// A column that is not null of a row, as an index reader shows it.
template <class C> Datum value_in(TupleTableSlot *row, C column) {
    bool is_null;
    const Datum value = slot_getattr(row, pg::column_number(column), &is_null);
    Assert(!is_null);
    return value;
}

/// A value of the enum stacksaga.work_purpose.
pg::Param purpose_param(core::WorkPurpose purpose);
core::WorkPurpose purpose_of(Datum value);

} // namespace stacksaga
