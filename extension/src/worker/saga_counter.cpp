#include "src/worker/saga_counter.hpp"

#include "pg/statement/transaction.hpp"
#include "src/common/extension_lock.hpp"
#include "src/common/saga_tally.hpp"

extern "C" {
extern PGDLLEXPORT void stacksaga_saga_counter_main(Datum main_arg);
}

namespace stacksaga {

/// When two start at once, the second one ends at once.
void ensure_sagas_are_counted() {
    if (!is_tally_due())
        return;
    BackgroundWorker counter{};
    snprintf(counter.bgw_name, BGW_MAXLEN, "stacksaga counter");
    snprintf(counter.bgw_type, BGW_MAXLEN, "stacksaga counter");
    counter.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    counter.bgw_start_time = BgWorkerStart_RecoveryFinished;
    counter.bgw_restart_time = BGW_NEVER_RESTART;
    snprintf(counter.bgw_library_name, sizeof counter.bgw_library_name, "stacksaga");
    snprintf(counter.bgw_function_name, BGW_MAXLEN, "stacksaga_saga_counter_main");
    counter.bgw_main_arg = ObjectIdGetDatum(MyDatabaseId);
    RegisterDynamicBackgroundWorker(&counter, nullptr);
}

} // namespace stacksaga

extern "C" void stacksaga_saga_counter_main(Datum database) {
    using namespace stacksaga;
    pqsignal(SIGTERM, die);
    BackgroundWorkerUnblockSignals();
    BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(database), InvalidOid, 0);
    SetConfigOption("application_name", MyBgworkerEntry->bgw_name, PGC_USERSET, PGC_S_SESSION);
    pg::in_transaction([] {
        pgstat_report_activity(STATE_RUNNING, "stacksaga: counting sagas");
        require_extension();
        if (is_tally_due())
            count_sagas();
    });
    proc_exit(0);
}
