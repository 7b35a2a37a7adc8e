#include "src/saga/work_item.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/query.hpp"
#include "src/common/limits.hpp"
#include "src/handler/handler_timeout.hpp"
#include "src/handler/running_handler.hpp"
#include "src/ring/retry_budget.hpp"
#include "src/saga/child.hpp"
#include "src/saga/message_step.hpp"
#include "src/saga/step_call.hpp"
#include "src/saga/step_results.hpp"

namespace stacksaga {

namespace {

using core::Direction;
using core::FailureClass;
using core::WorkPurpose;

/// The saga and the work row of a step that is still due.
struct Due {
    Saga saga;
    Work work;
};

std::optional<Due> lock_due(const DueItem &item) {
    std::optional<Saga> saga = lock_saga(item.saga_id, pg::clock_now(), true);
    if (!saga)
        return std::nullopt;
    CRASH_POINT("step: saga locked, work row not read");
    std::optional<Work> work = find_work(*saga, item.step_no, item.direction);
    if (!work || work->due_at > saga->now)
        return std::nullopt;
    return Due{*saga, *work};
}

StepCall make_call(const Saga &saga, const Step &step, const Work &attempt) {
    return {.saga_id = saga.id,
            .saga = saga.definition->saga,
            .step = &step,
            .direction = attempt.direction,
            .attempt = attempt.attempt,
            .input = saga.input,
            .results = step_results(saga, step, attempt.direction),
            .headers = saga.headers,
            .deadline = attempt_deadline(saga, step, attempt.direction)};
}

/// What a handler has returned. What it did to its saga is in `saga`.
Datum call(Saga &saga, const Step &step, const FunctionRef &function, HandlerKind kind,
           const Work &attempt, bool *isnull) {
    // After begin_step(), so that results too large for one value are a failure of the step, which
    // no retry changes.
    running_handler.begin_step(saga.id);
    StepCall step_call = make_call(saga, step, attempt);
    start_handler_timeout(step.timeout_us);
    CRASH_POINT("step: before the function");
    Datum result = call_handler(*saga.definition, function, kind, step_call, isnull);
    CRASH_POINT("step: after the function");
    finish_handler_timeout();
    if (kind == HandlerKind::action && !*isnull)
        check_payload(result, "output");
    running_handler.end();
    if (running_handler.has_signalled_its_saga())
        saga = *lock_saga(saga.id, saga.now);
    return result;
}

/// The attempt that running the step now is.
Work next_attempt(const Saga &saga, const Work &work, std::string_view worker) {
    Work attempt = work;
    attempt.attempt = work.attempt + 1;
    attempt.started_at = saga.now;
    attempt.worker = worker;
    return attempt;
}

void run_action(Saga &saga, const Step &step, const Work &work, std::string_view worker) {
    Work attempt = next_attempt(saga, work, worker);
    attempt_begins(saga);
    const FunctionRef &function = work.direction == Direction::compensate ? step.compensation
                                  : work.falling_back                     ? step.fallback
                                                                          : step.action;
    bool isnull;
    Datum output = call(saga, step, function, HandlerKind::action, attempt, &isnull);
    step_completed(saga, step, attempt, pg::param_datum(JSONBOID, output, isnull));
}

/// What verify answers decides an attempt whose outcome is unknown. `error`: why it gave no answer.
void settle_verified(Saga &saga, const Step &step, const Work &work, std::string_view answer,
                     const HandlerError *error = nullptr) {
    if (answer == "done") {
        step_completed(saga, step, work, pg::param_null(JSONBOID));
        return;
    }
    bool known = answer == "not_done";
    Failure failure{.failure_class = known ? FailureClass::retryable : FailureClass::unknown,
                    .outcome_known = known,
                    .error = known ? "verify says that the step was not done"
                                   : "verify does not know whether the step was done",
                    .since = saga.now,
                    .keep_lease = !known && work.lease, // the outcome is as open as before
                    .was_verified = true,
                    .was_never_done = known,
                    .adds_to_error = true};
    if (error != nullptr && error->is_crash) {
        failure.sqlstate = error->sqlstate;
        failure.error = error->message;
        failure.adds_to_error = false; // crashes are counted by their error alone
    }
    step_failed(saga, step, work, failure);
}

void run_verify(Saga &saga, const Step &step, const Work &work) {
    bool isnull;
    Datum answer = call(saga, step, step.verify, HandlerKind::verify, work, &isnull);
    settle_verified(saga, step, work, isnull ? "unknown" : pg::view_of_text(answer));
}

/// Runs an item of another purpose than `step`. All but a deadline are due while the saga is
/// suspended, too.
bool run_saga_work(const DueItem &item) {
    std::optional<Saga> saga = lock_saga(item.saga_id, pg::clock_now(), true);
    if (!saga || !lock_saga_work(*saga, item.purpose, item.step_no))
        return false;
    switch (item.purpose) {
    case WorkPurpose::deadline:
        deadline_due(*saga);
        break;
    case WorkPurpose::child_settled:
        child_settled(*saga, item.step_no);
        break;
    case WorkPurpose::compensation_request:
        compensate_for_parent(*saga);
        break;
    case WorkPurpose::step:
        return false;
    }
    return true;
}

void run_signal(Saga &saga, const Step &step, const Work &work, std::string_view) {
    signal_due(saga, step, work);
}

void run_timer(Saga &saga, const Step &step, const Work &work, std::string_view worker) {
    Work attempt = work;
    attempt.attempt = work.attempt + 1;
    attempt.worker = worker;
    attempt_begins(saga);
    step_completed(saga, step, attempt, pg::param_null(JSONBOID));
}

/// What a worker does for a step that is due; nothing for one that a service claims.
struct StepRunner {
    StepKind kind;
    void (*run)(Saga &saga, const Step &step, const Work &work, std::string_view worker);
};
constexpr std::array runners{
    StepRunner{StepKind::sql, run_action},       StepRunner{StepKind::queue, nullptr},
    StepRunner{StepKind::signal, run_signal},    StepRunner{StepKind::timer, run_timer},
    StepRunner{StepKind::child, run_child_step}, StepRunner{StepKind::message, run_message_step},
};
static_assert(core::is_in_order_of_kinds(runners));

/// The outcome of an attempt at an item that was found like this.
ItemOutcome outcome_of(const Saga &saga, const Step &step, const Work &work) {
    const bool is_first = step.traits().waits_for == core::StepWait::nothing &&
                          work.attempt == work.attempt_base && !work.verifying &&
                          !work.is_claimed();
    if (!is_first)
        return {.is_done = true};
    return {.is_done = true, .first_attempt = budget_of_definition(saga.definition->id)};
}

} // namespace

ItemOutcome run_item(const DueItem &item, std::string_view worker) {
    if (item.purpose != WorkPurpose::step)
        return {.is_done = run_saga_work(item)};
    std::optional<Due> due = lock_due(item);
    if (!due)
        return {};
    const Step &step = due->saga.definition->step(item.step_no);
    if (due->work.verifying)
        run_verify(due->saga, step, due->work);
    else if (due->work.is_claimed())
        lease_expired(due->saga, step, due->work);
    else if (queue_of(step, due->work.falling_back))
        return {};                          // a service claims it
    else if (!deadline_passed(due->saga)) { // else the compensation has started instead
        const ItemOutcome outcome = outcome_of(due->saga, step, due->work);
        runners[static_cast<size_t>(step.kind)].run(due->saga, step, due->work, worker);
        return outcome;
    }
    return {.is_done = true};
}

ItemOutcome fail_item(const DueItem &item, std::string_view worker, const HandlerError &error) {
    if (item.purpose != WorkPurpose::step)
        return {};
    std::optional<Due> due = lock_due(item);
    if (!due)
        return {.is_done = true};
    if (due->work.is_claimed())
        return {};
    Saga &saga = due->saga;
    const ItemOutcome outcome = outcome_of(saga, saga.definition->step(item.step_no), due->work);
    const Step &step = saga.definition->step(item.step_no);
    if (due->work.verifying &&
        !error.has_crashed_too_often) { // a verify function that fails gives no answer
        settle_verified(saga, step, due->work, "unknown", &error);
        return outcome;
    }
    Work attempt = due->work.verifying ? due->work : next_attempt(saga, due->work, worker);
    attempt_begins(saga);
    const RetryRules &rules = saga.definition->rules(step, item.direction);
    Failure failure{.failure_class = core::classify(error.sqlstate, rules.retry_on, rules.never_on),
                    .outcome_known = true,
                    .error = error.message,
                    .sqlstate = error.sqlstate,
                    .since = saga.now};
    if (due->work.verifying) {
        failure.failure_class = FailureClass::unknown;
        failure.outcome_known = false;
    } else if (error.timed_out || error.is_cancelled) {
        failure.failure_class = FailureClass::retryable; // rolled back, whatever the policy says
    } else if (failure.failure_class == FailureClass::unknown) {
        failure.outcome_known = false;
    }
    if (error.is_unusable || error.has_crashed_too_often)
        step_is_unusable(saga, step, attempt, failure);
    else
        step_failed(saga, step, attempt, failure);
    return outcome;
}

} // namespace stacksaga
