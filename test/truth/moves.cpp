#include "moves.hpp"

namespace stacksaga::truth {

namespace {

/// What a move of the world changes.
/// A service that knows the key does nothing again; of an irreversible step none is relied on to.
void take_effect(StepTruth &t, int service, bool is_pivot) {
    if (t.applied[service] != 0 && (is_pivot || t.forgotten[service] != 0))
        t.twice = 1;
    if (t.applied[service] == 0)
        t.stands[service] = 1;
    t.applied[service] = 1;
}

void undo(StepTruth &t, int service) {
    if (t.compensated[service] != 0 && t.undo_forgotten[service] != 0)
        t.twice = 1;
    t.compensated[service] = 1;
    t.stands[service] = 0;
    t.refuses[service] = 1;
}

/// A new attempt is given out. Of the one before the last nobody answers any more.
void hand_out(StepTruth &t, Direction d, int attempt, int service) {
    Holder &latest = t.latest[index_of(d)];
    Holder &older = t.older[index_of(d)];
    if (older.is_under_way != 0)
        (d == Direction::act ? t.orphans : t.compensating)[older.service] = 1;
    older = latest;
    latest = {.lease = static_cast<Byte>(attempt),
              .service = static_cast<Byte>(service),
              .is_under_way = 1};
    if (d == Direction::act)
        t.asked[service] = 1;
    else
        t.undo_sent = 1;
}

/// Nothing that is under way takes effect any more.
void withdraw_requests(StepTruth &t) {
    t.orphans[0] = t.orphans[1] = 0;
    t.latest[0].is_under_way = t.older[0].is_under_way = 0;
}

void withdraw_compensations(StepTruth &t) {
    t.compensating[0] = t.compensating[1] = 0;
    t.latest[1].is_under_way = t.older[1].is_under_way = 0;
}

bool spend(Byte &spent, int bound) {
    if (spent >= bound)
        return false;
    ++spent;
    return true;
}

bool is_under_way(const StepTruth &t) {
    return t.orphans[0] != 0 || t.orphans[1] != 0 || t.latest[0].is_under_way != 0 ||
           t.older[0].is_under_way != 0;
}

bool stands(const StepTruth &t) {
    return t.stands[0] != 0 || t.stands[1] != 0 || t.by_hand != 0;
}

} // namespace

namespace {

/// No attempt of the step is under its lease.
bool is_left_alone(const Stored &saga, int step, Direction d) {
    return saga.work[step][index_of(d)].claimed == 0;
}

bool is_any_in_doubt(const Stored &saga, int steps) {
    for (int i = 0; i < steps; ++i)
        for (const auto &attempts : saga.failures[i])
            for (const Byte f : attempts)
                if (f != 0 && (f & outcome_known) == 0)
                    return true;
    return false;
}

void forget(Stored &saga, int step, Direction d) {
    for (Byte &f : saga.failures[step][index_of(d)])
        if (f != 0)
            f |= is_forgotten;
}

/// A parked or suspended saga waits for longer than its services remember their keys. What was
/// under way then has arrived or is lost.
bool forget_keys(State &state, const Plans &plans, int which) {
    Stored &saga = state.saga[which];
    if (saga.status != static_cast<Byte>(Status::parked) && saga.is_suspended == 0)
        return false;
    if (!is_any_in_doubt(saga, plans.of(which).steps()))
        return false; // nothing would be repeated
    for (int i = 0; i < plans.of(which).steps(); ++i) {
        StepTruth &t = state.truth[which][i];
        if (is_left_alone(saga, i, Direction::act)) {
            withdraw_requests(t);
            for (int v = 0; v < 2; ++v)
                t.forgotten[v] = t.applied[v];
            forget(saga, i, Direction::act);
        }
        if (is_left_alone(saga, i, Direction::compensate)) {
            withdraw_compensations(t);
            for (int v = 0; v < 2; ++v)
                t.undo_forgotten[v] = t.compensated[v];
            forget(saga, i, Direction::compensate);
        }
    }
    return true;
}

} // namespace

namespace {

/// Nothing of a saga begins that is suspended, parked or to compensate, nor of one below it. A
/// parked saga waits for its child, which goes on; one that is past its pivot cannot compensate.
bool is_held(const State &state, const Plans &plans, Place at, Direction d) {
    const Stored &own = state.saga[at.which];
    const bool acts = d == Direction::act;
    if (own.is_suspended != 0 || own.status == static_cast<Byte>(Status::parked) ||
        (acts && own.requested != 0))
        return true;
    if (at.which == 0)
        return false;
    const Plan &plan = plans.of(1);
    bool is_past_pivot = false;
    for (int i = 0; i < plan.steps(); ++i)
        is_past_pivot |= plan.is_pivot(i) && own.effect[i][index_of(Direction::act)].exists != 0;
    const Stored &parent = state.saga[0];
    const bool will_park =
        plans.of(0).shape().parks &&
        parent.requested == 1 + static_cast<Byte>(core::CompensationRequest::deadline);
    return parent.is_suspended != 0 ||
           (acts && !is_past_pivot &&
            (parent.direction == static_cast<Byte>(Direction::compensate) ||
             (parent.requested != 0 && !will_park)));
}

void require_free(bool is_held) {
    if (is_held)
        throw WrongAnswer("H a step begins although its saga, or one above it, is stopped");
}

} // namespace

struct World::At {
    State &state;
    const Move &move;
    const Plan &plan;
    Place place;
    StepTruth &truth;

