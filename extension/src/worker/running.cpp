// The handlers that the workers of this database are running, from their crash records: for
// doctor().
#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "src/common/wake.hpp"
#include "src/handler/crash_record.hpp"

namespace stacksaga {

// running_handlers() -> TABLE(worker integer, pid integer, saga_id uuid, step_no smallint,
//                             subscription_id integer, timeout_at timestamptz,
//                             since timestamptz)
STACKSAGA_FUNCTION(running_handlers) {
    pg::ResultSet result(fcinfo);
    CrashRecord record{};
    for (int32 number = 1; number <= workers_max; ++number) {
        if (!read_crash_record(number, record) || record.kind == Recorded::nothing)
            continue;
        const bool is_step = record.kind == Recorded::step;
        const int32 subscription = record.kind == Recorded::batch ? record.batch.subscription_id
                                                                  : record.message.subscription_id;
        result.add(pg::of(Int32GetDatum(number)), pg::of(Int32GetDatum(record.pid)),
                   is_step ? pg::of(UUIDPGetDatum(&record.step.saga_id)) : pg::null(),
                   is_step ? pg::of(Int16GetDatum(record.step.step_no)) : pg::null(),
                   is_step ? pg::null() : pg::of(Int32GetDatum(subscription)),
                   record.timeout_at == 0 ? pg::null()
                                          : pg::of(TimestampTzGetDatum(record.timeout_at)),
                   pg::of(TimestampTzGetDatum(record.since)));
    }
    return result.finish();
}

} // namespace stacksaga
