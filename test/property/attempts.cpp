// What is done to a step and said of it: attempts, answers, and what follows of them.
#include "rules.hpp"

#include <algorithm>
#include <cmath>

namespace stacksaga::property {

namespace {

/// Services remember a key for so long.
constexpr Time dedupe_retention = 7 * 24 * 60 * minute;

/// How long the pause before attempt `next` lasts, at the least and at the most.
Window pause_before(int next, const Policy &p) {
    if (p.initial == 0 || next == 1) // the first one has none
        return {0, 0};
    const double plain = std::min(p.longest, p.initial * std::pow(p.multiplier, next - 2));
    const double micros = plain * static_cast<double>(minute);
    return {static_cast<Time>(micros * (1 - p.jitter)) - 1,
            static_cast<Time>(micros * (1 + p.jitter)) + 1};
}

/// How much is known of an attempt of which this was said: that it had no effect, that none will.
int strength_of(Word failure) {
    switch (failure) {
    case Word::non_retryable:
        return 2;
    case Word::retryable:
    case Word::released:
        return 1;
    case Word::unknown:
    case Word::silence:
    case Word::done:
        return 0;
    }
    return 0;
}

} // namespace

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
    s.lost = false;
    s.act_lease = lease;
    s.has_output = has_output;
    s.output = has_output ? output : 0;
    settle(w);
}

void Rules::completed_late(const StepPlan &step, Direction direction, Window w, int output) {
    const Attempt &latest = attempts(step, direction).back();
    Task &t = task(step, direction);
    t.lease = latest.lease;
    t.falling_back = latest.by_fallback;
    completed(step, direction, w, true, output);
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
    StepState &s = of(step);
    Task &t = s.act;
    t.phase = Phase::verifying;
    t.attempt = std::max(t.attempt, s.failed_act);
    t.falling_back = s.doubt()->by_fallback;
    t.verified = 0;
    t.lease = 0;
    t.earliest = w.from;
    t.latest = w.to;
}

void Rules::note_failure(const StepPlan &step, Direction direction, const Failing &f) {
    StepState &s = of(step);
    const Task &t = task(step, direction);
    int &last = direction == Direction::act ? s.failed_act : s.failed_compensate;
    last = std::max(last, t.attempt);
    for (Attempt &a : attempts(step, direction))
        if (a.no == t.attempt) {
            a.word = f.word;
            a.is_doubtful = f.word == Word::unknown;
        }
}

void Rules::failed(const StepPlan &step, Direction direction, const Failing &f) {
    note_failure(step, direction, f);
    if (direction == Direction::compensate)
        undo_failed(step, f.word, f.since);
    else
        act_failed(step, f.word, f.since);
    settle(f.since, &step);
}

void Rules::undo_failed(const StepPlan &step, Word word, Window since) {
    StepState &s = of(step);
    if (word != Word::non_retryable && has_attempts_left(step, Direction::compensate)) {
        const int64_t lease = s.compensate.lease;
        pause(step, Direction::compensate, since);
        s.compensate.lease = word == Word::unknown ? lease : 0; // whoever has it may have undone it
        return;
    }
    s.compensate = {};
    s.given_up = true;
}

void Rules::act_failed(const StepPlan &step, Word word, Window since) {
    StepState &s = of(step);
    Task &t = s.act;
    t.lease = 0;
    if (s_.direction == Direction::compensate) {
        t = {};
        s.lost = true;
        return;
    }
    const bool is_over = word == Word::non_retryable || !has_attempts_left(step, Direction::act);
    const bool is_in_doubt = s.is_in_doubt();
    if (is_in_doubt && step.verify && (word == Word::unknown || step.irreversible || is_over))
        ask_verify(step, since);
    else if (is_in_doubt && step.irreversible)
        t.phase = Phase::kept;
    else if (is_over)
        give_up(step, since);
    else
        pause(step, Direction::act, since);
}

