// What a service answers under its lease: complete_step, complete_steps, fail_step, extend_step.
#include "pg/array.hpp"
#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/random.hpp"
#include "pg/result.hpp"
#include "pg/scope.hpp"
#include "pg/settings.hpp"
#include "src/common/limits.hpp"
#include "src/handler/running_handler.hpp"
#include "src/saga/store.hpp"
#include "src/saga/tables.hpp"

namespace stacksaga {

namespace {

using core::AnswerOutcome;
using core::Direction;
using core::FailureClass;

/// Runs what answers as the owner, which costs less than SECURITY DEFINER, with the tables open
/// that it reads and then writes.
template <class F> auto as_writing_owner(F &&answers) -> decltype(answers()) {
    return pg::as_owner([&] {
        return pg::with_spi([&] {
            return pg::with_tables(std::array{&saga_table, &work_table},
                                   static_cast<F &&>(answers));
        });
    });
}

/// An answer's saga, locked, and its step.
struct Answer {
    Saga &saga;
    const Step &step;
    int64 lease;

    Direction direction() const { return core::direction_of_lease(lease); }
};

Answer begin_answer(const pg::Arguments &arguments) {
    const pg_uuid_t id = arguments.required_uuid(0, "saga_id");
    const std::string_view name = arguments.required_text(1, "step");
    const int64 lease = arguments.required_int8(2, "lease");
    Saga &saga = require_saga(id, pg::clock_now());
    CRASH_POINT("answer: saga locked");
    const Step *step = saga.definition->find(name);
    if (step == nullptr)
        raise_unknown_step(saga, name);
    return {saga, *step, lease};
}

std::string_view status_of(const Saga &saga) {
    return core::name_of(saga.status());
}

/// The step no longer takes an answer under this lease.
[[noreturn]] void refuse_lease(const Answer &a) {
    if (a.direction() == Direction::act && !a.saga.acts())
        ereport(ERROR,
                (errcode(pg::sg409),
                 errmsg("step \"%s\" of saga %s is not waiting for this answer", clip(a.step.name),
                        uuid_text(a.saga.id)),
                 errdetail("The saga is %s: compensation has begun, and lease " INT64_FORMAT
                           " of the action has ended.",
                           status_of(a.saga).data(), a.lease),
                 errhint("Roll back; the compensation has the idempotency key of this action and "
                         "undoes it if it happened.")));
    const std::optional<Work> work = core::find_work(a.saga, a.step.no, a.direction());
    const char *held = work && work->lease ? "another claim holds the step" : "no claim holds it";
    ereport(ERROR, (errcode(pg::sg412),
                    errmsg("lease on step \"%s\" of saga %s is lost", clip(a.step.name),
                           uuid_text(a.saga.id)),
                    errdetail("The lease given is " INT64_FORMAT "; %s. The saga is %s.", a.lease,
                              held, status_of(a.saga).data()),
                    errhint("Roll back what was done under this lease and claim again.")));
}

Work require_lease(const Answer &a) {
    const std::optional<Work> work = core::find_leased(a.saga, a.step, a.lease);
    if (!work)
        refuse_lease(a);
    return *work;
}

bool is_same(const pg::Param &output, std::optional<Datum> earlier) {
    if (output.isnull || !earlier)
        return output.isnull && !earlier;
    return DatumGetBool(DirectFunctionCall2(jsonb_eq, output.value, *earlier));
}

/// What a completion under this lease has said before. None has while the lease's work is there.
std::optional<core::EarlierCompletion> find_earlier(const Answer &a, const pg::Param &output) {
    if (core::find_leased(a.saga, a.step, a.lease))
        return std::nullopt;
    const std::array key{pg::param(a.saga.id), pg::param(a.step.no),
                         pg::param(core::name_of(a.direction())), pg::param(a.saga.token)};
    const std::optional<pg::TableRow> effect = effect_table.find_one({.key = key});
    if (!effect || effect->optional_int8(EffectColumn::lease) != a.lease)
        return std::nullopt;
    return core::EarlierCompletion{.is_same_output =
                                       is_same(output, effect->optional(EffectColumn::output))};
}

/// How to take a completion. Changes nothing.
AnswerOutcome judge(const Answer &a, const pg::Param &output) {
    return core::judge_completion(a.saga, a.step, a.lease, find_earlier(a, output));
}

void accept(const Answer &a, const pg::Param &output) {
    core::step_completed(a.saga, a.step, *core::find_leased(a.saga, a.step, a.lease),
                         value_or_null(output.value, output.isnull));
    write_saga(a.saga);
}

/// The same report was taken under this lease before. `unknown` asserts nothing, so it repeats
/// whatever is recorded of the attempt.
bool was_failed(const Answer &a, FailureClass failure_class) {
    const std::array key{pg::param(a.saga.id), pg::param(a.step.no),
                         pg::param(core::name_of(a.direction()))};
    for (const pg::TableRow &failure : failure_table.find(
             {.key = key, .implied = pg::assign(FailureColumn::token, pg::param(a.saga.token))}))
        if (failure.optional_int8(FailureColumn::lease) == a.lease)
            return failure_class == FailureClass::unknown ||
                   failure.text(FailureColumn::error_class) == core::name_of(failure_class);
    return false;
}

/// A constant of core: outlives SPI.
std::string_view complete(const pg::Arguments &arguments) {
    const Answer a = begin_answer(arguments);
    const pg::Param output = pg::param_datum(JSONBOID, arguments.datum(3), arguments.is_null(3));
    const AnswerOutcome outcome = judge(a, output);
    CRASH_POINT("answer: judged");
    switch (outcome) {
    case AnswerOutcome::accept:
        accept(a, output);
        break;
    case AnswerOutcome::accepted_before:
        break;
    case AnswerOutcome::other_output:
        ereport(ERROR,
                (errcode(pg::sg422),
                 errmsg("step \"%s\" of saga %s was completed with another output",
                        clip(a.step.name), uuid_text(a.saga.id)),
                 errdetail("The first completion under lease " INT64_FORMAT " holds.", a.lease),
                 errhint("Repeat a completion with the same output only.")));
    case AnswerOutcome::lease_lost:
    case AnswerOutcome::reversed:
        refuse_lease(a);
    }
    CRASH_POINT("answer: completed");
    return status_of(a.saga);
}

/// After a longer pause the service has forgotten the key that the attempt is repeated under.
int64 retry_after(Datum interval) {
    const int64 after_us = pg::interval_microseconds(interval, "retry_after", false);
    const int64 retention_us = int64{pg::settings.dedupe_retention} * USECS_PER_SEC;
    if (after_us > retention_us)
        ereport(ERROR,
                (errcode(pg::sg400),
                 errmsg("argument \"retry_after\" is longer than keys are kept"),
                 errdetail("The value is %s, and stacksaga.dedupe_retention is %s.",
                           interval_text(after_us), interval_text(retention_us)),
                 errhint("Use a shorter retry_after, or raise stacksaga.dedupe_retention.")));
    return after_us;
}

std::string_view fail(const pg::Arguments &arguments, core::Failure failure) {
    const Answer a = begin_answer(arguments);
    failure.since = a.saga.now;
    if (!core::find_leased(a.saga, a.step, a.lease) && was_failed(a, failure.failure_class))
        return status_of(a.saga);
    core::step_failed(a.saga, a.step, require_lease(a), failure, pg::random_fraction());
    write_saga(a.saga);
    CRASH_POINT("answer: failed");
    return status_of(a.saga);
}

struct Extension {
    TimestampTz lease_until;
    bool cancel_requested;
};

Extension extend_lease(const pg::Arguments &arguments, int64 by_us) {
    const Answer a = begin_answer(arguments);
    const Work work = require_lease(a);
    if (!core::is_extensible(a.saga, a.step, work))
        ereport(ERROR, (errcode(pg::sg412),
                        errmsg("lease on step \"%s\" of saga %s cannot be extended",
                               clip(a.step.name), uuid_text(a.saga.id)),
                        errdetail(work.is_claimed() ? "The attempt has reached the step's timeout."
                                                    : "The lease ran out."),
                        errhint("Answer under this lease if the work is done; otherwise roll back "
                                "and claim again.")));
    const TimestampTz until = core::extend_claim(a.saga, a.step, work, by_us);
    write_saga(a.saga);
    CRASH_POINT("answer: lease extended");
    return {until, a.direction() == Direction::act && !a.saga.acts()};
}

/// One row of complete_steps().
struct Row {
    std::optional<pg_uuid_t> saga_id;
    std::optional<std::string_view> step;
    std::optional<int64> lease;
    pg::Param output;
    const char *sqlstate = nullptr; ///< why it was refused
    std::string_view status{};
};

const char *sqlstate_of(AnswerOutcome outcome) {
    switch (outcome) {
    case AnswerOutcome::other_output:
        return "SG422";
    case AnswerOutcome::lease_lost:
        return "SG412";
    case AnswerOutcome::reversed:
        return "SG409";
    case AnswerOutcome::accept:
    case AnswerOutcome::accepted_before:
        break;
    }
    return nullptr;
}

void complete_row(Row &row, TimestampTz now) {
    if (!row.saga_id || !row.step || !row.lease) {
        row.sqlstate = "SG400";
        return;
    }
    if (running_handler.is_of_step_of(*row.saga_id)) {
        row.sqlstate = "SG409";
        return;
    }
    Saga *saga = lock_saga(*row.saga_id, now);
    const Step *step = saga != nullptr ? saga->definition->find(*row.step) : nullptr;
    if (step == nullptr) {
        row.sqlstate = "SG404";
        return;
    }
    if (!row.output.isnull && !payload_fits(row.output.value)) {
        row.sqlstate = "SG413";
        return;
    }
    const Answer a{*saga, *step, *row.lease};
    const AnswerOutcome outcome = judge(a, row.output);
    row.sqlstate = sqlstate_of(outcome);
    if (outcome == AnswerOutcome::accept)
        accept(a, row.output);
    row.status = status_of(a.saga);
}

std::span<Row> read_rows(const pg::Arguments &arguments) {
    arguments.require(0, "saga_ids");
    arguments.require(1, "steps");
    arguments.require(2, "leases");
    pg::Elements ids = pg::array_argument(arguments, 0, "saga_ids", UUIDOID);
    pg::Elements steps = pg::array_argument(arguments, 1, "steps", TEXTOID);
    pg::Elements leases = pg::array_argument(arguments, 2, "leases", INT8OID);
    pg::Elements outputs;
    pg::require_same_length(steps, "steps", ids, "saga_ids");
    pg::require_same_length(leases, "leases", ids, "saga_ids");
    if (!arguments.is_null(3)) {
        outputs = pg::array_argument(arguments, 3, "outputs", JSONBOID);
        pg::require_same_length(outputs, "outputs", ids, "saga_ids");
    }
    auto count = static_cast<size_t>(ids.count);
    auto *rows = static_cast<Row *>(palloc(sizeof(Row) * (count + 1)));
    for (size_t i = 0; i < count; ++i) {
        Row row{};
        if (!ids.nulls[i])
            row.saga_id = *DatumGetUUIDP(ids.values[i]);
        if (!steps.nulls[i])
            row.step = pg::view_of_text(steps.values[i]);
        if (!leases.nulls[i])
            row.lease = DatumGetInt64(leases.values[i]);
        const bool has_output = outputs.has(static_cast<int>(i));
        row.output =
            pg::param_datum(JSONBOID, has_output ? outputs.values[i] : Datum{0}, !has_output);
        rows[i] = row;
    }
    return {rows, count};
}

/// Two batches lock the sagas that they share in the same order.
Row **in_order_of_sagas(std::span<Row> rows) {
    auto **order = static_cast<Row **>(palloc(sizeof(Row *) * (rows.size() + 1)));
    for (size_t i = 0; i < rows.size(); ++i)
        order[i] = &rows[i];
    std::sort(order, order + rows.size(), [](const Row *a, const Row *b) {
        int difference = !a->saga_id || !b->saga_id
                             ? int{a->saga_id.has_value()} - int{b->saga_id.has_value()}
                             : memcmp(&*a->saga_id, &*b->saga_id, UUID_LEN);
        return difference != 0 ? difference < 0 : a < b;
    });
    return order;
}

} // namespace

// complete_steps(saga_ids, steps, leases, outputs)
//   -> TABLE(saga_id uuid, step text, status text, sqlstate text)
STACKSAGA_FUNCTION(complete_steps) {
    std::span<Row> rows = read_rows(pg::Arguments(fcinfo));
    Row **order = in_order_of_sagas(rows);
    TimestampTz now = pg::clock_now();
    for (size_t i = 0; i < rows.size(); ++i) {
        CHECK_FOR_INTERRUPTS();
        as_writing_owner([&] { complete_row(*order[i], now); });
    }
    auto text = [](std::string_view s) { return pg::of(PointerGetDatum(pg::make_text(s))); };
    pg::ResultSet result(fcinfo);
    for (Row &row : rows)
        result.add(row.saga_id ? pg::of(UUIDPGetDatum(&*row.saga_id)) : pg::null(),
                   row.step ? text(*row.step) : pg::null(),
                   row.status.empty() ? pg::null() : text(row.status),
                   row.sqlstate != nullptr ? text(row.sqlstate) : pg::null());
    return result.finish();
}

// complete_step(saga_id, step, lease, output) -> text
STACKSAGA_FUNCTION(complete_step) {
    pg::Arguments arguments(fcinfo);
    if (!arguments.is_null(3))
        check_payload(arguments.datum(3), "output");
    std::string_view status = as_writing_owner([&] { return complete(arguments); });
    PG_RETURN_TEXT_P(pg::make_text(status));
}

// fail_step(saga_id, step, lease, error, error_class, retry_after) -> text
STACKSAGA_FUNCTION(fail_step) {
    pg::Arguments arguments(fcinfo);
    std::string_view error = arguments.required_text(3, "error");
    check_error_text(error, "error");
    std::string_view name = arguments.required_text(4, "error_class");
    std::optional<FailureClass> failure_class = core::failure_class_of(name);
    if (!failure_class)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"error_class\" is not valid"),
                        errdetail("The value is \"%s\".", clip(name)),
                        errhint("Use retryable, non_retryable or unknown.")));
    core::Failure failure{};
    failure.failure_class = *failure_class;
    failure.outcome_known = *failure_class != FailureClass::unknown;
    failure.was_never_done = *failure_class == FailureClass::non_retryable;
    failure.error = error;
    if (!arguments.is_null(5))
        failure.retry_after_us = retry_after(arguments.datum(5));
    std::string_view status = as_writing_owner([&] { return fail(arguments, failure); });
    PG_RETURN_TEXT_P(pg::make_text(status));
}

// extend_step(saga_id, step, lease, extend_by) -> TABLE(lease_until, cancel_requested)
STACKSAGA_FUNCTION(extend_step) {
    pg::Arguments arguments(fcinfo);
    arguments.require(3, "extend_by");
    int64 by_us = pg::interval_microseconds(arguments.datum(3), "extend_by", true);
    Extension extension = as_writing_owner([&] { return extend_lease(arguments, by_us); });
    pg::ResultSet result(fcinfo);
    result.add(pg::of(TimestampTzGetDatum(extension.lease_until)),
               pg::of(BoolGetDatum(extension.cancel_requested)));
    return result.finish();
}

} // namespace stacksaga
