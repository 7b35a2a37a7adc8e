// set_queue, drop_queue, pause_queue, resume_queue: how operators set up the queues of the
// session's ring.
#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "pg/stored_text.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/queue/queue_limits.hpp"
#include "src/queue/queue_waiters.hpp"
#include "src/ring/rings.hpp"

namespace stacksaga {

namespace {

enum class QueueColumn : uint8_t { is_paused, is_limited };
constinit pg::Select<QueueColumn> lock_queue{
    "SELECT paused_at IS NOT NULL AND coalesce(paused_until > $3, true) AS is_paused,"
    "       max_running IS NOT NULL OR max_running_per_group IS NOT NULL"
    "       OR rate IS NOT NULL AS is_limited"
    "  FROM stacksaga.queue WHERE ring_id = $1 AND queue = $2 FOR NO KEY UPDATE"};
constinit pg::Statement write_limits{
    "INSERT INTO stacksaga.queue AS q (ring_id, queue, max_running, max_running_per_group, rate,"
    "       rate_interval)"
    " VALUES ($1, $2, $3, $4, $5, $6)"
    " ON CONFLICT (ring_id, queue) DO UPDATE"
    "   SET max_running = $3, max_running_per_group = $4, rate = $5, rate_interval = $6"};
constinit pg::Statement pause{
    "INSERT INTO stacksaga.queue AS q (ring_id, queue, paused_at, pause_reason, paused_until)"
    " VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (ring_id, queue)"
    " DO UPDATE SET paused_at = $3, pause_reason = $4, paused_until = $5"};
constinit pg::Statement resume{
    "UPDATE stacksaga.queue SET paused_at = NULL, pause_reason = NULL, paused_until = NULL"
    " WHERE ring_id = $1 AND queue = $2"};
constinit pg::Statement forget_empty{
    "DELETE FROM stacksaga.queue WHERE ring_id = $1 AND queue = $2 AND max_running IS NULL"
    "   AND max_running_per_group IS NULL AND rate IS NULL"
    "   AND (paused_at IS NULL OR paused_until <= $3)"};
constinit pg::Statement forget_claims{
    "DELETE FROM stacksaga.queue_claims WHERE ring_id = $1 AND queue = $2"};

std::string_view queue_argument(const pg::Arguments &arguments) {
    const std::string_view queue = arguments.required_text(0, "queue");
    check_name(queue, "queue", queue_bytes_max);
    return queue;
}

std::string_view reason_argument(const pg::Arguments &arguments) {
    const std::string_view reason = required_reason(arguments, 1);
    return reason;
}

/// A limit, or NULL for none.
pg::Param limit_argument(const pg::Arguments &arguments, int i, const char *name) {
    if (arguments.is_null(i))
        return pg::param_null(INT4OID);
    const int32 limit = arguments.required_int4(i, name);
    if (limit < 1)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"%s\" is out of range", name),
                        errdetail("The value is %d.", limit),
                        errhint("Use 1 or more, or NULL for no limit; stacksaga.pause_queue() "
                                "stops a queue.")));
    return pg::param(limit);
}

struct Limits {
    pg::Param max_running;
    pg::Param max_running_per_group;
    pg::Param rate;
    pg::Param rate_interval;

    bool has_any() const {
        return !max_running.isnull || !max_running_per_group.isnull || !rate.isnull;
    }
};

/// For a person: "max_running 10, rate 5 in 1 second".
std::string_view text_of(const Limits &limits, int64 interval_us) {
    StringInfoData text;
    initStringInfo(&text);
    const auto add = [&](const char *name, const pg::Param &limit) {
        if (!limit.isnull)
            appendStringInfo(&text, "%s%s %d", text.len > 0 ? ", " : "", name,
                             DatumGetInt32(limit.value));
    };
    add("max_running", limits.max_running);
    add("max_running_per_group", limits.max_running_per_group);
    add("rate", limits.rate);
    if (!limits.rate.isnull)
        appendStringInfo(&text, " in %s", interval_text(interval_us));
    return text.len > 0 ? std::string_view{text.data, static_cast<size_t>(text.len)} : "no limits";
}

Limits limits_argument(const pg::Arguments &arguments, int64 *interval_us) {
    Limits limits{.max_running = limit_argument(arguments, 1, "max_running"),
                  .max_running_per_group = limit_argument(arguments, 2, "max_running_per_group"),
                  .rate = limit_argument(arguments, 3, "rate"),
                  .rate_interval = pg::param_null(INTERVALOID)};
    arguments.require(4, "rate_interval");
    *interval_us = pg::interval_microseconds(arguments.datum(4), "rate_interval", true);
    if (!limits.rate.isnull)
        limits.rate_interval = pg::param_datum(INTERVALOID, arguments.datum(4));
    return limits;
}

struct Known {
    bool is_paused = false;
    bool is_limited = false;
};

