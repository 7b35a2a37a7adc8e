// release_step, release_steps: a service gives back what it has claimed and not done.
#include "core/saga/saga_answers.hpp"
#include "core/saga/saga_state.hpp"
#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/random.hpp"
#include "pg/statement/result.hpp"
#include "src/common/limits.hpp"
#include "src/service/answer.hpp"

namespace stacksaga {

namespace {

using core::AnswerOutcome;

constexpr int64 retry_after_max = 7 * USECS_PER_DAY;

/// The arguments retry_after and reason.
core::GivenBack given_back(const pg::Arguments &arguments) {
    arguments.require(3, "retry_after");
    const core::Length after = pg::interval_length(arguments.datum(3), "retry_after", false);
    if (core::longest(after) > retry_after_max)
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("argument \"retry_after\" is too long"),
                 errdetail("The value is %s.", interval_text(core::longest(after))),
                 errhint("Use 0 to 7 days; for longer, end the step and let a timer wait.")));
    const std::string_view reason = arguments.optional_text(4).value_or("");
    check_error_text(reason, "reason");
    return {.retry_after_us = after.microseconds, .reason = reason};
}

/// Releases the step if it still can be.
AnswerOutcome take_release(const Answer &a, const core::GivenBack &given) {
    const core::JudgedAnswer judged =
        core::judge_release(a.saga, a.step, a.lease, find_marker(a).has_value());
    if (judged.contradicts)
        note_answer(a, core::FailureClass::retryable);
    if (judged.outcome == AnswerOutcome::accept)
        core::step_released(a.saga, a.step, *judged.work, given, pg::random_fraction());
    write_saga(a.saga); // a refused release too: ancestors may have changed the saga
    return judged.outcome;
}

bool is_refused(AnswerOutcome outcome) {
    return outcome != AnswerOutcome::accept && outcome != AnswerOutcome::accepted_before;
}

/// Returns a constant of core, which outlives SPI.
std::string_view release(const pg::Arguments &arguments, const core::GivenBack &given) {
    const Answer a = begin_answer(arguments);
    const AnswerOutcome outcome = take_release(a, given);
    if (is_refused(outcome))
        refuse_answer(a, outcome);
    CRASH_POINT("answer: released");
    return status_of(a.saga);
}

/// Why the row was refused, as the error of release_step() says it.
const char *error_text(const AnswerRow &row) {
    const std::string_view sqlstate = row.sqlstate;
    if (sqlstate == "SG400")
        return "an element of saga_ids, steps or leases is null";
    const char *id = uuid_text(*row.saga_id);
    if (sqlstate == "SG409")
        return psprintf("a handler cannot act on saga %s, whose step it runs", id);
    const char *step = clip(*row.step);
    if (sqlstate == "SG404")
        return psprintf("saga %s does not exist, or has no step \"%s\"", id, step);
    return psprintf("lease on step \"%s\" of saga %s is lost", step, id);
}

void release_row(AnswerRow &row, const core::GivenBack &given, TimestampTz now) {
    const std::optional<Answer> a = begin_row(row, now);
    if (!a)
        return;
    if (is_refused(take_release(*a, given)))
        row.sqlstate = "SG412";
    row.status = status_of(a->saga);
}

} // namespace

// release_step(saga_id, step, lease, retry_after, reason) -> text
STACKSAGA_FUNCTION(release_step) {
    const pg::Arguments arguments(fcinfo);
    const core::GivenBack given = given_back(arguments);
    const std::string_view status = as_writing_owner([&] { return release(arguments, given); });
    PG_RETURN_TEXT_P(pg::make_text(status));
}

// release_steps(saga_ids, steps, leases, retry_after, reason)
//   -> TABLE(saga_id uuid, step text, status text, sqlstate text, error text)
STACKSAGA_FUNCTION(release_steps) {
    const pg::Arguments arguments(fcinfo);
    const core::GivenBack given = given_back(arguments);
    const std::span<AnswerRow> rows = answer_rows(arguments, false);
    AnswerRow **order = in_order_of_sagas(rows);
    const TimestampTz now = pg::clock_now();
    for (size_t i = 0; i < rows.size(); ++i) {
        CHECK_FOR_INTERRUPTS();
        as_writing_owner([&] { release_row(*order[i], given, now); });
    }
    const auto text = [](std::string_view s) { return pg::of(PointerGetDatum(pg::make_text(s))); };
    pg::ResultSet result(fcinfo);
    for (const AnswerRow &row : rows)
        result.add(row.saga_id ? pg::of(UUIDPGetDatum(&*row.saga_id)) : pg::null(),
                   row.step ? text(*row.step) : pg::null(),
                   row.status.empty() ? pg::null() : text(row.status),
                   row.sqlstate != nullptr ? text(row.sqlstate) : pg::null(),
                   row.sqlstate != nullptr ? text(error_text(row)) : pg::null());
    return result.finish();
}

} // namespace stacksaga
