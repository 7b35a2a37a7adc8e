// What PostgreSQL calls when it loads the module.
#include "pg/pg.hpp"
#include "pg/plan.hpp"
#include "pg/settings.hpp"
#include "src/common/late_rows.hpp"
#include "src/common/two_phase.hpp"
#include "src/handler/deferred_constraints.hpp"
#include "src/handler/handler_guard.hpp"
#include "src/handler/session_guard.hpp"
#include "src/handler/temporary_objects.hpp"
#include "src/worker/launcher.hpp"

extern "C" {
PG_MODULE_MAGIC;
extern PGDLLEXPORT void _PG_init(void);
}

extern "C" void _PG_init(void) {
    // pg_upgrade wants nobody but itself in the server.
    if (IsBinaryUpgrade)
        return;
    stacksaga::pg::define_settings();
    stacksaga::pg::install_planner_hooks();
    stacksaga::guard_against_handlers();
    stacksaga::watch_deferred_constraints();
    stacksaga::guard_session();
    stacksaga::watch_temporary_objects();
    stacksaga::write_late_rows_before_utilities();
    stacksaga::commit_in_two_phases();
    if (process_shared_preload_libraries_in_progress)
        stacksaga::register_launcher();
}
