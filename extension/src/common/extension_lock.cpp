#include "src/common/extension_lock.hpp"

namespace stacksaga {

namespace {

constexpr char extension_name[] = "stacksaga";

bool lock_object(Oid database, Oid catalog, Oid object, LOCKMODE mode) {
    LOCKTAG tag{};
    SET_LOCKTAG_OBJECT(tag, database, catalog, object, 0);
    return LockAcquire(&tag, mode, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

} // namespace

ExtensionLock lock_extension(Oid *extension) {
    const Oid found = get_extension_oid(extension_name, true);
    if (!OidIsValid(found))
        return ExtensionLock::absent;
    if (!lock_object(MyDatabaseId, ExtensionRelationId, found, AccessShareLock))
        return ExtensionLock::busy;
    // It may have been dropped between the lookup and the lock.
    if (get_extension_oid(extension_name, true) != found)
        return ExtensionLock::busy;
    *extension = found;
    return ExtensionLock::held;
}

void require_extension() {
    Oid extension = InvalidOid;
    if (lock_extension(&extension) != ExtensionLock::held)
        ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                        errmsg("extension \"stacksaga\" is being dropped")));
}

bool is_database_wanted() {
    // The lock that a new session takes for a moment: what conflicts with it keeps sessions out.
    return !lock_object(InvalidOid, DatabaseRelationId, MyDatabaseId, RowExclusiveLock);
}

} // namespace stacksaga
