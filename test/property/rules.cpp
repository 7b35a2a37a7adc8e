#include "rules.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace stacksaga::property {

namespace {

/// How long the pause before attempt `next` lasts, at the least and at the most.
Window pause_before(int next, const Policy &p) {
    if (p.initial == 0)
        return {0, 0};
    const double plain = std::min(p.longest, p.initial * std::pow(p.multiplier, next - 2));
    const double micros = plain * static_cast<double>(minute);
    return {static_cast<Time>(micros * (1 - p.jitter)) - 1,
            static_cast<Time>(micros * (1 + p.jitter)) + 1};
}

} // namespace

bool Rules::any_live(Direction d) const {
    return std::ranges::any_of(s_.steps, [&](const StepState &step) {
        return (d == Direction::act ? step.act : step.compensate).is_live();
    });
}

bool Rules::is_past_pivot() const {
    return std::ranges::any_of(
        d_.steps, [&](const StepPlan &step) { return step.irreversible && of(step).done; });
}

bool Rules::is_stage_complete(int stage) const {
    return std::ranges::all_of(
        d_.steps, [&](const StepPlan &step) { return step.stage != stage || of(step).done; });
}

bool Rules::wants_undoing(const StepPlan &step) const {
    const StepState &s = of(step);
    const bool may_have_happened = s.done || (step.undo_when_started && s.doubts != 0);
    return step.compensable && may_have_happened && !s.undone && !s.given_up;
}

/// An irreversible step that may have been done, and of which no attempt is under way.
bool Rules::is_unsettled(const StepPlan &step) const {
    const StepState &s = of(step);
    return step.irreversible && !s.done && s.doubts != 0 && s.act.phase != Phase::claimed &&
           s.act.phase != Phase::verifying;
}

const StepPlan *Rules::find_unsettled() const {
    const auto step = std::ranges::find_if(
        d_.steps, [&](const StepPlan &candidate) { return is_unsettled(candidate); });
    return step == d_.steps.end() ? nullptr : &*step;
}

std::string Rules::results() const {
    std::string list;
    for (const StepPlan &step : d_.steps) {
        const StepState &s = of(step);
        if (!s.done)
            continue;
        const std::string output =
            s.has_output ? fmt::format("\"{}/{}\"", step.name, s.output) : "null";
        list += fmt::format("{}\"{}\": {}", list.empty() ? "" : ", ", step.name, output);
    }
    return "{" + list + "}";
}

void Rules::open(const StepPlan &step, Window w, int attempts) {
    Task &t = of(step).act;
    t = {.phase = Phase::waiting,
         .attempt = attempts,
         .base = attempts,
         .earliest = w.from,
         .latest = w.to};
    if (step.kind == Kind::timer) {
        t.earliest += step.delay * minute;
        t.latest += step.delay * minute;
    }
    if (step.kind == Kind::signal) {
        t.phase = Phase::listening;
        t.earliest = step.timeout > 0 ? w.from + step.timeout * minute : never;
        t.latest = step.timeout > 0 ? w.to + step.timeout * minute : never;
    }
}

void Rules::start(Window w, Time delay) {
    for (const StepPlan &step : d_.steps) {
        if (step.stage != 1)
            continue;
        open(step, {w.from + delay, w.to + delay}, 0);
        if (step.kind == Kind::signal && delay > 0) // it does not listen before
            of(step).act = {
                .phase = Phase::waiting, .earliest = w.from + delay, .latest = w.to + delay};
    }
}

void Rules::open_stage(int stage, Window w) {
    for (const StepPlan &step : d_.steps)
        if (step.stage == stage)
            open(step, w, 0);
    take_signals(w);
}

void Rules::take_signals(Window w) {
    for (const StepPlan &step : d_.steps) {
        StepState &s = of(step);
        if (s.act.phase != Phase::listening || s.unread == 0 || s_.direction != Direction::act ||
            s_.status == Status::suspended)
            continue;
        int message = 1;
        while ((s.unread & (1U << message)) == 0)
            ++message;
        s.unread = static_cast<uint8_t>(s.unread & ~(1U << message));
        attempt_begins();
        completed(step, Direction::act, w, true, message);
    }
}

void Rules::attempt_begins() {
    if (s_.status == Status::pending)
        s_.status = Status::running;
}

