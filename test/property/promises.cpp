// The promises that hold for every saga, whatever happens to it. None of them asks the model.
#include "trace.hpp"

#include <algorithm>
#include <climits>

#include <fmt/format.h>

namespace stacksaga::property {

namespace {

constexpr Direction directions[] = {Direction::act, Direction::compensate};
constexpr int not_seen = INT_MAX;

class Check {
public:
    Check(const Trace &trace, const Facts &facts)
        : trace_(trace), d_(*trace.definition), facts_(facts) {}

    std::optional<std::string> run() {
        for (const StepPlan &step : d_.steps)
            for (Direction direction : directions)
                once(step, direction);
        for (const StepPlan &step : d_.steps) {
            order(step);
            fallback_comes_last(step);
        }
        if (!trace_.disagreement)
            end();
        return broken_;
    }

private:
    template <class... Arguments>
    void expect(bool holds, fmt::format_string<Arguments...> text, Arguments &&...arguments) {
        if (!holds && !broken_)
            broken_ = fmt::format(text, std::forward<Arguments>(arguments)...);
    }

    [[nodiscard]] const Mark *find(const std::vector<Mark> &marks, const StepPlan &step,
                                   Direction direction) const {
        const auto place = std::ranges::find_if(
            marks, [&](const Mark &m) { return m.step == step.no && m.direction == direction; });
        return place == marks.end() ? nullptr : &*place;
    }
    [[nodiscard]] bool is_marked(const StepPlan &step, Direction direction) const {
        return find(facts_.markers, step, direction) != nullptr;
    }

    /// Whether the event begins an attempt.
    static bool begins(const Event &e) {
        return e.kind == EventKind::call || e.kind == EventKind::claim;
    }
    /// Whether the event completes its step, as the program that did it sees it.
    [[nodiscard]] bool completes(const Event &e) const {
        const StepPlan &step = d_.step(e.step);
        switch (e.kind) {
        case EventKind::call:
            return trace_.plan.outcome(step, e.direction, e.attempt).word == Word::done;
        case EventKind::verify:
            return trace_.plan.finding(step, e.attempt) == Finding::done;
        case EventKind::answer:
            return e.word == Word::done && e.is_accepted;
        case EventKind::claim:
        case EventKind::extend:
        case EventKind::operation:
            return false;
        }
        return false;
    }
    template <class Predicate>
    [[nodiscard]] int first(const StepPlan &step, Direction direction, Predicate predicate) const {
        for (size_t i = 0; i < trace_.events.size(); ++i) {
            const Event &e = trace_.events[i];
            if (e.step == step.no && e.direction == direction && predicate(e))
                return static_cast<int>(i);
        }
        return not_seen;
    }
    [[nodiscard]] int first_begin(const StepPlan &step, Direction direction) const {
        return first(step, direction, begins);
    }
    [[nodiscard]] int completion(const StepPlan &step, Direction direction) const {
        return first(step, direction, [this](const Event &e) { return completes(e); });
    }

    /// At most one effect, and it has its marker.
    void once(const StepPlan &step, Direction direction) {
        const auto count = std::ranges::count_if(facts_.ledger, [&](const Mark &m) {
            return m.step == step.no && m.direction == direction;
        });
        expect(count <= 1, "{} of {} took effect {} times", name_of(direction), step.name, count);
        const Mark *effect = find(facts_.ledger, step, direction);
        const Mark *marker = find(facts_.markers, step, direction);
        if (effect != nullptr)
            expect(marker != nullptr && marker->attempt == effect->attempt,
                   "the effect of {} of {} has no marker", name_of(direction), step.name);
        if (marker != nullptr && effect == nullptr && step.kind == Kind::sql)
            expect((step.verify && direction == Direction::act) || was_resolved(step),
                   "the marker of {} of {} has no effect", name_of(direction), step.name);
        if (!was_resolved(step) && !is_unseen(step.kind))
            expect((marker != nullptr) == (completion(step, direction) != not_seen),
                   "{} of {}: the marker and what was seen differ", name_of(direction), step.name);

        std::vector<int64_t> leases;
        for (const Event &e : trace_.events)
            if (e.kind == EventKind::answer && e.step == step.no && e.direction == direction &&
                completes(e) && std::ranges::find(leases, e.lease) == leases.end())
                leases.push_back(e.lease);
        expect(leases.size() <= 1, "{} of {} was completed under {} leases", name_of(direction),
               step.name, leases.size());
    }

