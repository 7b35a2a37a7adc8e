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

bool Rules::is_past_pivot() const {
    return std::ranges::any_of(
        d_.steps, [&](const StepPlan &step) { return step.irreversible && of(step).done; });
}

/// An irreversible step is in flight or in doubt: the direction does not turn.
bool Rules::is_pivot_open() const {
    return std::ranges::any_of(d_.steps, [&](const StepPlan &step) {
        return step.irreversible && !of(step).done &&
               (of(step).act.phase == Phase::claimed || of(step).doubts != 0);
    });
}

bool Rules::is_stage_complete(int stage) const {
    return std::ranges::all_of(
        d_.steps, [&](const StepPlan &step) { return step.stage != stage || of(step).done; });
}

/// Of a step in doubt that is undone only once it is known to be done, this has to be found out.
bool Rules::is_to_be_undone(const StepPlan &step) const {
    const StepState &s = of(step);
    return step.compensable && (s.done || s.doubts != 0) && !s.undone && !s.given_up;
}

bool Rules::takes_late_answer(const StepPlan &step, int64_t lease) const {
    const StepState &s = of(step);
    const uint32_t bit = 1U << std::min(s.last_attempt, 31);
    return lease != 0 && lease == s.last_lease && !s.done && (s.doubts & bit) != 0 &&
           s.act.phase != Phase::claimed && !s.compensate.is_live() && !s.was_sent_undo &&
           !s.undone && !is_final();
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

// ---------------------------------------------------------------------------------- what begins

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

void Rules::take_signals(Window w) {
    for (const StepPlan &step : d_.steps) {
        StepState &s = of(step);
        if (s.act.phase != Phase::listening || s.unread == 0 || s_.direction != Direction::act ||
            s_.suspended)
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
    s_.has_begun = true;
    if (s_.status == Status::pending)
        s_.status = Status::running;
}

// ----------------------------------------------------------------------------- what it comes to

void Rules::park(int step, Direction direction) {
    s_.status = Status::parked;
    s_.parked_step = step;
    s_.parked_direction = direction;
}

void Rules::settle(Window w) {
    if (is_final())
        return;
    if (s_.direction == Direction::act)
        settle_acting(w);
    else
        settle_compensating(w);
}

void Rules::settle_acting(Window w) {
    const bool is_past = is_past_pivot();
    int lost = 0;
    int kept = 0;
    for (const StepPlan &step : d_.steps) {
        if (lost == 0 && of(step).lost)
            lost = step.no;
        if (kept == 0 && of(step).act.phase == Phase::kept)
            kept = step.no;
    }
    if (is_past)
        s_.request = Request::none;
    else if (lost != 0 && s_.request == Request::none)
        s_.request = Request::failure;
    if (s_.request != Request::none && !is_pivot_open()) {
        start_compensation(w);
        return;
    }
    if (const int waits = kept != 0 ? kept : is_past ? lost : 0) {
        park(waits, Direction::act);
        return;
    }
    s_.parked_step = 0;
    if (s_.suspended) {
        s_.status = Status::suspended;
        return;
    }
    s_.status = s_.has_begun ? Status::running : Status::pending;
    int stage = 1;
    while (stage <= d_.stages && is_stage_complete(stage))
        ++stage;
    if (stage > d_.stages) {
        s_.status = Status::completed;
        return;
    }
    for (const StepPlan &step : d_.steps)
        if (const StepState &s = of(step);
            step.stage == stage && !s.done && !s.lost && !s.act.is_live())
            open(step, w, s.failed_act);
    take_signals(w);
}

void Rules::start_compensation(Window w) {
    for (StepState &s : s_.steps)
        if (s.act.phase != Phase::claimed && s.act.phase != Phase::verifying)
            s.act = {};
    s_.direction = Direction::compensate;
    s_.request = Request::none;
    s_.parked_step = 0;
    s_.status = s_.suspended ? Status::suspended : Status::compensating;
    settle_compensating(w);
}

void Rules::settle_compensating(Window w) {
    if (s_.status == Status::parked && s_.parked_direction == Direction::act)
        s_.status = Status::compensating;
    const bool is_acting = std::ranges::any_of(s_.steps, [](const StepState &s) {
        return s.act.phase == Phase::claimed || s.act.phase == Phase::verifying;
    });
    const auto given_up = std::ranges::find_if(
        d_.steps, [&](const StepPlan &step) { return of(step).given_up && !of(step).undone; });
    const bool is_given_up = given_up != d_.steps.end();
    if (is_given_up && !d_.continue_compensating) {
        park(given_up->no, Direction::compensate);
        return;
    }
    if (s_.suspended) {
        s_.status = Status::suspended;
        return;
    }
    s_.status = Status::compensating;
    s_.parked_step = 0;
    if (is_acting)
        return;
    for (int stage = d_.stages; stage > 0; --stage)
        if (undo_stage(stage, w))
            return;
    if (is_given_up)
        park(given_up->no, Direction::compensate);
    else
        s_.status = Status::failed;
}

// All steps of the stage that are to be undone at once. False: there are none.
bool Rules::undo_stage(int stage, Window w) {
    bool any = false;
    bool asks_a_person = false;
    for (const StepPlan &step : d_.steps) {
        if (step.stage != stage || !is_to_be_undone(step))
            continue;
        StepState &s = of(step);
        any = true;
        if (s.compensate.is_live())
            continue;
        if (s.done && s.by_person) {
            s.given_up = asks_a_person = true;
        } else if (s.done || step.undo_when_started) {
            s.compensate = {.phase = Phase::waiting,
                            .attempt = s.failed_compensate,
                            .base = s.failed_compensate,
                            .earliest = w.from,
                            .latest = w.to,
                            .falling_back = s.done ? s.by_fallback : s.is_doubt_of_fallback};
        } else if (step.verify) {
            ask_verify(step, w);
        } else {
            s.given_up = asks_a_person = true;
        }
    }
    if (asks_a_person)
        settle_compensating(w);
    return any;
}

// ------------------------------------------------------------------------------- what happens

void Rules::completed(const StepPlan &step, Direction direction, Window w, bool has_output,
                      int output) {
    StepState &s = of(step);
    Task &t = task(step, direction);
    const int64_t lease = t.lease;
    if (direction == Direction::compensate) {
        t = {};
        s.undone = true;
        s.given_up = false;
        s.compensate_lease = lease;
        s.compensation_has_output = has_output;
        settle(w);
        return;
    }
    s.by_fallback = t.falling_back;
    t = {};
    s.done = true;
    s.lost = s.given_up = false;
    s.doubts = 0;
    s.act_lease = lease;
    s.has_output = has_output;
    s.output = has_output ? output : 0;
    settle(w);
}

void Rules::pause(const StepPlan &step, Direction direction, Window since) {
    Task &t = task(step, direction);
    const Window pause = pause_before(t.attempt - t.base + 1, d_.policy_of(step, direction));
    t.phase = Phase::waiting;
    t.earliest = since.from + pause.from;
    t.latest = since.to + pause.to;
    t.lease = 0;
}

void Rules::ask_verify(const StepPlan &step, Window w) {
    Task &t = of(step).act;
    t.phase = Phase::verifying;
    t.attempt = std::max(t.attempt, of(step).failed_act);
    t.falling_back = of(step).is_doubt_of_fallback;
    t.lease = 0;
    t.earliest = w.from;
    t.latest = w.to;
}

void Rules::failed(const StepPlan &step, Direction direction, const Failing &f) {
    StepState &s = of(step);
    Task &t = task(step, direction);
    const Policy &policy = d_.policy_of(step, direction);
    const bool is_final_word =
        f.word == Word::non_retryable ||
        (policy.max_attempts > 0 && t.attempt - t.base >= policy.max_attempts);
    if (direction == Direction::compensate) {
        s.failed_compensate = std::max(s.failed_compensate, t.attempt);
        if (is_final_word) {
            t = {};
            s.given_up = true;
        } else {
            pause(step, direction, f.since);
        }
        settle(f.since);
        return;
    }
    s.failed_act = std::max(s.failed_act, t.attempt);
    const uint32_t bit = 1U << std::min(t.attempt, 31);
    if (f.is_in_doubt()) {
        if (s.doubts == 0)
            s.in_doubt_since = f.since.from;
        s.doubts |= bit;
        s.is_doubt_of_fallback = t.falling_back;
    } else {
        s.doubts &= ~bit;
    }
    t.lease = 0;
    const bool is_in_doubt = s.doubts != 0;
    if (s_.direction == Direction::compensate) {
        t = {};
        s.lost = true;
    } else if (is_in_doubt && step.verify &&
               (f.is_in_doubt() || step.irreversible || is_final_word)) {
        ask_verify(step, f.since);
    } else if (is_in_doubt && step.irreversible) {
        t.phase = Phase::kept;
    } else if (is_final_word) {
        give_up(step, f.since);
    } else {
        pause(step, direction, f.since);
    }
    settle(f.since);
}

// There is no fallback where an attempt at the action may have happened.
void Rules::give_up(const StepPlan &step, Window w) {
    StepState &s = of(step);
    if (!step.fallback.empty() && !s.act.falling_back && s.doubts == 0) {
        fall_back(step, w);
    } else {
        s.act = {};
        s.lost = true;
    }
}

// The fallback starts with all its attempts, and is due at once.
void Rules::fall_back(const StepPlan &step, Window w) {
    Task &t = of(step).act;
    t = {.phase = Phase::waiting,
         .attempt = t.attempt,
         .base = t.attempt,
         .earliest = w.from,
         .latest = w.to,
         .falling_back = true};
}

// An irreversible step that verify has not seen done is asked for again, and not tried again.
void Rules::verified(const StepPlan &step, Finding finding, Window w) {
    StepState &s = of(step);
    Task &t = s.act;
    if (finding == Finding::done) {
        completed(step, Direction::act, w, false, 0);
        s.is_fillable = true;
        s.act_lease = s.last_lease;
        return;
    }
    const Policy &policy = d_.policy_of(step, Direction::act);
    const bool again = policy.max_attempts == 0 || t.attempt - t.base < policy.max_attempts;
    if (s_.direction == Direction::compensate) {
        t = {};
        s.lost = true;
        s.given_up = step.compensable && !step.undo_when_started;
    } else if (step.irreversible) {
        ++t.verified;
        const bool ask_again = finding == Finding::not_done &&
                               (policy.max_attempts == 0 || t.verified < policy.max_attempts);
        t.phase = ask_again ? Phase::verifying : Phase::kept;
        if (ask_again) {
            const Window pause = pause_before(t.verified + 1, policy);
            t.earliest = w.from + pause.from;
            t.latest = w.to + pause.to;
        }
    } else if (again) {
        pause(step, Direction::act, w);
    } else {
        give_up(step, w);
    }
    settle(w);
}

// Nothing was heard under the lease, or until the timeout: nobody knows what the service did.
void Rules::lapsed(const StepPlan &step, Direction direction) {
    const Task &t = task(step, direction);
    failed(step, direction,
           {.word = Word::unknown, .is_lost = true, .since = {t.until(), t.until()}});
}

void Rules::settled_late(const StepPlan &step, Word word, Window w) {
    StepState &s = of(step);
    s.doubts &= ~(1U << std::min(s.last_attempt, 31));
    const bool is_still_in_doubt = s.doubts != 0;
    if (s_.direction == Direction::compensate || s.lost) {
        if (!is_still_in_doubt && s.act.phase == Phase::verifying)
            s.act = {};
        if (s_.direction == Direction::compensate && !is_still_in_doubt)
            s.given_up = false;
        settle(w);
        return;
    }
    if (!is_still_in_doubt) {
        const Policy &policy = d_.policy_of(step, Direction::act);
        const bool again =
            policy.max_attempts == 0 || s.act.attempt - s.act.base < policy.max_attempts;
        if (word == Word::non_retryable || !again)
            give_up(step, w);
        else if (s.act.phase != Phase::waiting)
            pause(step, Direction::act, w);
    }
    settle(w);
}

void Rules::deadline_passed(Window w) {
    s_.deadline_is_armed = false;
    if (!deadline_counts())
        return;
    s_.request = Request::deadline;
    settle(w);
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
        failed(step, Direction::act, {.word = Word::non_retryable, .is_lost = false, .since = w});
}

} // namespace stacksaga::property
