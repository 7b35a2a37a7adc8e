// The server's own value of a setting, below the values of a role, a database or a client.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// The value in the server's command line or files, which a session whose role or client sets it
/// does not know; nullptr: they do not name it. Lives as long as the files are not read again.
const char *server_setting(const char *name);

} // namespace stacksaga