    [[nodiscard]] const StepShape &shape() const { return plan.shape_of(place.step); }
    [[nodiscard]] bool acts() const { return move.direction == Direction::act; }
    [[nodiscard]] bool is_pivot() const { return plan.is_pivot(place.step); }
};

bool World::run(const At &at) const {
    if (!events_.is_run_by_worker(at.state, at.place, at.move.direction))
        return false;
    const Ran result = static_cast<Ran>(at.move.detail);
    const Kind kind = at.shape().kind;
    const bool is_function = kind == Kind::sql || kind == Kind::calling;
    if (!is_function && result != Ran::done)
        return false; // nothing is called that could fail
    if (result == Ran::unknown && kind != Kind::calling)
        return false;
    const bool held = is_held(at.state, plans(), at.place, at.move.direction);
    const Events::Run run = events_.run(at.state, at.place, at.move.direction, result);
    if (!run.is_called)
        return true; // where nothing has changed either, it is no move
    require_free(held);
    StepTruth &t = at.truth;
    if (at.acts()) {
        t.asked[run.service] = 1;
        if (result == Ran::done)
            take_effect(t, run.service, at.is_pivot());
        else if (result == Ran::unknown)
            t.orphans[run.service] = 1;
    } else {
        t.undo_sent = 1;
        if (result == Ran::done)
            undo(t, run.service);
        else if (result == Ran::unknown)
            t.compensating[run.service] = 1;
    }
    return true;
}

bool World::claim(const At &at) const {
    const std::optional<int> service = events_.claimable_by(at.state, at.place, at.move.direction);
    if (!service)
        return false;
    const bool held = is_held(at.state, plans(), at.place, at.move.direction);
    if (const int attempt = events_.claim(at.state, at.place, at.move.direction)) {
        require_free(held);
        hand_out(at.truth, at.move.direction, attempt, *service);
    }
    return true;
}

/// A failure, and the same again, which changes nothing.
bool World::report(const At &at, int attempt, FailureClass c) const {
    const Events::Answer answer = events_.fail(at.state, at.place, at.move.direction, attempt, c);
    if (answer.contradicts)
        at.truth.shown = 1;
    if (answer.answered != Answered::accepted)
        return false;
    if (repeats_answers_) {
        State again = at.state;
        const Answered answered =
            events_.fail(again, at.place, at.move.direction, attempt, c).answered;
        if (again != at.state ||
            (answered != Answered::unchanged && answered != Answered::accepted))
            throw WrongAnswer("A the same report under the same lease again is refused");
    }
    return true;
}

/// A release, and the same again, which changes nothing.
bool World::give_back(const At &at, int attempt) const {
    const Events::Answer answer = events_.release(at.state, at.place, at.move.direction, attempt);
    if (answer.contradicts)
        at.truth.shown = 1;
    if (answer.answered != Answered::accepted)
        return false;
    if (repeats_answers_) {
        State again = at.state;
        const Answered answered =
            events_.release(again, at.place, at.move.direction, attempt).answered;
        if (again != at.state || answered != Answered::unchanged)
            throw WrongAnswer("A the same release under the same lease again is refused");
    }
    return true;
}

bool World::answer(const At &at) const {
    const int d = index_of(at.move.direction);
    StepTruth &t = at.truth;
    Holder &holder = at.move.detail == 0 ? t.latest[d] : t.older[d];
    if (holder.lease == 0)
        return false;
    const int attempt = holder.lease;
    if (at.move.what == What::done) {
        const bool has_happened =
            at.acts() ? t.applied[holder.service] != 0 : t.compensated[holder.service] != 0;
        if (holder.is_under_way != 0 || !has_happened)
            return false;
        holder = {};
        const Events::Answer answer =
            events_.complete(at.state, at.place, at.move.direction, attempt);
        if (answer.contradicts)
            t.shown = 1;
        switch (answer.answered) {
        case Answered::undone:
        case Answered::stands:
            if (at.acts())
                t.told = answer.answered == Answered::undone ? told_undone : told_stands;
            break;
        case Answered::accepted:
        case Answered::unchanged:
        case Answered::lost:
            break;
        case Answered::other_output:
            throw WrongAnswer("A what verify found done is refused when its service says so");
        }
        return true;
    }
    if (at.move.what == What::unknown) { // and it may find out later
        const WorkBytes &w = at.state.saga[at.place.which].work[at.place.step][d];
        if (w.claimed == 0 || w.lease != attempt || !spend(at.state.losses, bounds_.losses))
            return false;
        return report(at, attempt, FailureClass::unknown);
    }
    if (holder.is_under_way == 0) // it cannot say that its request had no effect
        return false;
    if (at.move.what == What::release && !spend(at.state.releases, bounds_.releases))
        return false;
    holder = {};
    if (at.move.what == What::release) {
        give_back(at, attempt);
        return true;
    }
    report(at, attempt,
           at.move.what == What::retryable ? FailureClass::retryable : FailureClass::non_retryable);
    return true;
}

bool World::lands(const At &at) const {
    StepTruth &t = at.truth;
    const int d = index_of(at.move.direction);
    int service = at.move.detail - 2;
    Byte *under_way = nullptr;
    if (at.move.detail < 2) {
        Holder &holder = at.move.detail == 0 ? t.latest[d] : t.older[d];
        under_way = &holder.is_under_way;
        service = holder.service;
    } else {
        under_way = &(at.acts() ? t.orphans : t.compensating)[service];
    }
    if (*under_way == 0 || (at.acts() && t.refuses[service] != 0))
        return false;
    *under_way = 0;
    if (at.acts())
        take_effect(t, service, at.is_pivot());
    else
        undo(t, service);
    return true;
}

bool World::verify(const At &at) const {
    std::optional<int> service = events_.verifies(at.state, at.place);
    if (!service)
        return false;
    if (!events_.may_verify(at.state, at.place))
        return true; // an ancestor's word came first
    StepTruth &t = at.truth;
    const auto answer = static_cast<VerifyAnswer>(at.move.detail & 7);
    const bool refuses_key = at.move.detail >= 8;
    bool is_there = t.stands[*service] != 0;
    if (at.shape().kind == Kind::child && *service == 0)
        is_there = at.state.saga[1].status == static_cast<Byte>(Status::completed) &&
                   at.state.saga[1].exists != 0;
    switch (answer) {
    case VerifyAnswer::done:
        if (!is_there)
            return false;
        break;
    case VerifyAnswer::not_done:
        if (is_there || at.shape().verify != Verify::looks)
            return false;
        break;
    case VerifyAnswer::never:
        if (is_there || at.shape().verify != Verify::settles)
            return false;
        withdraw_requests(t);
        if (refuses_key)
            t.refuses[*service] = 1;
        break;
    case VerifyAnswer::unknown:
    case VerifyAnswer::no_answer:
        break;
    }
    events_.verify(at.state, at.place, answer);
    return true;
}

bool World::operate(const At &at) const {
    const auto operation = static_cast<Operation>(at.move.detail);
    // To resume is never out of operators' reach: else a suspension would hide what waits.
    if (operation != Operation::resume && !spend(at.state.operations, bounds_.operations))
        return false;
    return events_.operate(at.state, at.place.which, operation);
}

bool World::resolve(const At &at) const {
    StepTruth &t = at.truth;
    const auto resolution = static_cast<Resolution>(at.move.detail);
    if (!spend(at.state.operations, bounds_.operations))
        return false;
    if (at.move.what == What::by_hand) {
        // Nobody does by hand what may be happening already, nor what is to be undone at a service.
        const bool may_happen = is_under_way(t) || !at.is_pivot();
        if (stands(t) || at.shape().kind == Kind::child ||
            (may_happen && events_.is_in_doubt(at.state, at.place)))
            return false;
        t.by_hand = 1;
        return events_.resolve(at.state, at.place, Resolution::done, Direction::act);
    }
    if (!at.acts()) { // what is to be undone is undone by hand, or found not to be there
        const Stored &child = at.state.saga[1];
        if (at.shape().kind == Kind::child && child.exists != 0 &&
            child.direction == static_cast<Byte>(Direction::act))
            return false; // nobody undoes by hand what the child can undo
        if (resolution == Resolution::not_done && (t.compensated[0] != 0 || t.compensated[1] != 0))
            return false; // who looks sees it
        if (resolution == Resolution::done)
            t.stands[0] = t.stands[1] = t.by_hand = 0;
        return events_.resolve(at.state, at.place, resolution, Direction::compensate);
    }
    // Of a child operators may say anything: the database knows better.
    const bool is_of_child = at.shape().kind == Kind::child && t.asked[1] == 0;
    if (!is_of_child && stands(t) != (resolution == Resolution::done))
        return false;
    if (resolution == Resolution::never)
        withdraw_requests(t);
    if (!events_.resolve(at.state, at.place, resolution, Direction::act))
        return false;
    if (is_of_child && resolution == Resolution::done) // he did what the child has not
        t.by_hand = 1;
    return true;
}

bool World::apply(State &state, const Move &move) const {
    const Place place{.which = move.which, .step = move.step};
    const At at{.state = state,
                .move = move,
                .plan = plans().of(move.which),
                .place = place,
                .truth = state.truth[move.which][move.step]};
    Stored &saga = state.saga[move.which];
    switch (move.what) {
    case What::run:
        return run(at);
    case What::claim:
        return claim(at);
    case What::done:
    case What::retryable:
    case What::non_retryable:
    case What::unknown:
    case What::release:
        return answer(at);
    case What::expire:
        return spend(state.losses, bounds_.losses) && events_.expire(state, place, move.direction);
    case What::lands:
        return lands(at);
    case What::verify:
        return verify(at);
    case What::deadline_passes:
        if (saga.deadline != 1 || core::is_final(static_cast<Status>(saga.status)))
            return false;
        // The time that it is parked in direction act does not count.
        if (saga.status == static_cast<Byte>(Status::parked) &&
            saga.direction == static_cast<Byte>(Direction::act))
            return false;
        saga.deadline = 2;
        return true;
    case What::deadline_due:
        return events_.deadline(state, move.which);
    case What::keys_forgotten:
        return forget_keys(state, plans(), move.which);
    case What::child_notice:
        return events_.notice_of_child(state);
    case What::parent_notice:
        return events_.notice_of_parent(state);
    case What::signal:
        // The sender acts and signals in one transaction, so what is refused did not happen.
        if (!events_.signal(state, place))
            return false;
        at.truth.asked[0] = 1;
        take_effect(at.truth, 0, at.is_pivot());
        return true;
    case What::operate:
        return operate(at);
    case What::resolve:
    case What::by_hand:
        return resolve(at);
    }
    return false;
}

std::optional<State> World::after(const State &state, const Move &move) const {
    State next = state;
    if (!apply(next, move) || next == state)
        return std::nullopt;
    return next;
}

Moves World::candidates(const State &state) const {
    Moves moves;
    for (Byte which = 0; which < 2; ++which) {
        const Stored &saga = state.saga[which];
        if (saga.exists == 0)
            continue;
        const auto add = [&](What what, Byte step = 0, Direction d = Direction::act,
                             Byte detail = 0) {
            moves.add({what, which, step, d, detail});
        };
        const Plan &plan = plans().of(which);
        for (Byte i = 0; i < plan.steps(); ++i) {
            const StepTruth &t = state.truth[which][i];
            for (const Direction d : {Direction::act, Direction::compensate}) {
                const WorkBytes &w = saga.work[i][index_of(d)];
                if (w.exists != 0) {
                    if (w.claimed != 0)
                        add(What::expire, i, d);
                    else if (w.verifying == 0 && w.due == due_now) {
                        add(What::claim, i, d);
                        for (Byte ran = 0; ran < 4; ++ran)
                            add(What::run, i, d, ran);
                    }
                }
                for (Byte who = 0; who < 2; ++who) {
                    const Holder &holder = who == 0 ? t.latest[index_of(d)] : t.older[index_of(d)];
                    if (holder.lease != 0)
                        for (const What what : {What::done, What::retryable, What::non_retryable,
                                                What::unknown, What::release})
                            add(what, i, d, who);
                    if (holder.is_under_way != 0)
                        add(What::lands, i, d, who);
                }
                const Byte *left = d == Direction::act ? t.orphans : t.compensating;
                for (Byte v = 0; v < 2; ++v)
                    if (left[v] != 0)
                        add(What::lands, i, d, static_cast<Byte>(2 + v));
                if (!core::is_final(static_cast<Status>(saga.status)))
                    for (Byte r = 0; r < 3; ++r)
                        add(What::resolve, i, d, r);
            }
            if (saga.work[i][0].verifying != 0)
                for (const int answer : {0, 1, 2, 2 + 8, 3, 4})
                    add(What::verify, i, Direction::act, static_cast<Byte>(answer));
            if (!core::is_final(static_cast<Status>(saga.status)))
                add(What::by_hand, i);
            if (plan.shape_of(i).kind == Kind::signal)
                add(What::signal, i);
        }
        if (saga.deadline == 1)
            add(What::deadline_passes);
        if (saga.deadline_work != 0)
            add(What::deadline_due);
        if (saga.status == static_cast<Byte>(Status::parked) || saga.is_suspended != 0)
            add(What::keys_forgotten);
        if (saga.notices != 0)
            add(which == 0 ? What::child_notice : What::parent_notice);
        if (!core::is_final(static_cast<Status>(saga.status)))
            for (Byte operation = 0; operation < operations_count; ++operation)
                add(What::operate, 0, Direction::act, operation);
    }
    return moves;
}

bool is_by_worker(const Move &move) {
    switch (move.what) {
    case What::run:
    case What::claim:
    case What::expire:
    case What::verify:
    case What::deadline_due:
    case What::child_notice:
    case What::parent_notice:
        return true;
    default:
        return false;
    }
}

bool is_answer(const Move &move, const State &before) {
    switch (move.what) {
    case What::run: // which may see a deadline instead
        return move.direction == Direction::act && before.saga[move.which].deadline != 2;
    case What::done:
    case What::retryable:
    case What::non_retryable:
    case What::unknown:
    case What::release:
    case What::expire:
    case What::verify:
        return move.direction == Direction::act;
    default:
        return false;
    }
}

namespace {

std::string service_name(int service) {
    return service == 0 ? " at A" : " at F";
}

std::string text_of_answer(const Move &move, const State &before, const char *answer) {
    const StepTruth &t = before.truth[move.which][move.step];
    const int d = index_of(move.direction);
    const Holder &holder = move.detail == 0 ? t.latest[d] : t.older[d];
    return std::string(move.detail == 0 ? "" : "the attempt before ") + "answers " + answer +
           service_name(holder.service);
}

} // namespace

std::string text_of(const Move &move, const State &before, const Plans &plans) {
    static constexpr std::array ran{"is done", "raises retryable", "raises non_retryable",
                                    "raises SR504"};
    static constexpr std::array verified{"done", "not_done", "never", "unknown", "an error"};
    static constexpr std::array operations{"cancel_saga", "suspend_saga", "resume_saga",
                                           "retry_saga", "compensate_saga"};
    static constexpr std::array resolutions{"done", "not_done", "never"};
    const std::string name = "s" + std::to_string(move.step + 1);
    std::string what;
    bool is_of_step = true;
    switch (move.what) {
    case What::run:
        what = plans.of(move.which).step(move.step).kind == core::StepKind::sql
                   ? ran.at(move.detail)
                   : "its turn";
        break;
    case What::claim:
        what = "claim";
        break;
    case What::done:
        what = text_of_answer(move, before, "done");
        break;
    case What::retryable:
        what = text_of_answer(move, before, "retryable");
        break;
    case What::non_retryable:
        what = text_of_answer(move, before, "non_retryable");
        break;
    case What::unknown:
        what = text_of_answer(move, before, "unknown");
        break;
    case What::release:
        what = text_of_answer(move, before, "released");
        break;
    case What::expire:
        what = "the lease or timeout passes";
        break;
    case What::lands: {
        const StepTruth &t = before.truth[move.which][move.step];
        const int d = index_of(move.direction);
        const int service = move.detail == 0   ? t.latest[d].service
                            : move.detail == 1 ? t.older[d].service
                                               : move.detail - 2;
        what = std::string(move.detail == 0 ? "the request" : "an earlier request") +
               " takes effect" + service_name(service);
        break;
    }
    case What::verify:
        what = std::string("verify says ") + verified.at(move.detail & 7) +
               (move.detail >= 8 ? ", and the service refuses the key from now on" : "");
        break;
    case What::deadline_passes:
        is_of_step = false;
        what = "the deadline passes";
        break;
    case What::deadline_due:
        is_of_step = false;
        what = "a worker sees the deadline";
        break;
    case What::keys_forgotten:
        is_of_step = false;
        what = "the services forget the keys";
        break;
    case What::child_notice:
        is_of_step = false;
        what = "the parent reads its child's end";
        break;
    case What::parent_notice:
        is_of_step = false;
        what = "reads its parent's request";
        break;
    case What::signal:
        what = "is signalled";
        break;
    case What::operate:
        is_of_step = false;
        what = operations.at(move.detail);
        break;
    case What::resolve:
        what = std::string("resolve_step ") + resolutions.at(move.detail);
        break;
    case What::by_hand:
        what = "an operator does it by hand; resolve_step done";
        break;
    }
    std::string text = move.which == 1 ? "child: " : "";
    if (is_of_step)
        text += (move.direction == Direction::act ? "" : "~") + name + ": ";
    return text + what;
}

} // namespace stacksaga::truth
