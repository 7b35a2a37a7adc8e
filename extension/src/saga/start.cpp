// start_saga and start_sagas: the identity of a saga and its first stage.
#include "src/saga/start.hpp"

#include "core/ring/slots.hpp"
#include "core/ring/token.hpp"
#include "core/saga/saga_engine.hpp"
#include "core/saga/saga_state.hpp"
#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/random.hpp"
#include "pg/settings.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/counters.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/fingerprint.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/saga/saga_traits.hpp"
#include "src/saga/start_argument.hpp"

namespace stacksaga {

namespace {

using core::Direction;
using core::Status;

struct Started {
    pg_uuid_t id;
    int64 token;
    bool created;
};

int64 token_of(const pg_uuid_t &id) {
    return core::token_of_uuid(id.data).value();
}

bool insert(const Start &start, const pg_uuid_t &id, int32 run, bool is_new_id = false) {
    const Definition &definition = find_definition(start.saga, start.version);
    NewSaga saga{.id = id,
                 .definition = &definition,
                 .ring = current_ring(),
                 .run = run,
                 .key = start.key,
                 .input = start.input,
                 .headers = start.headers,
                 .fingerprint = start.fingerprint,
                 .traits = start.traits,
                 .due_at = std::max(start.now, start.run_at.value_or(start.now)),
                 .deadline = start.deadline,
                 .now = start.now,
                 .is_new_id = is_new_id};
    const std::optional<core::Length> deadline =
        start.deadline ? start.deadline : definition.deadline;
    if (deadline) // it counts from when the saga may begin
        saga.deadline_at = core::time_plus(saga.due_at, *deadline);
    return insert_saga(saga);
}

struct Existing {
    Status status;
    bool same_input;
    int32 latest_run;
    std::string_view saga;
    bool is_removed = false; ///< only its key is still known
};

std::optional<pg::TableRow> find_row(const pg_uuid_t &id, pg::RowLock lock = pg::RowLock::none) {
    return saga_table.find_one(
        {.key = std::array{pg::param(id), pg::param(token_of(id))}, .lock = lock});
}

/// Whether this is the fingerprint of the input, also in the form of earlier versions of the
/// extension.
bool has_input(const Start &start, Datum fingerprint) {
    const auto is_equal = [&](Datum of_input) {
        return DatumGetBool(DirectFunctionCall2(byteaeq, fingerprint, of_input));
    };
    return is_equal(start.fingerprint) || is_equal(fingerprint_as_printed(start.input));
}

/// A row of removed_saga: a removed saga whose key is kept.
std::optional<pg::TableRow> find_removed_row(const pg_uuid_t &id,
                                             pg::RowLock lock = pg::RowLock::none) {
    std::optional<pg::TableRow> row = removed_table.find_one(
        {.key = std::array{pg::param(id), pg::param(token_of(id))}, .lock = lock});
    if (row && row->time(RemovedColumn::kept_since) <= forgotten_until(pg::clock_now()))
        return std::nullopt;
    return row;
}

std::optional<Existing> find_removed(const Start &start, const pg_uuid_t &id) {
    // Retention writes its row in the transaction that removes the saga: where that was committed
    // before this start did not find the saga, the table has a page by now.
    if (removed_table.has_no_pages())
        return std::nullopt;
    const std::optional<pg::TableRow> row = find_removed_row(id);
    if (!row)
        return std::nullopt;
    return Existing{.status = *core::status_of(row->text(RemovedColumn::status)),
                    .same_input = has_input(start, row->value(RemovedColumn::fingerprint)),
                    .latest_run = row->int4(RemovedColumn::latest_run),
                    .saga = load_definition(row->int4(RemovedColumn::definition_id)).saga,
                    .is_removed = true};
}

std::optional<Existing> find_existing(const Start &start, const pg_uuid_t &id) {
    const std::optional<pg::TableRow> row = find_row(id);
    if (!row)
        return start.key ? find_removed(start, id) : std::nullopt;
    return Existing{.status = *core::status_of(row->text(SagaColumn::status)),
                    .same_input = has_input(start, row->value(SagaColumn::fingerprint)),
                    .latest_run = row->int4(SagaColumn::latest_run),
                    .saga = load_definition(row->int4(SagaColumn::definition_id)).saga};
}

void require_same(const Start &start, const pg_uuid_t &id, const Existing &existing) {
    if (existing.saga == start.saga && existing.same_input)
        return;
    ereport(ERROR,
            (errcode(pg::sg422),
             start.key ? errmsg("key \"%s\" was used with another input", clip(*start.key))
                       : errmsg("saga id %s was used with another input", uuid_text(id)),
             errdetail("It stands for saga %s of \"%s\", which is %s; %s.", uuid_text(id),
                       clip(existing.saga), core::name_of(existing.status).data(),
                       existing.saga == start.saga ? "its input differs" : "its name differs"),
             errhint("Use a new key for a new intent, and the same input when you repeat one.")));
}

/// Run n+1 of a keyed saga whose latest run has failed. Restarts of one key happen one at a time,
/// under the lock of its first run. nullopt: retention has just removed them.
std::optional<Started> restart(const Start &start, const pg_uuid_t &first_id) {
    std::optional<pg::TableRow> first = find_row(first_id, pg::RowLock::no_key_update);
    std::optional<pg::TableRow> removed;
    if (!first)
        removed = find_removed_row(first_id, pg::RowLock::no_key_update);
    if (!first && !removed)
        return std::nullopt;
    int32 run =
        first ? first->int4(SagaColumn::latest_run) : removed->int4(RemovedColumn::latest_run);
    pg_uuid_t latest_id = keyed_saga_id(start.saga, *start.key, run);
    std::optional<Existing> latest = find_existing(start, latest_id);
    if (latest && latest->status != Status::failed) // another session has restarted it
        return Started{latest_id, token_of(latest_id), false};
    pg_uuid_t id = keyed_saga_id(start.saga, *start.key, run + 1);
    if (!insert(start, id, run + 1))
        elog(ERROR, "run %d of key \"%s\" exists already", run + 1, clip(*start.key));
    if (first)
        saga_table.update(
            *first, std::array{pg::assign(SagaColumn::latest_run, pg::param(run + 1)),
                               pg::assign(SagaColumn::updated_at, pg::param_time(start.now))});
    else // it is kept for the new run
        removed_table.update(
            *removed, std::array{pg::assign(RemovedColumn::latest_run, pg::param(run + 1)),
                                 pg::assign(RemovedColumn::kept_since, pg::param_time(DT_NOEND))});
    return Started{id, token_of(id), true};
}

/// nullopt: retention has just removed it.
std::optional<Started> use_existing(const Start &start, const pg_uuid_t &id,
                                    const Existing &first) {
    require_same(start, id, first);
    pg_uuid_t latest_id = id;
    Existing latest = first;
    if (start.key && first.latest_run > 0) { // an id stands for its own run
        latest_id = keyed_saga_id(start.saga, *start.key, first.latest_run);
        std::optional<Existing> found = find_existing(start, latest_id);
        if (!found)
            return std::nullopt;
        latest = *found;
    }
    if (start.on_conflict == OnConflict::fail)
        ereport(ERROR,
                (errcode(pg::sg409), errmsg("saga %s exists already", uuid_text(latest_id)),
                 errdetail(latest.is_removed ? "It is %s, and was removed since." : "It is %s.",
                           core::name_of(latest.status).data()),
                 errhint("Leave on_conflict out to get the existing saga.")));
    if (start.on_conflict == OnConflict::restart_if_failed && latest.status == Status::failed)
        return restart(start, id);
    return Started{latest_id, token_of(latest_id), false};
}

Started start_with_identity(const Start &start, const pg_uuid_t &id) {
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        std::optional<Existing> existing = find_existing(start, id);
        if (!existing && insert(start, id, 0))
            return {id, token_of(id), true};
        // Else another session created it meanwhile; the insert waited for its commit.
        if (!existing)
            existing = find_existing(start, id);
        std::optional<Started> started;
        if (existing)
            started = use_existing(start, id, *existing);
        if (started)
            return *started;
    }
}

Started start_saga(const Start &start) {
    if (start.key)
        return start_with_identity(start, keyed_saga_id(start.saga, *start.key, 0));
    if (start.saga_id)
        return start_with_identity(start, *start.saga_id);
    pg_uuid_t id = pg::make_uuid_v7(start.now);
    insert(start, id, 0, true);
    return {id, token_of(id), true};
}

Started start_with_arguments(const Start &start) {
    return pg::as_owner([&] { return pg::with_spi([&] { return start_saga(start); }); });
}

/// The order in which keys are taken is the same for all batches, so that two of them never wait
/// for each other.
int *order_of_keys(const Start *starts, int count) {
    auto *order = static_cast<int *>(palloc(sizeof(int) * static_cast<size_t>(count + 1)));
    for (int i = 0; i < count; ++i)
        order[i] = i;
    std::sort(order, order + count, [&](int a, int b) {
        std::string_view x = starts[a].key.value_or(""), y = starts[b].key.value_or("");
        return x != y ? x < y : a < b;
    });
    return order;
}

bool insert_row(const NewSaga &n, const Saga &saga) {
    using Column = SagaColumn;
    const auto assign = [](Column column, pg::Param value) { return pg::assign(column, value); };
    const std::array row{
        assign(Column::saga_id, pg::param(n.id)),
        assign(Column::token, pg::param(saga.token)),
        assign(Column::ring_id, pg::param(saga.ring_id)),
        assign(Column::slot, pg::param(saga.slot)),
        assign(Column::definition_id, pg::param(n.definition->id)),
        assign(Column::run, pg::param(n.run)),
        assign(Column::latest_run, pg::param(int32{0})),
        assign(Column::priority, pg::param(n.traits.priority)),
        assign(Column::status, pg::param(core::name_of(saga.row.status))),
        assign(Column::direction, pg::param(core::name_of(saga.row.direction))),
        assign(Column::deadline_at, pg::param_time(n.deadline_at)),
        assign(Column::created_at, pg::param_time(n.now)),
        assign(Column::updated_at, pg::param_time(n.now)),
        assign(Column::parent_id, n.parent_id ? pg::param(*n.parent_id) : pg::param_null(UUIDOID)),
        assign(Column::parent_step,
               n.parent_id ? pg::param(n.parent_step) : pg::param_null(INT2OID)),
        assign(Column::key, pg::param(n.key)),
        assign(Column::fingerprint, pg::param_datum(BYTEAOID, n.fingerprint)),
        assign(Column::group_key, pg::param(n.traits.group_key)),
        assign(Column::attributes, n.traits.attributes
                                       ? pg::param_datum(JSONBOID, *n.traits.attributes)
                                       : pg::param_null(JSONBOID)),
        assign(Column::input, pg::param_datum(JSONBOID, n.input)),
        assign(Column::headers, pg::param_datum(JSONBOID, n.headers)),
        assign(Column::deadline, n.deadline
                                     ? pg::param_datum(INTERVALOID, pg::interval_of(*n.deadline))
                                     : pg::param_null(INTERVALOID))};
    if (!n.is_new_id)
        return saga_table.insert_if_absent(row, pg::KnownRow::no);
    saga_table.insert(row);
    return true;
}

} // namespace

