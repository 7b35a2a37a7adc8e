// The state machine of a message in one subscription, as data: the statements of src/outbox write
// the states that this table names, and sql/fsm.sql dumps it into expected/.
//
// A message that is in the log or done has no row of its own. message_retry holds the states from
// `delayed` to `held_fallback`, dead_message those that an operator answers for.
#pragma once

#include "core/saga/saga_state.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stacksaga::core {

enum class MessageState : std::uint8_t {
    in_log,        ///< the subscription's position has not passed it
    delayed,       ///< not to be delivered before its deliver_at
    held,          ///< behind an earlier message of its key
    ready,         ///< deliverable at once
    leased,        ///< a consumer got it, and may answer while it holds the lease
    waiting,       ///< it failed, and pauses before its next attempt
    fallback,      ///< it failed for good, and the fallback is to run
    held_fallback, ///< the same, behind an earlier message of its key
    dead,          ///< it failed for good, until an operator redrives or discards it
    done,
    discarded,
};
inline constexpr std::array<std::string_view, 11> message_state_names{
    "in_log",   "delayed",       "held", "ready", "leased",   "waiting",
    "fallback", "held_fallback", "dead", "done",  "discarded"};

/// Events of a message: reading the log, a consumer, an operator or an alteration causes them.
enum class MessageEvent : std::uint8_t {
    delay,        ///< its deliver_at is to come
    hold,         ///< an earlier message of its key blocks it
    release,      ///< none does any more
    expire,       ///< the retention passed before the subscription read it
    hand_out,     ///< a consumer gets it under a lease
    handled,      ///< its handler returned, or its consumer acknowledged it
    fail,         ///< an attempt failed, and another one is allowed
    fall_back,    ///< it failed for good, and the subscription has a fallback
    give_up,      ///< it failed for good, and there is no fallback, or the fallback failed
    process_dies, ///< the process of its handler crashed with a batch that it was in
    lose,         ///< its consumer got it alone, and did not answer before its lease ran out
    give_back,    ///< its consumer has not handled it, and says so
    redrive,      ///< an operator wants it delivered again
    redrive_at,   ///< the same, at its instant of a spread
    discard,      ///< an operator ends it
};
inline constexpr std::array<std::string_view, 15> message_event_names{
    "delay",   "hold",      "release",   "expire",     "hand_out",
    "handled", "fail",      "fall_back", "give_up",    "process_dies",
    "lose",    "give_back", "redrive",   "redrive_at", "discard"};

constexpr std::string_view name_of(MessageState s) {
    return message_state_names[static_cast<std::size_t>(s)];
}
constexpr std::string_view name_of(MessageEvent e) {
    return message_event_names[static_cast<std::size_t>(e)];
}
constexpr std::optional<MessageState> message_state_of(std::string_view name) {
    return enum_of<MessageState>(message_state_names, name);
}

/// A consumer or a handler may get it; whether it is due is a matter of time.
constexpr bool is_deliverable(MessageState s) {
    return s == MessageState::in_log || s == MessageState::delayed || s == MessageState::ready ||
           s == MessageState::leased || s == MessageState::waiting;
}
/// It waits for an earlier message of its key.
constexpr bool is_held(MessageState s) {
    return s == MessageState::held || s == MessageState::held_fallback;
}
/// It waits for nothing but its time, and blocks the later messages of its key.
constexpr bool is_active(MessageState s) {
    return s == MessageState::ready || s == MessageState::leased || s == MessageState::waiting ||
           s == MessageState::fallback;
}
/// message_retry has its row.
constexpr bool is_retry(MessageState s) {
    return s == MessageState::delayed || is_held(s) || is_active(s);
}
/// It is held as soon as an earlier message of its key fails; in a pause it is held when that is
/// over.
constexpr bool is_held_at_once(MessageState s) {
    return is_active(s) && s != MessageState::waiting;
}

struct MessageTransition {
    MessageState from;
    MessageEvent event;
    MessageState to;
    std::string_view sentence;
};

