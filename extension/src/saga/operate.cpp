// What operators do to one saga: cancel, suspend, resume, retry, resolve. Each action is recorded
// with the role that took it, the instant and the reason.
#include "src/saga/operate.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/scope.hpp"
#include "src/common/limits.hpp"
#include "src/saga/child.hpp"
#include "src/saga/saga.hpp"

namespace stacksaga {

namespace {

using core::Direction;
using core::FailureClass;
using core::Status;

// Under the saga's lock, so numbers are given one at a time.
constinit pg::Statement insert_action{
    "INSERT INTO stacksaga.saga_action (saga_id, token, action_no, action, step_no, outcome, role,"
    "       acted_at, status_before, status_after, reason)"
    " SELECT $1, $2::stacksaga.ring_token, coalesce(max(a.action_no), 0) + 1, $3, $4, $5,"
    "        $6::name, $7, $8, $9, $10"
    "   FROM stacksaga.saga_action a"
    "  WHERE a.saga_id = $1 AND a.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

/// The role that the session acts as, whatever owns the function that it calls.
std::string_view acting_role() {
    return GetUserNameFromId(GetOuterUserId(), false);
}

struct Record {
    std::string_view action;
    Status status_before;
    std::optional<std::string_view> reason;
    std::optional<int16> step_no{};
    std::optional<std::string_view> outcome{};
};

void write_action(const Saga &saga, const Record &r) {
    insert_action.run(pg::param(saga.id), pg::param(saga.token), pg::param(r.action),
                      r.step_no ? pg::param(*r.step_no) : pg::param_null(INT2OID),
                      pg::param(r.outcome), pg::param(acting_role()), pg::param_time(saga.now),
                      pg::param(core::name_of(r.status_before)),
                      pg::param(core::name_of(saga.status)), pg::param(r.reason));
}

[[noreturn]] void refuse(const Saga &saga, const char *action, const char *why, const char *hint) {
    ereport(ERROR, (errcode(pg::sg409), errmsg("saga %s cannot be %s", uuid_text(saga.id), action),
                    errdetail("It is %s%s.", core::name_of(saga.status).data(), why),
                    errhint("%s", hint)));
}

constexpr const char *final_hint = "It has ended; saga_timeline() shows what happened to it.";

void cancel(Saga &saga, std::string_view reason) {
    if (core::is_final(saga.status))
        refuse(saga, "cancelled", "", final_hint);
    if (saga.direction == Direction::compensate) {
        if (saga.status == Status::parked)
            refuse(saga, "cancelled", ", after its compensation began",
                   "Use retry_saga() or resolve_step() for the compensation that failed.");
        if (saga.is_suspended())
            continue_saga(saga);
        return;
    }
    if (saga.status == Status::parked && read_progress(saga).doubtful[*saga.parked_step - 1] &&
        saga.definition->step(*saga.parked_step).irreversible)
        refuse(saga, "cancelled", ", since the outcome of an irreversible step is not known",
               "Say with resolve_step() whether the step was done.");
    if (is_past_pivot(saga))
        refuse(saga, "cancelled", ", past an irreversible step",
               "Let it complete; retry_saga() and resolve_step() continue a parked saga.");
    if (saga.is_suspended()) {
        release_work(saga);
        saga.status = Status::running; // written below, as the change from suspended
    }
    begin_compensation(saga, nullptr, psprintf("cancelled: %s", clip(reason)));
}

void suspend(Saga &saga, std::string_view) {
    if (saga.is_suspended())
        return;
    if (core::is_final(saga.status))
        refuse(saga, "suspended", "", final_hint);
    if (saga.status == Status::parked)
        refuse(saga, "suspended", "", "It waits for an operator already.");
    hold_work(saga);
    change_status(saga, saga.direction, {.to = Status::suspended});
}

void resume(Saga &saga, std::string_view) {
    if (!saga.is_suspended())
        refuse(saga, "resumed", ", not suspended",
               saga.status == Status::parked ? "Use retry_saga() for a parked saga."
                                             : "Only suspend_saga() stops a saga.");
    continue_saga(saga);
}

void retry(Saga &saga, std::string_view) {
    if (saga.status != Status::parked)
        refuse(saga, "tried again", ", not parked",
               "retry_saga() is for parked sagas; the others retry by their policies.");
    if (saga.direction == Direction::act) {
        // A step that only waits for a late answer keeps its row, and becomes claimable again.
        bool *is_kept = steps_kept(saga);
        for (const Step &step : saga.definition->steps)
            if (is_kept[step.no - 1] && step.traits().waits_for != core::StepWait::signal)
                start_counting_anew(saga, *find_work(saga, step.no, Direction::act));
    }
    continue_saga(saga);
}

/// Indexed by Action; the words are those of saga_action.
struct ActionRule {
    std::string_view name;
    void (*run)(Saga &saga, std::string_view reason);
};
constexpr std::array action_rules{
    ActionRule{"cancel", cancel},
    ActionRule{"suspend", suspend},
    ActionRule{"resume", resume},
    ActionRule{"retry", retry},
};

struct Resolution {
    bool done;
    pg::Param output;
    std::optional<std::string_view> reason;
};

Work failed_attempt(int16 step_no, Direction direction, int32 attempt) {
    Work work{};
    work.step_no = step_no;
    work.direction = direction;
    work.attempt = attempt;
    return work;
}

/// An irreversible step that completed after compensation had begun, and so parked the saga.
bool is_done_on_the_way_back(const Saga &saga, const Step &step) {
    return saga.status == Status::parked && saga.direction == Direction::compensate &&
           saga.parked_direction == Direction::act && saga.parked_step == step.no &&
           read_progress(saga).acted[step.no - 1];
}

[[noreturn]] void refuse_child(const Saga &saga, const Step &step) {
    refuse(saga, "resolved", psprintf(", and step \"%s\" is a saga of its own", clip(step.name)),
           "Cancel, retry or resolve that saga; it notifies this one.");
}

/// What an operator can settle of a step: its live work row, or a failed attempt that is not tried
/// again.
Work find_unsettled(const Saga &saga, const Step &step) {
    if (std::optional<Work> work = find_work(saga, step.no, Direction::compensate))
        return *work;
    if (std::optional<Work> work = find_work(saga, step.no, Direction::act)) {
        if (step.traits().waits_for == core::StepWait::child && !work->falling_back)
            refuse_child(saga, step);
        return *work;
    }
    Progress p = read_progress(saga);
    for (Direction d : {Direction::compensate, Direction::act}) {
        int32 attempt = last_failed_attempts(saga, d)[step.no - 1];
        bool done = (d == Direction::act ? p.acted : p.compensated)[step.no - 1];
        if (attempt > 0 && !done && saga.status == Status::parked &&
            (d == Direction::compensate || saga.parked_direction == Direction::act)) {
            if (d == Direction::act && step.traits().waits_for == core::StepWait::child &&
                child_stands(saga, step))
                refuse_child(saga, step);
            return failed_attempt(step.no, d, attempt);
        }
    }
    if (is_done_on_the_way_back(saga, step))
        return failed_attempt(step.no, Direction::act, 1);
    refuse(saga, "resolved", psprintf(", and step \"%s\" neither runs nor waits", clip(step.name)),
           "Resolve a step that has begun and is not settled; saga_history shows them.");
}

/// Whether an irreversible step besides this one was done, or may have been.
bool another_pivot_stands(const Saga &saga, const Step &step) {
    Progress p = read_progress(saga);
    return std::any_of(
        saga.definition->steps.begin(), saga.definition->steps.end(), [&](const Step &s) {
            return s.irreversible && s.no != step.no && (p.acted[s.no - 1] || p.doubtful[s.no - 1]);
        });
}

/// A step of a saga that compensates was not done after all. If the saga was parked for it, the
/// compensation continues.
void settle_on_the_way_back(Saga &saga, const Step &step) {
    settle_outcomes(saga, step.no, Direction::act);
    if (!work_remains(saga, Direction::act) && !another_pivot_stands(saga, step))
        compensate_next(saga);
}

void resolve(Saga &saga, const Step &step, const Resolution &r) {
    Work work = find_unsettled(saga, step);
    bool is_live = find_work(saga, step.no, work.direction).has_value();
    if (r.done && !work.is_claimed()) // what failed stays in the history
        ++work.attempt;
    work.attempt = std::max(work.attempt, 1);
    work.worker = acting_role();
    if (saga.direction == Direction::act)
        attempt_begins(saga);
    if (r.done && is_done_on_the_way_back(saga, step))
        return; // as was known
    if (r.done) {
        step_completed(saga, step, work, r.output);
        return;
    }
    Failure failure{.failure_class = FailureClass::non_retryable,
                    .outcome_known = true,
                    .error = psprintf("an operator says that the step was not done: %s",
                                      clip(r.reason.value_or("no reason given"))),
                    .since = saga.now,
                    .was_never_done = true,
                    .adds_to_error = true};
    bool goes_back = saga.direction == Direction::compensate;
    if (is_live) {
        if (work.direction == Direction::compensate)
            failure.failure_class = FailureClass::retryable; // it is still to be done
        step_failed(saga, step, work, failure);
    } else if (goes_back && work.direction == Direction::act) {
        settle_on_the_way_back(saga, step);
    } else if (goes_back) {
        write_failure(saga, step, work, failure); // parked as before
    } else {
        step_failed(saga, step, work, failure);
    }
}

std::string_view required_reason(const pg::Arguments &arguments, int i) {
    std::string_view reason = arguments.required_text(i, "reason");
    check_length(reason, "reason", reason_bytes_max);
    return reason;
}

Datum operate_on(FunctionCallInfo fcinfo, Action action) {
    pg::Arguments arguments(fcinfo);
    pg_uuid_t id = arguments.required_uuid(0, "saga_id");
    std::string_view reason = required_reason(arguments, 1);
    core::Status status = pg::with_spi([&] { return operate(id, action, reason).after; });
    PG_RETURN_TEXT_P(pg::make_text(core::name_of(status)));
}

} // namespace

std::string_view name_of(Action action) {
    return action_rules[static_cast<size_t>(action)].name;
}

Operated operate(const pg_uuid_t &id, Action action, std::string_view reason) {
    Saga saga = require_saga(id, pg::clock_now());
    Operated result{saga.status, saga.status};
    action_rules[static_cast<size_t>(action)].run(saga, reason);
    write_action(saga,
                 {.action = name_of(action), .status_before = result.before, .reason = reason});
    result.after = saga.status;
    return result;
}

// cancel_saga(saga_id, reason) -> text
STACKSAGA_FUNCTION(cancel_saga) {
    return operate_on(fcinfo, Action::cancel);
}
// suspend_saga(saga_id, reason) -> text
STACKSAGA_FUNCTION(suspend_saga) {
    return operate_on(fcinfo, Action::suspend);
}
// resume_saga(saga_id, reason) -> text
STACKSAGA_FUNCTION(resume_saga) {
    return operate_on(fcinfo, Action::resume);
}
// retry_saga(saga_id, reason) -> text
STACKSAGA_FUNCTION(retry_saga) {
    return operate_on(fcinfo, Action::retry);
}

// resolve_step(saga_id, step, outcome, output, reason) -> text
STACKSAGA_FUNCTION(resolve_step) {
    pg::Arguments arguments(fcinfo);
    pg_uuid_t id = arguments.required_uuid(0, "saga_id");
    std::string_view name = arguments.required_text(1, "step");
    std::string_view outcome = arguments.required_text(2, "outcome");
    if (outcome != "done" && outcome != "not_done")
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"outcome\" is not valid"),
                        errdetail("The value is \"%s\".", clip(outcome)),
                        errhint("Use done or not_done.")));
    Resolution r{.done = outcome == "done",
                 .output = pg::param_datum(JSONBOID, arguments.datum(3), arguments.is_null(3)),
                 .reason = std::nullopt};
    if (!r.output.isnull)
        check_payload(r.output.value, "output");
    if (!r.output.isnull && !r.done)
        ereport(ERROR, (errcode(pg::sg400), errmsg("a step that was not done has no output"),
                        errdetail("The outcome is not_done and an output is given."),
                        errhint("Leave output out.")));
    if (!arguments.is_null(4))
        r.reason = required_reason(arguments, 4);
    core::Status status = pg::with_spi([&] {
        Saga saga = require_saga(id, pg::clock_now());
        const Step *step = saga.definition->find(name);
        if (step == nullptr)
            raise_unknown_step(saga, name);
        core::Status before = saga.status;
        resolve(saga, *step, r);
        write_action(saga, {.action = "resolve",
                            .status_before = before,
                            .reason = r.reason,
                            .step_no = step->no,
                            .outcome = outcome});
        return saga.status;
    });
    PG_RETURN_TEXT_P(pg::make_text(core::name_of(status)));
}

} // namespace stacksaga
