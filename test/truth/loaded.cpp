#include "loaded.hpp"

namespace stacksaga::truth {

namespace {

constexpr std::int64_t later = 30'000'000;
constexpr Byte request_notice = 0x80;
/// The last attempt whose release has a bit.
constexpr int releasable_max = 8;

/// Memory of the saga that is loaded: nothing of it outlives the event.
class Arena {
public:
    core::Memory memory() {
        used_ = 0;
        return {.allocate = [](void *owner, std::size_t bytes) -> void * {
                    auto &arena = *static_cast<Arena *>(owner);
                    const std::size_t begin = arena.used_;
                    arena.used_ += (bytes + 15) / 16 * 16;
                    if (arena.used_ > sizeof(arena.block_))
                        throw std::bad_alloc();
                    return arena.block_ + begin;
                },
                .owner = this};
    }

private:
    alignas(16) std::byte block_[1 << 16];
    std::size_t used_ = 0;
};
thread_local Arena arena;

std::int64_t instant_of(Byte due) {
    return due == due_now ? now : core::never;
}
Byte due_of(std::int64_t instant) {
    return instant == core::never ? Byte{due_never} : Byte{due_now};
}

std::int64_t lease_of(Byte attempt, Direction d) {
    return core::make_lease(attempt, d, 0);
}
Byte attempt_of(std::optional<std::int64_t> lease) {
    return lease ? static_cast<Byte>(*lease >> (core::lease_random_bits + 1)) : Byte{0};
}

core::Work work_of_bytes(const WorkBytes &b, int i, Direction d) {
    core::Work w{
        .step_no = static_cast<std::int16_t>(i + 1), .direction = d, .due_at = instant_of(b.due)};
    w.attempt = b.attempt;
    w.attempt_base = b.attempt_base;
    if (b.lease != 0)
        w.lease = lease_of(b.lease, d);
    if (b.claimed != 0) {
        w.lease_until = now + later;
        w.due_at = now + later;
    }
    if (b.held != 0) {
        w.resume_at = b.claimed != 0 ? now + later : instant_of(b.held - 1);
        w.due_at = core::never;
    }
    if (b.started != 0)
        w.started_at = now;
    w.verifying = b.verifying != 0;
    w.falling_back = b.falling_back != 0;
    w.verify_attempts = b.verify_attempts;
    return w;
}

Byte byte_of(std::int64_t number) {
    if (number < 0 || number > attempts_max)
        throw std::length_error("the model does not follow so many attempts");
    return static_cast<Byte>(number);
}

WorkBytes bytes_of_work(const core::Work &w) {
    WorkBytes b{};
    b.exists = 1;
    b.claimed = w.is_claimed();
    b.due = b.claimed != 0 ? Byte{due_now} : due_of(w.resume_at.value_or(w.due_at));
    b.held = w.resume_at ? static_cast<Byte>(1 + b.due) : Byte{0};
    if (b.held != 0)
        b.due = due_never;
    b.verifying = w.verifying;
    b.falling_back = w.falling_back;
    b.verify_attempts = byte_of(w.verify_attempts);
    b.started = w.started_at.has_value();
    b.attempt = byte_of(w.attempt);
    b.attempt_base = byte_of(w.attempt_base);
    b.lease = attempt_of(w.lease);
    return b;
}

} // namespace

struct Loader {
    static Loaded &of(core::SagaState &saga) { return static_cast<Loaded &>(saga); }