/// One row for each pair of state and event that is possible.
inline constexpr auto message_transitions = [] {
    using S = MessageState;
    using E = MessageEvent;
    using T = MessageTransition;
    return std::array{
        T{S::in_log, E::delay, S::delayed, "the subscription reads it before its deliver_at"},
        T{S::in_log, E::hold, S::held, "an earlier message of its key blocks it"},
        T{S::in_log, E::expire, S::ready, "it is copied out, so that the log may be truncated"},
        T{S::in_log, E::hand_out, S::in_log, "the position of its partition keeps the lease"},
        T{S::in_log, E::handled, S::done, "the position of its partition moves past it"},
        T{S::in_log, E::fail, S::waiting, "it is copied out and pauses before its next attempt"},
        T{S::in_log, E::fall_back, S::fallback, "it failed for good, and its fallback is to run"},
        T{S::in_log, E::give_up, S::dead, "it failed for good, and there is no fallback"},
        T{S::in_log, E::process_dies, S::ready, "it is copied out, to be delivered on its own"},
        T{S::in_log, E::lose, S::ready, "it is copied out, and has used up an attempt"},
        T{S::in_log, E::give_back, S::in_log, "the position of its partition drops the lease"},
        T{S::delayed, E::hold, S::held, "it is due, but an earlier message of its key blocks it"},
        T{S::delayed, E::hand_out, S::leased, "it is due"},
        T{S::delayed, E::handled, S::done, "a handler got it when it was due"},
        T{S::delayed, E::fail, S::waiting, "it pauses before its next attempt"},
        T{S::delayed, E::fall_back, S::fallback, "it failed for good, and its fallback is to run"},
        T{S::delayed, E::give_up, S::dead, "it failed for good, and there is no fallback"},
        T{S::delayed, E::process_dies, S::ready, "it is delivered on its own from now on"},
        T{S::held, E::release, S::ready, "no earlier message of its key blocks it any more"},
        T{S::held, E::fail, S::waiting, "the consumer of its batch failed it, too"},
        T{S::held, E::fall_back, S::fallback, "the consumer of its batch failed it for good, too"},
        T{S::held, E::give_up, S::dead, "the consumer of its batch failed it for good, too"},
        T{S::ready, E::hold, S::held, "an earlier message of its key blocks it"},
        T{S::ready, E::hand_out, S::leased, "a consumer gets it"},
        T{S::ready, E::handled, S::done, "a handler got it"},
        T{S::ready, E::fail, S::waiting, "it pauses before its next attempt"},
        T{S::ready, E::fall_back, S::fallback, "it failed for good, and its fallback is to run"},
        T{S::ready, E::give_up, S::dead, "it failed for good, and there is no fallback"},
        T{S::ready, E::process_dies, S::ready, "it is delivered on its own from now on"},
        T{S::leased, E::hold, S::held, "an earlier message of its key failed or was given up"},
        T{S::leased, E::hand_out, S::leased, "its lease ran out, and another consumer gets it"},
        T{S::leased, E::handled, S::done, "its consumer acknowledged it"},
        T{S::leased, E::fail, S::waiting, "its consumer failed it"},
        T{S::leased, E::fall_back, S::fallback,
          "its consumer failed it for good, or its leases have run out too often"},
        T{S::leased, E::give_up, S::dead,
          "its consumer failed it for good, or its leases have run out too often"},
        T{S::leased, E::process_dies, S::ready, "it is delivered on its own from now on"},
        T{S::leased, E::lose, S::ready, "it has used up an attempt"},
        T{S::leased, E::give_back, S::ready, "its consumer gave it back, and the attempt with it"},
        T{S::waiting, E::hold, S::held,
          "its pause is over, but an earlier message of its key blocks it"},
        T{S::waiting, E::hand_out, S::leased, "its pause is over, and a consumer gets it"},
        T{S::waiting, E::handled, S::done, "its pause was over, and a handler got it"},
        T{S::waiting, E::fail, S::waiting, "it failed once more"},
        T{S::waiting, E::fall_back, S::fallback, "its attempts are used up"},
        T{S::waiting, E::give_up, S::dead, "its attempts are used up, and there is no fallback"},
        T{S::fallback, E::hold, S::held_fallback, "an earlier message of its key blocks it"},
        T{S::fallback, E::handled, S::done, "its fallback handled it"},
        T{S::fallback, E::give_up, S::dead, "its fallback failed as well"},
        T{S::held_fallback, E::release, S::fallback,
          "no earlier message of its key blocks it any more"},
        T{S::dead, E::redrive, S::ready, "an operator has it delivered again, with all attempts"},
        T{S::dead, E::redrive_at, S::waiting,
          "an operator has it delivered again in its part of the spread"},
        T{S::dead, E::discard, S::discarded, "an operator ends it, and its key continues"},
    };
}();

