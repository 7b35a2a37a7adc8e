// The tables of sagas as C++ accesses them: their columns, in their order, and their descriptions.
#pragma once
#include "pg/table/table.hpp"
#include "src/work/work_table.hpp"

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
    parked_at,
    deadline,
    remove_at,
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

enum class ReleaseColumn : uint8 {
    saga_id = 1,
    step_no,
    direction,
    attempt,
    token,
    lease,
    by_fallback,
    started_at,
    released_at,
    worker,
    reason,
};

// The indexes of tables, by their place in the description.
enum class SagaIndex : uint8 { primary_key, finished, created, listed, key, children, traced };
enum class AttributeIndex : uint8 { primary_key, listed };
extern constinit pg::Table saga_table;
extern constinit pg::Table attribute_table;
extern constinit pg::Table removed_table;
extern constinit pg::Table effect_table;
extern constinit pg::Table failure_table;
extern constinit pg::Table release_table;

/// For pg::with_tables().
inline constexpr std::array saga_tables{&saga_table, &work_table, &effect_table, &failure_table};

} // namespace stacksaga
