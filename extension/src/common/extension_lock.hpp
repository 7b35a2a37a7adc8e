// The extension lock: whether the extension is here, and keeps being here; and whether the database
// is to have no sessions.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

enum class ExtensionLock : uint8 {
    held,   ///< the extension is there, and stays to the end of the transaction
    absent, ///< it is not installed in this database
    busy,   ///< somebody is dropping it
};

/// Takes the AccessShare lock on the extension, if it can be had at once, to the end of the
/// transaction. DROP EXTENSION locks the extension before anything else in it, so it waits for the
/// transaction before it holds anything: it neither fails nor is part of a deadlock. `extension` is
/// set when the result is held.
ExtensionLock lock_extension(Oid *extension);

/// The same where absence is unexpected: 55P03 unless the extension is there and stays. What a
/// worker's transaction begins with.
void require_extension();

/// Whether another session waits for this database to have no sessions (DROP DATABASE, CREATE
/// DATABASE ... TEMPLATE, ALTER DATABASE ... RENAME or SET TABLESPACE): each holds a lock on the
/// database while it waits, for five seconds, that sessions end. Inside a transaction.
bool is_database_wanted();

} // namespace stacksaga