TimestampTz forgotten_until(TimestampTz now) {
    const int seconds = pg::settings.key_retention;
    return seconds < 0 ? DT_NOBEGIN : pg::time_plus(now, -int64{seconds} * USECS_PER_SEC);
}

bool insert_saga(const NewSaga &n) {
    Saga &saga = make_saga(n.id, *n.definition, n.now);
    saga.ring_id = n.ring.ring_id;
    saga.slot = core::slot_of(core::Token::from_int64(saga.token), n.ring.slots);
    saga.deadline_at = n.deadline_at;
    saga.deadline = n.deadline ? n.deadline : n.definition->deadline;
    saga.traits = n.traits;
    if (!insert_row(n, saga))
        return false;
    if (n.traits.attributes)
        insert_attribute_rows(saga);
    count_event(Counter::sagas_started);
    count_saga(saga.status(), 1);
    CRASH_POINT("start: row written, work not yet");
    core::open_first_stage(saga, n.due_at);
    write_saga(saga);
    CRASH_POINT("start: work written");
    return true;
}

// Each 64 sagas of a call share one due time, and the next 64 are due a microsecond later, which
// has passed when the call returns. A claim begins to read its index at an instant, so it steps
// over the steps of that instant that were claimed before. Smaller groups make the indexes larger.
static constexpr int due_together = 64;

