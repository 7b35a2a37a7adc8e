#include "model.hpp"

#include "rules.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace stacksaga::property {

namespace {

constexpr Direction directions[] = {Direction::act, Direction::compensate};

/// An attempt may begin: the pause is over, and the deadline has not passed.
bool may_begin(const Rules &rules, const State &s, const Task &t, const Call &call, Window w) {
    const bool too_late =
        call.direction == Direction::act && rules.deadline_counts() && s.deadline <= w.from;
    return !rules.is_held(call.direction) && t.phase == Phase::waiting && t.earliest <= w.to &&
           t.attempt + 1 == call.attempt && t.falling_back == call.falls_back && !too_late &&
           rules.results() == call.results;
}

} // namespace

bool Model::filter(const Rule &rule) {
    std::vector<State> fitting;
    for (const State &before : states_) {
        State after = before;
        if (rule(after) && std::ranges::find(fitting, after) == fitting.end())
            fitting.push_back(after);
    }
    if (fitting.empty())
        return false;
    states_ = std::move(fitting);
    return true;
}

// Adds the states in which some of what happens unseen has happened.
void Model::let_time_pass(Window w) {
    const auto add = [this](const State &state) {
        if (std::ranges::find(states_, state) == states_.end())
            states_.push_back(state);
    };
    for (size_t i = 0; i < states_.size(); ++i) {
        if (states_[i].suspended)
            continue;
        for (const StepPlan &step : definition_->steps) {
            State due = states_[i];
            Rules unseen(*definition_, due);
            const Task &task = unseen.of(step).act;
            const bool is_too_late = unseen.deadline_counts() && due.deadline <= w.from;
            const bool waits = (task.phase == Phase::waiting && !unseen.is_held(Direction::act)) ||
                               task.phase == Phase::listening;
            if (is_unseen(step.kind) && waits && !task.falling_back && task.earliest <= w.to &&
                !is_too_late) {
                unseen.unseen_due(step, w);
                add(due);
            }
            for (Direction d : directions) {
                State after = states_[i];
                Rules rules(*definition_, after);
                const Task &t = rules.task(step, d);
                if (t.phase != Phase::claimed || t.until() > w.to)
                    continue;
                rules.lapsed(step, d, w);
                add(after);
            }
        }
        State after = states_[i];
        Rules rules(*definition_, after);
        if (rules.deadline_counts() && after.deadline <= w.to) {
            rules.deadline_passed(w);
            add(after);
        }
    }
}

void Model::start(Window w, int start_after_minutes) {
    State state{};
    const std::optional<int> deadline =
        plan_->deadline() ? plan_->deadline() : definition_->deadline;
    const Time delay = start_after_minutes * minute;
    if (deadline) {
        // Which instant of the window is not known; a deadline is never so near that it matters.
        state.deadline = w.to + delay + *deadline * minute;
        state.deadline_is_armed = true;
    }
    Rules rules(*definition_, state);
    rules.start(w, delay);
    states_ = {state};
}

bool Model::called(const Call &call, Window w) {
    let_time_pass(w);
    const StepPlan &step = definition_->step(call.step);
    const Outcome outcome = plan_->outcome(step, call.direction, call.attempt);
    return filter([&](State &s) {
        Rules rules(*definition_, s);
        Task &t = rules.task(step, call.direction);
        if (step.kind != Kind::sql || !may_begin(rules, s, t, call, w))
            return false;
        t.attempt = call.attempt;
        rules.attempt_begins(step, call.direction, 0, w.from);
        if (outcome.word == Word::done)
            rules.completed(step, call.direction, w, true, call.attempt);
        else
            rules.failed(step, call.direction, {.word = outcome.word, .since = w});
        return true;
    });
}

bool Model::verified(const Call &call, Window w) {
    let_time_pass(w);
    const StepPlan &step = definition_->step(call.step);
    const Finding finding = plan_->finding(step, call.attempt);
    return filter([&](State &s) {
        Rules rules(*definition_, s);
        const Task &t = rules.of(step).act;
        if (t.phase != Phase::verifying || t.attempt != call.attempt || t.earliest > w.to ||
            s.suspended || t.falling_back != call.falls_back || rules.results() != call.results)
            return false;
        rules.verified(step, finding, w);
        return true;
    });
}

bool Model::claimed(const Claim &claim, Window w) {
    let_time_pass(w);
    const StepPlan &step = definition_->step(claim.call.step);
    const Time lease = claim.lease_minutes * minute;
    const Time timeout = step.timeout > 0 ? step.timeout * minute : never / 2;
    const Time started = claim.until - std::min(lease, timeout);
    const bool call_is_for_services = claim.call.falls_back && step.kind != Kind::sql;
    if (started < w.from || started > w.to)
        return false;
    return filter([&](State &s) {
        Rules rules(*definition_, s);
        Task &t = rules.task(step, claim.call.direction);
        const bool is_for_services = step.kind == Kind::queue || call_is_for_services;
        if (!is_for_services || !may_begin(rules, s, t, claim.call, w))
            return false;
        t = {.phase = Phase::claimed,
             .attempt = claim.call.attempt,
             .base = t.base,
             .falling_back = t.falling_back,
             .lease = claim.lease,
             .lease_until = started + lease,
             .timeout_at = started + timeout};
        rules.attempt_begins(step, claim.call.direction, claim.lease, started);
        return true;
    });
}