void Rules::advance(const StepPlan &done, Window w) {
    if (s_.status != Status::running || !is_stage_complete(done.stage))
        return;
    if (done.stage == d_.stages)
        s_.status = Status::completed;
    else
        open_stage(done.stage + 1, w);
}

void Rules::park(int step, Direction direction) {
    s_.status = Status::parked;
    s_.parked_step = step;
    s_.parked_direction = direction;
    s_.deadline_is_armed = false;
}

// The saga waited for this step, which is done now or tried again. A sibling that failed meanwhile
// starts the compensation, or parks the saga again.
void Rules::unpark(const StepPlan &settled, Window w) {
    s_.status = Status::running;
    for (const StepPlan &step : d_.steps) {
        const StepState &s = of(step);
        const bool is_lost = !s.done && (!s.act.is_live() || s.act.phase == Phase::kept);
        if (step.stage == settled.stage && is_lost) {
            start_compensation(w, step.no);
            return;
        }
    }
}

void Rules::completed(const StepPlan &step, Direction direction, Window w, bool has_output,
                      int output) {
    StepState &s = of(step);
    const int64_t lease = task(step, direction).lease;
    const bool was_waited_for = waits_for(step, direction);
    task(step, direction) = {};
    if (direction == Direction::compensate) {
        s.undone = true;
        s.compensate_lease = lease;
        s.compensation_has_output = has_output;
        undone(w);
        return;
    }
    s.done = true;
    s.act_lease = lease;
    s.has_output = has_output;
    s.output = has_output ? output : 0;
    if (was_waited_for)
        unpark(step, w);
    if (s_.direction == Direction::compensate)
        settled_while_compensating(step, true, w);
    else
        advance(step, w);
}

// A step that was claimed when compensation started has ended.
void Rules::settled_while_compensating(const StepPlan &step, bool may_have_happened, Window w) {
    if (s_.status != Status::compensating && s_.status != Status::suspended)
        return;
    if (step.irreversible && may_have_happened)
        park(step.no, Direction::act);
    else if (s_.status == Status::compensating && !any_live(Direction::act))
        undo_next(w);
}

void Rules::undone(Window w) {
    const bool is_undone =
        s_.status == Status::compensating ||
        (s_.status == Status::parked && s_.parked_direction == Direction::compensate);
    if (is_undone && !any_live(Direction::compensate))
        undo_next(w);
}

void Rules::pause(const StepPlan &step, Direction direction, const Failing &f) {
    Task &t = task(step, direction);
    const Window pause = pause_before(t.attempt - t.base + 1, d_.policy_of(step, direction));
    t.phase = Phase::waiting;
    t.earliest = f.since.from + pause.from;
    t.latest = f.since.to + pause.to;
    if (!f.keeps_lease)
        t.lease = 0;
}

void Rules::failed(const StepPlan &step, Direction direction, const Failing &f) {
    const bool was_waited_for = waits_for(step, direction);
    if (was_waited_for)
        s_.status = Status::running;
    Task &t = task(step, direction);
    if (direction == Direction::act) {
        const uint32_t bit = 1U << std::min(t.attempt, 31);
        uint32_t &doubts = of(step).doubts;
        doubts = f.never_done ? 0 : f.known ? doubts & ~bit : doubts | bit;
        uint32_t &unknowns = of(step).unknowns;
        const bool is_unknown = f.word == Word::unknown && !f.known;
        unknowns = f.never_done ? 0 : is_unknown ? unknowns | bit : unknowns & ~bit;
    }
    int &last = direction == Direction::act ? of(step).failed_act : of(step).failed_compensate;
    last = std::max(last, t.attempt);
    const bool ask = direction == Direction::act && step.verify && !t.falling_back && !f.known &&
                     !f.verified &&
                     (f.word == Word::unknown || s_.direction == Direction::compensate);
    if (ask) {
        t.phase = Phase::verifying;
        if (!f.keeps_lease)
            t.lease = 0;
        if (was_waited_for)
            unpark(step, f.since);
        return;
    }
    if (direction == Direction::act && s_.direction == Direction::compensate) {
        t = {};
        settled_while_compensating(step, !f.known || (step.irreversible && of(step).doubts != 0),
                                   f.since);
        return;
    }
    const Policy &policy = d_.policy_of(step, direction);
    const bool again = policy.max_attempts == 0 || t.attempt - t.base < policy.max_attempts;
    if (f.word == Word::unknown && direction == Direction::act && step.irreversible && !f.known) {
        if (f.keeps_lease)
            t.phase = Phase::kept;
        else
            t = {};
        park(step.no, Direction::act);
    } else if (f.word != Word::non_retryable && again) {
        pause(step, direction, f);
        if (was_waited_for)
            unpark(step, f.since);
    } else if (may_fall_back(step, f)) {
        fall_back(step, f);
        if (was_waited_for)
            unpark(step, f.since);
    } else if (direction == Direction::act) {
        give_up(step, f.since);
    } else {
        compensation_failed(step, f.since);
    }
}

