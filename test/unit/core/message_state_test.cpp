// Goal: the table of a message's states means what the promises need. Method: walks over the whole
// table, not samples.
#include "core/outbox/message_state.hpp"

#include <gtest/gtest.h>

#include <set>

namespace {

using namespace stacksaga::core;

bool is_of_operator(MessageEvent e) {
    return e == MessageEvent::redrive || e == MessageEvent::redrive_at ||
           e == MessageEvent::discard;
}

std::set<MessageState> reached_from(MessageState start, bool by_operators) {
    std::set<MessageState> reached{start};
    for (size_t before = 0; before != reached.size();) {
        before = reached.size();
        for (const MessageTransition &t : message_transitions)
            if (reached.contains(t.from) && (by_operators || !is_of_operator(t.event)))
                reached.insert(t.to);
    }
    return reached;
}

TEST(MessageState, NamesRoundTrip) {
    for (size_t i = 0; i < message_state_names.size(); ++i)
        EXPECT_EQ(message_state_of(name_of(static_cast<MessageState>(i))),
                  static_cast<MessageState>(i));
    EXPECT_EQ(message_state_of("failed"), std::nullopt);
}

TEST(MessageState, EveryStateIsReached) {
    EXPECT_EQ(reached_from(MessageState::in_log, true).size(), message_state_names.size());
}

// No committed message is skipped: from each state a message gets to an end.
TEST(MessageState, EveryMessageCanEnd) {
    for (const MessageTransition &t : message_transitions) {
        const std::set<MessageState> reached = reached_from(t.from, false);
        EXPECT_TRUE(reached.contains(MessageState::done) || t.from == MessageState::dead)
            << name_of(t.from);
        EXPECT_TRUE(reached.contains(MessageState::dead)) << name_of(t.from);
    }
}

TEST(MessageState, NothingLeavesTheEndAndOnlyOperatorsRevive) {
    for (const MessageTransition &t : message_transitions) {
        EXPECT_NE(t.from, MessageState::done) << t.sentence;
        EXPECT_NE(t.from, MessageState::discarded) << t.sentence;
        if (t.from == MessageState::dead) {
            EXPECT_TRUE(is_of_operator(t.event));
        }
        EXPECT_FALSE(t.sentence.empty());
    }
}

// A message that failed for good is not handed to its handler again, unless an operator wants it.
TEST(MessageState, FallbackIsNotTheHandlersAgain) {
    for (MessageState start : {MessageState::fallback, MessageState::held_fallback})
        for (MessageState s : reached_from(start, false))
            EXPECT_FALSE(is_deliverable(s)) << name_of(s);
}

TEST(MessageState, ARetryIsDeliverableHeldOrAFallback) {
    for (size_t i = 0; i < message_state_names.size(); ++i) {
        const auto s = static_cast<MessageState>(i);
        EXPECT_FALSE(is_held(s) && (is_active(s) || is_deliverable(s))) << name_of(s);
        EXPECT_EQ(is_retry(s), s == MessageState::fallback || is_held(s) ||
                                   (is_deliverable(s) && s != MessageState::in_log))
            << name_of(s);
    }
}

// A pause lasts, whatever becomes of the messages before it; all else behind a failure is held at
// once.
TEST(MessageState, AFailureDoesNotHoldWhatIsInItsPause) {
    for (size_t i = 0; i < message_state_names.size(); ++i) {
        const auto s = static_cast<MessageState>(i);
        EXPECT_EQ(is_held_at_once(s), is_active(s) && s != MessageState::waiting) << name_of(s);
    }
}

TEST(MessageState, AFailureIsRetriedWhileAttemptsAreLeft) {
    for (FailureClass c : {FailureClass::retryable, FailureClass::unknown}) {
        EXPECT_EQ(event_of_failure(c, true, true), MessageEvent::fail);
        EXPECT_EQ(event_of_failure(c, false, true), MessageEvent::fall_back);
        EXPECT_EQ(event_of_failure(c, false, false), MessageEvent::give_up);
    }
    EXPECT_EQ(event_of_failure(FailureClass::non_retryable, true, true), MessageEvent::fall_back);
    EXPECT_EQ(event_of_failure(FailureClass::non_retryable, true, false), MessageEvent::give_up);
}

} // namespace
