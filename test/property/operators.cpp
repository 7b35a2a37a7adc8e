// The rules for what operators and signals do to a saga.
#include "rules.hpp"

#include <algorithm>

namespace stacksaga::property {

namespace {

constexpr std::string_view refused = "SG409";

} // namespace

std::string_view Rules::cancel(Window w) {
    if (is_final())
        return refused;
    if (s_.direction == Direction::compensate) {
        if (s_.status == Status::parked)
            return refused;
        if (s_.status == Status::suspended)
            continue_back(w);
        return status();
    }
    if (is_past_pivot() || find_unsettled() != nullptr)
        return refused;
    s_.status = Status::running;
    start_compensation(w, 0);
    return status();
}

std::string_view Rules::suspend() {
    if (is_final() || s_.status == Status::parked)
        return refused;
    s_.status = Status::suspended;
    return status();
}

std::string_view Rules::resume(Window w) {
    if (s_.status != Status::suspended)
        return refused;
    s_.direction == Direction::act ? continue_forward(w) : continue_back(w);
    return status();
}

std::string_view Rules::retry(Window w) {
    if (s_.status != Status::parked)
        return refused;
    if (s_.direction == Direction::compensate) {
        continue_back(w);
        return status();
    }
    for (StepState &step : s_.steps) {
        Task &t = step.act;
        if (t.phase != Phase::kept)
            continue;
        t.phase = Phase::waiting; // with all its attempts again
        t.base = t.attempt;
        t.earliest = w.from;
        t.latest = w.to;
    }
    continue_forward(w);
    return status();
}

// The first stage that is not complete: its steps that nobody works on become due.
void Rules::continue_forward(Window w) {
    int stage = 1;
    while (stage <= d_.stages && is_stage_complete(stage))
        ++stage;
    const bool begun = std::ranges::any_of(s_.steps, [](const StepState &s) {
        return s.done || s.failed_act > 0 || s.act.attempt > 0;
    });
    s_.status = begun || s_.status == Status::parked ? Status::running : Status::pending;
    s_.parked_step = 0;
    if (stage > d_.stages) {
        s_.status = Status::completed;
        return;
    }
    for (const StepPlan &step : d_.steps)
        if (step.stage == stage && !of(step).done && !of(step).act.is_live())
            open(step, w, of(step).failed_act);
    take_signals(w);
}

void Rules::continue_back(Window w) {
    const bool was_parked = s_.status == Status::parked;
    s_.status = Status::compensating;
    s_.parked_step = 0;
    for (const StepPlan &step : d_.steps) {
        StepState &s = of(step);
        if (!was_parked || !s.given_up || s.undone)
            continue;
        s.given_up = false;
        s.compensate = {.phase = Phase::waiting,
                        .attempt = s.failed_compensate,
                        .base = s.failed_compensate,
                        .earliest = w.from,
                        .latest = w.to};
    }
    if (!any_live(Direction::act) && !any_live(Direction::compensate))
        undo_next(w);
}

/// An irreversible step besides this one was done, or may have been.
bool Rules::another_pivot_stands(const StepPlan &step) const {
    return std::ranges::any_of(d_.steps, [&](const StepPlan &other) {
        return other.irreversible && other.no != step.no &&
               (of(other).done || of(other).doubts != 0);
    });
}

std::string_view Rules::resolve(const StepPlan &step, bool done, Window w) {
    StepState &s = of(step);
    const bool is_parked = s_.status == Status::parked;
    const bool lost_compensation = is_parked && s.given_up && !s.undone;
    const bool lost_act =
        is_parked && s_.parked_direction == Direction::act && s.failed_act > 0 && !s.done;
    const Failing not_done{.word = Word::non_retryable,
                           .known = true,
                           .never_done = true,
                           .keeps_lease = false,
                           .verified = false,
                           .since = w};
    Direction direction = Direction::compensate;
    if (!s.compensate.is_live() && (s.act.is_live() || !lost_compensation))
        direction = Direction::act;
    const bool is_live = task(step, direction).is_live();
    const bool is_late_pivot = is_parked && s_.direction == Direction::compensate &&
                               s_.parked_direction == Direction::act && s_.parked_step == step.no &&
                               s.done;
    if (!is_live && !lost_compensation && !lost_act && !is_late_pivot)
        return refused;
    if (done && is_late_pivot)
        return status();
    if (s_.direction == Direction::act)
        attempt_begins();
    if (done) {
        s.given_up = direction == Direction::compensate ? false : s.given_up;
        completed(step, direction, w, false, 0);
    } else if (is_live && direction == Direction::compensate) {
        Failing f = not_done; // it is still to be done
        f.word = Word::retryable;
        Task &t = s.compensate;
        t.attempt = std::max(t.attempt, 1);
        failed(step, direction, f);
    } else if (is_live || s_.direction == Direction::act) {
        Task &t = s.act;
        t.attempt = std::max({t.attempt, s.failed_act, 1});
        failed(step, direction, not_done);
    } else if (direction == Direction::act) { // nothing keeps the saga from compensating
        s.doubts = s.unknowns = 0;
        if (!any_live(Direction::act) && !another_pivot_stands(step))
            undo_next(w);
    }
    return status();
}

std::string_view Rules::signal(const StepPlan &step, int message, Window w) {
    StepState &s = of(step);
    const auto bit = static_cast<uint8_t>(1U << message);
    if ((s.messages & bit) != 0)
        return "false";
    if (is_final() || s_.direction == Direction::compensate)
        return refused;
    s.messages = static_cast<uint8_t>(s.messages | bit);
    s.unread = static_cast<uint8_t>(s.unread | bit);
    take_signals(w);
    return "true";
}

} // namespace stacksaga::property
