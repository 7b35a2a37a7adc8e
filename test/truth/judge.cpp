#include "judge.hpp"

#include <algorithm>

namespace stacksaga::truth {

namespace {

Status status_of(const Stored &s) {
    return static_cast<Status>(s.status);
}

int effects_of(const StepTruth &t) {
    return t.stands[0] + t.stands[1] + t.by_hand;
}

/// An effect stands that should not when the saga has failed. What somebody did and signalled, or
/// an operator in his place, is his own to undo.
bool is_left_wrongly(const Plan &plan, const Stored &saga, int step, const StepTruth &t) {
    const StepShape &shape = plan.shape_of(step);
    if (shape.undo == Undo::none)
        return false;
    if (shape.kind != Kind::signal)
        return effects_of(t) > 0;
    // A signal that nobody took is shown.
    return t.stands[1] != 0 || (shape.undo == Undo::pivot && saga.signals[step] != 1 &&
                                (t.stands[0] != 0 || t.by_hand != 0));
}

/// Everything that is known about one step in one place.
struct Case {
    const Plan &plan;
    const Stored &saga;
    const StepTruth &truth;
    int step;

    [[nodiscard]] bool has_ended(Status with) const { return status_of(saga) == with; }
    [[nodiscard]] Kind kind() const { return plan.shape_of(step).kind; }
};

const char *judge_failed(const Case &c) {
    if (!c.has_ended(Status::failed) || !is_left_wrongly(c.plan, c.saga, c.step, c.truth))
        return nullptr;
    if (c.truth.told == told_undone)
        return "T told that it is being undone, and it stands";
    if (c.truth.shown != 0)
        return nullptr;
    return c.plan.is_pivot(c.step) ? "F failed, and an irreversible effect stands"
                                   : "F failed, and a compensable effect stands";
}

const char *judge_completed(const Case &c, const State &state) {
    if (!c.has_ended(Status::completed) || c.kind() == Kind::timer || c.truth.shown != 0)
        return nullptr;
    int effects = effects_of(c.truth);
    if (effects > 1 && c.saga.signals[c.step] == 1) // which nobody took, and everybody can see
        effects -= c.truth.stands[0];
    if (c.kind() == Kind::child)
        effects += state.saga[1].exists != 0 && status_of(state.saga[1]) == Status::completed;
    if (effects > 1)
        return "C completed, and a step took effect twice";
    return effects == 0 ? "C completed, and a step has no effect" : nullptr;
}

const char *judge_undoing(const Case &c) {
    const StepTruth &t = c.truth;
    if (t.told == told_stands && (t.compensated[0] != 0 || t.compensated[1] != 0))
        return "T told that nothing will undo it, and it is undone";
    for (int v = 0; v < 2; ++v) {
        if (t.compensated[v] != 0 && t.asked[v] == 0)
            return "W a service that was not asked to act is asked to undo";
        if (core::is_final(status_of(c.saga)) && t.compensated[v] != 0 && t.applied[v] == 0 &&
            t.applied[1 - v] != 0)
            return "W the one who did not act is asked to undo, and the other not";
    }
    if (c.saga.direction == static_cast<Byte>(Direction::compensate) && c.plan.is_pivot(c.step) &&
        effects_of(t) > 0 && c.saga.signals[c.step] != 1 && t.shown == 0)
        return "D the saga compensates, and an irreversible effect stands";
    return nullptr;
}

/// Somebody is told, or something will happen that is not an operator's.
bool goes_on(const Stored &saga, bool has_live_child) {
    if (has_live_child || core::is_at_rest(status_of(saga)) ||
        status_of(saga) == Status::suspended || saga.notices != 0)
        return true;
    for (const auto &step : saga.work)
        for (const WorkBytes &w : step)
            if (w.exists != 0 && (w.due == due_now || w.claimed != 0) && w.held == 0)
                return true;
    return false;
}

/// Only a person, and a step that says so itself, has a saga undone that stops at failures.
const char *judge_stopping(const Plan &plan, const State &state) {
    const Shape &shape = plan.shape();
    const bool all_stop = shape.parks && std::none_of(shape.steps.begin(), shape.steps.end(),
                                                      [](const StepShape &s) { return s.differs; });
    return all_stop && state.operations == 0 && is_undone(state.saga[0])
               ? "S it is undone, and says that it stops"
               : nullptr;
}

const char *judge_family(const Plans &plans, const State &state) {
    const int step = plans.child_step();
    const Stored &parent = state.saga[0];
    const Stored &child = state.saga[1];
    if (step < 0 || child.exists == 0 || plans.of(0).shape_of(step).undo == Undo::none ||
        child.notices != 0)
        return nullptr;
    // One that compensates does so to its end, or parks.
    if (status_of(parent) == Status::failed && status_of(child) != Status::failed &&
        child.direction == static_cast<Byte>(Direction::act))
        return "P the parent failed, and its child has not";
    return nullptr;
}

} // namespace

const char *judge(const Plans &plans, const State &state) {
    for (int which = 0; which < 2; ++which) {
        if (state.saga[which].exists == 0)
            continue;
        const Plan &plan = plans.of(which);
        for (int i = 0; i < plan.steps(); ++i) {
            const Case c{
                .plan = plan, .saga = state.saga[which], .truth = state.truth[which][i], .step = i};
            if (c.truth.twice != 0)
                return "I an irreversible effect happened twice";
            for (const char *wrong : {judge_failed(c), judge_completed(c, state), judge_undoing(c)})
                if (wrong != nullptr)
                    return wrong;
        }
        const Stored &child = state.saga[1];
        const bool has_live_child =
            which == 0 && child.exists != 0 && !core::is_final(status_of(child));
        if (!goes_on(state.saga[which], has_live_child))
            return "N nothing is due, and nobody is told";
    }
    if (const char *wrong = judge_stopping(plans.of(0), state))
        return wrong;
    return judge_family(plans, state);
}

bool is_right_end(const Plans &plans, const State &state, Goal goal) {
    const Status end = status_of(state.saga[0]);
    if (!core::is_final(end) || (goal == Goal::completed && end != Status::completed) ||
        (goal == Goal::failed && end != Status::failed) || judge(plans, state) != nullptr)
        return false;
    for (int which = 0; which < 2; ++which) {
        const Stored &saga = state.saga[which];
        if (saga.exists == 0)
            continue;
        if (!core::is_final(status_of(saga)))
            return false;
        const bool has_failed = status_of(saga) == Status::failed;
        for (int i = 0; i < plans.of(which).steps(); ++i)
            if (has_failed && is_left_wrongly(plans.of(which), saga, i, state.truth[which][i]))
                return false;
    }
    return true;
}

namespace {

/// A step in doubt whose key its service may have forgotten: it is not tried again, so the saga can
/// be completed only where the effect did happen.
bool is_beyond_repetition(const Stored &saga, int step) {
    if (saga.effect[step][index_of(Direction::act)].exists != 0)
        return false;
    for (const Byte f : saga.failures[step][index_of(Direction::act)])
        if (f != 0 && (f & outcome_known) == 0 && (f & is_forgotten) != 0)
            return true;
    return false;
}

} // namespace

std::vector<Goal> goals_of(const Plans &plans, const State &state) {
    bool is_parked = false;
    bool pivot_stands = false;
    bool is_forgotten_doubt = false;
    for (int which = 0; which < 2; ++which) {
        const Stored &saga = state.saga[which];
        if (saga.exists == 0)
            continue;
        is_parked |= status_of(saga) == Status::parked;
        for (int i = 0; i < plans.of(which).steps(); ++i) {
            is_forgotten_doubt |= is_beyond_repetition(saga, i);
            pivot_stands |= plans.of(which).is_pivot(i) && effects_of(state.truth[which][i]) > 0;
        }
    }
    if (!is_parked || core::is_final(status_of(state.saga[0])))
        return {};
    if (pivot_stands)
        return {Goal::completed};
    const bool acts = state.saga[0].direction == static_cast<Byte>(Direction::act);
    // A deadline that had passed before the park is due when the saga goes on.
    const bool is_overdue = state.saga[0].deadline == 2 && !plans.of(0).shape().parks;
    if (acts && state.saga[1].exists == 0 && !is_forgotten_doubt)
        return is_overdue ? std::vector{Goal::failed} : std::vector{Goal::completed, Goal::failed};
    return {Goal::any};
}

bool is_left_to_workers(const Plans &plans, const State &state) {
    for (int which = 0; which < 2; ++which) {
        const Stored &saga = state.saga[which];
        if (saga.exists == 0)
            continue;
        if (status_of(saga) == Status::parked || saga.is_suspended != 0)
            return false;
        for (int i = 0; i < plans.of(which).steps(); ++i)
            for (const WorkBytes &w : saga.work[i])
                if (w.claimed != 0)
                    return false;
    }
    return !core::is_final(status_of(state.saga[0]));
}

bool is_undone(const Stored &saga) {
    return saga.direction == static_cast<Byte>(Direction::compensate);
}

} // namespace stacksaga::truth
