#include "core/saga/saga_compensation.hpp"

#include "core/saga/saga_children.hpp"
#include "core/saga/saga_deadline.hpp"
#include "core/saga/saga_engine.hpp"

namespace stacksaga::core {

namespace {

/// The condition for undoing a step.
enum class Undo : std::uint8_t {
    nothing,  ///< no more, or never
    waits,    ///< its compensation or its verify function is due or under way
    due,      ///< its compensation can begin
    verify,   ///< verify is to be asked whether there is anything to undo
    by_person ///< only a person can say
};

/// Only a fallback of theirs has anything to undo.
bool waits_for_itself(const Step &s) {
    return s.waits_for() == StepWait::signal || s.waits_for() == StepWait::time;
}

Undo undo_of_started(SagaState &saga, const Step &s) {
    if (find_work(saga, s.no, Direction::compensate))
        return Undo::waits;
    return last_failed_attempt(saga, s.no, Direction::compensate) > 0 ? Undo::by_person : Undo::due;
}

Undo undo_of_done(SagaState &saga, const Step &s) {
    if (s.irreversible)
        return Undo::by_person; // it was in flight when an older version began to compensate
    if (!s.compensable || (waits_for_itself(s) && !was_done_by_fallback(saga, s.no)))
        return Undo::nothing;
    return was_done_by_person(saga, s.no) ? Undo::by_person : undo_of_started(saga, s);
}

Undo undo_of_doubtful(SagaState &saga, const Step &s, bool by_fallback) {
    if (s.irreversible)
        return Undo::by_person;
    if (!s.compensable)
        return Undo::nothing;
    if (s.compensate_when_started)
        return undo_of_started(saga, s);
    const std::optional<Work> act = find_work(saga, s.no, Direction::act);
    if (act && act->verifying)
        return Undo::waits;
    const bool is_child = s.waits_for() == StepWait::child && !by_fallback;
    return s.has_verify && !is_child && !act ? Undo::verify : Undo::by_person;
}

Undo undo_of(SagaState &saga, const Step &s) {
    if (has_compensated(saga, s.no))
        return Undo::nothing;
    if (has_acted(saga, s.no))
        return undo_of_done(saga, s);
    const std::optional<Doubt> doubt = find_doubt(saga, s.no);
    return doubt ? undo_of_doubtful(saga, s, doubt->by_fallback) : Undo::nothing;
}

/// True: an attempt of it ended its process ahead of this turn.
bool begin_undo(SagaState &saga, const Step &s) {
    const std::optional<Doubt> doubt = find_doubt(saga, s.no);
    remove_work(saga, s.no, Direction::act);
    return add_work(
        saga, s,
        {.direction = Direction::compensate,
         .due_at = saga.now,
         .falling_back = doubt ? doubt->by_fallback : was_done_by_fallback(saga, s.no)});
}

void begin_verify(SagaState &saga, const Step &s) {
    const Doubt doubt = *find_doubt(saga, s.no);
    add_work(saga, s,
             {.direction = Direction::act,
              .due_at = saga.now,
              .attempt = last_ended_attempt(saga, s.no, Direction::act),
              .falling_back = doubt.by_fallback,
              .started_at = doubt.claimed_at,
              .lease = doubt.lease,
              .verifying = true});
}

/// How far the compensation of a stage is.
struct StageUndo {
    bool waits = false;
    bool has_crashed = false;
    const Step *blocked = nullptr; ///< the first that waits for a person
};

StageUndo undo_stage(SagaState &saga, std::int16_t stage) {
    StageUndo result;
    for (const Step &s : saga.definition->steps) {
        if (s.stage != stage)
            continue;
        const Undo undo = undo_of(saga, s);
        result.waits |= undo == Undo::waits || undo == Undo::due || undo == Undo::verify;
        if (undo == Undo::by_person && result.blocked == nullptr)
            result.blocked = &s;
        if (saga.is_suspended())
            continue; // nothing begins
        if (undo == Undo::due)
            result.has_crashed |= begin_undo(saga, s);
        else if (undo == Undo::verify)
            begin_verify(saga, s);
    }
    return result;
}

/// The direction that a person has to decide about a step that blocks the compensation.
Direction blocked_direction(SagaState &saga, const Step &s) {
    return !has_acted(saga, s.no) && last_failed_attempt(saga, s.no, Direction::compensate) == 0
               ? Direction::act
               : Direction::compensate;
}

/// The step that the saga is parked for still needs a person.
bool stays_parked(SagaState &saga) {
    if (!saga.is_parked() || !saga.row.parked_step)
        return false;
    const Step &step = saga.definition->step(*saga.row.parked_step);
    return saga.row.parked_direction == blocked_direction(saga, step) &&
           undo_of(saga, step) == Undo::by_person;
}

void park_for_undo(SagaState &saga, const Step &blocked, const Cause &cause) {
    if (stays_parked(saga))
        return;
    std::string_view error = "a compensation failed for good";
    if (cause.step == &blocked && !cause.error.empty())
        error = cause.error;
    park_saga(saga, blocked, blocked_direction(saga, blocked), error);
}

void compensate_on(SagaState &saga) {
    const Status to = saga.is_suspended() ? Status::suspended : Status::compensating;
    if (saga.row.status != to)
        change_status(saga, Direction::compensate, {.to = to});
}

bool is_anything_to_undo(SagaState &saga) {
    return std::any_of(saga.definition->steps.begin(), saga.definition->steps.end(),
                       [&](const Step &s) { return undo_of(saga, s) != Undo::nothing; });
}

} // namespace

void park_saga(SagaState &saga, const Step &step, Direction direction, std::string_view error) {
    std::optional<std::int16_t> failed_step;
    if (direction == Direction::act)
        failed_step = step.no;
    change_status(saga, saga.row.direction,
                  {.to = Status::parked,
                   .failed_step = failed_step,
                   .error = error,
                   .parked_step = step.no,
                   .parked_direction = direction});
}

bool is_past_pivot(SagaState &saga) {
    return std::any_of(saga.definition->steps.begin(), saga.definition->steps.end(),
                       [&](const Step &s) { return s.irreversible && has_acted(saga, s.no); });
}

bool has_open_pivot(SagaState &saga) {
    return std::any_of(saga.definition->steps.begin(), saga.definition->steps.end(),
                       [&](const Step &s) {
                           return s.irreversible && !has_acted(saga, s.no) &&
                                  (is_in_flight(saga, s.no) || is_in_doubt(saga, s.no));
                       });
}

void request_compensation(SagaState &saga, CompensationRequest request, const Cause &cause) {
    SagaRow &row = saga.row;
    const bool replaces = request == CompensationRequest::cancel
                              ? row.compensation_requested != CompensationRequest::cancel
                              : request == CompensationRequest::failure && parks_at_deadline(saga);
    if (row.compensation_requested && !replaces)
        return;
    row.compensation_requested = request;
    row.failed_step.reset();
    if (cause.step != nullptr)
        row.failed_step = cause.step->no;
    row.error = cause.error;
    if (!parks_at_deadline(saga))
        request_compensation_of_children(saga);
}

void start_compensation(SagaState &saga) {
    saga.row.compensation_requested.reset();
    remove_idle_acts(saga);
    const bool waits = has_acts_in_flight(saga);
    if (waits)
        request_compensation_of_children(saga);
    Status to = Status::compensating;
    if (saga.is_suspended())
        to = Status::suspended;
    else if (!waits && !is_anything_to_undo(saga))
        to = Status::failed;
    change_status(saga, Direction::compensate, {.to = to});
}

void settle_backward(SagaState &saga, const Cause &cause) {
    if (has_acts_in_flight(saga)) {
        if (!stays_parked(saga))
            compensate_on(saga);
        return;
    }
    const Step *blocked = nullptr;
    for (std::int16_t stage = saga.definition->stages; stage > 0; --stage) {
        const StageUndo undo = undo_stage(saga, stage);
        if (blocked == nullptr)
            blocked = undo.blocked;
        const bool parks = blocked != nullptr && !saga.definition->continue_compensating;
        if (!parks && !undo.waits)
            continue;
        if (parks)
            park_for_undo(saga, *blocked, cause);
        else
            compensate_on(saga);
        if (undo.has_crashed && !parks)
            charge_crashes(saga, stage, Direction::compensate);
        return;
    }
    if (blocked != nullptr)
        park_for_undo(saga, *blocked, cause);
    else if (saga.is_suspended())
        compensate_on(saga);
    else
        change_status(saga, Direction::compensate, {.to = Status::failed});
}

} // namespace stacksaga::core
