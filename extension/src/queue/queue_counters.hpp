// Steps completed and attempts failed of each queue: two counters a queue, for the view queues.
//
// They stand in the file of counters.hpp and follow its rules: a transaction's counts are added
// when it commits. Queues have no numbers, so each takes one of the places for queues with the
// first answer that is counted, under a hash of its ring and its name, and keeps it. When all
// places are taken, further queues are not counted.
#pragma once
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser queue_counter_events;

/// Counts the end of an attempt that a service had claimed from this queue, once the transaction
/// commits. Raises only when memory runs out.
void count_answer(int32 ring_id, std::string_view queue, bool is_completed);

} // namespace stacksaga