// start_sagas(saga, inputs, keys, priority, group_keys, attributes)
//   -> SETOF (saga_id uuid, token bigint, created boolean)
STACKSAGA_FUNCTION(start_sagas) {
    pg::Arguments arguments(fcinfo);
    std::string_view saga = arguments.required_text(0, "saga");
    check_name(saga, "saga");
    const StartBatch batch = batch_argument(arguments);
    auto count = static_cast<size_t>(batch.inputs.count);
    TimestampTz now = pg::clock_now();
    auto *starts = static_cast<Start *>(palloc(sizeof(Start) * (count + 1)));
    auto *started = static_cast<Started *>(palloc(sizeof(Started) * (count + 1)));
    for (int i = 0; i < batch.inputs.count; ++i) {
        CHECK_FOR_INTERRUPTS();
        starts[i] = element_of(batch, i, saga, now);
        starts[i].run_at = pg::time_plus(now, i / due_together);
    }
    int *order = order_of_keys(starts, batch.inputs.count);
    for (int i = 0; i < batch.inputs.count; ++i) {
        CHECK_FOR_INTERRUPTS();
        started[order[i]] = start_with_arguments(starts[order[i]]);
    }
    pg::ResultSet result(fcinfo);
    for (size_t i = 0; i < count; ++i)
        result.add(pg::of(UUIDPGetDatum(&started[i].id)), pg::of(Int64GetDatum(started[i].token)),
                   pg::of(BoolGetDatum(started[i].created)));
    return result.finish();
}

