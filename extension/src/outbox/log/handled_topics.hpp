// Topics for which publishing wakes a worker: those of subscriptions with a handler or a fallback.
//
// A message that only services receive wakes no worker: receive_messages() makes the tick that it
// needs, and a polling worker makes one each poll_interval.
#pragma once
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser handled_topic_events;

/// A message of this topic was appended: wakes workers at the commit if a subscription has a
/// handler or a fallback for it. A subscription that another session commits before this
/// transaction counts.
void wake_workers_for_topic(std::string_view topic);

/// A subscription was created, altered or dropped: after the commit all sessions read the topics
/// again.
void announce_handled_topics();

} // namespace stacksaga