/// The row for a possible pair; nullptr for others.
constexpr const MessageTransition *find_transition(MessageState from, MessageEvent event) {
    for (const MessageTransition &t : message_transitions)
        if (t.from == from && t.event == event)
            return &t;
    return nullptr;
}

/// The event that a failure causes.
constexpr MessageEvent event_of_failure(FailureClass failure_class, bool attempts_left,
                                        bool has_fallback) {
    if (failure_class != FailureClass::non_retryable && attempts_left)
        return MessageEvent::fail;
    return has_fallback ? MessageEvent::fall_back : MessageEvent::give_up;
}

/// Whether a handler that takes batches gets the message on its own: it failed, or its handler's
/// process crashed `crashes` times.
constexpr bool is_delivered_alone(bool has_failed, std::int32_t crashes) {
    return has_failed || crashes > 0;
}

/// Whether an event is possible for a message in a state, listed by event and not by row.
constexpr bool is_possible(MessageState state, MessageEvent event) {
    switch (event) {
    case MessageEvent::delay:
    case MessageEvent::expire:
        return state == MessageState::in_log;
    case MessageEvent::hold:
    case MessageEvent::handled:
        return is_deliverable(state) || state == MessageState::fallback;
    case MessageEvent::release:
        return is_held(state);
    case MessageEvent::hand_out:
        return is_deliverable(state);
    case MessageEvent::fail:
    case MessageEvent::fall_back:
        return is_deliverable(state) || state == MessageState::held;
    case MessageEvent::give_up:
        return is_deliverable(state) || state == MessageState::held ||
               state == MessageState::fallback;
    case MessageEvent::process_dies: // a message that failed before is in no batch
        return is_deliverable(state) && state != MessageState::waiting;
    case MessageEvent::lose:
    case MessageEvent::give_back:
        return state == MessageState::in_log || state == MessageState::leased;
    case MessageEvent::redrive:
    case MessageEvent::redrive_at:
    case MessageEvent::discard:
        return state == MessageState::dead;
    }
    return false;
}

constexpr bool message_transitions_are_total() {
    for (std::size_t s = 0; s < message_state_names.size(); ++s)
        for (std::size_t e = 0; e < message_event_names.size(); ++e) {
            std::size_t rows = 0;
            for (const MessageTransition &t : message_transitions)
                if (static_cast<std::size_t>(t.from) == s && static_cast<std::size_t>(t.event) == e)
                    ++rows;
            const bool can =
                is_possible(static_cast<MessageState>(s), static_cast<MessageEvent>(e));
            if (rows != (can ? 1U : 0U))
                return false;
        }
    return true;
}
static_assert(message_transitions_are_total());

/// Only `hold` makes a message wait for its key, and `release` makes it active again.
constexpr bool keys_are_held_by_events() {
    for (const MessageTransition &t : message_transitions) {
        if (is_held(t.to) != (t.event == MessageEvent::hold))
            return false;
        if (t.event == MessageEvent::release && !is_active(t.to))
            return false;
    }
    return true;
}
static_assert(keys_are_held_by_events());

} // namespace stacksaga::core
