#include "src/saga/store.hpp"

#include "core/common/list.hpp"
#include "core/ring/token.hpp"
#include "core/saga/saga.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/work_purpose.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/fault_point.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/definition/definition_pauses.hpp"
#include "src/handler/running_handler.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/work/work_table.hpp"

namespace stacksaga {

namespace {

using core::SagaState;
using core::WorkPurpose;

enum class SignalColumn : uint8_t { signal_no, signal, payload };
constinit pg::Select<SignalColumn> select_signals{
    "SELECT signal_no, signal, payload FROM stacksaga.saga_signal"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND step_no IS NULL ORDER BY signal_no"};

Saga &saga_of(SagaState &state) {
    return static_cast<Saga &>(state);
}

/// For a column whose null stands for false, which takes no space.
template <class C> bool is_true(const pg::TableRow &row, C column) {
    return !row.is_null(column) && row.boolean(column);
}

void load_effects(SagaState &state) {
    Saga &saga = saga_of(state);
    for (const pg::TableRow &row :
         effect_table.find({.key = std::array{pg::param(saga.id)},
         .implied = pg::assign(EffectColumn::token, pg::param(saga.token))})) {
        const int16 step_no = row.int2(EffectColumn::step_no);
        const bool is_act =
            row.text(EffectColumn::direction) == core::name_of(core::Direction::act);
        core::List<bool> &done = is_act ? saga.progress.acted : saga.progress.compensated;
        done[static_cast<size_t>(step_no - 1)] = true;
        if (!is_act)
            continue;
        const auto at = static_cast<size_t>(step_no - 1);
        saga.progress.acted_by_fallback[at] = is_true(row, EffectColumn::by_fallback);
        saga.progress.acted_by_person[at] =
            row.optional_text(EffectColumn::settled_by) == core::name_of(core::SettledBy::person);
        note_output(saga, step_no, value_of(row, EffectColumn::output));
    }
}

void load_failures(SagaState &state) {
    Saga &saga = saga_of(state);
    for (const pg::TableRow &row :
         failure_table.find({.key = std::array{pg::param(saga.id)},
         .implied = pg::assign(FailureColumn::token, pg::param(saga.token))}))
        saga.progress.failures.push(
            saga.memory,
            {.step_no = row.int2(FailureColumn::step_no),
             .direction = *core::direction_of(row.text(FailureColumn::direction)),
             .attempt = row.int4(FailureColumn::attempt),
             .failure_class = *core::failure_class_of(row.text(FailureColumn::error_class)),
             .outcome_known = row.boolean(FailureColumn::outcome_known),
             .by_fallback = is_true(row, FailureColumn::by_fallback),
             .lease = row.optional_int8(FailureColumn::lease),
             .started_at = row.time(FailureColumn::started_at),
             .failed_at = row.time(FailureColumn::finished_at)});
}

void load_releases(SagaState &state) {
    Saga &saga = saga_of(state);
    for (const pg::TableRow &row :
         release_table.find({.key = std::array{pg::param(saga.id)},
         .implied = pg::assign(ReleaseColumn::token, pg::param(saga.token))}))
        saga.progress.releases.push(
            saga.memory, {.step_no = row.int2(ReleaseColumn::step_no),
                          .direction = *core::direction_of(row.text(ReleaseColumn::direction)),
                          .attempt = row.int4(ReleaseColumn::attempt),
                          .lease = row.optional_int8(ReleaseColumn::lease)});
}

void load_signals(SagaState &state) {
    const Saga &saga = saga_of(state);
    const auto rows = select_signals.run(pg::param(saga.id), pg::param(saga.token));
    for (uint64 i = 0; i < rows.count(); ++i)
        state.signals.push(state.memory,
                           {.no = rows.int4(i, SignalColumn::signal_no),
                            .name = rows.text(i, SignalColumn::signal),
                            .payload = value_of(rows.value(i, SignalColumn::payload))});
}

std::string_view find_error(SagaState &state, int16 step_no, int32 attempt) {
    const Saga &saga = saga_of(state);
    const std::array key{pg::param(saga.id), pg::param(step_no),
                         pg::param(core::name_of(core::Direction::act)), pg::param(attempt),
                         pg::param(saga.token)};
    const std::optional<pg::TableRow> row = failure_table.find_one({.key = key});
    return row ? row->text(FailureColumn::error) : std::string_view{};
}

constexpr core::Source source{.load_effects = load_effects,
                              .load_failures = load_failures,
                              .load_releases = load_releases,
                              .load_signals = load_signals,
                              .find_error = find_error};

Saga &allocate(TimestampTz now) {
    auto &saga = *new (palloc(sizeof(Saga))) Saga{};
    saga.memory = {.allocate =
                       [](void *context, size_t bytes) {
                           return MemoryContextAlloc(static_cast<MemoryContext>(context), bytes);
                       },
                   .owner = CurrentMemoryContext};
    saga.source = &source;
    saga.now = now;
    saga.dedupe_retention_us = dedupe_retention_us();
    return saga;
}

Saga &read_saga(const pg::TableRow &row, TimestampTz now) {
    using Column = SagaColumn;
    Saga &s = allocate(now);
    s.table_row.emplace(row);
    s.id = row.uuid(Column::saga_id);
    s.token = row.int8(Column::token);
    s.ring_id = row.int4(Column::ring_id);
    s.slot = row.int4(Column::slot);
    s.definition = &load_definition(row.int4(Column::definition_id));
    s.is_paused = may_hold_back(s.definition->saga, now);
    s.row.status = *core::status_of(row.text(Column::status));
    s.row.direction = *core::direction_of(row.text(Column::direction));
    s.row.failed_step = row.optional_int2(Column::failed_step);
    s.row.error = row.optional_text(Column::error);
    s.row.parked_step = row.optional_int2(Column::parked_step);
    if (!row.is_null(Column::parked_direction))
        s.row.parked_direction = core::direction_of(row.text(Column::parked_direction));
    if (!row.is_null(Column::compensation_requested))
        s.row.compensation_requested =
            core::compensation_request_of(row.text(Column::compensation_requested));
    s.row.suspended_at = row.optional_time(Column::suspended_at);
    s.row.parked_at = row.optional_time(Column::parked_at);
    s.stored = s.row;
    s.input = row.value(Column::input);
    s.headers = row.value(Column::headers);
    s.traits = {.priority = row.int2(Column::priority),
                .group_key = row.optional_text(Column::group_key),
                .attributes = row.optional(Column::attributes)};
    s.deadline_at = row.optional_time(Column::deadline_at);
    s.deadline = row.is_null(Column::deadline)
                     ? s.definition->deadline
                     : pg::interval_length(row.value(Column::deadline), "deadline", true);
    s.created_at = row.time(Column::created_at);
    s.is_child = !row.is_null(Column::parent_id);
    if (s.is_child) {
        s.parent_id = row.uuid(Column::parent_id);
        s.parent_step = row.int2(Column::parent_step);
    }
    return s;
}

Work read_work(const pg::TableRow &row, WorkPurpose purpose) {
    using Column = WorkColumn;
    return {.step_no = row.int2(Column::step_no),
            .direction = *core::direction_of(row.text(Column::direction)),
            .purpose = purpose,
            .due_at = row.time(Column::due_at),
            .attempt = row.int4(Column::attempt),
            .attempt_base = row.int4(Column::attempt_base),
            .lease = row.optional_int8(Column::lease),
            .lease_until = row.optional_time(Column::lease_until),
            .started_at = row.optional_time(Column::started_at),
            .resume_at = row.optional_time(Column::resume_at),
            .is_held_back = !row.is_null(Column::paused_saga),
            .verifying = row.boolean(Column::verifying),
            .verify_attempts =
                row.is_null(Column::verify_attempts) ? 0 : row.int4(Column::verify_attempts),
            .falling_back = row.boolean(Column::falling_back),
            .deferred = row.boolean(Column::deferred),
            .worker = row.optional_text(Column::worker),
            .place_at = row.optional_time(Column::place_at),
            .releases = row.is_null(Column::releases) ? 0 : row.int4(Column::releases)};
}

/// Loads the work that the engine decides on. Notices of other sagas stay in the table:
/// lock_notice() reads the one that is due.
void load_work(Saga &saga) {
    for (const pg::TableRow &row :
         work_table.find({.key = std::array{pg::param(saga.id)},
         .implied = pg::assign(WorkColumn::token, pg::param(saga.token))})) {
        const WorkPurpose purpose = purpose_of(row.value(WorkColumn::purpose));
        if (purpose != WorkPurpose::step && purpose != WorkPurpose::deadline)
            continue;
        const Work work = read_work(row, purpose);
        saga.work.push(saga.memory,
                       {.work = work, .state = core::RowState::stored, .wakes = false});
        saga.stored_work.push(saga.memory, {.purpose = purpose,
                                            .step_no = work.step_no,
                                            .direction = work.direction,
                                            .row = row,
                                            .is_there = true});
    }
}

Saga *lock_and_read(const pg_uuid_t &id, TimestampTz now, bool skip_locked) {
    // The lock comes first, and all reading after it. find_one() waits for the session that holds
    // the row and returns the version that it committed; load_work() then reads the rows that were
    // committed with that version. Rows read before the lock would be those from before the wait:
    // a step that was settled meanwhile would look due and run twice.
    const std::array key{pg::param(id), pg::param(core::token_of_uuid(id.data).value())};
    const std::optional<pg::TableRow> row =
        saga_table.find_one({.key = key,
                             .lock = pg::RowLock::no_key_update,
                             .if_locked = skip_locked ? pg::IfLocked::skip : pg::IfLocked::wait});
    if (!row)
        return nullptr;
    FAULT_POINT("read: saga", id);
    Saga &saga = read_saga(*row, now);
    CRASH_POINT("step: saga locked, work row not read");
    load_work(saga);
    if (saga.status() == core::Status::pending)
        core::begin_progress(saga);
    return &saga;
}

Saga &require(const pg_uuid_t &id, Saga *saga) {
    if (saga == nullptr)
        raise_unknown_saga(id);
    return *saga;
}

} // namespace

Saga *lock_saga(const pg_uuid_t &id, TimestampTz now, bool skip_locked) {
    // The lock does not protect a session from itself: this call would read and change the saga
    // while the engine, further up the stack, still decides on the state that it read before.
    if (running_handler.is_of_step_of(id))
        ereport(ERROR,
                (errcode(pg::sg409),
                 errmsg("a handler cannot act on saga %s, whose step it runs", uuid_text(id)),
                 errdetail("The step that called the function is not settled yet."),
                 errhint("Return, or raise SG424 to fail the step. A handler may signal its saga, "
                         "publish, and act on other sagas.")));
    return lock_and_read(id, now, skip_locked);
}

Saga &require_saga(const pg_uuid_t &id, TimestampTz now) {
    return require(id, lock_saga(id, now));
}

Saga &require_saga_to_signal(const pg_uuid_t &id, TimestampTz now) {
    running_handler.note_signal(id);
    return require(id, lock_and_read(id, now, false));
}

Saga &make_saga(const pg_uuid_t &id, const Definition &definition, TimestampTz now) {
    Saga &saga = allocate(now);
    saga.id = id;
    saga.token = core::token_of_uuid(id.data).value();
    saga.definition = &definition;
    saga.is_paused = may_hold_back(definition.saga, now);
    saga.row = {.status = core::Status::pending, .direction = core::Direction::act};
    saga.stored = saga.row;
    core::begin_progress(saga);
    return saga;
}

void raise_unknown_step(const Saga &saga, std::string_view name) {
    ereport(ERROR, (errcode(pg::sg404),
                    errmsg("saga %s has no step \"%s\"", uuid_text(saga.id), clip(name)),
                    errdetail("It runs version %d of \"%s\".", saga.definition->version,
                              clip(saga.definition->saga)),
                    errhint("Name the step as the definition does; claim_steps() returns it.")));
}

namespace {

std::optional<pg::TableRow> find_notice(const Saga &saga, WorkPurpose purpose, int16 step_no,
                                        pg::IfLocked if_locked) {
    const std::array key{pg::param(saga.id), purpose_param(purpose), pg::param(step_no),
                         pg::param(core::name_of(core::Direction::act)), pg::param(saga.token)};
    return work_table.find_one({.key = key, .lock = pg::RowLock::update, .if_locked = if_locked});
}

} // namespace

bool lock_notice(const Saga &saga, WorkPurpose purpose, int16 step_no) {
    // Does not wait for the saga that is writing the notice: that saga may wait for a row that this
    // transaction has written, and the two would wait in a circle. Its commit leaves the notice
    // due.
    const std::optional<pg::TableRow> row = find_notice(saga, purpose, step_no, pg::IfLocked::skip);
    return row && row->time(WorkColumn::due_at) <= saga.now;
}

void remove_notice(const Saga &saga, WorkPurpose purpose, int16 step_no) {
    if (const std::optional<pg::TableRow> row =
            find_notice(saga, purpose, step_no, pg::IfLocked::wait))
        work_table.remove(*row);
    CRASH_POINT("notice: removed, saga unchanged");
}

void note_output(Saga &saga, int16 step_no, core::Value output) {
    saga.outputs.push(saga.memory,
                      {.step_no = step_no, .value = output.bits, .is_null = output.is_null});
}

namespace {

// Runs under the saga's lock, so numbers are given one at a time.
constinit pg::Statement insert_action{
    "INSERT INTO stacksaga.saga_action (saga_id, token, action_no, action, step_no, outcome, role,"
    "       acted_at, status_before, status_after, reason, on_behalf_of, handler)"
    " SELECT $1, $2::stacksaga.ring_token, coalesce(max(a.action_no), 0) + 1, $3, $4, $5,"
    "        $6::name, $7, $8, $9, $10, $11, $12"
    "   FROM stacksaga.saga_action a"
    "  WHERE a.saga_id = $1 AND a.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

} // namespace

void write_action(const Saga &saga, const ActionRecord &r) {
    insert_action.run(pg::param(saga.id), pg::param(saga.token), pg::param(r.action),
                      r.step_no ? pg::param(*r.step_no) : pg::param_null(INT2OID),
                      pg::param(r.outcome), pg::param(acting_role()), pg::param_time(saga.now),
                      pg::param(core::name_of(r.status_before)),
                      pg::param(core::name_of(saga.status())), pg::param(r.reason), on_behalf_of(),
                      handler_that_acts());
}

} // namespace stacksaga
