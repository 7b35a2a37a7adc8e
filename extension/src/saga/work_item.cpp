#include "src/saga/work_item.hpp"

#include "core/saga/classify.hpp"
#include "core/saga/saga.hpp"
#include "core/saga/saga_children.hpp"
#include "core/saga/saga_deadline.hpp"
#include "core/saga/saga_engine.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/step_kind.hpp"
#include "core/saga/work_purpose.hpp"
#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/fault_point.hpp"
#include "pg/random.hpp"
#include "pg/statement/function.hpp"
#include "src/common/limits.hpp"
#include "src/handler/crash_record.hpp"
#include "src/handler/handler_timeout.hpp"
#include "src/handler/process_retry_budget.hpp"
#include "src/handler/running_handler.hpp"
#include "src/outbox/published_messages.hpp"
#include "src/saga/child.hpp"
#include "src/saga/step_call.hpp"

namespace stacksaga {

namespace {

using core::Direction;
using core::FailureClass;
using core::WorkPurpose;

/// The work of a step that is still due.
std::optional<Work> find_due(const Saga &saga, const DueItem &item) {
    const std::optional<Work> work = core::find_work(saga, item.step_no, item.direction);
    return work && work->due_at <= saga.now ? work : std::nullopt;
}

/// The item that a worker can run for this saga at once, as a first attempt: the next one of its
/// run-ahead.
std::optional<DueItem> find_next(const Saga &saga) {
    if (saga.is_suspended() || core::is_at_rest(saga.status()))
        return std::nullopt;
    for (const core::WorkRow &row : saga.work) {
        const Work &w = row.work;
        if (row.is_live() && w.purpose == WorkPurpose::step && w.due_at <= saga.now &&
            w.attempt == w.attempt_base && !w.is_claimed() && !w.verifying &&
            core::may_begin(saga, w) &&
            !saga.definition->step(w.step_no).queue_of(w.direction, w.falling_back))
            return DueItem{.saga_id = saga.id,
                           .slot = saga.slot,
                           .purpose = w.purpose,
                           .step_no = w.step_no,
                           .direction = w.direction,
                           .attempt = w.attempt};
    }
    return std::nullopt;
}

StepCall make_call(Saga &saga, const Step &step, const Work &attempt) {
    std::optional<core::Doubt> doubt; // the one that verify is asked about
    if (attempt.verifying)
        doubt = core::find_doubt(saga, step.no);
    return {.saga_id = saga.id,
            .saga = saga.definition->saga,
            .step = &step,
            .direction = attempt.direction,
            .attempt = attempt.attempt,
            .input = saga.input,
            .results = step_results(saga),
            .headers = saga.headers,
            .deadline = core::attempt_deadline(saga, step, attempt.direction),
            .by_fallback = attempt.falling_back,
            .claimed_at = doubt ? std::optional(doubt->claimed_at) : std::nullopt};
}

/// The result of a verify function: an outcome, or an object that has the step's output too.
struct VerifyResult {
    std::string_view outcome; ///< empty: none that is known
    core::Value output;
};

std::string_view string_in(const JsonbValue *value) {
    if (value == nullptr || value->type != jbvString)
        return {};
    return {value->val.string.val, static_cast<size_t>(value->val.string.len)};
}

VerifyResult read_result(Datum answer) {
    Jsonb *json = DatumGetJsonbP(answer);
    JsonbValue scalar;
    if (JB_ROOT_IS_SCALAR(json))
        return {.outcome = JsonbExtractScalar(&json->root, &scalar) ? string_in(&scalar)
                                                                    : std::string_view{},
                .output = {}};
    if (!JB_ROOT_IS_OBJECT(json))
        return {};
    const auto find = [&](std::string_view key) {
        return getKeyJsonValueFromContainer(&json->root, key.data(), static_cast<int>(key.size()),
                                            nullptr);
    };
    VerifyResult result{.outcome = string_in(find("outcome")), .output = {}};
    if (JsonbValue *output = find("output")) {
        result.output = value_of(JsonbPGetDatum(JsonbValueToJsonb(output)));
        check_payload(result.output.bits, "output");
    }
    return result;
}

/// The result of a handler. If the handler has signalled its saga, the saga is read again: then
/// `saga` is another object, and nothing may have been decided about the earlier one.
Datum call(Saga *&saga, const Step &step, const FunctionRef &function, HandlerKind kind,
           const Work &attempt, bool *isnull) {
    const Datum argument = step_call_datum(make_call(*saga, step, attempt));
    const uint64 bytes = VARSIZE_ANY(DatumGetPointer(argument));
    running_handler.begin_step(saga->id, step.name);
    forget_published();
    start_handler_timeout(core::microseconds_from(saga->now, step.timeout));
    CRASH_POINT("step: before the function");
    Datum result = call_handler(saga->full_definition(), step, function, kind, argument, isnull);
    CRASH_POINT("step: after the function");
    finish_handler_timeout();
    if (!*isnull && kind == HandlerKind::verify)
        (void)read_result(result); // checks it
    else if (!*isnull)
        check_payload(result, "output");
    running_handler.end();
    // A saga without signal steps has refused the signal, and may not be written yet.
    if (running_handler.has_signalled_its_saga() && saga->definition->has_signals)
        saga = lock_saga(saga->id, saga->now);
    saga->call_bytes = bytes;
    return result;
}

/// The attempt that running the step now makes.
Work next_attempt(const Saga &saga, const Work &work, std::string_view worker) {
    Work attempt = work;
    attempt.attempt = work.attempt + 1;
    attempt.started_at = saga.now;
    attempt.worker = worker;
    return attempt;
}

void run_action(Saga *&saga, const Step &step, const Work &work, std::string_view worker) {
    const Work attempt = next_attempt(*saga, work, worker);
    const StepFunctions &f = saga->full_definition().functions_of(step);
    const FunctionRef &function = work.direction == Direction::compensate ? f.compensation
                                  : work.falling_back                     ? f.fallback
                                                                          : f.action;
    bool isnull;
    const Datum output = call(saga, step, function, HandlerKind::action, attempt, &isnull);
    core::attempt_begins(*saga);
    core::step_completed(*saga, step, attempt, value_or_null(output, isnull), published_messages());
}

std::string_view sentence_of(core::VerifyOutcome outcome) {
    switch (outcome) {
    case core::VerifyOutcome::not_done:
        return "verify says that the step was not done";
    case core::VerifyOutcome::never_done:
        return "verify says that the step was not done and never will be";
    case core::VerifyOutcome::done:
    case core::VerifyOutcome::unknown:
        break;
    }
    return "verify does not know whether the step was done";
}

void run_verify(Saga *&saga, const Step &step, const Work &work) {
    bool isnull;
    const FunctionRef &function = saga->full_definition().functions_of(step).verify;
    record_verify(work.verify_attempts);
    const Datum answer = call(saga, step, function, HandlerKind::verify, work, &isnull);
    const VerifyResult result = isnull ? VerifyResult{} : read_result(answer);
    const core::VerifyOutcome outcome =
        core::verify_outcome_of(result.outcome).value_or(core::VerifyOutcome::unknown);
    core::verify_answered(*saga, step, work,
                          {.outcome = outcome,
                           .output = result.output,
                           .published = published_messages(),
                           .error = sentence_of(outcome)},
                          pg::random_fraction());
}

/// Runs an item of another purpose than `step`. All but a deadline are due while the saga is
/// suspended, too.
bool run_notice(const DueItem &item) {
    // While the notice is locked its writer cannot write it again: the committed state that is read
    // below is at least the announced one, and a later change adds a notice of its own.
    Saga *saga = lock_saga(item.saga_id, pg::clock_now(), true);
    if (saga == nullptr || !lock_notice(*saga, item.purpose, item.step_no))
        return false;
    FAULT_POINT("read: notice", saga->id);
    switch (item.purpose) {
    case WorkPurpose::deadline:
        heed_ancestors(*saga);
        core::deadline_due(*saga);
        break;
    case WorkPurpose::child_settled: {
        remove_notice(*saga, item.purpose, item.step_no);
        const Step &step = saga->definition->step(item.step_no);
        core::child_settled(*saga, step, load_child(*saga, step));
        break;
    }
    case WorkPurpose::compensation_request:
        remove_notice(*saga, item.purpose, item.step_no);
        core::compensate_for_parent(*saga, compensation_of_parent);
        break;
    case WorkPurpose::step:
        return false;
    }
    running_handler.end_reading();
    write_saga(*saga);
    return true;
}

void run_signal(Saga *&saga, const Step &step, const Work &work, std::string_view) {
    core::signal_due(*saga, step, work,
                     psprintf("signal \"%s\" did not arrive in time", clip(step.signal)));
}

void run_timer(Saga *&saga, const Step &step, const Work &work, std::string_view worker) {
    core::timer_due(*saga, step, work, worker);
}

void run_child(Saga *&saga, const Step &step, const Work &work, std::string_view worker) {
    core::child_step_due(*saga, step, work, load_child(*saga, step), worker);
}

void run_message(Saga *&saga, const Step &step, const Work &work, std::string_view worker) {
    run_message_step(*saga, step, work, worker);
}

/// The item that a worker runs for a step that is due; nothing when a service claims the step.
struct StepRunner {
    StepKind kind;
    void (*run)(Saga *&saga, const Step &step, const Work &work, std::string_view worker);
};
constexpr std::array runners{
    StepRunner{StepKind::sql, run_action},    StepRunner{StepKind::queue, nullptr},
    StepRunner{StepKind::signal, run_signal}, StepRunner{StepKind::timer, run_timer},
    StepRunner{StepKind::child, run_child},   StepRunner{StepKind::message, run_message},
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

namespace {

/// The lease or the timeout of an attempt has passed.
void end_claim(Saga &saga, const Step &step, const Work &work) {
    std::optional<core::Child> child;
    if (step.waits_for() == core::StepWait::child && !work.falling_back)
        child = load_child(saga, step);
    core::lease_expired(saga, step, work, pg::random_fraction(), child);
}

/// Whether the step's due work is a call of a user's function.
bool takes_handler(const Step &step, const Work &work) {
    return work.verifying || (step.kind == StepKind::sql && !work.is_claimed());
}

/// Runs the step's due work. If a handler signals its saga, the saga is read again: then `saga` is
/// another object.
ItemOutcome run_step(Saga *&saga, const DueItem &item, std::string_view worker, bool calls) {
    heed_ancestors(*saga);
    saga->call_bytes = 0;
    const std::optional<Work> work = find_due(*saga, item);
    if (!work) // of a child: the decisions of its ancestors must be written
        return {.is_done = saga->is_child, .is_gone = !saga->is_child};
    const Step &step = saga->definition->step(item.step_no);
    if (saga->is_paused && !core::may_begin(*saga, *work) && !saga->ancestry.is_suspended) {
        core::arrange_work(*saga);
        return {.is_done = true};
    }
    if (!calls && takes_handler(step, *work))
        return {};
    ItemOutcome outcome{.is_done = true};
    if (work->is_claimed())
        end_claim(*saga, step, *work);
    else if (!core::may_begin(*saga, *work) && saga->ancestry.is_suspended)
        core::defer_for_ancestors(*saga, *work, pg::time_plus(saga->now, ancestors_pause_us));
    else if (work->verifying)
        run_verify(saga, step, *work);
    else if (step.queue_of(work->direction, work->falling_back))
        return {};                            // a service claims it
    else if (!core::deadline_passed(*saga) && // else the compensation has started instead
             !core::withhold_repetition(*saga, step, *work)) {
        outcome = outcome_of(*saga, step, *work);
        runners[static_cast<size_t>(step.kind)].run(saga, step, *work, worker);
    }
    outcome.bytes = saga->call_bytes;
    return outcome;
}

/// Writes the rows that the next item reads, or everything when none follows. A saga with signal
/// steps is written whole: its next handler may signal it.
ItemOutcome settle(Saga &saga, ItemOutcome outcome, RunAhead run_ahead) {
    running_handler.end_reading();
    const std::optional<DueItem> next = find_next(saga);
    if (next && run_ahead == RunAhead::yes && !saga.definition->has_signals)
        write_markers(saga);
    else
        write_saga(saga);
    if (next) {
        outcome.has_next = true;
        outcome.saga = run_ahead != RunAhead::no ? &saga : nullptr;
        outcome.next = *next;
    }
    return outcome;
}

ItemOutcome run_locked(const DueItem &item, std::string_view worker, RunAhead run_ahead,
                       bool calls) {
    if (item.purpose != WorkPurpose::step)
        return {.is_done = run_notice(item)};
    // Skips a locked saga: its holder may be a handler that takes minutes, and the batch has other
    // items. The item is read again under the lock (find_due), since the search read it without.
    Saga *saga = lock_saga(item.saga_id, pg::clock_now(), true);
    if (saga == nullptr)
        return {};
    const ItemOutcome outcome = run_step(saga, item, worker, calls);
    return outcome.is_done ? settle(*saga, outcome, run_ahead) : outcome;
}

} // namespace

ItemOutcome run_item(const DueItem &item, std::string_view worker, RunAhead run_ahead) {
    running_handler.begin_reading();
    const ItemOutcome outcome = run_locked(item, worker, run_ahead, true);
    running_handler.end_reading();
    return outcome;
}

bool run_without_handler(const DueItem &item, std::string_view worker) {
    running_handler.begin_reading();
    const ItemOutcome outcome = run_locked(item, worker, RunAhead::no, false);
    running_handler.end_reading();
    return outcome.is_done;
}

ItemOutcome run_next(Saga &saga, const DueItem &item, std::string_view worker, RunAhead run_ahead) {
    running_handler.begin_reading();
    saga.now = pg::clock_now();
    Saga *current = &saga;
    const ItemOutcome outcome = run_step(current, item, worker, true);
    return settle(*current, outcome, run_ahead);
}

namespace {

/// The class that the error of an attempt belongs to.
core::Failure failure_of(const HandlerError &error, const RetryRules &rules, const Saga &saga) {
    core::Failure failure{.failure_class =
                              core::classify(error.sqlstate, rules.retry_on, rules.never_on),
                          .outcome_known = true,
                          .error = error.message,
                          .sqlstate = error.sqlstate,
                          .since = saga.now};
    if (error.timed_out || error.is_cancelled)
        failure.failure_class = FailureClass::retryable; // rolled back, whatever the policy says
    else if (failure.failure_class == FailureClass::unknown)
        failure.outcome_known = false;
    failure.is_crash = error.is_crash;
    failure.detail = error.detail.detail;
    failure.context = error.detail.context;
    return failure;
}

/// Whether a service or a child had the step and may have done it, though nothing can be read of
/// it.
bool may_be_done(const Step &step, const Work &work) {
    const bool is_of_child = step.waits_for() == core::StepWait::child && !work.falling_back;
    return work.is_claimed() || (is_of_child && work.started_at.has_value());
}

} // namespace

ItemOutcome fail_next(Saga &saga, const DueItem &item, std::string_view worker,
                      const HandlerError &error) {
    const std::optional<Work> work = find_due(saga, item);
    if (!work)
        return {.is_done = true};
    if (work->is_claimed() && !error.is_unfit)
        return {};
    const Step &step = saga.definition->step(item.step_no);
    const ItemOutcome outcome = outcome_of(saga, step, *work);
    const bool is_made = work->verifying || work->is_claimed();
    const Work attempt = is_made ? *work : next_attempt(saga, *work, worker);
    if (!is_made)
        core::attempt_begins(saga);
    core::Failure failure =
        failure_of(error, saga.full_definition().rules(step, item.direction), saga);
    failure.adds_to_error = work->verifying; // to the error of the attempt in doubt
    if (may_be_done(step, *work)) {
        failure.failure_class = FailureClass::unknown;
        failure.outcome_known = false;
    }
    if (error.is_unusable || error.is_unfit || error.has_crashed_too_often) {
        core::step_is_unusable(saga, step, attempt, failure);
    } else if (work->verifying) {
        core::verify_failed(saga, step, attempt, failure, pg::random_fraction());
    } else {
        core::step_failed(saga, step, attempt, failure, pg::random_fraction());
    }
    write_saga(saga);
    return outcome;
}

namespace {

core::Failure unread(Saga &saga, const Step &step, const HandlerError &error) {
    return failure_of(error, saga.full_definition().rules(step, saga.row.direction), saga);
}

/// The saga parks for a step whose child has ended, and cannot be read.
bool fail_child_step(Saga &saga, const DueItem &item, const HandlerError &error) {
    const Step &step = saga.definition->step(item.step_no);
    if (!core::child_is_unreadable(saga, step, unread(saga, step, error)))
        return false;
    remove_notice(saga, item.purpose, item.step_no);
    return true;
}

/// A saga that has ended has no step to park for: its parent parks, which waits for it, and asks
/// again when a person retries it. Nothing is left of this request then, since the person may also
/// say that the step is undone.
bool fail_request_of_parent(Saga &saga, const DueItem &item, const HandlerError &error) {
    Saga *parent = lock_parent(saga);
    if (parent == nullptr)
        return false;
    remove_notice(saga, item.purpose, item.step_no);
    const Step &step = parent->definition->step(saga.parent_step);
    core::Failure failure = unread(*parent, step, error);
    failure.error = psprintf("saga %s cannot read that it is to compensate: %s", uuid_text(saga.id),
                             clip(error.message));
    if (saga.status() == core::Status::completed &&
        core::child_cannot_compensate(*parent, step, failure))
        write_saga(*parent);
    else
        saga.changes.notifies_parent = true;
    return true;
}

/// Parks the saga, since its notice could not be read. A deadline stays and is tried again, as does
/// a parent's request of a saga that has not ended.
ItemOutcome fail_notice(const DueItem &item, const HandlerError &error) {
    Saga *saga = lock_saga(item.saga_id, pg::clock_now(), true);
    if (saga == nullptr || !lock_notice(*saga, item.purpose, item.step_no))
        return {.is_done = true};
    bool is_settled = false;
    if (item.purpose == WorkPurpose::child_settled)
        is_settled = fail_child_step(*saga, item, error);
    else if (item.purpose == WorkPurpose::compensation_request && core::is_final(saga->status()))
        is_settled = fail_request_of_parent(*saga, item, error);
    else
        is_settled = core::saga_is_unusable(*saga, error.message);
    if (is_settled)
        write_saga(*saga);
    return {.is_done = is_settled};
}

} // namespace

ItemOutcome fail_item(const DueItem &item, std::string_view worker, const HandlerError &error) {
    if (item.purpose != WorkPurpose::step)
        return error.is_unfit ? fail_notice(item, error) : ItemOutcome{};
    Saga *saga = lock_saga(item.saga_id, pg::clock_now(), true);
    if (saga == nullptr)
        return {.is_done = true};
    return fail_next(*saga, item, worker, error);
}

} // namespace stacksaga