// saga_id_of(saga, key, run) -> uuid
STACKSAGA_FUNCTION(saga_id_of) {
    pg::Arguments arguments(fcinfo);
    const std::string_view saga = arguments.required_text(0, "saga");
    check_name(saga, "saga");
    const std::string_view key = arguments.required_text(1, "key");
    check_key(key);
    const int32 run = arguments.required_int4(2, "run");
    if (run < 0)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"run\" must not be negative"),
                        errdetail("The value is %d.", run),
                        errhint("Runs count from 0; every restart of a failed saga adds one.")));
    auto *id = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));
    *id = keyed_saga_id(saga, key, run);
    PG_RETURN_UUID_P(id);
}

// start_saga(saga, input, key, on_conflict, run_at, deadline, headers, saga_id, version, priority,
//            group_key, attributes) -> TABLE(saga_id uuid, token bigint, created boolean)
STACKSAGA_FUNCTION(start_saga) {
    const Start start = start_argument(pg::Arguments(fcinfo));
    Started started = start_with_arguments(start);
    pg::ResultSet result(fcinfo);
    result.add(pg::of(UUIDPGetDatum(&started.id)), pg::of(Int64GetDatum(started.token)),
               pg::of(BoolGetDatum(started.created)));
    return result.finish();
}

} // namespace stacksaga
