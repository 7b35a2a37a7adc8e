#include "core/saga_compensation.hpp"

#include "core/saga_children.hpp"
#include "core/saga_engine.hpp"

namespace stacksaga::core {

namespace {

/// An irreversible step that may have been done, and of which no attempt is under way: until an
/// operator settles it the saga cannot compensate.
const Step *find_unknown_pivot(SagaState &saga) {
    for (const Step &s : saga.definition->steps)
        if (s.irreversible && !has_acted(saga, s.no) && is_doubtful(saga, s.no) &&
            !is_in_flight(saga, s.no))
            return &s;
    return nullptr;
}

bool has_done_pivot(SagaState &saga) {
    return std::any_of(saga.definition->steps.begin(), saga.definition->steps.end(),
                       [&](const Step &s) { return s.irreversible && has_acted(saga, s.no); });
}

bool is_to_be_undone(SagaState &saga, const Step &s) {
    return s.compensable &&
           (has_acted(saga, s.no) || (s.compensate_when_started && is_doubtful(saga, s.no)));
}

bool is_anything_to_undo(SagaState &saga) {
    return std::any_of(saga.definition->steps.begin(), saga.definition->steps.end(),
                       [&](const Step &s) { return is_to_be_undone(saga, s); });
}

/// The compensation has failed for good: it has failures, no marker, and is not due.
bool is_given_up(SagaState &saga, const Step &s) {
    return last_failed_attempt(saga, s.no, Direction::compensate) > 0 &&
           !has_compensated(saga, s.no);
}

const Step *find_given_up(SagaState &saga) {
    for (const Step &s : saga.definition->steps)
        if (is_given_up(saga, s))
            return &s;
    return nullptr;
}

} // namespace

void park_saga(SagaState &saga, const Step &step, Direction direction, std::string_view error) {
    std::optional<std::int16_t> failed_step;
    if (direction == Direction::act)
        failed_step = step.no;
    if (saga.is_suspended())
        release_work(saga);
    change_status(saga, saga.row.direction,
                  {.to = Status::parked,
                   .failed_step = failed_step,
                   .error = error,
                   .parked_step = step.no,
                   .parked_direction = direction});
}

bool is_past_pivot(SagaState &saga) {
    return has_done_pivot(saga) || find_unknown_pivot(saga) != nullptr;
}

void begin_compensation(SagaState &saga, const Step *step, std::string_view error) {
    if (step != nullptr && has_done_pivot(saga)) {
        park_saga(saga, *step, Direction::act, error);
        return;
    }
    if (const Step *unknown = find_unknown_pivot(saga)) {
        park_saga(saga, *unknown, Direction::act,
                  "the outcome of an irreversible step is not known");
        return;
    }
    remove_unclaimed_acts(saga);
    const bool waits = work_remains(saga, Direction::act);
    if (waits)
        request_compensation_of_children(saga);
    Status to = Status::compensating;
    if (saga.is_suspended())
        to = Status::suspended;
    else if (!waits && !is_anything_to_undo(saga))
        to = Status::failed;
    std::optional<std::int16_t> failed_step;
    if (step != nullptr)
        failed_step = step->no;
    change_status(saga, Direction::compensate,
                  {.to = to, .failed_step = failed_step, .error = error});
    if (to == Status::compensating && !waits)
        compensate_next(saga);
}

void compensate_next(SagaState &saga) {
    const Step *given_up = find_given_up(saga);
    if (given_up != nullptr && !saga.definition->continue_compensating) {
        park_saga(saga, *given_up, Direction::compensate, "a compensation failed for good");
        return;
    }
    for (std::int16_t stage = saga.definition->stages; stage > 0; --stage) {
        bool any = false;
        bool has_died = false;
        for (const Step &s : saga.definition->steps) {
            if (s.stage != stage || !is_to_be_undone(saga, s) || has_compensated(saga, s.no) ||
                is_given_up(saga, s))
                continue;
            has_died |= add_work(saga, s, {.direction = Direction::compensate, .due_at = saga.now});
            any = true;
        }
        if (any) {
            if (saga.row.status != Status::compensating)
                change_status(saga, Direction::compensate, {.to = Status::compensating});
            if (has_died)
                charge_deaths(saga, stage, Direction::compensate);
            return;
        }
    }
    if (given_up != nullptr)
        park_saga(saga, *given_up, Direction::compensate, "a compensation failed for good");
    else
        change_status(saga, Direction::compensate, {.to = Status::failed});
}

void settled_while_compensating(SagaState &saga, const Step &step, bool happened) {
    if (saga.row.status != Status::compensating && !saga.is_suspended())
        return;
    if (step.irreversible && happened)
        park_saga(saga, step, Direction::act,
                  "an irreversible step settled after the compensation had begun");
    else if (saga.row.status == Status::compensating && !work_remains(saga, Direction::act))
        compensate_next(saga);
}

void compensation_done(SagaState &saga) {
    const bool is_compensating =
        saga.row.status == Status::compensating ||
        (saga.row.status == Status::parked && saga.row.parked_direction != Direction::act);
    if (is_compensating && !work_remains(saga, Direction::compensate))
        compensate_next(saga);
}

void compensation_failed(SagaState &saga, const Step &step, std::string_view error) {
    remove_work(saga, step.no, Direction::compensate);
    if (!saga.definition->continue_compensating)
        park_saga(saga, step, Direction::compensate, error);
    else if (saga.row.status == Status::compensating && !work_remains(saga, Direction::compensate))
        compensate_next(saga);
}

void continue_compensation(SagaState &saga) {
    const bool is_parked = saga.row.status == Status::parked;
    if (saga.row.status != Status::compensating)
        change_status(saga, Direction::compensate, {.to = Status::compensating});
    bool waits = work_remains(saga, Direction::act);
    for (const Step &s : saga.definition->steps) {
        const bool has_work = find_work(saga, s.no, Direction::compensate).has_value();
        waits = waits || has_work;
        if (!is_parked || has_work || !is_given_up(saga, s))
            continue;
        add_work(saga, s,
                 {.direction = Direction::compensate,
                  .due_at = saga.now,
                  .attempt = last_failed_attempt(saga, s.no, Direction::compensate)});
        waits = true;
    }
    if (!waits)
        compensate_next(saga);
}

} // namespace stacksaga::core
