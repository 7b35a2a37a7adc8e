#include "rules.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace stacksaga::property {

bool Rules::is_past_pivot() const {
    return std::ranges::any_of(
        d_.steps, [&](const StepPlan &step) { return step.irreversible && of(step).done; });
}

/// An irreversible step is in flight or in doubt: the direction does not turn.
bool Rules::is_pivot_open() const {
    return std::ranges::any_of(d_.steps, [&](const StepPlan &step) {
        return step.irreversible && !of(step).done &&
               (of(step).act.phase == Phase::claimed || of(step).is_in_doubt());
    });
}

bool Rules::is_stage_complete(int stage) const {
    return std::ranges::all_of(
        d_.steps, [&](const StepPlan &step) { return step.stage != stage || of(step).done; });
}

bool Rules::has_acts_in_flight() const {
    return std::ranges::any_of(s_.steps, [](const StepState &s) {
        return s.act.phase == Phase::claimed || s.act.phase == Phase::verifying;
    });
}

bool Rules::has_attempts_left(const StepPlan &step, Direction direction) {
    const Policy &policy = d_.policy_of(step, direction);
    const Task &t = task(step, direction);
    return policy.max_attempts == 0 || t.attempt - t.base < policy.max_attempts;
}

// Who acted undoes. Of a step in doubt that is undone only once it is known to be done, this has to
// be found out.
Undo Rules::undo_of(const StepPlan &step) const {
    const StepState &s = of(step);
    if (s.undone || !(s.done || s.is_in_doubt()))
        return Undo::nothing;
    if (step.irreversible)
        return Undo::by_person;
    if (!step.compensable)
        return Undo::nothing;
    if (s.done && s.by_person)
        return Undo::by_person;
    if (s.done || step.undo_when_started) {
        if (s.compensate.is_live())
            return Undo::waits;
        return s.given_up ? Undo::by_person : Undo::due;
    }
    if (s.act.phase == Phase::verifying)
        return Undo::waits;
    return step.verify && s.act.phase == Phase::none ? Undo::verify : Undo::by_person;
}

const Attempt *StepState::doubt() const {
    const Attempt *latest = nullptr;
    for (const Attempt &a : acts)
        if (!done && a.is_doubtful && (latest == nullptr || a.no > latest->no))
            latest = &a;
    return latest;
}

Attempt *Rules::find_attempt(const StepPlan &step, Direction direction, int64_t lease) {
    for (Attempt &a : attempts(step, direction))
        if (a.lease != 0 && a.lease == lease)
            return &a;
    return nullptr;
}

bool Rules::takes_late_answer(const StepPlan &step, Direction direction, int64_t lease) {
    const StepState &s = of(step);
    const std::vector<Attempt> &all = attempts(step, direction);
    if (all.empty() || lease == 0 || all.back().lease != lease || !all.back().is_doubtful ||
        task(step, direction).phase == Phase::claimed || is_final())
        return false;
    return direction == Direction::act ? !s.done && !s.undo_begun : !s.undone;
}

// Another claim has the step, or had it; or what the answer is of is settled, or is being undone.
std::string_view Rules::refusal(const StepPlan &step, Direction direction, int64_t lease) {
    const StepState &s = of(step);
    if (direction == Direction::compensate)
        return "SG412";
    if (s.undo_begun)
        return "SG409";
    if (s.act.phase == Phase::claimed)
        return "SG412";
    const bool is_latest = !s.acts.empty() && s.acts.back().lease == lease;
    return s_.direction == Direction::compensate || (is_latest && !s.done) ? "SG409" : "SG412";
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
        t.phase = Phase::listening;
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
        ++s.act.attempt;
        attempt_begins(step, Direction::act, 0, w.from);
        completed(step, Direction::act, w, true, message);
    }
}

void Rules::attempt_begins(const StepPlan &step, Direction direction, int64_t lease, Time since) {
    s_.has_begun = true;
    if (s_.status == Status::pending)
        s_.status = Status::running;
    const Task &t = task(step, direction);
    attempts(step, direction)
        .push_back({.no = t.attempt,
                    .by_fallback = t.falling_back,
                    .lease = lease,
                    .since = since,
                    .word = Word::silence,
                    .is_doubtful = false});
}

// ----------------------------------------------------------------------------- what it comes to

void Rules::park(const StepPlan &step, Direction direction) {
    s_.status = Status::parked;
    s_.parked_step = step.no;
    s_.parked_direction = direction;
}

