// How many sagas have each status: counted once by reading the table, and kept by adding what each
// transaction changed when it commits.
//
// A tally belongs to the snapshot that its table was read with. A transaction that this snapshot
// sees was counted by the read; what every other transaction changes is added, whether it commits
// while the table is read or later. There are two tallies: one is shown while the other is being
// made. Commits add to both, under a lock that they share; it is exclusive for the instant in which
// a snapshot is taken, so that no commit is between being visible and being added.
//
// A tally is of one run of the server's shared memory and of one table: after a restart, a crash or
// CREATE EXTENSION there is none until somebody counts.
#pragma once
#include "core/saga/saga_state.hpp"

#include "pg/pg.hpp"

namespace stacksaga {

/// By core::Status.
using SagaCounts = std::array<int64, core::status_names.size()>;

struct SagaTally {
    uint64 next_xid;      ///< of the snapshot: it sees no transaction from this one on,
    uint64 running_count; ///< and none of those that were running
    int64 counted_at;     ///< of the steady clock
    Oid table;
    std::array<pg_atomic_uint64, core::status_names.size()> sagas;
};

/// As it lies in the file.
struct SagaTallies {
    pg_atomic_uint64 server; ///< whose memory this is; the rest is to be believed by no other
    LWLock lock;
    int32 shown; ///< a tally; -1: none is complete
    std::array<SagaTally, 2> tallies;
    // Of each tally the transactions that were running follow.
};

/// Bytes behind the tallies: a snapshot is as large as the server's max_connections asks for.
size_t room_for_running();

/// Adds what the transaction that is being committed or prepared changed. Raises nothing.
void add_to_tallies(const SagaCounts &changes);

/// The counts to show; nullopt until a session has counted. In a transaction.
std::optional<SagaCounts> tallied_sagas();

/// Whether sagas have to be counted: never here, or a day ago, and nobody is at it. In a
/// transaction.
bool is_tally_due();

/// Reads the whole table once. Nobody waits for it, and it waits for nobody: false when another
/// session is counting. In a transaction that has written nothing.
bool count_sagas();

} // namespace stacksaga
