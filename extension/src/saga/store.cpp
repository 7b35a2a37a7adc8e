#include "src/saga/store.hpp"

#include "core/token.hpp"

#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/query.hpp"
#include "src/common/limits.hpp"
#include "src/handler/running_handler.hpp"

namespace stacksaga {

namespace {

using core::SagaState;
using core::WorkPurpose;

#define THIS_SAGA " saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token "
#define THIS_NOTICE THIS_SAGA "AND purpose = $3::stacksaga.work_purpose AND step_no = $4"
#define SELECT_SAGA                                                                                \
    "SELECT saga_id, token::bigint, ring_id, definition_id, status, direction, input, headers,"    \
    "       deadline_at, slot, parked_step, parked_direction, parent_id, parent_step,"             \
    "       created_at, failed_step, error"                                                        \
    "  FROM stacksaga.saga WHERE" THIS_SAGA "FOR NO KEY UPDATE"

constinit pg::Statement lock_one{SELECT_SAGA};
constinit pg::Statement lock_one_or_skip{SELECT_SAGA " SKIP LOCKED"};
constinit pg::Statement select_work{
    "SELECT step_no, direction, purpose::text, due_at, attempt, attempt_base, lease, lease_until,"
    "       started_at, resume_at, verifying, falling_back, deferred, worker"
    "  FROM stacksaga.work WHERE" THIS_SAGA "AND purpose IN ('step', 'deadline')"};
constinit pg::Statement select_effects{
    "SELECT step_no, direction FROM stacksaga.effect WHERE" THIS_SAGA};
constinit pg::Statement select_failures{
    "SELECT step_no, direction, attempt, error_class, outcome_known"
    "  FROM stacksaga.failure WHERE" THIS_SAGA};
constinit pg::Statement select_signals{
    "SELECT signal_no, signal, payload FROM stacksaga.saga_signal WHERE" THIS_SAGA
    "   AND step_no IS NULL ORDER BY signal_no"};
constinit pg::Statement lock_one_notice{"SELECT 1 FROM stacksaga.work WHERE" THIS_NOTICE
                                        "   AND due_at <= $5 FOR UPDATE SKIP LOCKED"};
constinit pg::Statement delete_notice{"DELETE FROM stacksaga.work WHERE" THIS_NOTICE};

Saga &saga_of(SagaState &state) {
    return static_cast<Saga &>(state);
}

void load_progress(SagaState &state) {
    const Saga &saga = saga_of(state);
    const pg::Rows effects = select_effects.run(pg::param(saga.id), pg::param(saga.token));
    for (uint64 i = 0; i < effects.count(); ++i) {
        const bool is_act = effects.text(i, 1) == core::name_of(core::Direction::act);
        core::List<bool> &done = is_act ? state.progress.acted : state.progress.compensated;
        done[static_cast<size_t>(effects.int2(i, 0) - 1)] = true;
    }
    const pg::Rows failures = select_failures.run(pg::param(saga.id), pg::param(saga.token));
    for (uint64 i = 0; i < failures.count(); ++i)
        state.progress.failures.push(state.memory,
                                     {.step_no = failures.int2(i, 0),
                                      .direction = *core::direction_of(failures.text(i, 1)),
                                      .attempt = failures.int4(i, 2),
                                      .failure_class = *core::failure_class_of(failures.text(i, 3)),
                                      .outcome_known = failures.boolean(i, 4)});
}

void load_signals(SagaState &state) {
    const Saga &saga = saga_of(state);
    const pg::Rows rows = select_signals.run(pg::param(saga.id), pg::param(saga.token));
    for (uint64 i = 0; i < rows.count(); ++i)
        state.signals.push(state.memory, {.no = rows.int4(i, 0),
                                          .name = rows.text(i, 1),
                                          .payload = value_of(rows.value(i, 2))});
}

constexpr core::Source source{.load_progress = load_progress, .load_signals = load_signals};

Saga &allocate(TimestampTz now) {
    auto &saga = *new (palloc(sizeof(Saga))) Saga{};
    saga.memory = {.allocate =
                       [](void *context, size_t bytes) {
                           return MemoryContextAlloc(static_cast<MemoryContext>(context), bytes);
                       },
                   .owner = CurrentMemoryContext};
    saga.source = &source;
    saga.now = now;
    return saga;
}

std::optional<int16> optional_int2(const pg::Rows &rows, uint64 row, int column) {
    if (rows.is_null(row, column))
        return std::nullopt;
    return rows.int2(row, column);
}

Saga &read_saga(const pg::Rows &rows, TimestampTz now) {
    Saga &s = allocate(now);
    s.id = rows.uuid(0, 0);
    s.token = rows.int8(0, 1);
    s.ring_id = rows.int4(0, 2);
    s.definition = &load_definition(rows.int4(0, 3));
    s.row.status = *core::status_of(rows.text(0, 4));
    s.row.direction = *core::direction_of(rows.text(0, 5));
    s.input = rows.value(0, 6);
    s.headers = rows.value(0, 7);
    s.deadline_at = rows.optional_time(0, 8);
    s.slot = rows.int4(0, 9);
    s.row.parked_step = optional_int2(rows, 0, 10);
    if (!rows.is_null(0, 11))
        s.row.parked_direction = core::direction_of(rows.text(0, 11));
    s.is_child = !rows.is_null(0, 12);
    if (s.is_child) {
        s.parent_id = rows.uuid(0, 12);
        s.parent_step = rows.int2(0, 13);
    }
    s.created_at = rows.time(0, 14);
    s.row.failed_step = optional_int2(rows, 0, 15);
    s.row.error = rows.optional_text(0, 16);
    s.stored = s.row;
    return s;
}

Work read_work(const pg::Rows &rows, uint64 i) {
    return {.step_no = rows.int2(i, 0),
            .direction = *core::direction_of(rows.text(i, 1)),
            .purpose = *core::work_purpose_of(rows.text(i, 2)),
            .due_at = rows.time(i, 3),
            .attempt = rows.int4(i, 4),
            .attempt_base = rows.int4(i, 5),
            .lease = rows.optional_int8(i, 6),
            .lease_until = rows.optional_time(i, 7),
            .started_at = rows.optional_time(i, 8),
            .resume_at = rows.optional_time(i, 9),
            .verifying = rows.boolean(i, 10),
            .falling_back = rows.boolean(i, 11),
            .deferred = rows.boolean(i, 12),
            .worker = rows.optional_text(i, 13)};
}

Saga *lock_and_read(const pg_uuid_t &id, TimestampTz now, bool skip_locked) {
    const int64 token = core::token_of_uuid(id.data).value();
    const pg::Rows rows =
        (skip_locked ? lock_one_or_skip : lock_one).run(pg::param(id), pg::param(token));
    if (rows.empty())
        return nullptr;
    Saga &saga = read_saga(rows, now);
    CRASH_POINT("step: saga locked, work row not read");
    const pg::Rows work = select_work.run(pg::param(id), pg::param(token));
    for (uint64 i = 0; i < work.count(); ++i)
        saga.work.push(
            saga.memory,
            {.work = read_work(work, i), .state = core::RowState::stored, .wakes = false});
    return &saga;
}

Saga &require(const pg_uuid_t &id, Saga *saga) {
    if (saga == nullptr)
        raise_unknown_saga(id);
    return *saga;
}

} // namespace

Saga *lock_saga(const pg_uuid_t &id, TimestampTz now, bool skip_locked) {
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
    saga.row = {.status = core::Status::pending, .direction = core::Direction::act};
    saga.stored = saga.row;
    return saga;
}

void raise_unknown_step(const Saga &saga, std::string_view name) {
    ereport(ERROR, (errcode(pg::sg404),
                    errmsg("saga %s has no step \"%s\"", uuid_text(saga.id), clip(name)),
                    errdetail("It runs version %d of \"%s\".", saga.definition->version,
                              clip(saga.definition->saga)),
                    errhint("Name the step as the definition does; claim_steps() returns it.")));
}

bool lock_notice(const Saga &saga, WorkPurpose purpose, int16 step_no) {
    return !lock_one_notice
                .run(pg::param(saga.id), pg::param(saga.token), pg::param(core::name_of(purpose)),
                     pg::param(step_no), pg::param_time(saga.now))
                .empty();
}

void remove_notice(const Saga &saga, WorkPurpose purpose, int16 step_no) {
    delete_notice.run(pg::param(saga.id), pg::param(saga.token), pg::param(core::name_of(purpose)),
                      pg::param(step_no));
    CRASH_POINT("notice: removed, saga unchanged");
}

} // namespace stacksaga