    /// Stage by stage forward, compensation exactly in reverse, no action after its compensation.
    void order(const StepPlan &step) {
        const int act = first_begin(step, Direction::act);
        const int back = first_begin(step, Direction::compensate);
        const int done = completion(step, Direction::act);
        for (const StepPlan &other : d_.steps) {
            if (was_resolved(other) || is_unseen(other.kind))
                continue;
            if (other.stage < step.stage && act != not_seen)
                expect(completion(other, Direction::act) < act, "{} began before {} was done",
                       step.name, other.name);
            if (back == not_seen)
                continue;
            for (size_t i = static_cast<size_t>(back); i < trace_.events.size(); ++i) {
                const Event &e = trace_.events[i];
                if (e.kind == EventKind::operation)
                    continue;
                expect(!(begins(e) && e.direction == Direction::act),
                       "an attempt at {} began after the compensation of {}", d_.step(e.step).name,
                       step.name);
            }
            const bool to_undo = other.compensable && completion(other, Direction::act) != not_seen;
            if (other.stage > step.stage && to_undo && !was_given_up(other, back))
                expect(completion(other, Direction::compensate) < back,
                       "{} was compensated before {}, which comes after it", step.name, other.name);
        }
        expect(back == not_seen || done == not_seen || done < back || was_resolved(step),
               "{} took effect after its compensation had begun", step.name);
    }

    /// Before the event its compensation was tried and not completed, or nobody knew whether there
    /// was anything to undo; where the saga says so, the others go on.
    [[nodiscard]] bool was_given_up(const StepPlan &step, int event) const {
        return d_.continue_compensating &&
               (first_begin(step, Direction::compensate) < event || was_answered_late(step));
    }

    /// It is undone only when it is known to be done, and that was said while the saga compensated.
    [[nodiscard]] bool was_answered_late(const StepPlan &step) const {
        const int done = completion(step, Direction::act);
        return !step.undo_when_started && done != not_seen &&
               trace_.events[static_cast<size_t>(done)].kind == EventKind::answer &&
               trace_.events[static_cast<size_t>(done)].text != "running";
    }

    /// An operator has resolved it, true or not.
    [[nodiscard]] bool was_resolved(const StepPlan &step) const {
        return std::ranges::any_of(trace_.events, [&](const Event &e) {
            return e.kind == EventKind::operation && e.is_accepted && e.step == step.no &&
                   e.operation.action != Action::signal;
        });
    }

    /// An operator has retried it when it was parked, also past a step that cannot be undone.
    [[nodiscard]] bool was_retried() const {
        return std::ranges::any_of(trace_.events, [](const Event &e) {
            return e.kind == EventKind::operation && e.is_accepted &&
                   e.operation.action == Action::retry;
        });
    }

    /// Whether something outside saw an attempt at it.
    [[nodiscard]] bool may_have_happened(const StepPlan &step) const {
        return std::ranges::any_of(trace_.events, [&](const Event &e) {
            return begins(e) && e.step == step.no && e.direction == Direction::act &&
                   trace_.plan.outcome(step, Direction::act, e.attempt).happens;
        });
    }

    /// The action is not tried again after its fallback, unless an operator retries it.
    void fallback_comes_last(const StepPlan &step) {
        const int fallback =
            first(step, Direction::act, [](const Event &e) { return begins(e) && e.falls_back; });
        if (fallback == not_seen || was_retried() || was_resolved(step))
            return;
        for (size_t i = static_cast<size_t>(fallback); i < trace_.events.size(); ++i) {
            const Event &e = trace_.events[i];
            expect(!(begins(e) && e.step == step.no && e.direction == Direction::act) ||
                       e.falls_back,
                   "the action of {} was tried again after its fallback", step.name);
        }
    }

    void end() {
        const bool completed = facts_.status == "completed", failed = facts_.status == "failed";
        expect(completed || failed || facts_.status == "parked", "it ended {}", facts_.status);
        expect(facts_.work_left == 0, "{} work rows are left", facts_.work_left);
        if (facts_.status == "parked")
            expect(facts_.names_parked_step && facts_.has_error,
                   "it is parked and does not say where and why");
        for (const StepPlan &step : d_.steps) {
            const bool acted = is_marked(step, Direction::act);
            const bool undone = is_marked(step, Direction::compensate);
            if (completed) {
                expect(acted, "it is completed and {} was not done", step.name);
                expect(first_begin(step, Direction::compensate) == not_seen,
                       "it is completed and {} was compensated", step.name);
            }
            if (!failed)
                continue;
            if (was_resolved(step))
                continue;
            expect(!(acted && step.irreversible) || was_retried(),
                   "it failed past {}, which is irreversible", step.name);
            const bool must_be_undone =
                acted || (step.undo_when_started && may_have_happened(step));
            expect(!step.compensable || !must_be_undone || undone,
                   "it failed and {} was not undone", step.name);
        }
    }

    const Trace &trace_;
    const Definition &d_;
    const Facts &facts_;
    std::optional<std::string> broken_;
};

} // namespace

std::optional<std::string> broken_promise(const Trace &trace, const Facts &facts) {
    return Check(trace, facts).run();
}

} // namespace stacksaga::property
