// On Citus: a transaction that has written on this node and on another one commits in two phases.
//
// Citus knows of writes that it has planned. Where a transaction has written one other node, and
// tables of this node that Citus does not manage, it commits the other node first and this one
// after: a crash or a serialization failure in between leaves the one without the other. Those
// tables are stacksaga's, which hold the markers. An update by Citus of a table here, of no row,
// makes it prepare the other node instead.
#pragma once
#include "pg/transaction_events.hpp"

namespace stacksaga::pg {

extern const TransactionUser two_phase_events;

/// To be called once, when the module is loaded, after Citus was: every transaction is watched
/// then, also of sessions that call no function of the extension.
void commit_in_two_phases();

/// Whether citus_enable() has distributed the tables of the dedupe ladder.
bool is_on_citus();

} // namespace stacksaga::pg
