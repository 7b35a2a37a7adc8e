// What PostgreSQL calls when it loads the module, and who is called at which event from then on.
#include "pg/citus/two_phase.hpp"
#include "pg/crash_point.hpp"
#include "pg/hooks.hpp"
#include "pg/lock.hpp"
#include "pg/pg.hpp"
#include "pg/settings.hpp"
#include "pg/table/table.hpp"
#include "pg/transaction_events.hpp"
#include "src/common/counters.hpp"
#include "src/common/deferred_rows.hpp"
#include "src/common/waiting_line.hpp"
#include "src/common/wake.hpp"
#include "src/dedupe/begun_keys.hpp"
#include "src/handler/catalog_watch.hpp"
#include "src/handler/session/deferred_constraints.hpp"
#include "src/handler/session/foreign_sessions.hpp"
#include "src/handler/session/handler_guard.hpp"
#include "src/handler/session/session_guard.hpp"
#include "src/handler/session/temporary_objects.hpp"
#include "src/outbox/log/handled_topics.hpp"
#include "src/outbox/log/log_tick.hpp"
#include "src/outbox/log/message_waiters.hpp"
#include "src/outbox/published_messages.hpp"
#include "src/queue/queue_counters.hpp"
#include "src/worker/launcher.hpp"
#include "src/worker/worker_calls.hpp"

extern "C" {
PG_MODULE_MAGIC;
extern PGDLLEXPORT void _PG_init(void);
}

namespace stacksaga {

namespace {

// In the order in which they run at each event. The order matters before a commit and before
// PREPARE, where they read, write and raise; decision 0045 has the reasons in full.
constexpr std::array transaction_users{
    // Refuses PREPARE: first, so that nothing is written in vain.
    &pg::lock_events,
    // Writes rows, and may raise on them. Before the tick, whose lock keeps all others from
    // ticking:
    // a transaction that fails should not take it.
    &begun_key_events,
    // Writes a row and notifies. Its lock is held until the commit is recorded, so what takes time
    // comes before it.
    &tick_events,
    // Decides whether the commit wakes workers: the later it looks, the more it sees.
    &handled_topic_events,
    // Asks whether the transaction has written, so after all that writes; and whether shards have
    // moved that it has read or written, so last of all.
    &pg::two_phase_events,

    // From here on the order does not matter: they take note of an end, or set latches. Counts come
    // before latches, so that a session that is woken sees them.
    &counter_events, &queue_counter_events, &wake_events, &waiting_line_events,
    &message_waiter_events, &pg::table_events, &catalog_watch_events, &published_message_events,
    &session_guard_events, &foreign_session_events, &temporary_object_events,
#ifdef STACKSAGA_CRASH_POINTS
    &pg::crash_point_events, // before a commit all is written
#endif
};

// Deferred rows are written before the statement runs; PostgreSQL fires what SET CONSTRAINTS makes
// immediate, so a round of triggers is noted before it; a statement of a handler is refused last,
// which takes back what came before.
constexpr std::array before_utility{write_deferred_rows_before, note_utility_of_trigger,
                                    check_utility_of_handler};

} // namespace

} // namespace stacksaga

extern "C" const stacksaga::WorkerCalls stacksaga_worker_calls = {
    .watch_transactions = stacksaga::pg::watch_transactions,
    .lock_slots = stacksaga::lock_slots,
    .lock_slot_exclusively = stacksaga::lock_slot_exclusively,
    .register_worker_node = stacksaga::register_worker_node,
    .beat = stacksaga::beat,
    .settle_ownership = stacksaga::settle_ownership,
};

extern "C" void _PG_init(void) {
    // pg_upgrade wants nobody but itself in the server.
    if (IsBinaryUpgrade)
        return;
    stacksaga::pg::define_settings();
    stacksaga::look_for_dblink();
    stacksaga::pg::install_hooks({.before_utility = stacksaga::before_utility,
                                  .before_query = stacksaga::note_query_of_trigger,
                                  .before_function = stacksaga::check_function,
                                  .before_write = stacksaga::check_written});
    stacksaga::pg::set_transaction_users(stacksaga::transaction_users);
    stacksaga::pg::commit_in_two_phases();
    if (process_shared_preload_libraries_in_progress)
        stacksaga::register_launcher();
}
