// Trying something that may fail for a reason that is known, without failing.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// Runs `body` in a subtransaction. False when it failed with an error that `expected` accepts,
/// which it is shown as an ErrorData while the subtransaction is still there: then nothing that
/// `body` did has happened, and its locks are released. Other errors pass.
template <class F, class E> bool attempt_expecting(E &&expected, F &&body) {
    static_assert(std::is_trivially_destructible_v<std::remove_reference_t<F>>);
    MemoryContext memory = CurrentMemoryContext;
    ResourceOwner owner = CurrentResourceOwner;
    volatile bool done = false;
    BeginInternalSubTransaction(nullptr);
    MemoryContextSwitchTo(memory);
    PG_TRY();
    {
        body();
        ReleaseCurrentSubTransaction();
        done = true;
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(memory);
        ErrorData *error = CopyErrorData();
        const volatile bool is_expected = expected(static_cast<const ErrorData &>(*error));
        FlushErrorState();
        RollbackAndReleaseCurrentSubTransaction();
        if (!is_expected) { // a caller who catches it knows of no subtransaction
            MemoryContextSwitchTo(memory);
            CurrentResourceOwner = owner;
            ReThrowError(error);
        }
        FreeErrorData(error);
    }
    PG_END_TRY();
    MemoryContextSwitchTo(memory);
    CurrentResourceOwner = owner;
    return done;
}

/// Runs `body` in a subtransaction in which no lock is waited for longer than `lock_timeout_ms`.
/// False when a lock could not be had in that time, or only by a deadlock.
template <class F> bool attempt(int lock_timeout_ms, F &&body) {
    char timeout[16];
    snprintf(timeout, sizeof timeout, "%d", lock_timeout_ms);
    auto is_lock_failure = [](const ErrorData &error) {
        return error.sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ||
               error.sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED;
    };
    return attempt_expecting(is_lock_failure, [&] {
        int nest_level = NewGUCNestLevel();
        set_config_option("lock_timeout", timeout, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
                          true, 0, false);
        body();
        AtEOXact_GUC(true, nest_level);
    });
}

/// For REPEATABLE READ and above: runs a write in a subtransaction. False when it met a row that
/// was committed since the write took its snapshot (40001).
template <class F> bool attempt_write(F &&body) {
    return attempt_expecting(
        [](const ErrorData &error) {
            return error.sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE;
        },
        static_cast<F &&>(body));
}

/// Runs `body`, which only reads, and leaves neither a snapshot nor a lock of it behind, in the
/// middle of a transaction that goes on: in a subtransaction that is rolled back.
template <class F> void peek(F &&body) {
    static_assert(std::is_trivially_destructible_v<std::remove_reference_t<F>>);
    MemoryContext memory = CurrentMemoryContext;
    ResourceOwner owner = CurrentResourceOwner;
    BeginInternalSubTransaction(nullptr);
    // A statement that finds no snapshot takes one that lasts as long as the procedure.
    PushActiveSnapshot(GetTransactionSnapshot());
    body();
    RollbackAndReleaseCurrentSubTransaction();
    MemoryContextSwitchTo(memory);
    CurrentResourceOwner = owner;
    InvalidateCatalogSnapshotConditionally();
}

} // namespace stacksaga::pg
