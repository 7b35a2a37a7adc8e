// The retry budget of this process: stacksaga.retry_budget for each queue, each definition and each
// subscription with a handler.
//
// A service's call claims from a queue, a worker runs the SQL steps of a definition and the
// handlers of subscriptions; each counts the first attempts that it begins, and lets through so
// many retries (core/common/retry_budget.hpp). A retry that finds the budget empty is deferred: due
// later, not dropped, and no attempt.
#pragma once
#include "pg/pg.hpp"
#include "src/ring/node.hpp"

namespace stacksaga {

/// The key of a budget. Two that fall on the same place share it.
uint64 budget_of_queue(int32 ring_id, std::string_view queue);
uint64 budget_of_definition(int32 definition_id);
uint64 budget_of_subscription(int32 subscription_id);

void count_first_attempt(uint64 budget);

/// Nothing when a retry may begin now; else how long it is to be deferred, in microseconds. This
/// process does `fraction` of the work.
std::optional<int64> defer_retry(uint64 budget, double fraction);

/// The fraction of the ring that a node holds. Inside with_spi.
double fraction_of(const NodeIdentity &node);

} // namespace stacksaga
