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
        s_.suspended = false;
        settle(w);
        return status();
    }
    if (is_past_pivot())
        return refused;
    s_.suspended = false;
    s_.request = Request::cancel;
    settle(w);
    return status();
}

std::string_view Rules::suspend(Window w) {
    if (s_.suspended)
        return status();
    if (is_final() || s_.status == Status::parked)
        return refused;
    s_.suspended_at = w.from;
    s_.suspended = true;
    s_.status = Status::suspended;
    return status();
}

// The time of a suspension does not count for the deadline.
std::string_view Rules::resume(Window w) {
    if (!s_.suspended)
        return refused;
    s_.suspended = false;
    if (s_.deadline != 0)
        s_.deadline += w.to - s_.suspended_at;
    s_.parked_at = w.to;
    settle(w);
    take_signals(w);
    return status();
}

std::string_view Rules::retry(Window w) {
    if (s_.status != Status::parked)
        return refused;
    const std::string_view answer = s_.direction == Direction::act ? retry_acts(w) : retry_undos(w);
    if (answer.empty())
        settle(w);
    return answer.empty() ? status() : answer;
}

// With all its attempts; under the key that is in doubt, after verify where there is one.
std::string_view Rules::retry_acts(Window w) {
    for (const StepPlan &step : d_.steps) {
        StepState &s = of(step);
        if (!s.lost && s.act.phase != Phase::kept)
            continue;
        const Attempt *doubt = s.doubt();
        if (doubt != nullptr && !step.verify && (step.irreversible || is_forgotten(step, w)))
            return refused;
        s.lost = false;
        const int attempts = std::max(s.act.attempt, s.failed_act);
        open(step, w, attempts);
        if (doubt == nullptr)
            continue;
        s.act = {.phase = Phase::waiting,
                 .attempt = attempts,
                 .base = attempts,
                 .earliest = w.from,
                 .latest = w.to,
                 .falling_back = doubt->by_fallback};
        if (step.verify)
            ask_verify(step, w);
    }
    return {};
}

// What only a person can say stays as it is.
std::string_view Rules::retry_undos(Window w) {
    bool any = false;
    for (const StepPlan &step : d_.steps) {
        StepState &s = of(step);
        if (s.act.phase == Phase::kept && s.is_in_doubt() && step.verify) {
            s.act.base = s.act.attempt;
            ask_verify(step, w);
            any = true;
        }
        if (s.given_up && !s.undone && (s.done || s.is_in_doubt())) {
            s.given_up = false;
            begin_undo(step, w);
            any = true;
        }
    }
    return any ? "" : refused;
}

// The direction is left out: it may be when only one is open.
std::string_view Rules::resolve(const StepPlan &step, Action action, Window w) {
    StepState &s = of(step);
    if (is_final())
        return refused;
    for (Direction d : {Direction::act, Direction::compensate})
        if (task(step, d).phase == Phase::claimed && task(step, d).until() <= w.from)
            lapsed(step, d, w);
    if (s.act.phase == Phase::claimed || s.compensate.phase == Phase::claimed)
        return refused;
    const bool acts = s_.direction == Direction::act;
    const bool is_act_open = !s.done && (s.act.is_live() || s.is_in_doubt() ||
                                         (acts && s.lost && s_.status == Status::parked));
    const bool is_undo_open =
        !acts && !s.undone &&
        (s.compensate.is_live() || s.given_up || is_parked_for(step, Direction::compensate));
    if (is_act_open == is_undo_open) // neither, or both: then it has to be said which
        return refused;
    return is_act_open ? resolve_act(step, action, w) : resolve_undo(step, action, w);
}

void Rules::settle_doubts(const StepPlan &step) {
    for (Attempt &a : of(step).acts) {
        if (a.is_doubtful)
            a.word = Word::non_retryable;
        a.is_doubtful = false;
    }
}

// What is not seen now may still come; what never happened leaves nothing to undo.
std::string_view Rules::resolve_act(const StepPlan &step, Action action, Window w) {
    StepState &s = of(step);
    const Attempt *doubt = s.doubt();
    const bool acts = s_.direction == Direction::act;
    if (action == Action::not_done && doubt != nullptr && step.irreversible)
        return refused;
    if (acts) {
        s_.has_begun = true;
        if (s_.status == Status::pending)
            s_.status = Status::running;
    }
    if (action == Action::done) {
        s.by_person = doubt == nullptr;
        s.is_fillable = doubt != nullptr && doubt->lease != 0;
        s.act.lease = doubt != nullptr ? doubt->lease : 0;
        s.act.falling_back = doubt != nullptr ? doubt->by_fallback : s.act.falling_back;
        completed(step, Direction::act, w, false, 0);
        return status();
    }
    const bool settles = action == Action::never || doubt == nullptr;
    if (settles)
        settle_doubts(step);
    if (settles && !acts)
        s.compensate = {};
    if (s.act.is_live() && acts) {
        s.act.attempt = std::max(s.act.attempt, 1);
        s.failed_act = std::max(s.failed_act, s.act.attempt);
        give_up(step, w);
    } else if (settles) {
        s.act = {};
    } else if (s.act.phase == Phase::verifying) {
        s.act.phase = Phase::kept;
    }
    settle(w, &step);
    return status();
}

std::string_view Rules::resolve_undo(const StepPlan &step, Action action, Window w) {
    StepState &s = of(step);
    if (action == Action::never)
        return "SG400";
    if (action == Action::done) {
        s.undo_is_fillable = s.compensate.lease != 0;
        completed(step, Direction::compensate, w, false, 0);
    } else if (s.compensate.is_live()) { // it is still to be done
        s.compensate.attempt = std::max(s.compensate.attempt, 1);
        failed(step, Direction::compensate, {.word = Word::retryable, .since = w});
    }
    return status();
}

std::string_view Rules::signal(const StepPlan &step, int message, Window w) {
    StepState &s = of(step);
    const auto bit = static_cast<uint8_t>(1U << message);
    if ((s.messages & bit) != 0)
        return is_final() && (s.unread & bit) != 0 ? refused : "false";
    const bool is_of_fallback = s.act.is_live() ? s.act.falling_back : s.is_in_doubt();
    if (is_final() || s_.direction == Direction::compensate || s.done || is_of_fallback ||
        s.unread != 0) // no step is left for it
        return refused;
    s.messages = static_cast<uint8_t>(s.messages | bit);
    s.unread = static_cast<uint8_t>(s.unread | bit);
    take_signals(w);
    return "true";
}

} // namespace stacksaga::property