// There is no fallback where an attempt at the action may have happened.
bool Rules::may_fall_back(const StepPlan &step, const Failing &f) const {
    return !step.fallback.empty() && s_.direction == Direction::act && !of(step).act.falling_back &&
           f.word != Word::unknown && of(step).unknowns == 0;
}

// The fallback starts with all its attempts, and is due at once.
void Rules::fall_back(const StepPlan &step, const Failing &f) {
    Task &t = of(step).act;
    t = {.phase = Phase::waiting,
         .attempt = t.attempt,
         .base = t.attempt,
         .earliest = f.since.from,
         .latest = f.since.to,
         .falling_back = true};
}

// A saga that is parked for another step first waits until that one is settled.
void Rules::give_up(const StepPlan &step, Window w) {
    of(step).act = {};
    if (s_.status != Status::parked)
        start_compensation(w, step.no);
}

void Rules::compensation_failed(const StepPlan &step, Window w) {
    of(step).compensate = {};
    of(step).given_up = true;
    if (!d_.continue_compensating)
        park(step.no, Direction::compensate);
    else if (s_.status == Status::compensating && !any_live(Direction::compensate))
        undo_next(w);
}

void Rules::start_compensation(Window w, int failed_step) {
    if (failed_step != 0 && is_past_pivot()) {
        park(failed_step, Direction::act);
        return;
    }
    if (const StepPlan *unsettled = find_unsettled()) {
        park(unsettled->no, Direction::act);
        return;
    }
    for (StepState &s : s_.steps)
        if (s.act.phase != Phase::claimed && s.act.phase != Phase::verifying)
            s.act = {};
    s_.direction = Direction::compensate;
    if (s_.status == Status::suspended)
        return;
    s_.status = Status::compensating;
    if (!any_live(Direction::act))
        undo_next(w);
}

// The last stage that has something to undo, all its steps at once.
void Rules::undo_next(Window w) {
    const auto given_up = std::ranges::find_if(
        d_.steps, [&](const StepPlan &step) { return of(step).given_up && !of(step).undone; });
    if (given_up != d_.steps.end() && !d_.continue_compensating) {
        park(given_up->no, Direction::compensate);
        return;
    }
    for (int stage = d_.stages; stage > 0; --stage) {
        bool any = false;
        for (const StepPlan &step : d_.steps) {
            if (step.stage != stage || !wants_undoing(step))
                continue;
            of(step).compensate = {.phase = Phase::waiting, .earliest = w.from, .latest = w.to};
            any = true;
        }
        if (any) {
            s_.status = Status::compensating;
            return;
        }
    }
    if (given_up == d_.steps.end())
        s_.status = Status::failed;
    else
        park(given_up->no, Direction::compensate);
}

// Nothing was heard under the lease, or until the timeout: nobody knows what the service did.
void Rules::lapsed(const StepPlan &step, Direction direction) {
    const Task &t = task(step, direction);
    failed(step, direction,
           {.word = Word::unknown,
            .known = false,
            .never_done = false,
            .keeps_lease = true,
            .verified = false,
            .since = {t.until(), t.until()}});
}

void Rules::deadline_passed(Window w) {
    s_.deadline_is_armed = false;
    if (deadline_counts())
        start_compensation(w, 0);
}

void Rules::unseen_due(const StepPlan &step, Window w) {
    Task &t = of(step).act;
    if (step.kind == Kind::signal && t.phase == Phase::waiting) { // it begins to listen
        open(step, w, t.attempt);
        take_signals(w);
        return;
    }
    attempt_begins();
    ++t.attempt;
    if (step.kind == Kind::timer)
        completed(step, Direction::act, w, false, 0);
    else
        failed(step, Direction::act,
               {.word = Word::non_retryable,
                .known = true,
                .never_done = false,
                .keeps_lease = false,
                .verified = false,
                .since = w});
}

} // namespace stacksaga::property
