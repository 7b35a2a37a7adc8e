#include "src/dedupe/key_lock.hpp"

#include "core/ring/token.hpp"

namespace stacksaga {

namespace {

bool lock(pg::LockClass kind, core::Token token, bool wait) {
    const uint64 position = token.position();
    return pg::lock(kind, static_cast<uint32>(position >> 32), static_cast<uint32>(position),
                    ExclusiveLock, wait);
}

} // namespace

void explain_full_lock_table(void *) {
    // The same code stands for memory of the process; so DETAIL stays what it is.
    if (geterrcode() != ERRCODE_OUT_OF_MEMORY)
        return;
    errhint(
        "A transaction holds a lock on each key that it writes. If it writes many, take several "
        "transactions, a thousand keys in each, or raise max_locks_per_transaction: it is %d, "
        "which makes room for about " INT64_FORMAT " locks of all transactions together.",
        max_locks_per_xact, int64{max_locks_per_xact} * MaxBackends);
}

void lock_key(pg::LockClass kind, core::Token token) {
    lock(kind, token, true);
}

bool try_lock_key(pg::LockClass kind, core::Token token) {
    return lock(kind, token, false);
}

} // namespace stacksaga
