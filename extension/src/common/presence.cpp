#include "src/common/presence.hpp"

namespace stacksaga {

namespace {

constexpr char extension_name[] = "stacksaga";

bool lock_object(Oid database, Oid catalog, Oid object, LOCKMODE mode) {
    LOCKTAG tag{};
    SET_LOCKTAG_OBJECT(tag, database, catalog, object, 0);
    return LockAcquire(&tag, mode, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

} // namespace

Presence lock_extension(Oid *extension) {
    const Oid found = get_extension_oid(extension_name, true);
    if (!OidIsValid(found))
        return Presence::absent;
    if (!lock_object(MyDatabaseId, ExtensionRelationId, found, AccessShareLock))
        return Presence::busy;
    // It may have gone between the look and the lock.
    if (get_extension_oid(extension_name, true) != found)
        return Presence::busy;
    *extension = found;
    return Presence::held;
}

void require_extension() {
    Oid extension = InvalidOid;
    if (lock_extension(&extension) != Presence::held)
        ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                        errmsg("extension \"stacksaga\" is being dropped")));
}

bool is_database_wanted() {
    // The lock that a new session takes for a moment: what conflicts with it keeps sessions out.
    return !lock_object(InvalidOid, DatabaseRelationId, MyDatabaseId, RowExclusiveLock);
}

} // namespace stacksaga
