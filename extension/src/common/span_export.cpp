// Which of several daemons exports the spans of this database: the session that holds this lock,
// which only those who may call the function can take.
#include "pg/lock.hpp"
#include "pg/statement/function.hpp"

namespace stacksaga {
namespace {

STACKSAGA_FUNCTION(hold_span_export) {
    const LOCKTAG tag = pg::lock_tag(pg::LockClass::span_export, 0, 0);
    const LockAcquireResult result = LockAcquire(&tag, ExclusiveLock, true, true);
    if (result == LOCKACQUIRE_ALREADY_HELD)
        LockRelease(&tag, ExclusiveLock, true); // held once, however often it is asked for
    PG_RETURN_BOOL(result != LOCKACQUIRE_NOT_AVAIL);
}

} // namespace
} // namespace stacksaga
