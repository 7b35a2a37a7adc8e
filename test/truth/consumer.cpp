// A consumer of the outbox: it gets a message under a lease, acts outside, where the message's id
// is remembered for a while, and acknowledges or fails it. Its process may stop at each line. Where
// the subscription has a fallback, another service handles what failed for good. An operator
// redrives or discards what is dead.
#include "small.hpp"

#include "core/outbox/message_state.hpp"

namespace stacksaga::truth {

namespace {

using Event = core::MessageEvent;
using core::FailureClass;
using Message = core::MessageState;

constexpr int attempts_of_message = 2;

struct Consumed {
    Byte message;
    Byte attempt;
    Byte has_fallback;
    Byte in_doubt; ///< an attempt was lost or is unknown
    Byte is_leased;
    Byte under_way;   ///< the call of this attempt may still arrive
    Byte late;        ///< that of an earlier one
    Byte effects;     ///< by the handler's service
    Byte by_fallback; ///< effects of the fallback
    Byte is_known;    ///< the service knows the message's id
    Byte is_old;      ///< it is dead for longer than the id is remembered
    Byte redriven;
};
static_assert(std::has_unique_object_representations_v<Consumed>);

Message message_of(const Consumed &c) {
    return static_cast<Message>(c.message);
}

bool happens(Consumed &c, Event event) {
    const core::MessageTransition *t = core::find_transition(message_of(c), event);
    if (t == nullptr)
        return false;
    c.message = static_cast<Byte>(t->to);
    return true;
}

void take_effect(Consumed &c) {
    if (c.is_known == 0)
        ++c.effects;
    c.is_known = 1;
}

Consumed failed(Consumed c, FailureClass failure_class) {
    c.is_leased = 0;
    c.in_doubt = c.in_doubt != 0 || failure_class == FailureClass::unknown;
    happens(c, core::event_of_failure(failure_class, c.attempt < attempts_of_message,
                                      c.has_fallback != 0 && c.in_doubt == 0));
    return c;
}

using Take = std::function<void(std::string, const Consumed &)>;

void handle(const Consumed &c, const Take &take) {
    if (c.is_leased == 0) {
        if (Consumed next = c;
            core::is_deliverable(message_of(c)) && happens(next, Event::hand_out)) {
            ++next.attempt;
            next.is_leased = 1;
            next.late |= next.under_way;
            next.under_way = 1;
            take("a consumer gets the message and calls its service", next);
        }
        return;
    }
    if (Consumed next = c; c.under_way == 0 && happens(next, Event::handled)) {
        next.is_leased = 0;
        take("the consumer acknowledges the message", next);
    }
    if (c.under_way != 0) { // the call came back without an effect
        Consumed none = c;
        none.under_way = 0;
        take("the consumer fails it as retryable", failed(none, FailureClass::retryable));
        take("the consumer fails it as non_retryable", failed(none, FailureClass::non_retryable));
    }
    take("the consumer fails it as unknown", failed(c, FailureClass::unknown));
    take("the lease passes", failed(c, FailureClass::unknown));
}

void operate(const Consumed &c, const Take &take) {
    if (message_of(c) != Message::dead)
        return;
    if (c.is_old == 0) {
        Consumed old = c;
        old.is_old = 1;
        old.under_way = old.late = 0; // it has arrived, or is lost
        old.is_known = 0;
        take("the service forgets the message's id", old);
    }
    // Redriving what is older than the ids are remembered has to be asked for explicitly.
    Consumed again = c;
    if (c.redriven == 0 && c.is_old == 0 && happens(again, Event::redrive)) {
        again.redriven = 1;
        again.attempt = 0;
        take("an operator redrives the message", again);
    }
    if (Consumed ended = c; happens(ended, Event::discard))
        take("an operator discards the message", ended);
}

void next_of(const Consumed &c, const Take &take) {
    handle(c, take);
    if (c.under_way != 0) {
        Consumed landed = c;
        landed.under_way = 0;
        take_effect(landed);
        take("the call takes effect", landed);
    }
    if (c.late != 0) {
        Consumed landed = c;
        landed.late = 0;
        take_effect(landed);
        take("the call of an earlier attempt takes effect", landed);
    }
    if (Consumed next = c; message_of(c) == Message::fallback && happens(next, Event::handled)) {
        ++next.by_fallback;
        take("the fallback handles the message", next);
    }
    if (Consumed next = c; message_of(c) == Message::fallback && happens(next, Event::give_up))
        take("the fallback fails", next);
    operate(c, take);
}

const char *judge_consumer(const Consumed &c) {
    if (c.effects > 1)
        return "M a message took effect twice";
    if (c.effects > 0 && c.by_fallback > 0)
        return "M a message and its fallback both took effect";
    if (message_of(c) == Message::done && c.effects + c.by_fallback == 0)
        return "M a message is done, and had no effect";
    return nullptr;
}

} // namespace

Counts explore_consumer(Violations &found) {
    Counts counts;
    for (const Byte has_fallback : {Byte{0}, Byte{1}}) {
        Consumed first{};
        first.message = static_cast<Byte>(Message::ready);
        first.has_fallback = has_fallback;
        counts +=
            explore_small<Consumed>({.name = has_fallback != 0 ? "a consumer with a fallback"
                                                               : "a consumer without a fallback",
                                     .first = first,
                                     .next = next_of,
                                     .judge = judge_consumer},
                                    found);
    }
    return counts;
}

} // namespace stacksaga::truth
