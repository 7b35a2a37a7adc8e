#include "pg/client.hpp"

// libpq/libpq.h declares it, and wants the headers of GSSAPI where the server was built with them.
extern "C" bool pq_check_connection(void);

namespace stacksaga::pg {

namespace {
constexpr int interval_ms = 1000;
}

void check_client() {
    if (MyProcPort == nullptr || pq_check_connection())
        return;
    ClientConnectionLost = 1;
    InterruptPending = 1;
    CHECK_FOR_INTERRUPTS();
}

bool begin_to_watch_client() {
    if (MyProcPort == nullptr || get_timeout_active(CLIENT_CONNECTION_CHECK_TIMEOUT))
        return false;
    // Refused where the operating system cannot say whether a socket was closed.
    const int is_set = set_config_option("client_connection_check_interval", "1000", PGC_USERSET,
                                         PGC_S_SESSION, GUC_ACTION_SAVE, true, DEBUG5, false);
    if (is_set > 0)
        enable_timeout_after(CLIENT_CONNECTION_CHECK_TIMEOUT, interval_ms);
    return is_set > 0;
}

void stop_watching_client() {
    disable_timeout(CLIENT_CONNECTION_CHECK_TIMEOUT, false);
}

} // namespace stacksaga::pg
