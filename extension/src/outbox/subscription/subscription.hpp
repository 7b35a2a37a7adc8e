// Subscriptions: which messages a handler or a service gets, and how.
#pragma once
#include "core/outbox/snapshot_window.hpp"

#include "src/handler/definer.hpp"
#include "src/handler/function_ref.hpp"
#include "src/outbox/log/log_read.hpp"

namespace stacksaga {

struct Subscription {
    int32 id;
    int32 ring_id;
    std::string_view name;
    std::string_view topic;
    int32 partitions;
    FunctionRef handler;     ///< none: services receive
    FunctionRef fallback;    ///< none: a message that failed for good is dead
    bool takes_batch;        ///< the handler takes stacksaga.message[]
    Definer definer;         ///< the role that handlers run as
    const char *search_path; ///< while they run
    bool stop_on_first_failure;
    RetryRules retry;
    LogFilter filter;
    core::Snapshot start;
    std::string_view successor; ///< it has taken over; empty: none has
    TimestampTz paused_until;   ///< DT_NOBEGIN: it is not paused

    /// Nothing new of it is delivered.
    bool is_paused(TimestampTz now) const { return paused_until > now; }
};
static_assert(std::is_trivially_destructible_v<Subscription>);

/// All inside with_spi; what they return lives in the current memory context.

/// A subscription of the session's ring. SG404 when there is none.
const Subscription &find_subscription(std::string_view name);

/// By its number; nullptr when it was dropped.
const Subscription *find_subscription(int32 subscription_id);

/// The same for callers that work on its messages: no session alters it until the transaction ends.
/// nullptr also, without `wait`, when another session is altering it.
const Subscription *hold_subscription(int32 subscription_id, bool wait);

/// SG409 when it has a handler, which gets its messages.
void require_no_handler(const Subscription &s);

struct Handled {
    std::span<const int32> ids;
    TimestampTz next; ///< when the next pause ends
};

/// The numbers of the subscriptions of a ring that have a handler or a fallback, without those that
/// are paused.
Handled subscriptions_with_handlers(int32 ring_id, TimestampTz now);

} // namespace stacksaga
