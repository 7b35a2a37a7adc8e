// The answers of a service under its lease: complete_step, complete_steps, fail_step, extend_step.
#include "src/service/answer.hpp"

#include "core/saga/saga.hpp"
#include "core/saga/saga_answers.hpp"
#include "core/saga/saga_engine.hpp"
#include "core/saga/saga_state.hpp"
#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/json_text.hpp"
#include "pg/random.hpp"
#include "pg/statement/array.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/handler/running_handler.hpp"
#include "src/operate/contradiction.hpp"
#include "src/saga/child.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/saga/store.hpp"
#include "src/work/work_table.hpp"

namespace stacksaga {

using core::AnswerOutcome;
using core::FailureClass;

Answer begin_answer(const pg::Arguments &arguments) {
    const pg_uuid_t id = arguments.required_uuid(0, "saga_id");
    const std::string_view name = arguments.required_text(1, "step");
    const int64 lease = arguments.required_int8(2, "lease");
    // The saga's lock comes before everything that the answer is judged by. So an answer, another
    // claim and the end of the lease follow each other, and the later one sees the lease that the
    // earlier one left in the row of work.
    Saga &saga = require_saga(id, pg::clock_now());
    // A parent may have decided that this saga compensates: that counts before the answer does.
    heed_ancestors(saga);
    CRASH_POINT("answer: saga locked");
    const Step *step = saga.definition->find(name);
    if (step == nullptr)
        raise_unknown_step(saga, name);
    return {saga, *step, lease};
}

void refuse_answer(const Answer &a, AnswerOutcome outcome) {
    if (outcome == AnswerOutcome::lease_lost) {
        const std::optional<Work> work = core::find_work(a.saga, a.step.no, a.direction());
        const char *held =
            work && work->is_claimed() ? "another claim holds the step" : "no claim holds it";
        ereport(ERROR, (errcode(pg::sg412),
                        errmsg("lease on step \"%s\" of saga %s is lost", clip(a.step.name),
                               uuid_text(a.saga.id)),
                        errdetail("The lease given is " INT64_FORMAT "; %s. The saga is %s.",
                                  a.lease, held, status_of(a.saga).data()),
                        errhint("Roll back what was done under this lease and claim again.")));
    }
    const bool is_undone = outcome == AnswerOutcome::being_undone;
    ereport(ERROR,
            (errcode(pg::sg409),
             errmsg("step \"%s\" of saga %s is not waiting for this answer", clip(a.step.name),
                    uuid_text(a.saga.id)),
             errdetail("The saga is %s; %s, and lease " INT64_FORMAT " has ended.",
                       status_of(a.saga).data(),
                       is_undone ? "the compensation of the step has begun"
                                 : "the step was settled without this answer",
                       a.lease),
             is_undone ? errhint("Roll back. The effect outside, if there is one, is undone under "
                                 "the idempotency key of this action.")
                       : errhint("Roll back. Nothing will undo an effect outside: undo it, or have "
                                 "an operator look at the saga.")));
}

namespace {

/// Raises the error of a failure that follows a completion under this lease.
[[noreturn]] void refuse_failure(const Answer &a) {
    ereport(ERROR, (errcode(pg::sg409),
                    errmsg("step \"%s\" of saga %s was completed under this lease",
                           clip(a.step.name), uuid_text(a.saga.id)),
                    errdetail("The completion under lease " INT64_FORMAT " holds; the saga is %s.",
                              a.lease, status_of(a.saga).data()),
                    errhint("Find out which of the two answers is true; doctor() shows it until "
                            "acknowledge_contradiction().")));
}

/// The attempt whose lease is to be extended.
Work require_lease(const Answer &a) {
    const std::optional<Work> work = core::find_leased(a.saga, a.step, a.lease);
    if (work)
        return *work;
    const AnswerOutcome outcome = core::judge_completion(a.saga, a.step, a.lease, {}).outcome;
    refuse_answer(a, outcome == AnswerOutcome::accept ? AnswerOutcome::lease_lost : outcome);
}

bool is_same(const pg::Param &output, std::optional<Datum> earlier) {
    if (output.isnull || !earlier)
        return output.isnull && !earlier;
    return DatumGetBool(DirectFunctionCall2(jsonb_eq, output.value, *earlier));
}

} // namespace

// There is none while a claim holds it, so a first completion does not look for one.
std::optional<pg::TableRow> find_marker(const Answer &a) {
    const std::optional<Work> work = core::find_leased(a.saga, a.step, a.lease);
    if (work && work->is_claimed())
        return std::nullopt;
    const std::array key{pg::param(a.saga.id), pg::param(a.step.no),
                         pg::param(core::name_of(a.direction())), pg::param(a.saga.token)};
    std::optional<pg::TableRow> effect = effect_table.find_one({.key = key});
    if (effect && effect->optional_int8(EffectColumn::lease) != a.lease)
        effect.reset();
    return effect;
}

namespace {

std::optional<core::EarlierCompletion> describe(const std::optional<pg::TableRow> &marker,
                                                const pg::Param &output) {
    if (!marker)
        return std::nullopt;
    const std::optional<Datum> earlier = marker->optional(EffectColumn::output);
    return core::EarlierCompletion{
        .is_same_output = is_same(output, earlier),
        .is_output_null = !earlier,
        .settled_by = marker->is_null(EffectColumn::settled_by)
                          ? core::SettledBy::answer
                          : *core::settled_by_of(marker->text(EffectColumn::settled_by))};
}

} // namespace

void note_answer(const Answer &a, std::optional<FailureClass> failed) {
    note_contradiction({.saga_id = a.saga.id,
                        .step_no = a.step.no,
                        .direction = a.direction(),
                        .lease = a.lease,
                        .failed = failed,
                        .answered_at = a.saga.now},
                       a.step.name);
}

namespace {

/// Applies a completion if it counts. An outcome that refuses it changes nothing.
AnswerOutcome take_completion(const Answer &a, const pg::Param &output) {
    std::optional<pg::TableRow> marker = find_marker(a);
    const core::JudgedAnswer judged =
        core::judge_completion(a.saga, a.step, a.lease, describe(marker, output));
    CRASH_POINT("answer: judged");
    // Kept outside of the transaction, which the refusal of the answer rolls back.
    if (judged.contradicts)
        note_answer(a, std::nullopt);
    if (judged.outcome == AnswerOutcome::accept)
        core::step_completed(a.saga, a.step, *judged.work,
                             value_or_null(output.value, output.isnull));
    else if (judged.outcome == AnswerOutcome::fills_output)
        effect_table.update(*marker, std::array{pg::assign(EffectColumn::output, output)});
    write_saga(a.saga); // a refused answer too: ancestors may have changed the saga
    return judged.outcome;
}

/// Returns a constant of core, which outlives SPI.
std::string_view complete(const pg::Arguments &arguments) {
    const Answer a = begin_answer(arguments);
    const pg::Param output = pg::param_datum(JSONBOID, arguments.datum(3), arguments.is_null(3));
    switch (const AnswerOutcome outcome = take_completion(a, output)) {
    case AnswerOutcome::accept:
    case AnswerOutcome::accepted_before:
    case AnswerOutcome::fills_output:
        break;
    case AnswerOutcome::other_output:
        ereport(ERROR,
                (errcode(pg::sg422),
                 errmsg("step \"%s\" of saga %s was completed with another output",
                        clip(a.step.name), uuid_text(a.saga.id)),
                 errdetail("The first completion under lease " INT64_FORMAT " holds.", a.lease),
                 errhint("Repeat a completion with the same output only.")));
    case AnswerOutcome::lease_lost:
    case AnswerOutcome::being_undone:
    case AnswerOutcome::not_undone:
        refuse_answer(a, outcome);
    }
    CRASH_POINT("answer: completed");
    return status_of(a.saga);
}

/// SG400 for a pause after which the service has forgotten the idempotency key of the attempt.
int64 retry_after(Datum interval) {
    const core::Length length = pg::interval_length(interval, "retry_after", false);
    const int64 after_us = core::longest(length), retention_us = dedupe_retention_us();
    if (after_us > retention_us)
        ereport(ERROR,
                (errcode(pg::sg400),
                 errmsg("argument \"retry_after\" is longer than keys are kept"),
                 errdetail("The value is %s, and stacksaga.dedupe_retention is %s.",
                           interval_text(after_us), interval_text(retention_us)),
                 errhint("Use a shorter retry_after, or raise stacksaga.dedupe_retention.")));
    return core::microseconds_from(pg::clock_now(), length);
}

std::string_view fail(const pg::Arguments &arguments, core::Failure failure) {
    const Answer a = begin_answer(arguments);
    failure.since = a.saga.now;
    const core::JudgedAnswer judged = core::judge_failure(
        a.saga, a.step, a.lease, failure.failure_class, find_marker(a).has_value());
    if (judged.contradicts)
        note_answer(a, failure.failure_class);
    if (judged.outcome == AnswerOutcome::accept)
        core::step_failed(a.saga, a.step, *judged.work, failure, pg::random_fraction());
    else if (judged.outcome != AnswerOutcome::accepted_before && judged.contradicts)
        refuse_failure(a);
    else if (judged.outcome != AnswerOutcome::accepted_before)
        refuse_answer(a, judged.outcome);
    write_saga(a.saga);
    CRASH_POINT("answer: failed");
    return status_of(a.saga);
}

struct Extension {
    TimestampTz lease_until;
    bool cancel_requested;
};

/// The report of a call; nothing: what is there stays. JSON null erases it.
std::optional<pg::Param> progress_argument(const pg::Arguments &arguments, int i) {
    constexpr uint64 bytes_max = 4096;
    if (arguments.is_null(i))
        return std::nullopt;
    Jsonb *progress = DatumGetJsonbP(arguments.datum(i));
    const uint64 bytes = pg::json_text_bytes(progress);
    if (bytes > bytes_max)
        ereport(ERROR,
                (errcode(pg::sg413), errmsg("argument \"progress\" is too large"),
                 errdetail("Its text has " UINT64_FORMAT " bytes; it may have " UINT64_FORMAT ".",
                           bytes, bytes_max),
                 errhint("Store the data elsewhere and report what a person wants to see.")));
    JsonbValue scalar;
    if (JB_ROOT_IS_SCALAR(progress) && JsonbExtractScalar(&progress->root, &scalar) &&
        scalar.type == jbvNull)
        return pg::param_null(JSONBOID);
    return pg::param_datum(JSONBOID, JsonbPGetDatum(progress));
}

Extension extend_lease(const pg::Arguments &arguments, int64 by_us,
                       const std::optional<pg::Param> &progress) {
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
    if (progress)
        a.saga.report = {.lease = a.lease, .progress = *progress};
    write_saga(a.saga);
    CRASH_POINT("answer: lease extended");
    return {until, core::is_cancel_requested(a.saga, a.direction())};
}

const char *sqlstate_of(AnswerOutcome outcome) {
    switch (outcome) {
    case AnswerOutcome::other_output:
        return "SG422";
    case AnswerOutcome::lease_lost:
        return "SG412";
    case AnswerOutcome::being_undone:
    case AnswerOutcome::not_undone:
        return "SG409";
    case AnswerOutcome::accept:
    case AnswerOutcome::accepted_before:
    case AnswerOutcome::fills_output:
        break;
    }
    return nullptr;
}

} // namespace

std::optional<Answer> begin_row(AnswerRow &row, TimestampTz now) {
    // A refusal is a column of the result, not an error: the other rows of the batch are answered.
    if (!row.saga_id || !row.step || !row.lease) {
        row.sqlstate = "SG400";
        return std::nullopt;
    }
    if (running_handler.is_of_step_of(*row.saga_id)) {
        row.sqlstate = "SG409";
        return std::nullopt;
    }
    Saga *saga = lock_saga(*row.saga_id, now);
    const Step *step = saga != nullptr ? saga->definition->find(*row.step) : nullptr;
    if (step == nullptr) {
        row.sqlstate = "SG404";
        return std::nullopt;
    }
    heed_ancestors(*saga);
    return Answer{*saga, *step, *row.lease};
}

namespace {

void complete_row(AnswerRow &row, TimestampTz now) {
    const std::optional<Answer> a = begin_row(row, now);
    if (!a)
        return;
    if (!row.output.isnull && !payload_fits(row.output.value)) {
        row.sqlstate = "SG413";
        return;
    }
    row.sqlstate = sqlstate_of(take_completion(*a, row.output));
    row.status = status_of(a->saga);
}

} // namespace

std::span<AnswerRow> answer_rows(const pg::Arguments &arguments, bool with_outputs) {
    arguments.require(0, "saga_ids");
    arguments.require(1, "steps");
    arguments.require(2, "leases");
    pg::Elements ids = pg::array_argument(arguments, 0, "saga_ids", UUIDOID);
    pg::Elements steps = pg::array_argument(arguments, 1, "steps", TEXTOID);
    pg::Elements leases = pg::array_argument(arguments, 2, "leases", INT8OID);
    pg::Elements outputs;
    pg::require_same_length(steps, "steps", ids, "saga_ids");
    pg::require_same_length(leases, "leases", ids, "saga_ids");
    if (with_outputs && !arguments.is_null(3)) {
        outputs = pg::array_argument(arguments, 3, "outputs", JSONBOID);
        pg::require_same_length(outputs, "outputs", ids, "saga_ids");
    }
    auto count = static_cast<size_t>(ids.count);
    auto *rows = static_cast<AnswerRow *>(palloc(sizeof(AnswerRow) * (count + 1)));
    for (size_t i = 0; i < count; ++i) {
        AnswerRow row{};
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

AnswerRow **in_order_of_sagas(std::span<AnswerRow> rows) {
    auto **order = static_cast<AnswerRow **>(palloc(sizeof(AnswerRow *) * (rows.size() + 1)));
    for (size_t i = 0; i < rows.size(); ++i)
        order[i] = &rows[i];
    std::sort(order, order + rows.size(), [](const AnswerRow *a, const AnswerRow *b) {
        int difference = !a->saga_id || !b->saga_id
                             ? int{a->saga_id.has_value()} - int{b->saga_id.has_value()}
                             : memcmp(&*a->saga_id, &*b->saga_id, UUID_LEN);
        return difference != 0 ? difference < 0 : a < b;
    });
    return order;
}

// complete_steps(saga_ids, steps, leases, outputs)
//   -> TABLE(saga_id uuid, step text, status text, sqlstate text)
STACKSAGA_FUNCTION(complete_steps) {
    std::span<AnswerRow> rows = answer_rows(pg::Arguments(fcinfo), true);
    AnswerRow **order = in_order_of_sagas(rows);
    TimestampTz now = pg::clock_now();
    for (size_t i = 0; i < rows.size(); ++i) {
        CHECK_FOR_INTERRUPTS();
        as_writing_owner([&] { complete_row(*order[i], now); });
    }
    auto text = [](std::string_view s) { return pg::of(PointerGetDatum(pg::make_text(s))); };
    pg::ResultSet result(fcinfo);
    for (AnswerRow &row : rows)
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
    failure.error = error;
    if (!arguments.is_null(5))
        failure.retry_after_us = retry_after(arguments.datum(5));
    std::string_view status = as_writing_owner([&] { return fail(arguments, failure); });
    PG_RETURN_TEXT_P(pg::make_text(status));
}

// extend_step(saga_id, step, lease, extend_by, progress) -> TABLE(lease_until, cancel_requested)
STACKSAGA_FUNCTION(extend_step) {
    pg::Arguments arguments(fcinfo);
    arguments.require(3, "extend_by");
    int64 by_us = pg::interval_microseconds(arguments.datum(3), "extend_by", true);
    const std::optional<pg::Param> progress = progress_argument(arguments, 4);
    Extension extension =
        as_writing_owner([&] { return extend_lease(arguments, by_us, progress); });
    pg::ResultSet result(fcinfo);
    result.add(pg::of(TimestampTzGetDatum(extension.lease_until)),
               pg::of(BoolGetDatum(extension.cancel_requested)));
    return result.finish();
}

} // namespace stacksaga
