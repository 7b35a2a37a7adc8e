// Sessions that wait for messages of a subscription, and commits that wake them.
//
// A commit that published asks no table who waits. Each waiter says in shared memory until when it
// waits for its topic, or for some wildcard; topics are told apart by a hash of ten bits. So a
// commit reads a number for each topic, and one for all wildcards, and most often that is all.
// Where somebody waits, it wakes the first one in the line of each subscription that waits for such
// a topic: their locks are in one partition of the lock table, so that it finds them in one look.
#pragma once
#include "pg/transaction_events.hpp"
#include "src/common/promised_claims.hpp"
#include "src/common/waiting_line.hpp"
#include "src/outbox/subscription/subscription.hpp"

namespace stacksaga {

extern const pg::TransactionUser message_waiter_events;

/// A message of this topic was appended: the commit wakes one waiter of each subscription that may
/// want it.
void wake_receivers_of_topic(int32 ring_id, std::string_view topic);

/// The commit of this transaction wakes the first waiter of the subscription: it may receive more
/// than before, or sooner.
void wake_receivers_at_commit(const Subscription &s);

/// The sessions that wait for its messages.
WaitingLine line_of(const Subscription &s);
ClaimPlace claims_of(const Subscription &s);

/// This session waits for messages of the subscription until then, an instant of the steady clock.
/// To be called before it takes its place in line.
void announce_waiting(const Subscription &s, int64 until);

/// Whether sessions have said that they wait for messages like those of the subscription.
bool is_waited_for(const Subscription &s);

} // namespace stacksaga
