// Transactions of a process that nobody sends statements: a background worker.
#pragma once
#include "pg/citus/citus.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga::pg {

/// Makes the current transaction one that BEGIN has begun. Outside of such a block Citus takes a
/// write for a statement of its own, and commits it on the other node at once.
inline void open_block() {
    BeginTransactionBlock();
    CommitTransactionCommand();
    StartTransactionCommand();
}

/// Runs `body` in a READ COMMITTED transaction of its own, with an active snapshot. The caller's
/// memory context is current again afterwards: a transaction leaves TopMemoryContext, where what is
/// allocated stays for the process's life. After an error the transaction is the caller's to abort.
template <class F> void in_transaction(F &&body) {
    static_assert(std::is_trivially_destructible_v<std::remove_reference_t<F>>);
    watch_transactions();
    MemoryContext caller = CurrentMemoryContext;
    SetCurrentStatementStartTimestamp();
    StartTransactionCommand();
    const bool has_block = is_citus_loaded();
    if (has_block)
        open_block();
    // Whatever the defaults of the database are: each statement is to see what others committed.
    XactIsoLevel = XACT_READ_COMMITTED;
    XactReadOnly = false;
    PushActiveSnapshot(GetTransactionSnapshot());
    body();
    PopActiveSnapshot();
    if (has_block)
        EndTransactionBlock(false);
    CommitTransactionCommand();
    MemoryContextSwitchTo(caller);
}

/// Lets the current transaction commit without waiting for a standby: what a worker writes for
/// itself must not hang when a standby is away. What it writes for users waits as they set it.
inline void commit_locally() {
    if (synchronous_commit > SYNCHRONOUS_COMMIT_LOCAL_FLUSH)
        set_config_option("synchronous_commit", "local", PGC_USERSET, PGC_S_SESSION,
                          GUC_ACTION_LOCAL, true, 0, false);
}

} // namespace stacksaga::pg
