// forget_work: a copy of a live database stands still, since what the copied rows wait for happens
// in the original. Leases are lost, sagas are suspended, and what would begin work is paused.
#include "core/saga/saga.hpp"
#include "core/saga/saga_operators.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/random.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/handler/handler_error.hpp"
#include "src/saga/store.hpp"

namespace stacksaga {

namespace {

using core::Status;

enum class RingColumn : uint8_t { ring_id, region, cluster };
constinit pg::Select<RingColumn> list_rings{
    "SELECT ring_id, region, cluster FROM stacksaga.ring ORDER BY ring_id",
    pg::Plans::by_statistics};

// A pause that ends by itself becomes one that does not.
#define ENDS_BY_ITSELF " WHERE ring_id = $1 AND paused_at IS NOT NULL AND paused_until > $3"
#define IS_PAUSED(row) row ".paused_at IS NOT NULL AND coalesce(" row ".paused_until > $3, true)"
constinit pg::Statement resume_queues{
    "SELECT stacksaga.resume_queue(queue, $2) FROM stacksaga.queue" ENDS_BY_ITSELF,
    pg::Plans::by_statistics};
constinit pg::Statement pause_queues{
    "SELECT stacksaga.pause_queue(n.queue, $2)"
    "  FROM (SELECT queue FROM stacksaga.definition_step"
    "        UNION SELECT compensation_queue FROM stacksaga.definition_step"
    "        UNION SELECT fallback FROM stacksaga.definition_step"
    "               WHERE kind NOT IN ('sql', 'message')"
    "        UNION SELECT queue FROM stacksaga.queue WHERE ring_id = $1"
    "        UNION SELECT queue FROM stacksaga_internal.queues_with_work($1) AS q(queue)"
    "       ) AS n(queue)"
    " WHERE n.queue IS NOT NULL AND NOT EXISTS ("
    "       SELECT FROM stacksaga.queue p"
    "        WHERE p.ring_id = $1 AND p.queue = n.queue AND " IS_PAUSED("p") ")",
    pg::Plans::by_statistics};
constinit pg::Statement resume_subscriptions{
    "SELECT stacksaga.resume_subscription(subscription, $2)"
    "  FROM stacksaga.subscription" ENDS_BY_ITSELF,
    pg::Plans::by_statistics};
constinit pg::Statement pause_subscriptions{
    "SELECT stacksaga.pause_subscription(s.subscription, $2) FROM stacksaga.subscription s"
    " WHERE s.ring_id = $1 AND NOT (" IS_PAUSED("s") ")",
    pg::Plans::by_statistics};
constinit pg::Statement pause_schedules{
    "SELECT stacksaga.pause_schedule(schedule, $1) FROM stacksaga.schedule WHERE NOT paused",
    pg::Plans::by_statistics};

// Only the latest version of a position counts.
constinit pg::Statement end_batches{
    "UPDATE stacksaga.subscription_position p SET lease_until = $1"
    " WHERE p.batch_id IS NOT NULL AND p.lease_until > $1 AND NOT EXISTS ("
    "       SELECT FROM stacksaga.subscription_position l"
    "        WHERE l.subscription_id = p.subscription_id AND l.partition = p.partition"
    "          AND l.version > p.version)",
    pg::Plans::by_statistics};
constinit pg::Statement end_keys{"UPDATE stacksaga.idempotency_key SET lease_until = $1"
                                 " WHERE completed_at IS NULL AND lease_until > $1",
                                 pg::Plans::by_statistics};

constexpr uint64 page_max = 1000;
enum class ListedColumn : uint8_t { saga_id, definition_id, created_at };
constinit pg::Select<ListedColumn> list_sagas{
    "SELECT saga_id, definition_id, created_at FROM stacksaga.saga"
    " WHERE status = $1 AND (definition_id, created_at, saga_id) > ($2, $3, $4)"
    " ORDER BY definition_id, created_at, saga_id LIMIT 1000"};

/// A place in the list of sagas of one status.
struct Listed {
    pg_uuid_t id;
    int32 definition_id;
    TimestampTz created_at;
};

/// SG400 unless it is called in the database that it names: in the original it would stop
/// everything.
void require_this_database(std::string_view name) {
    const std::string_view here{get_database_name(MyDatabaseId)};
    if (name != here)
        ereport(ERROR,
                (errcode(pg::sg400),
                 errmsg("argument \"database\" is not the name of this database"),
                 errdetail("The value is \"%s\", and this is \"%s\".", clip(name), here.data()),
                 errhint("Connect to the copy, and pass its name.")));
}

void pause_all(std::string_view reason) {
    const pg::Param why = pg::param(reason), now = pg::param_time(pg::clock_now());
    const auto rings = list_rings.run();
    for (uint64 i = 0; i < rings.count(); ++i) {
        const pg::Param ring = pg::param(rings.int4(i, RingColumn::ring_id));
        const std::array names{
            pg::Setting{"stacksaga.region", copy_text(rings.text(i, RingColumn::region))},
            pg::Setting{"stacksaga.cluster", copy_text(rings.text(i, RingColumn::cluster))}};
        pg::with_settings(names, [&] {
            (void)resume_queues.run(ring, why, now);
            (void)pause_queues.run(ring, why, now);
            (void)resume_subscriptions.run(ring, why, now);
            (void)pause_subscriptions.run(ring, why, now);
        });
    }
    (void)pause_schedules.run(why);
}

/// Those of the next page; empty at the end.
std::span<Listed> next_page(Status status, const Listed &last, std::span<Listed> room) {
    return pg::with_spi([&] {
        const auto rows =
            list_sagas.run(pg::param(core::name_of(status)), pg::param(last.definition_id),
                           pg::param_time(last.created_at), pg::param(last.id));
        for (uint64 i = 0; i < rows.count(); ++i)
            room[i] = {.id = rows.uuid(i, ListedColumn::saga_id),
                       .definition_id = rows.int4(i, ListedColumn::definition_id),
                       .created_at = rows.time(i, ListedColumn::created_at)};
        return room.first(rows.count());
    });
}

/// Suspends it first, so that nothing follows from the leases that it loses. Whether it was in
/// flight.
bool forget(const pg_uuid_t &id, std::string_view reason) {
    Saga *saga = lock_saga(id, pg::clock_now());
    if (saga == nullptr)
        return false;
    const Status before = saga->status();
    const bool was_suspended = saga->is_suspended();
    const bool suspends = !core::suspend_saga(*saga) && !was_suspended;
    core::lose_claims(*saga, psprintf("the lease was ended in a copy: %s", clip(reason)),
                      pg::random_fraction());
    write_saga(*saga);
    if (suspends)
        write_action(*saga, {.action = "suspend", .status_before = before, .reason = reason});
    return suspends;
}

/// Walks each status in the order of its index, so that no page reads what earlier ones have
/// changed. First those that stand still: others become such.
int64 forget_sagas(std::string_view reason) {
    constexpr std::array statuses{Status::suspended, Status::parked, Status::pending,
                                  Status::running, Status::compensating};
    const std::span<Listed> room{static_cast<Listed *>(palloc(sizeof(Listed) * page_max)),
                                 page_max};
    int64 suspended = 0;
    for (const Status status : statuses) {
        Listed last{.id = {}, .definition_id = 0, .created_at = DT_NOBEGIN};
        for (;;) {
            const std::span<Listed> page = next_page(status, last, room);
            for (const Listed &listed : page) {
                CHECK_FOR_INTERRUPTS();
                suspended += pg::with_spi([&] { return forget(listed.id, reason); }) ? 1 : 0;
            }
            if (page.size() < page_max)
                break;
            last = page.back();
        }
    }
    return suspended;
}

} // namespace

// forget_work(reason, database) -> bigint: how many sagas it suspended
STACKSAGA_FUNCTION(forget_work) {
    refuse_inside_handler("forget_work()");
    const pg::Arguments arguments(fcinfo);
    const std::string_view reason = required_reason(arguments, 0);
    require_this_database(arguments.required_text(1, "database"));
    pg::with_spi([&] {
        pause_all(reason);
        const pg::Param now = pg::param_time(pg::clock_now());
        end_batches.touch(now);
        end_keys.touch(now);
    });
    const int64 suspended = forget_sagas(reason);
    pg::with_spi([&] {
        record_action({.action = "forget",
                       .object = "work",
                       .reason = reason,
                       .detail = psprintf("sagas suspended: " INT64_FORMAT, suspended)});
    });
    PG_RETURN_INT64(suspended);
}

} // namespace stacksaga
