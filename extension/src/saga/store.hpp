// Loads sagas for the engine, and writes its decisions.
//
// A saga is locked first and read afterwards with what is committed then, so two sessions that
// change it follow each other. Its changes lie in memory until write_saga(): rows of work that come
// and go meanwhile, and statuses that the saga passes through, are never written.
#pragma once
#include "core/common/list.hpp"
#include "core/saga/saga.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/work_purpose.hpp"

#include "pg/table/table.hpp"
#include "src/definition/stored_definition.hpp"
#include "src/saga/saga_traits.hpp"

namespace stacksaga {

using core::Work;

/// A row of work, as it is in the table.
struct StoredWork {
    core::WorkPurpose purpose;
    int16 step_no;
    core::Direction direction;
    pg::TableRow row;
    bool is_there; ///< false once it has been removed
};

/// What a service says of the attempt under its lease.
struct ProgressReport {
    int64 lease;
    pg::Param progress; ///< jsonb, or NULL
};

/// The output of a step that acted.
struct Output {
    int16 step_no;
    Datum value; ///< jsonb
    bool is_null;
};

/// One saga, locked FOR NO KEY UPDATE until the end of the transaction. It lives in the memory
/// context that was current when it was loaded.
struct Saga : core::SagaState {
    std::optional<pg::TableRow> table_row; ///< as it was locked; nothing in a new saga
    /// Not locked, so valid while the snapshot that was active at its loading is: for a call of
    /// SQL, or a worker's batch. Nobody else changes them, since that needs the lock of the saga.
    core::List<StoredWork> stored_work;
    core::List<Output> outputs; ///< as complete as `progress`
    Jsonb *results;             ///< made of them by step_results(), with their number
    size_t result_count;
    uint64 call_bytes; ///< of the call that was made of it last, in memory
    pg_uuid_t id;
    int64 token;
    int32 ring_id;
    int32 slot;
    Datum input;   ///< jsonb
    Datum headers; ///< jsonb
    SagaTraits traits;
    TimestampTz created_at;
    std::optional<pg_uuid_t> parent_id; ///< the saga that started it as a step
    int16 parent_step;
    std::optional<ProgressReport> report; ///< to be written with the row of work of its lease

    /// With the functions of its steps.
    const Definition &full_definition() const {
        return static_cast<const Definition &>(*definition);
    }
    core::Status status() const { return row.status; }
};
static_assert(std::is_trivially_destructible_v<Saga>);

/// All inside with_spi.

/// Locks and reads; nullptr when there is no such saga. `skip_locked`: also when it is locked.
/// SG409 while this session runs the handler of a step of the saga: the engine, which called the
/// handler, continues with the state that it read before.
Saga *lock_saga(const pg_uuid_t &id, TimestampTz now, bool skip_locked = false);
/// As above; SG404 when there is no such saga.
Saga &require_saga(const pg_uuid_t &id, TimestampTz now);
/// As above, but a handler may signal its own saga: the engine reads that saga again afterwards.
Saga &require_saga_to_signal(const pg_uuid_t &id, TimestampTz now);

/// A saga that is inserted: pending, without work.
Saga &make_saga(const pg_uuid_t &id, const Definition &definition, TimestampTz now);

/// SG404: the saga's definition has no step of this name.
[[noreturn]] void raise_unknown_step(const Saga &saga, std::string_view name);

/// Writes all decisions since the saga was loaded or last written, wakes the workers or services
/// for the work that is due now, and notifies other sagas.
void write_saga(Saga &saga);

/// Writes only the markers of completed steps and the failures.
void write_markers(Saga &saga);

/// Locks a notice of another saga to this one. False when it is not due, and while another saga's
/// transaction is writing it: after that commit it is still due, and the committed state that it
/// announces can be read.
bool lock_notice(const Saga &saga, core::WorkPurpose purpose, int16 step_no);
void remove_notice(const Saga &saga, core::WorkPurpose purpose, int16 step_no);

/// Adds the output of a step to the outputs of the saga.
void note_output(Saga &saga, int16 step_no, core::Value output);

/// Values of jsonb as the engine passes them on.
inline core::Value value_of(Datum json) {
    return {.bits = json, .is_null = false};
}
inline core::Value value_or_null(Datum json, bool isnull) {
    return {.bits = isnull ? Datum{0} : json, .is_null = isnull};
}
template <class C> core::Value value_of(const pg::TableRow &row, C column) {
    return row.is_null(column) ? core::Value{} : value_of(row.value(column));
}

/// One action on a saga.
struct ActionRecord {
    std::string_view action;
    core::Status status_before;
    std::optional<std::string_view> reason;
    std::optional<int16> step_no{};
    std::optional<std::string_view> outcome{};
};

/// Records an action on a saga that is locked, with the acting role. Inside with_spi.
void write_action(const Saga &saga, const ActionRecord &r);

} // namespace stacksaga
