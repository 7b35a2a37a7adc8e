#include "events.hpp"

#include "core/saga/saga_deadline.hpp"

namespace stacksaga::truth {

namespace {

constexpr std::int64_t lease_us = 30'000'000;

const WorkBytes &work_at(const State &state, Place at, Direction d) {
    return state.saga[at.which].work[at.step][index_of(d)];
}

/// The state is loaded as if the claim of this row had run out.
core::Work run_out(core::Work work) {
    work.due_at = now;
    work.lease_until = now;
    return work;
}

} // namespace

bool Events::is_due(const State &state, Place at, Direction d) const {
    const WorkBytes &w = work_at(state, at, d);
    return w.exists != 0 && w.due == due_now && w.claimed == 0;
}

std::optional<int> Events::claimable_by(const State &state, Place at, Direction d) const {
    const WorkBytes &w = work_at(state, at, d);
    if (!is_due(state, at, d) || w.verifying != 0)
        return std::nullopt;
    const core::Step &step = plans_.of(at.which).step(at.step);
    const bool by_fallback = w.falling_back != 0;
    if (step.kind == core::StepKind::message || step.queue_of(d, by_fallback))
        return by_fallback ? 1 : 0;
    return std::nullopt;
}

/// The work as a worker may do it now, after the saga's ancestors and its deadline.
std::optional<core::Work> Events::begin(Loaded &saga, Place at, Direction d) {
    saga.heed_parent();
    const std::optional<core::Work> work = saga.work_of(at.step, d);
    if (!work || work->is_claimed() || work->verifying || work->due_at > now ||
        !core::may_begin(saga, *work) || core::deadline_passed(saga) ||
        core::withhold_repetition(saga, saga.step_at(at.step), *work))
        return std::nullopt;
    return work;
}

int Events::claim(State &state, Place at, Direction d) const {
    Loaded saga(plans_, state, at.which);
    const core::Step &step = saga.step_at(at.step);
    int attempt = 0;
    if (step.kind == core::StepKind::message) { // a worker publishes it
        if (const std::optional<core::Work> work = begin(saga, at, d)) {
            core::Work sent = *work;
            sent.attempt = work->attempt + 1;
            sent.lease = core::make_lease(sent.attempt, d, 0);
            core::attempt_begins(saga);
            core::claim_work(saga, sent, now + lease_us, now + lease_us);
            attempt = sent.attempt;
        }
    } else {
        const bool by_fallback = work_at(state, at, d).falling_back != 0;
        saga.heed_parent();
        if (const std::optional<core::Work> work =
                core::find_claimable(saga, step, d, *step.queue_of(d, by_fallback), 0.5)) {
            const std::int64_t lease = core::make_lease(work->attempt + 1, d, 0);
            attempt = core::begin_claim(saga, step, *work, lease, now + lease_us, "").attempt;
        }
    }
    saga.store();
    return attempt;
}

namespace {

Events::Answer answer_of(const core::JudgedAnswer &judged) {
    const auto answered = [&] {
        switch (judged.outcome) {
        case core::AnswerOutcome::accept:
        case core::AnswerOutcome::fills_output:
            return Answered::accepted;
        case core::AnswerOutcome::accepted_before:
            return Answered::unchanged;
        case core::AnswerOutcome::other_output:
            return Answered::other_output;
        case core::AnswerOutcome::lease_lost:
            return Answered::lost;
        case core::AnswerOutcome::being_undone:
            return Answered::undone;
        case core::AnswerOutcome::not_undone:
            return Answered::stands;
        }
        return Answered::lost;
    };
    return {.answered = answered(), .contradicts = judged.contradicts};
}

} // namespace

Events::Answer Events::complete(State &state, Place at, Direction d, int attempt) const {
    Loaded saga(plans_, state, at.which);
    saga.heed_parent();
    const core::Step &step = saga.step_at(at.step);
    EffectBytes &effect = state.saga[at.which].effect[at.step][index_of(d)];
    std::optional<core::EarlierCompletion> earlier;
    if (effect.exists != 0 && effect.lease == attempt)
        earlier =
            core::EarlierCompletion{.is_same_output = effect.has_output != 0,
                                    .is_output_null = effect.has_output == 0,
                                    .settled_by = static_cast<core::SettledBy>(effect.settled_by)};
    const core::JudgedAnswer judged =
        core::judge_completion(saga, step, core::make_lease(attempt, d, 0), earlier);
    if (judged.outcome == core::AnswerOutcome::accept)
        core::step_completed(saga, step, *judged.work, {.bits = 1, .is_null = false});
    saga.store();
    if (judged.outcome == core::AnswerOutcome::fills_output)
        effect.has_output = 1;
    return answer_of(judged);
}

Events::Answer Events::fail(State &state, Place at, Direction d, int attempt,
                            FailureClass c) const {
    Loaded saga(plans_, state, at.which);
    saga.heed_parent();
    const core::Step &step = saga.step_at(at.step);
    const EffectBytes &effect = state.saga[at.which].effect[at.step][index_of(d)];
    const core::JudgedAnswer judged =
        core::judge_failure(saga, step, core::make_lease(attempt, d, 0), c,
                            effect.exists != 0 && effect.lease == attempt);
    if (judged.outcome == core::AnswerOutcome::accept)
        core::step_failed(saga, step, *judged.work,
                          {.failure_class = c,
                           .outcome_known = c != FailureClass::unknown,
                           .error = "error",
                           .since = now},
                          0.5);
    saga.store();
    return answer_of(judged);
}

Events::Answer Events::release(State &state, Place at, Direction d, int attempt) const {
    Loaded saga(plans_, state, at.which);
    saga.heed_parent();
    const core::Step &step = saga.step_at(at.step);
    const EffectBytes &effect = state.saga[at.which].effect[at.step][index_of(d)];
    const core::JudgedAnswer judged = core::judge_release(
        saga, step, core::make_lease(attempt, d, 0), effect.exists != 0 && effect.lease == attempt);
    if (judged.outcome == core::AnswerOutcome::accept)
        core::step_released(saga, step, *judged.work, {.retry_after_us = 0, .reason = {}}, 0.5);
    saga.store();
    return answer_of(judged);
}

bool Events::expire(State &state, Place at, Direction d) const {
    const WorkBytes &w = work_at(state, at, d);
    if (w.exists == 0 || w.claimed == 0 || w.held != 0)
        return false;
    Loaded saga(plans_, state, at.which);
    saga.heed_parent();
    const std::optional<core::Work> work = saga.work_of(at.step, d);
    if (work && work->is_claimed())
        core::lease_expired(saga, saga.step_at(at.step), run_out(*work), 0.5, saga.child());
    saga.store();
    return true;
}

bool Events::is_run_by_worker(const State &state, Place at, Direction d) const {
    const WorkBytes &w = work_at(state, at, d);
    const core::Step &step = plans_.of(at.which).step(at.step);
    return is_due(state, at, d) && w.verifying == 0 && step.kind != core::StepKind::message &&
           !step.queue_of(d, w.falling_back != 0);
}

Events::Run Events::run(State &state, Place at, Direction d, Ran result) const {
    Loaded saga(plans_, state, at.which);
    const core::Step &step = saga.step_at(at.step);
    const std::optional<core::Work> work = begin(saga, at, d);
    Run run{.is_called = false, .service = 0};
    if (!work) {
        saga.store();
        return run;
    }
    run.service = work->falling_back ? 1 : 0;
    core::Work attempt = *work;
    attempt.attempt = work->attempt + 1;
    switch (step.kind) {
    case core::StepKind::sql:
        run.is_called = true;
        core::attempt_begins(saga);
        if (result == Ran::done) {
            core::step_completed(saga, step, attempt, {.bits = 1, .is_null = false});
        } else {
            constexpr std::array classes{FailureClass::retryable, FailureClass::retryable,
                                         FailureClass::non_retryable, FailureClass::unknown};
            core::step_failed(saga, step, attempt,
                              {.failure_class = classes.at(static_cast<std::size_t>(result)),
                               .outcome_known = result != Ran::unknown,
                               .error = "error",
                               .since = now},
                              0.5);
        }
        break;
    case core::StepKind::signal:
        core::signal_due(saga, step, *work, "the signal did not arrive in time");
        break;
    case core::StepKind::timer:
        core::timer_due(saga, step, *work, "");
        break;
    case core::StepKind::child:
        core::child_step_due(saga, step, *work, saga.child(), "");
        break;
    case core::StepKind::queue:
    case core::StepKind::message:
        break;
    }
    saga.store();
    return run;
}

std::optional<int> Events::verifies(const State &state, Place at) const {
    const WorkBytes &w = work_at(state, at, Direction::act);
    if (w.exists == 0 || w.verifying == 0 || w.due != due_now)
        return std::nullopt;
    return w.falling_back != 0 ? 1 : 0;
}

bool Events::may_verify(State &state, Place at) const {
    Loaded saga(plans_, state, at.which);
    saga.heed_parent();
    const std::optional<core::Work> work = saga.work_of(at.step, Direction::act);
    const bool may = work && work->verifying && work->due_at <= now && core::may_begin(saga, *work);
    saga.store();
    return may;
}

void Events::verify(State &state, Place at, VerifyAnswer answer) const {
    Loaded saga(plans_, state, at.which);
    const core::Step &step = saga.step_at(at.step);
    const core::Work work = *saga.work_of(at.step, Direction::act);
    if (answer == VerifyAnswer::no_answer) {
        core::verify_failed(saga, step, work,
                            {.failure_class = FailureClass::retryable,
                             .outcome_known = false,
                             .error = "error",
                             .since = now},
                            0.5);
    } else {
        constexpr std::array outcomes{core::VerifyOutcome::done, core::VerifyOutcome::not_done,
                                      core::VerifyOutcome::never_done,
                                      core::VerifyOutcome::unknown};
        core::VerifyAnswer said{};
        said.outcome = outcomes.at(static_cast<std::size_t>(answer));
        core::verify_answered(saga, step, work, said, 0.5);
    }
    saga.store();
}

bool Events::deadline(State &state, int which) const {
    const Stored &s = state.saga[which];
    if (s.deadline_work == 0 || s.deadline_held != 0 || s.deadline != 2)
        return false;
    Loaded saga(plans_, state, which);
    saga.heed_parent();
    core::deadline_due(saga);
    saga.store();
    return true;
}

bool Events::notice_of_child(State &state) const {
    const int step = plans_.child_step();
    if (step < 0 || (state.saga[0].notices & (1 << step)) == 0)
        return false;
    state.saga[0].notices = static_cast<Byte>(state.saga[0].notices & ~(1 << step));
    Loaded saga(plans_, state, 0);
    core::child_settled(saga, saga.step_at(step), saga.child());
    saga.store();
    return true;
}

bool Events::notice_of_parent(State &state) const {
    if ((state.saga[1].notices & 0x80) == 0)
        return false;
    state.saga[1].notices = 0;
    Loaded saga(plans_, state, 1);
    core::compensate_for_parent(saga, "the parent requested it");
    saga.store();
    return true;
}

bool Events::signal(State &state, Place at) const {
    Stored &s = state.saga[at.which];
    Loaded saga(plans_, state, at.which);
    saga.heed_parent();
    const bool is_awaited = !core::is_final(saga.row.status) && saga.acts() &&
                            s.signals[at.step] == 0 &&
                            core::awaits_signal(saga, saga.step_at(at.step).signal);
    if (is_awaited) {
        s.signals[at.step] = 1;
        if (saga.has_signals_loaded)
            saga.signals.push(saga.memory, {.no = at.step + 1,
                                            .name = saga.step_at(at.step).signal,
                                            .payload = {.bits = 1, .is_null = false}});
        core::take_signals(saga);
    }
    saga.store();
    return is_awaited;
}

bool Events::operate(State &state, int which, Operation operation) const {
    Loaded saga(plans_, state, which);
    std::optional<core::Refusal> refusal;
    switch (operation) {
    case Operation::cancel:
        refusal = core::cancel_saga(saga, "cancelled");
        break;
    case Operation::suspend:
        refusal = core::suspend_saga(saga);
        break;
    case Operation::resume:
        refusal = core::resume_saga(saga);
        break;
    case Operation::retry:
        refusal = core::retry_saga(saga, 0);
        break;
    case Operation::compensate:
        refusal = core::compensate_saga(saga, "compensated");
        break;
    }
    if (refusal)
        return false;
    saga.store();
    return true;
}

bool Events::resolve(State &state, Place at, Resolution resolution, Direction d) const {
    Loaded saga(plans_, state, at.which);
    const core::Step &step = saga.step_at(at.step);
    constexpr std::array outcomes{core::ResolveOutcome::done, core::ResolveOutcome::not_done,
                                  core::ResolveOutcome::never_done};
    core::Resolution said{};
    said.outcome = outcomes.at(static_cast<std::size_t>(resolution));
    said.direction = d;
    said.output = {.bits = 1, .is_null = false};
    said.error = "error";
    said.role = "operator";
    const std::optional<core::Child> child = saga.child();
    said.child_stands =
        step.kind == core::StepKind::child && child && !core::is_final(child->status);
    if (core::resolve_step(saga, step, said, 0.5).refusal)
        return false;
    saga.store();
    return true;
}

bool Events::is_in_doubt(const State &state, Place at) const {
    State copy = state;
    Loaded saga(plans_, copy, at.which);
    return core::is_in_doubt(saga, static_cast<std::int16_t>(at.step + 1));
}

} // namespace stacksaga::truth