bool Model::answered(const Answer &answer, const Reply &reply, Window w) {
    const StepPlan &step = definition_->step(answer.step);
    return filter([&](State &s) {
        Rules rules(*definition_, s);
        const std::string_view expected =
            answer.word == Word::done       ? rules.take_completion(step, answer, w)
            : answer.word == Word::released ? rules.take_release(step, answer, w)
                                            : rules.take_failure(step, answer, w);
        return expected == (reply.sqlstate.empty() ? reply.status : reply.sqlstate);
    });
}

bool Model::extended(const Answer &answer, int minutes, const Reply &reply, Time until, Window w) {
    const StepPlan &step = definition_->step(answer.step);
    return filter([&](State &s) {
        Rules rules(*definition_, s);
        Task &t = rules.task(step, answer.direction);
        if (t.phase != Phase::claimed || t.lease != answer.lease) {
            const bool is_late = rules.takes_late_answer(step, answer.direction, answer.lease);
            return reply.sqlstate ==
                   (is_late ? "SG412" : rules.refusal(step, answer.direction, answer.lease));
        }
        const bool too_late = t.timeout_at <= w.from;
        if (too_late || !reply.sqlstate.empty())
            return reply.sqlstate == "SG412" && (too_late || t.timeout_at <= w.to);
        const Time by = minutes * minute;
        const Window granted{std::min(t.timeout_at, std::max(t.lease_until, w.from + by)),
                             std::min(t.timeout_at, std::max(t.lease_until, w.to + by))};
        t.lease_until = until;
        return until >= granted.from && until <= granted.to;
    });
}

bool Model::operated(const Operation &operation, const Reply &reply, Window w) {
    return filter([&](State &s) {
        const State before = s;
        Rules rules(*definition_, s);
        const auto step = [&]() -> const StepPlan & { return definition_->step(operation.step); };
        std::string_view answer;
        switch (operation.action) {
        case Action::cancel:
            answer = rules.cancel(w);
            break;
        case Action::suspend:
            answer = rules.suspend(w);
            break;
        case Action::resume:
            answer = rules.resume(w);
            break;
        case Action::retry:
            answer = rules.retry(w);
            break;
        case Action::done:
        case Action::not_done:
        case Action::never:
            answer = rules.resolve(step(), operation.action, w);
            break;
        case Action::signal:
            answer = rules.signal(step(), operation.message, w);
            break;
        }
        if (!reply.sqlstate.empty())
            s = before; // what is refused changes nothing
        return answer == (reply.sqlstate.empty() ? reply.status : reply.sqlstate);
    });
}

bool Model::is_dry(Time now) {
    let_time_pass({now, now});
    return filter([&](State &s) {
        Rules rules(*definition_, s);
        if (s.suspended)
            return true;
        if (s.deadline_is_armed && s.deadline <= now && rules.deadline_counts())
            return false;
        return std::ranges::all_of(definition_->steps, [&](const StepPlan &step) {
            return std::ranges::all_of(directions, [&](Direction d) {
                const Task &t = rules.task(step, d);
                const bool waits = (t.phase == Phase::waiting && !rules.is_held(d)) ||
                                   t.phase == Phase::listening || t.phase == Phase::verifying;
                const bool left =
                    (waits && t.latest <= now) || (t.phase == Phase::claimed && t.until() <= now);
                return !left;
            });
        });
    });
}

bool Model::has_status(std::string_view status) {
    return filter([&](State &s) { return name_of(s.status) == status; });
}

bool Model::is_at_rest() const {
    return std::ranges::all_of(states_, [](const State &s) {
        const bool rests = s.status == Status::completed || s.status == Status::failed ||
                           s.status == Status::parked;
        return rests && std::ranges::all_of(s.steps, [](const StepState &step) {
                   const auto waits = [](const Task &t) { // withdrawn, while the saga is parked
                       return t.phase == Phase::none || t.phase == Phase::kept ||
                              t.phase == Phase::waiting;
                   };
                   return waits(step.act) && waits(step.compensate);
               });
    });
}

std::string Model::describe() const {
    constexpr std::string_view phases[] = {"none",      "waiting",   "claimed",
                                           "listening", "verifying", "kept"};
    std::string text;
    for (const State &s : states_) {
        text += fmt::format("  {} ({})", name_of(s.status), name_of(s.direction));
        if (s.parked_step != 0)
            text += fmt::format(" parked at s{}, {}", s.parked_step, name_of(s.parked_direction));
        for (const StepPlan &step : definition_->steps) {
            const StepState &of = s.steps.at(static_cast<size_t>(step.no));
            text += fmt::format("; {}:{}{}{}{}", step.name, of.done ? " done" : "",
                                of.is_in_doubt() ? " in doubt" : "", of.undone ? " undone" : "",
                                of.given_up ? " given up"
                                : of.lost   ? " lost"
                                            : "");
            for (const Task *t : {&of.act, &of.compensate})
                if (t->is_live())
                    text += fmt::format(
                        " [{}{} {} attempt {}{}]", t == &of.act ? "act" : "compensate",
                        t->falling_back ? " fallback" : "", phases[static_cast<size_t>(t->phase)],
                        t->attempt, t->lease != 0 ? ", lease" : "");
        }
        text += '\n';
    }
    return text;
}

} // namespace stacksaga::property