// There is no fallback where an attempt at the action may have happened.
void Rules::give_up(const StepPlan &step, Window w) {
    StepState &s = of(step);
    if (!step.fallback.empty() && !s.act.falling_back && !s.is_in_doubt()) {
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

/// Services have forgotten the key of its first attempt in doubt.
bool Rules::is_forgotten(const StepPlan &step, Window w) const {
    return step.effect != "idempotent" && std::ranges::any_of(of(step).acts, [&](const Attempt &a) {
               return a.is_doubtful && w.from - a.since > dedupe_retention;
           });
}

// An irreversible step that verify has not seen done is asked for again, and not tried again.
void Rules::verified(const StepPlan &step, Finding finding, Window w) {
    StepState &s = of(step);
    Task &t = s.act;
    if (finding == Finding::done) {
        s.is_fillable = true;
        t.lease = s.doubt()->lease;
        completed(step, Direction::act, w, false, 0);
        return;
    }
    if (finding == Finding::never_done) { // nor an earlier attempt
        settle_doubts(step);
        act_failed(step, Word::non_retryable, w);
        settle(w, &step);
        return;
    }
    const Policy &policy = d_.policy_of(step, Direction::act);
    const bool asks_again =
        (step.irreversible && finding == Finding::not_done) || finding == Finding::away;
    if (asks_again && (policy.max_attempts == 0 || t.verified + 1 < policy.max_attempts)) {
        ++t.verified;
        const Window pause = pause_before(t.verified + 1, policy);
        t.earliest = w.from + pause.from;
        t.latest = w.to + pause.to;
    } else if (s_.direction == Direction::compensate) {
        const bool is_undone_without_answer = !step.compensable || step.undo_when_started;
        t.phase = is_undone_without_answer ? Phase::none : Phase::kept;
        s.lost = true;
    } else if (step.irreversible || is_forgotten(step, w)) {
        t.phase = Phase::kept;
    } else if (has_attempts_left(step, Direction::act)) {
        pause(step, Direction::act, w);
    } else {
        give_up(step, w);
    }
    settle(w, &step);
}

// Nothing was heard under the lease, or until the timeout: nobody knows what the service did.
void Rules::lapsed(const StepPlan &step, Direction direction, Window noticed) {
    const Task &t = task(step, direction);
    const bool was_parked = s_.status == Status::parked;
    failed(step, direction, {.word = Word::unknown, .since = {t.until(), t.until()}});
    if (!was_parked && s_.status == Status::parked) // when somebody notices it
        s_.parked_at = noticed.to;
}

// It had no effect, which says nothing of an earlier attempt in doubt.
void Rules::failed_late(const StepPlan &step, Direction direction, Word word, Window w) {
    Attempt &latest = attempts(step, direction).back();
    latest.word = word;
    latest.is_doubtful = false;
    Task &t = task(step, direction);
    if (direction == Direction::compensate) {
        if (t.is_live())
            undo_failed(step, word, w);
    } else if (s_.direction == Direction::compensate) {
        t = {};
    } else if (t.is_live() && !of(step).is_in_doubt()) {
        act_failed(step, word, w);
    }
    settle(w, &step);
}

std::string_view Rules::take_completion(const StepPlan &step, const Answer &answer, Window w) {
    StepState &s = of(step);
    const bool acts = answer.direction == Direction::act;
    const Task &t = task(step, answer.direction);
    const int64_t completed_under = acts ? s.act_lease : s.compensate_lease;
    if (t.phase == Phase::claimed && t.lease == answer.lease) {
        completed(step, answer.direction, w, true, answer.output);
        return status();
    }
    if (takes_late_answer(step, answer.direction, answer.lease)) {
        completed_late(step, answer.direction, w, answer.output);
        return status();
    }
    if (completed_under == 0 || completed_under != answer.lease)
        return refusal(step, answer.direction, answer.lease);
    if (!acts && s.undo_is_fillable && !s.compensation_has_output) {
        s.compensation_has_output = true;
        return status();
    }
    if (acts && s.is_fillable && !s.has_output) {
        s.has_output = true;
        s.output = answer.output;
        return status();
    }
    const bool is_same = acts ? s.has_output && answer.output == s.output
                              : s.compensation_has_output && answer.output >= 0;
    return is_same ? status() : "SG422";
}

// The same again changes nothing, nor does what says less than is known of the attempt. What was
// completed may not be denied.
std::string_view Rules::take_failure(const StepPlan &step, const Answer &answer, Window w) {
    const Task &t = task(step, answer.direction);
    if (t.phase == Phase::claimed && t.lease == answer.lease) {
        failed(step, answer.direction, {.word = answer.word, .since = w});
        return status();
    }
    const Attempt *attempt = find_attempt(step, answer.direction, answer.lease);
    if (attempt != nullptr && strength_of(answer.word) <= strength_of(attempt->word))
        return status();
    if (takes_late_answer(step, answer.direction, answer.lease)) {
        failed_late(step, answer.direction, answer.word, w);
        return status();
    }
    const StepState &s = of(step);
    const bool acts = answer.direction == Direction::act;
    if (answer.lease != 0 && answer.lease == (acts ? s.act_lease : s.compensate_lease))
        return answer.word == Word::unknown ? status() : "SG409";
    return refusal(step, answer.direction, answer.lease);
}

// It is due again at once, where it stood, and the policy does not count it.
void Rules::due_again(const StepPlan &step, Direction direction, Window w) {
    Task &t = task(step, direction);
    t.phase = Phase::waiting;
    ++t.base;
    t.lease = 0;
    t.earliest = w.from;
    t.latest = w.to;
}

void Rules::released(const StepPlan &step, Direction direction, bool is_late, Window w) {
    StepState &s = of(step);
    Task &t = task(step, direction);
    Attempt &latest = attempts(step, direction).back();
    latest.word = Word::released;
    latest.is_doubtful = false;
    if (direction == Direction::compensate) {
        if (t.is_live())
            due_again(step, direction, w);
    } else if (s_.direction == Direction::compensate) {
        s.failed_act = std::max(s.failed_act, latest.no);
        t = {};
        s.lost = true;
    } else if (!is_late || t.phase == Phase::waiting || (t.is_live() && !s.is_in_doubt())) {
        due_again(step, direction, w);
    }
    settle(w, &step);
}

// Under the latest lease alone. The same again changes nothing until another claim has the step.
std::string_view Rules::take_release(const StepPlan &step, const Answer &answer, Window w) {
    const StepState &s = of(step);
    const Task &t = task(step, answer.direction);
    if (t.phase == Phase::claimed && t.lease == answer.lease) {
        released(step, answer.direction, false, w);
        return status();
    }
    if (takes_late_answer(step, answer.direction, answer.lease)) {
        released(step, answer.direction, true, w);
        return status();
    }
    const std::vector<Attempt> &all = attempts(step, answer.direction);
    const bool is_done = answer.direction == Direction::act ? s.done : s.undone;
    const bool is_latest = answer.lease != 0 && !all.empty() && all.back().lease == answer.lease;
    const bool is_known = is_latest && !all.back().is_doubtful;
    return is_known && !is_done && t.phase != Phase::claimed ? status() : "SG412";
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
    ++t.attempt;
    attempt_begins(step, Direction::act, 0, w.from);
    if (step.kind == Kind::timer)
        completed(step, Direction::act, w, false, 0);
    else
        failed(step, Direction::act, {.word = Word::non_retryable, .since = w});
}

} // namespace stacksaga::property