    static void effects(core::SagaState &saga) {
        const Loaded &l = of(saga);
        for (std::size_t i = 0; i < l.plan().shape().steps.size(); ++i) {
            const EffectBytes &act = l.stored_.effect[i][0];
            saga.progress.acted[i] = act.exists != 0;
            saga.progress.acted_by_fallback[i] = act.by_fallback != 0;
            saga.progress.acted_by_person[i] =
                act.exists != 0 &&
                static_cast<core::SettledBy>(act.settled_by) == core::SettledBy::person;
            saga.progress.compensated[i] = l.stored_.effect[i][1].exists != 0;
        }
    }
    static core::PastFailure past_failure(Byte f, int i, Direction d, int attempt) {
        const std::int64_t when = (f & is_forgotten) != 0 ? now - 2 * dedupe_retention : now;
        core::PastFailure past{};
        past.step_no = static_cast<std::int16_t>(i + 1);
        past.direction = d;
        past.attempt = attempt;
        past.failure_class = static_cast<FailureClass>((f & class_bits) - 1);
        past.outcome_known = (f & outcome_known) != 0;
        past.by_fallback = (f & of_fallback) != 0;
        if ((f & has_lease) != 0)
            past.lease = lease_of(static_cast<Byte>(attempt), d);
        past.started_at = when;
        past.failed_at = when;
        return past;
    }
    static void failures(core::SagaState &saga) {
        const Loaded &l = of(saga);
        for (int i = 0; i < l.plan().steps(); ++i)
            for (const Direction d : {Direction::act, Direction::compensate})
                for (int a = 0; a < attempts_max; ++a)
                    if (const Byte f = l.stored_.failures[i][index_of(d)][a])
                        saga.progress.failures.push(saga.memory, past_failure(f, i, d, a + 1));
    }
    static void releases(core::SagaState &saga) {
        const Loaded &l = of(saga);
        for (int i = 0; i < l.plan().steps(); ++i)
            for (const Direction d : {Direction::act, Direction::compensate})
                for (int a = 0; a < releasable_max; ++a)
                    if ((l.stored_.released[i][index_of(d)] & (1 << a)) != 0)
                        saga.progress.releases.push(
                            saga.memory, {.step_no = static_cast<std::int16_t>(i + 1),
                                          .direction = d,
                                          .attempt = a + 1,
                                          .lease = lease_of(static_cast<Byte>(a + 1), d)});
    }
    static void signals(core::SagaState &saga) {
        const Loaded &l = of(saga);
        for (int i = 0; i < l.plan().steps(); ++i)
            if (l.stored_.signals[i] == 1)
                saga.signals.push(saga.memory,
                                  {.no = i + 1, .name = l.step_at(i).signal, .payload = {}});
    }
    static std::string_view error(core::SagaState &, std::int16_t, std::int32_t) {
        return "failed";
    }
};

namespace {
constexpr core::Source source{.load_effects = Loader::effects,
                              .load_failures = Loader::failures,
                              .load_releases = Loader::releases,
                              .load_signals = Loader::signals,
                              .find_error = Loader::error};

core::SagaState empty_state(const Plan &plan) {
    core::SagaState s{};
    s.definition = &plan.definition();
    s.is_child = plan.is_child();
    s.now = now;
    s.dedupe_retention_us = dedupe_retention;
    s.memory = arena.memory();
    s.source = &source;
    return s;
}

std::optional<std::int16_t> optional_step(Byte no) {
    return no == 0 ? std::nullopt : std::optional{static_cast<std::int16_t>(no)};
}
} // namespace

int Plans::child_step() const {
    if (saga[1] != nullptr)
        for (int i = 0; i < saga[0]->steps(); ++i)
            if (saga[0]->shape_of(i).kind == Kind::child)
                return i;
    return -1;
}

Loaded::Loaded(const Plans &plans, State &state, int which)
    : core::SagaState(empty_state(plans.of(which))), plans_(plans), state_(state),
      stored_(state.saga[which]), which_(which) {
    row = {.status = static_cast<Status>(stored_.status),
           .direction = static_cast<Direction>(stored_.direction),
           .failed_step = optional_step(stored_.failed_step),
           .parked_step = optional_step(stored_.parked_step)};
    if (stored_.has_error != 0)
        row.error = "error";
    if (stored_.parked_step != 0)
        row.parked_direction = static_cast<Direction>(stored_.parked_direction);
    if (stored_.requested != 0)
        row.compensation_requested = static_cast<core::CompensationRequest>(stored_.requested - 1);
    if (stored_.is_suspended != 0)
        row.suspended_at = now - later;
    stored = row;
    if (stored_.deadline != 0)
        deadline_at = stored_.deadline == 2 ? now : now + later;
    deadline = definition->deadline;
    for (int i = 0; i < plan().steps(); ++i)
        for (const Direction d : {Direction::act, Direction::compensate})
            if (const WorkBytes &b = stored_.work[i][index_of(d)]; b.exists != 0)
                work.push(memory, {.work = work_of_bytes(b, i, d),
                                   .state = core::RowState::stored,
                                   .wakes = false});
    if (stored_.deadline_work != 0) {
        core::Work w{.step_no = core::no_step,
                     .direction = Direction::act,
                     .purpose = core::WorkPurpose::deadline,
                     .due_at = *deadline_at};
        if (stored_.deadline_held != 0) {
            w.resume_at = w.due_at;
            w.due_at = core::never;
        }
        work.push(memory, {.work = w, .state = core::RowState::stored, .wakes = false});
    }
    if (row.status == Status::pending)
        core::begin_progress(*this);
}

std::optional<core::Child> Loaded::child() const {
    const Stored &c = state_.saga[1];
    if (which_ != 0 || c.exists == 0)
        return std::nullopt;
    return core::Child{.status = static_cast<Status>(c.status),
                       .run = c.run,
                       .is_requested = (c.notices & request_notice) != 0,
                       .output = {},
                       .why_failed = "it failed",
                       .why_irreversible = "it has completed an irreversible step"};
}

void Loaded::store_row(const core::SagaRow &to) {
    if (!core::may_change(static_cast<Status>(stored_.status),
                          static_cast<Direction>(stored_.direction), to.status, to.direction,
                          is_child))
        throw Refused("the tables refuse the change from " +
                      std::string(core::name_of(static_cast<Status>(stored_.status))) + " to " +
                      std::string(core::name_of(to.status)));
    stored_.status = static_cast<Byte>(to.status);
    stored_.direction = static_cast<Byte>(to.direction);
    stored_.failed_step = static_cast<Byte>(to.failed_step.value_or(0));
    stored_.has_error = to.error.has_value();
    stored_.parked_step = static_cast<Byte>(to.parked_step.value_or(0));
    stored_.parked_direction = static_cast<Byte>(to.parked_direction.value_or(Direction::act));
    stored_.requested = to.compensation_requested
                            ? static_cast<Byte>(1 + static_cast<Byte>(*to.compensation_requested))
                            : Byte{0};
    stored_.is_suspended = to.suspended_at.has_value();
}

void Loaded::store_work(const core::WorkRow &r) {
    if (r.work.purpose == core::WorkPurpose::deadline) {
        stored_.deadline_work = r.is_live() ? 1 : 0;
        stored_.deadline_held = r.is_live() && r.work.resume_at ? 1 : 0;
        return;
    }
    WorkBytes &b = stored_.work[r.work.step_no - 1][index_of(r.work.direction)];
    b = r.is_live() ? bytes_of_work(r.work) : WorkBytes{};
}

void Loaded::store_failure(const core::NewFailure &f) {
    Byte &b = stored_.failures[f.step_no - 1][index_of(f.direction)][byte_of(f.attempt) - 1];
    b = static_cast<Byte>((b & is_forgotten) | (1 + static_cast<Byte>(f.failure.failure_class)));
    if (f.failure.outcome_known)
        b |= outcome_known;
    if (f.by_fallback)
        b |= of_fallback;
    if (f.lease)
        b |= has_lease;
}

void Loaded::store_release(const core::Release &r) {
    if (r.attempt > releasable_max)
        throw std::length_error("the model does not follow releases of so late an attempt");
    Byte &b = stored_.released[r.step_no - 1][index_of(r.direction)];
    const Byte bit = static_cast<Byte>(1 << (r.attempt - 1));
    if ((b & bit) != 0)
        throw Refused("the tables refuse a second release of an attempt");
    b |= bit;
}

void Loaded::store_effect(const core::Effect &e) {
    EffectBytes &b = stored_.effect[e.step_no - 1][index_of(e.direction)];
    if (b.exists != 0)
        throw Refused("the tables refuse a second marker");
    b = {.exists = 1,
         .lease = attempt_of(e.lease),
         .has_output = !e.output.is_null,
         .by_fallback = e.by_fallback,
         .settled_by = static_cast<Byte>(e.settled_by)};
}

void Loaded::send(const core::ChildRequest &request) {
    Stored &c = state_.saga[1];
    switch (request.kind) {
    case core::ChildRequest::Kind::compensate:
        if (c.exists != 0)
            c.notices |= request_notice;
        break;
    case core::ChildRequest::Kind::look:
        state_.saga[0].notices |= static_cast<Byte>(1 << plans_.child_step());
        break;
    case core::ChildRequest::Kind::start:
        c = {};
        c.run = byte_of(request.run);
        std::memset(&state_.truth[1], 0, sizeof(state_.truth[1]));
        start(plans_, state_, 1);
        break;
    }
}

void Loaded::heed_parent() {
    if (which_ == 0)
        return;
    const Stored &parent = state_.saga[0];
    core::Ancestor ancestor{};
    ancestor.status = static_cast<Status>(parent.status);
    ancestor.direction = static_cast<Direction>(parent.direction);
    if (parent.requested != 0)
        ancestor.compensation_requested =
            static_cast<core::CompensationRequest>(parent.requested - 1);
    ancestor.is_suspended = parent.is_suspended != 0;
    ancestor.on_failure = plans_.of(0).definition().on_failure;
    core::note_ancestor(ancestry, ancestor);
    core::heed_ancestors(*this, "the parent compensates");
}

void Loaded::store_changes() {
    for (const core::Effect &e : changes.effects)
        store_effect(e);
    for (const core::Settled &s : changes.settled)
        for (int a = 0; a < attempts_max; ++a)
            if (Byte &f = stored_.failures[s.step_no - 1][index_of(s.direction)][a];
                f != 0 && s.concerns(s.step_no, s.direction, a + 1))
                f |= outcome_known;
    for (const core::NewFailure &f : changes.failures)
        store_failure(f);
    for (const core::NewRelease &r : changes.releases)
        store_release(r.release);
    for (const core::WorkRow &r : work)
        store_work(r);
    for (const core::TakenSignal &t : changes.taken)
        stored_.signals[t.step_no - 1] = 2;
    for (const core::SagaRow &r : changes.rows)
        store_row(r);
    if (changes.moves_deadline)
        stored_.deadline = *deadline_at <= now ? 2 : 1;
}

void Loaded::store() {
    stored_.exists = 1;
    store_changes();
    if (changes.removes_notices)
        stored_.notices &= request_notice;
    const bool notifies = changes.notifies_parent;
    // The lists are lent by the arena, which starting a child uses again.
    std::array<core::ChildRequest, steps_max * 2> requests{};
    std::size_t count = 0;
    for (const core::ChildRequest &r : changes.children)
        requests.at(count++) = r;
    for (std::size_t i = 0; i < count; ++i)
        send(requests.at(i));
    if (notifies)
        state_.saga[0].notices |= static_cast<Byte>(1 << plans_.child_step());
}

void start(const Plans &plans, State &state, int which) {
    Stored &stored = state.saga[which];
    const Byte run = stored.run;
    stored = {};
    stored.run = run;
    stored.status = static_cast<Byte>(Status::pending);
    if (plans.of(which).shape().has_deadline)
        stored.deadline = 1;
    Loaded saga(plans, state, which);
    core::open_first_stage(saga, now);
    saga.store();
}

} // namespace stacksaga::truth
