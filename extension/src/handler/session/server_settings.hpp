// What the server itself says of a setting, under what a role, a database or a client says.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// The value in the server's command line or files, which a session whose role or client sets it
/// does not know; nullptr: they do not name it. Lives as long as the files are not read again.
const char *server_setting(const char *name);

} // namespace stacksaga