Known lock(int32 ring_id, std::string_view queue) {
    const auto rows =
        lock_queue.run(pg::param(ring_id), pg::param(queue), pg::param_time(pg::clock_now()));
    if (rows.empty())
        return {};
    return {.is_paused = rows.boolean(0, QueueColumn::is_paused),
            .is_limited = rows.boolean(0, QueueColumn::is_limited)};
}

/// Records the change, which holds from the commit of this transaction on, and wakes the services
/// that wait for the queue.
void announce(int32 ring_id, std::string_view queue, const OperatorAction &action) {
    forget_empty.run(pg::param(ring_id), pg::param(queue), pg::param_time(pg::clock_now()));
    announce_limits();
    wake_waiters_at_commit(ring_id, queue);
    record_action(action);
}

void set_limits(std::string_view queue, const Limits &limits, const OperatorAction &action) {
    const pg::Param ring = pg::param(current_ring().ring_id);
    const int32 ring_id = DatumGetInt32(ring.value);
    lock_limits(ring_id, queue);
    (void)write_limits.run(ring, pg::param(queue), limits.max_running, limits.max_running_per_group,
                           limits.rate, limits.rate_interval);
    if (limits.rate.isnull)
        forget_claims.run(ring, pg::param(queue));
    announce(ring_id, queue, action);
}

void require_paused(std::string_view queue, const Known &known, bool is_wanted) {
    if (known.is_paused == is_wanted)
        return;
    ereport(ERROR,
            (errcode(pg::sg409),
             errmsg(is_wanted ? "queue \"%s\" is not paused" : "queue \"%s\" is paused already",
                    clip(queue)),
             errdetail(is_wanted ? "It is unchanged." : "It stays paused."),
             errhint("The view stacksaga.queues shows which queues are paused.")));
}

} // namespace

// set_queue(queue, max_running, max_running_per_group, rate, rate_interval) -> void
STACKSAGA_FUNCTION(set_queue) {
    pg::Arguments arguments(fcinfo);
    const std::string_view queue = queue_argument(arguments);
    int64 interval_us;
    const Limits limits = limits_argument(arguments, &interval_us);
    pg::with_spi([&] {
        set_limits(queue, limits,
                   {.action = "set",
                    .object = object_text("queue", queue),
                    .detail = pg::with_stored_text([&] { return text_of(limits, interval_us); })});
    });
    PG_RETURN_VOID();
}

// drop_queue(queue) -> void
STACKSAGA_FUNCTION(drop_queue) {
    const std::string_view queue = queue_argument(pg::Arguments(fcinfo));
    constexpr Limits none{.max_running = {INT4OID, 0, true},
                          .max_running_per_group = {INT4OID, 0, true},
                          .rate = {INT4OID, 0, true},
                          .rate_interval = {INTERVALOID, 0, true}};
    pg::with_spi([&] {
        if (!lock(current_ring().ring_id, queue).is_limited)
            ereport(ERROR, (errcode(pg::sg404), errmsg("queue \"%s\" has no limits", clip(queue)),
                            errdetail("No limits are set for a queue of this name in this ring."),
                            errhint("The view stacksaga.queues shows the limits of queues.")));
        set_limits(queue, none, {.action = "drop", .object = object_text("queue", queue)});
    });
    PG_RETURN_VOID();
}

// pause_queue(queue, reason, until) -> void
STACKSAGA_FUNCTION(pause_queue) {
    pg::Arguments arguments(fcinfo);
    const std::string_view queue = queue_argument(arguments);
    const std::string_view reason = reason_argument(arguments);
    const std::optional<TimestampTz> until = optional_until(arguments, 2);
    pg::with_spi([&] {
        const int32 ring_id = current_ring().ring_id;
        require_paused(queue, lock(ring_id, queue), false);
        (void)pause.run(pg::param(ring_id), pg::param(queue), pg::param_time(pg::clock_now()),
                        pg::param(reason), pg::param_time(until));
        announce(ring_id, queue,
                 {.action = "pause",
                  .object = object_text("queue", queue),
                  .reason = reason,
                  .detail = until_text(until)});
    });
    PG_RETURN_VOID();
}

// resume_queue(queue, reason) -> void
STACKSAGA_FUNCTION(resume_queue) {
    pg::Arguments arguments(fcinfo);
    const std::string_view queue = queue_argument(arguments);
    const std::string_view reason = reason_argument(arguments);
    pg::with_spi([&] {
        const int32 ring_id = current_ring().ring_id;
        require_paused(queue, lock(ring_id, queue), true);
        (void)resume.run(pg::param(ring_id), pg::param(queue));
        announce(ring_id, queue,
                 {.action = "resume", .object = object_text("queue", queue), .reason = reason});
    });
    PG_RETURN_VOID();
}

} // namespace stacksaga
