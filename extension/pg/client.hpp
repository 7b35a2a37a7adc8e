// Whether the client of a session that waits is still there.
#pragma once
#include "pg/statement/scope.hpp"

namespace stacksaga::pg {

/// Ends a session whose client has gone, as PostgreSQL does when it writes to the client.
void check_client();

/// Has PostgreSQL look at the client's socket every second until the settings of this level end.
/// False where nobody needs it: there is no client, or the session's own setting does it.
bool begin_to_watch_client();
void stop_watching_client();

/// Runs `body`, which waits for another session: it ends when the client goes.
template <class F> void watching_client(F &&body) {
    const int nesting = NewGUCNestLevel();
    const bool is_watching = begin_to_watch_client();
    body();
    if (is_watching)
        stop_watching_client();
    AtEOXact_GUC(false, nesting);
}

} // namespace stacksaga::pg