void Rules::settle(Window w, const StepPlan *cause) {
    if (is_final())
        return;
    if (s_.direction == Direction::act)
        settle_acting(w, cause);
    else
        settle_compensating(w);
}

/// The step that the saga is parked for still needs a person.
bool Rules::stays_parked_acting() const {
    if (s_.status != Status::parked || s_.parked_step == 0)
        return false;
    const StepState &s = of(d_.step(s_.parked_step));
    return s.act.phase == Phase::kept || (s.lost && is_past_pivot());
}

void Rules::settle_acting(Window w, const StepPlan *cause) {
    const bool is_past = is_past_pivot();
    const StepPlan *lost = nullptr;
    const StepPlan *kept = nullptr;
    for (const StepPlan &step : d_.steps) {
        if (of(step).lost && (lost == nullptr || cause == &step))
            lost = &step;
        if (of(step).act.phase == Phase::kept && kept == nullptr)
            kept = &step;
    }
    if (is_past)
        s_.request = Request::none;
    else if (lost != nullptr && s_.request == Request::none)
        s_.request = Request::failure;
    if (s_.request != Request::none && !is_pivot_open()) {
        start_compensation(w);
        return;
    }
    if (stays_parked_acting())
        return;
    if (kept != nullptr || (is_past && lost != nullptr)) {
        if (s_.status != Status::parked)
            s_.parked_at = w.to;
        park(kept != nullptr ? *kept : *lost, Direction::act);
        return;
    }
    const bool was_parked = s_.status == Status::parked;
    s_.parked_step = 0;
    if (was_parked && !s_.suspended && s_.deadline != 0) // a park does not count for it either
        s_.deadline += w.to - s_.parked_at;
    if (s_.suspended) {
        s_.status = Status::suspended;
        return;
    }
    s_.status = s_.has_begun || was_parked ? Status::running : Status::pending;
    int stage = 1;
    while (stage <= d_.stages && is_stage_complete(stage))
        ++stage;
    if (stage > d_.stages) {
        s_.status = Status::completed;
        return;
    }
    if (s_.request != Request::none)
        return;
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

bool Rules::stays_parked_compensating() const {
    if (s_.status != Status::parked || s_.parked_step == 0)
        return false;
    const StepPlan &step = d_.step(s_.parked_step);
    const Direction direction =
        !of(step).done && of(step).failed_compensate == 0 ? Direction::act : Direction::compensate;
    return s_.parked_direction == direction && undo_of(step) == Undo::by_person;
}

// The act is to be decided where it is in doubt and nothing was tried to undo it.
void Rules::park_for_undo(const StepPlan &step) {
    const StepState &s = of(step);
    if (!stays_parked_compensating())
        park(step, !s.done && s.failed_compensate == 0 ? Direction::act : Direction::compensate);
}

// What is claimed or verified settles first; then stage by stage, the steps of one at once.
void Rules::settle_compensating(Window w) {
    const auto go_on = [&] {
        s_.status = s_.suspended ? Status::suspended : Status::compensating;
        s_.parked_step = 0;
    };
    if (has_acts_in_flight()) {
        if (!stays_parked_compensating())
            go_on();
        return;
    }
    const StepPlan *blocked = nullptr;
    for (int stage = d_.stages; stage > 0; --stage) {
        bool any = false;
        for (const StepPlan &step : d_.steps) {
            if (step.stage != stage)
                continue;
            const Undo undo = undo_of(step);
            any = any || undo == Undo::waits || undo == Undo::due || undo == Undo::verify;
            if (undo == Undo::by_person && blocked == nullptr)
                blocked = &step;
            if (undo == Undo::due && !s_.suspended)
                begin_undo(step, w);
            if (undo == Undo::verify && !s_.suspended)
                ask_verify(step, w);
        }
        const bool parks = blocked != nullptr && !d_.continue_compensating;
        if (!parks && !any)
            continue;
        if (parks)
            park_for_undo(*blocked);
        else
            go_on();
        return;
    }
    if (blocked != nullptr)
        park_for_undo(*blocked);
    else if (s_.suspended)
        go_on();
    else
        s_.status = Status::failed;
}

void Rules::begin_undo(const StepPlan &step, Window w) {
    StepState &s = of(step);
    const Attempt *doubt = s.doubt();
    s.act = {};
    s.undo_begun = true;
    s.compensate = {.phase = Phase::waiting,
                    .attempt = s.ended_compensate(),
                    .base = s.ended_compensate(),
                    .earliest = w.from,
                    .latest = w.to,
                    .falling_back = doubt != nullptr ? doubt->by_fallback : s.by_fallback};
}

} // namespace stacksaga::property
