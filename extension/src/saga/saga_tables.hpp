// The tables of sagas as C++ accesses them: their columns, in their order, and their descriptions.
#pragma once
#include "core/saga/work_purpose.hpp"

#include "pg/table/table.hpp"

namespace stacksaga {

enum class SagaColumn : uint8 {
    saga_id = 1,
    token,
    ring_id,
    slot,
    definition_id,
    run,
    latest_run,
    priority,
    status,
    direction,
    failed_step,
    parked_step,
    parked_direction,
    compensation_requested,
    deadline_at,
    created_at,
    updated_at,
    finished_at,
    suspended_at,
    parent_id,
    parent_step,
    key,
    fingerprint,
    error,
    group_key,
    attributes,
    input,
    headers,
};

enum class RemovedColumn : uint8 {
    saga_id = 1,
    token,
    kept_since,
    finished_at,
    definition_id,
    latest_run,
    status,
    fingerprint,
};

enum class AttributeColumn : uint8 {
    saga_id = 1,
    token,
    attribute,
    definition_id,
    status,
    created_at,
};

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
};

enum class EffectColumn : uint8 {
    saga_id = 1,
    step_no,
    direction,
    token,
    attempt,
    lease,
    started_at,
    completed_at,
    worker,
    by_fallback,
    settled_by,
    output,
    published,
};

enum class FailureColumn : uint8 {
    saga_id = 1,
    step_no,
    direction,
    attempt,
    token,
    lease,
    error_class,
    outcome_known,
    by_fallback,
    started_at,
    finished_at,
    worker,
    sqlstate,
    error,
    crashes,
    error_detail,
    error_context,
};

enum class QueueColumn : uint8 {
    ring_id = 1,
    queue,
    max_running,
    max_running_per_group,
    rate,
    rate_interval,
    paused_at,
    pause_reason,
};

enum class QueueClaimsColumn : uint8 { ring_id = 1, queue, claimed_at, claims };

// The indexes of tables, by their place in the description.
enum class SagaIndex : uint8 { primary_key, finished, created, listed, key, children, traced };
enum class AttributeIndex : uint8 { primary_key, listed };
enum class DefinitionIndex : uint8 { current };
enum class WorkIndex : uint8 {
    primary_key,
    for_workers,
    for_workers_by_rank,
    for_services,
    by_rank,
    by_group,
    leased,
    leased_by_group,
};

extern constinit pg::Table definition_table; ///< read alone
extern constinit pg::Table saga_table;
extern constinit pg::Table attribute_table;
extern constinit pg::Table removed_table;
extern constinit pg::Table work_table;
extern constinit pg::Table effect_table;
extern constinit pg::Table failure_table;
extern constinit pg::Table queue_table;
extern constinit pg::Table queue_claims_table;

/// For pg::with_tables().
inline constexpr std::array saga_tables{&saga_table, &work_table, &effect_table, &failure_table};

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
