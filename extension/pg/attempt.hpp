// Trying something that may have to wait for a lock, without failing and without waiting long.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// Runs `body` in a subtransaction in which no lock is waited for longer than `lock_timeout_ms`.
/// False when a lock could not be had in that time, or only by a deadlock: then nothing that
/// `body` did has happened, and its locks are released. Other errors pass.
template <class F> bool attempt(int lock_timeout_ms, F &&body) {
    static_assert(std::is_trivially_destructible_v<std::remove_reference_t<F>>);
    MemoryContext memory = CurrentMemoryContext;
    ResourceOwner owner = CurrentResourceOwner;
    volatile bool done = false;
    char timeout[16];
    snprintf(timeout, sizeof timeout, "%d", lock_timeout_ms);
    BeginInternalSubTransaction(nullptr);
    MemoryContextSwitchTo(memory);
    PG_TRY();
    {
        int nest_level = NewGUCNestLevel();
        set_config_option("lock_timeout", timeout, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
                          true, 0, false);
        body();
        AtEOXact_GUC(true, nest_level);
        ReleaseCurrentSubTransaction();
        done = true;
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(memory);
        ErrorData *error = CopyErrorData();
        if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
            error->sqlerrcode != ERRCODE_T_R_DEADLOCK_DETECTED)
            PG_RE_THROW();
        FlushErrorState();
        FreeErrorData(error);
        RollbackAndReleaseCurrentSubTransaction();
    }
    PG_END_TRY();
    MemoryContextSwitchTo(memory);
    CurrentResourceOwner = owner;
    return done;
}

} // namespace stacksaga::pg
