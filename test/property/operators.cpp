// The rules for what operators and signals do to a saga.
#include "rules.hpp"

#include <algorithm>

namespace stacksaga::property {

namespace {

constexpr std::string_view refused = "SG409";
/// Services remember a key for so long.
constexpr Time dedupe_retention = 7 * 24 * 60 * minute;

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
    if (is_final() || s_.status == Status::parked)
        return refused;
    if (!s_.suspended)
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
    settle(w);
    return status();
}

// With all its attempts; under the key that is in doubt, after verify where there is one.
bool Rules::begin_again(const StepPlan &step, Window w) {
    StepState &s = of(step);
    if (s.doubts == 0) {
        s.lost = false;
        s.act = {};
        open(step, w, s.failed_act);
        return true;
    }
    const bool is_forgotten =
        step.effect != "idempotent" && w.from - s.in_doubt_since > dedupe_retention;
    if (!step.verify && (step.irreversible || is_forgotten))
        return false;
    s.lost = false;
    s.act = {.phase = Phase::waiting,
             .attempt = s.failed_act,
             .base = s.failed_act,
             .earliest = w.from,
             .latest = w.to,
             .falling_back = s.is_doubt_of_fallback};
    if (step.verify)
        ask_verify(step, w);
    return true;
}

std::string_view Rules::retry(Window w) {
    if (s_.status != Status::parked)
        return refused;
    for (const StepPlan &step : d_.steps) {
        StepState &s = of(step);
        if (s_.direction == Direction::act) {
            if ((s.lost || s.act.phase == Phase::kept) && !begin_again(step, w))
                return refused;
            continue;
        }
        if (!s.given_up || s.undone)
            continue;
        if (s.done && s.by_person)
            return refused;
        if (!s.done && s.doubts != 0 && !step.undo_when_started) {
            if (!step.verify)
                return refused;
            ask_verify(step, w);
        }
        s.given_up = false;
    }
    s_.status = Status::running;
    settle(w);
    return status();
}

std::string_view Rules::resolve(const StepPlan &step, Action action, Window w) {
    const StepState &s = of(step);
    if (is_final())
        return refused;
    const bool is_undo_open = !s.undone && (s.compensate.is_live() || s.given_up);
    const bool is_act_open =
        !s.done && (s.act.is_live() || s.doubts != 0 || (s.lost && s_.direction == Direction::act));
    if (is_undo_open == is_act_open) // none, or both: it has to be said which
        return refused;
    return is_undo_open ? resolve_undo(step, action, w) : resolve_act(step, action, w);
}

std::string_view Rules::resolve_act(const StepPlan &step, Action action, Window w) {
    StepState &s = of(step);
    if (s.act.phase == Phase::claimed)
        return refused;
    const bool is_in_doubt = s.doubts != 0;
    if (s_.direction == Direction::act)
        attempt_begins();
    if (action == Action::done) {
        if (is_in_doubt)
            s.act.falling_back = s.is_doubt_of_fallback;
        completed(step, Direction::act, w, false, 0);
        s.by_person = !is_in_doubt;
        return status();
    }
    if (action == Action::not_done && is_in_doubt && step.irreversible)
        return refused;
    if (action == Action::never)
        s.doubts = 0;
    if (s_.direction == Direction::compensate || s.lost) {
        s.act = {};
        s.given_up = false;
    } else {
        give_up(step, w);
    }
    settle(w);
    return status();
}

std::string_view Rules::resolve_undo(const StepPlan &step, Action action, Window w) {
    StepState &s = of(step);
    if (s.compensate.phase == Phase::claimed)
        return refused;
    if (action == Action::never)
        return "SG400";
    if (action == Action::done)
        completed(step, Direction::compensate, w, false, 0);
    return status();
}

std::string_view Rules::signal(const StepPlan &step, int message, Window w) {
    StepState &s = of(step);
    const auto bit = static_cast<uint8_t>(1U << message);
    if ((s.messages & bit) != 0)
        return is_final() && (s.unread & bit) != 0 ? refused : "false";
    if (is_final() || s_.direction == Direction::compensate || s.done)
        return refused;
    s.messages = static_cast<uint8_t>(s.messages | bit);
    s.unread = static_cast<uint8_t>(s.unread | bit);
    take_signals(w);
    return "true";
}

} // namespace stacksaga::property
