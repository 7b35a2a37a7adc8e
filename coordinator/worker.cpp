#include "worker.hpp"

#include "extension.hpp"

#include <asio/experimental/awaitable_operators.hpp>
#include <asio/multiple_exceptions.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>

namespace stacksaga::coordinator {
namespace {

constexpr std::array<std::string_view, 2> role_kinds{"operator", "coordinator"};
constexpr Duration control_deadline = std::chrono::seconds(5);
/// A step may take as long as its own timeout allows. A server that is gone is noticed by the
/// connection's keep-alives.
constexpr Duration batch_deadline = std::chrono::hours(24);
constexpr Duration poll_initial = std::chrono::milliseconds(10);
constexpr Duration trouble_initial = std::chrono::milliseconds(100);
constexpr Duration trouble_cap = std::chrono::seconds(5);
constexpr Duration shortest_beat = std::chrono::milliseconds(100);

constexpr const char *SQL_WORK_SESSION =
    "SELECT pg_catalog.set_config('stacksaga.region', $1::text, false),"
    "       pg_catalog.set_config('stacksaga.cluster', $2::text, false)";
// run_pending() takes no slots, so a ring that pauses without a window has to be asked for: in one
// the node has ranges while a window is open.
constexpr const char *SQL_RUN =
    "SELECT CASE WHEN EXISTS (SELECT FROM stacksaga.ring_settings"
    "                          WHERE region = $3::text AND cluster = $4::text"
    "                            AND setting = 'on_missing_window' AND value = 'pause')"
    "             AND NOT EXISTS (SELECT FROM stacksaga.nodes n, stacksaga.node_ranges(n.node)"
    "                              WHERE n.node = $2::text)"
    "            THEN 0 ELSE stacksaga.run_pending($1::integer) END";
constexpr const char *SQL_CONTROL_SESSION =
    "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false),"
    "       pg_catalog.set_config('statement_timeout', '6s', false)";
constexpr const char *SQL_INTERVAL =
    "SELECT (extract(epoch FROM value::interval) * 1000000)::bigint FROM stacksaga.ring_settings"
    " WHERE region = $1::text AND cluster = $2::text AND setting = 'heartbeat_interval'";
// A service may register a node too, but not do its work: slots would be dealt to it in vain.
constexpr const char *SQL_REGISTER =
    "SELECT stacksaga.register_node(node => $1::text, region => $2::text, cluster => $3::text)"
    " WHERE pg_catalog.has_function_privilege('stacksaga.run_pending(integer)', 'EXECUTE')";
constexpr const char *SQL_BEAT =
    "SELECT checkpoint_requested FROM stacksaga.heartbeat_node($1::text, $2::bigint)";
constexpr const char *SQL_CHECKPOINT =
    "SELECT stacksaga.acknowledge_checkpoint($1::text, $2::bigint,"
    " pg_catalog.jsonb_build_object('turns', $3::bigint, 'items', $4::bigint))";
constexpr const char *SQL_DRAIN = "SELECT stacksaga.drain_node($1::text, $2::bigint)";
constexpr const char *SQL_LEAVE = "SELECT stacksaga.leave_ring($1::text, $2::bigint)";

/// Worth another try: conflicts, and a database that is away.
bool can_wait(ErrorClass kind) {
    return kind == ErrorClass::retry_now || kind == ErrorClass::reconnect;
}

Connection::NoticeHandler to_log(Log &log) {
    return [&log](std::string_view notice) { log.debug("notice", {{"notice", notice}}); };
}

} // namespace

Worker::Worker(const asio::any_io_executor &executor, std::string conninfo, Log &log,
               WorkerSettings settings)
    : conninfo_(std::move(conninfo)), log_(log), settings_(std::move(settings)),
      work_(executor, to_log(log)), control_(executor, to_log(log)), work_timer_(executor),
      beat_timer_(executor),
      idle_(std::min(poll_initial, settings_.poll), settings_.poll, settings_.seed),
      work_trouble_(trouble_initial, trouble_cap, settings_.seed + 1),
      control_trouble_(trouble_initial, trouble_cap, settings_.seed + 2),
      beat_interval_(std::chrono::seconds(1)) {}

asio::awaitable<void> Worker::run() {
    using asio::experimental::awaitable_operators::operator&&;
    // First one of them, so that what cannot work at all is said at once, and once.
    while (!control_.is_open() && !draining_) {
        Duration wait{0};
        try {
            co_await open_control();
        } catch (const StoreError &error) {
            wait = trouble(error, control_, control_trouble_);
        }
        if (wait > Duration::zero())
            co_await pause(beat_timer_, wait);
    }
    if (draining_)
        co_return;
    std::exception_ptr ended;
    try {
        co_await (work() && keep_beating());
    } catch (const asio::multiple_exceptions &both) {
        ended = both.first_exception(); // a stop cancels both
    } catch (...) {
        ended = std::current_exception();
    }
    if (failure_)
        throw StoreError(*failure_);
    if (ended)
        std::rethrow_exception(ended);
}

void Worker::drain() noexcept {
    draining_ = true;
    work_timer_.cancel();
    beat_timer_.cancel();
}

void Worker::log_state() const {
    const std::vector<LogField> fields{
        {"role", "worker"},
        {"node", settings_.node},
        {"region", settings_.ring.region},
        {"cluster", settings_.ring.cluster},
        {"connected", work_.is_open() && control_.is_open() ? "yes" : "no"},
        {"incarnation", incarnation_.value_or(0)},
        {"draining", draining_ ? "yes" : "no"},
        {"turns", turns_},
        {"items", items_}};
    log_.answer("state", fields);
}

asio::awaitable<Rows> Worker::ask(Connection &connection, const char *sql,
                                  const Parameters &parameters, Duration deadline) {
    return query_as(role_kinds, connection, sql, parameters, deadline);
}

/// Ends early when the timer is cancelled by drain(), and throws when the daemon is stopped.
asio::awaitable<void> Worker::pause(asio::steady_timer &timer, Duration wait) {
    if (draining_)
        wait = std::min(wait, shortest_beat);
    timer.expires_after(wait);
    std::exception_ptr cancelled;
    try {
        co_await timer.async_wait(asio::use_awaitable);
    } catch (const asio::system_error &) {
        cancelled = std::current_exception();
    }
    const auto state = co_await asio::this_coro::cancellation_state;
    if (cancelled && state.cancelled() != asio::cancellation_type::none)
        std::rethrow_exception(cancelled);
}

Duration Worker::trouble(const StoreError &error, Connection &connection, Backoff &backoff) {
    if (!can_wait(error.kind)) {
        failure_ = error;
        throw StoreError(error);
    }
    connection.close(); // half opened is as good as none
    if (error.kind == ErrorClass::reconnect && settings_.on_status)
        settings_.on_status(fmt::format("database unavailable: {}", error.what()));
    const Duration wait = backoff.next();
    std::vector<LogField> fields = fields_of(error);
    fields.emplace_back("retry_in_ms", wait.count() / 1000);
    log_.event(LogLevel::warn,
               error.kind == ErrorClass::reconnect ? "database unavailable" : "put off", fields);
    return wait;
}

asio::awaitable<void> Worker::work() {
    while (!draining_) {
        Duration wait{0};
        try {
            const std::int64_t done = co_await do_batch();
            work_trouble_.reset();
            if (done > 0)
                idle_.reset();
            else
                wait = idle_.next();
        } catch (const StoreError &error) {
            wait = trouble(error, work_, work_trouble_);
        }
        if (wait > Duration::zero())
            co_await pause(work_timer_, wait);
    }
    finished_ = true;
    beat_timer_.cancel();
    co_await leave();
}

asio::awaitable<std::int64_t> Worker::do_batch() {
    if (!incarnation_)
        co_return 0; // not a node yet
    if (!work_.is_open()) {
        const Parameters ring{settings_.ring.region, settings_.ring.cluster};
        co_await work_.open(conninfo_);
        co_await ask(work_, SQL_WORK_SESSION, ring, control_deadline);
    }
    const Parameters batch{std::to_string(settings_.batch), settings_.node, settings_.ring.region,
                           settings_.ring.cluster};
    const Rows rows = co_await ask(work_, SQL_RUN, batch, batch_deadline);
    const std::int64_t done = rows.int64(0, 0);
    ++turns_;
    items_ += done;
    if (done > 0)
        log_.debug("did due work", {{"items", done}});
    co_return done;
}

/// At the end, over the connection that did the work.
asio::awaitable<void> Worker::leave() {
    if (!incarnation_ || !work_.is_open())
        co_return; // the ring finds out by itself, when no more beats come
    const Parameters parameters{settings_.node, std::to_string(*incarnation_)};
    try {
        co_await ask(work_, SQL_LEAVE, parameters, control_deadline);
        log_.info("left the ring", {{"node", settings_.node}, {"items", items_}});
    } catch (const StoreError &error) {
        log_.event(LogLevel::warn, "could not leave the ring", fields_of(error));
    }
}

asio::awaitable<void> Worker::keep_beating() {
    while (!finished_) {
        Duration wait = beat_interval_;
        try {
            if (!control_.is_open())
                co_await open_control();
            co_await beat();
            control_trouble_.reset();
        } catch (const StoreError &error) {
            if (!finished_) // it has left between two beats
                wait = trouble(error, control_, control_trouble_);
        }
        if (!finished_)
            co_await pause(beat_timer_, wait);
    }
}

asio::awaitable<void> Worker::open_control() {
    const Parameters none;
    const Parameters ring{settings_.ring.region, settings_.ring.cluster};
    co_await control_.open(conninfo_);
    co_await ask(control_, SQL_CONTROL_SESSION, none, control_deadline);
    co_await require_extension(control_, control_deadline);
    const Rows interval = co_await ask(control_, SQL_INTERVAL, ring, control_deadline);
    if (interval.size() == 0)
        throw StoreError(ErrorClass::ring_missing,
                         fmt::format("there is no ring with region \"{}\" and cluster \"{}\"",
                                     settings_.ring.region, settings_.ring.cluster),
                         "SG404", {},
                         "Create it with stacksaga.create_ring, or name another with --region and "
                         "--cluster.");
    beat_interval_ = std::max(shortest_beat, Duration{interval.int64(0, 0)});
}

asio::awaitable<void> Worker::enlist() {
    const Parameters parameters{settings_.node, settings_.ring.region, settings_.ring.cluster};
    const Rows rows = co_await ask(control_, SQL_REGISTER, parameters, control_deadline);
    if (rows.size() == 0)
        throw StoreError(ErrorClass::permission, "permission denied for function run_pending",
                         "42501", {}, grant_advice(control_, role_kinds));
    incarnation_ = rows.int64(0, 0);
    log_.info("working", {{"version", STACKSAGA_VERSION},
                          {"role", "worker"},
                          {"node", settings_.node},
                          {"incarnation", *incarnation_},
                          {"region", settings_.ring.region},
                          {"cluster", settings_.ring.cluster},
                          {"beat_interval", format_duration(beat_interval_)}});
    if (settings_.on_status)
        settings_.on_status(fmt::format("working as node {} of ring {}/{}", settings_.node,
                                        settings_.ring.region, settings_.ring.cluster));
}

asio::awaitable<void> Worker::beat() {
    if (!incarnation_)
        co_await enlist();
    const std::string incarnation = std::to_string(*incarnation_);
    const Parameters me{settings_.node, incarnation};
    std::optional<Rows> rows;
    bool forgotten = false;
    try {
        rows = co_await ask(control_, SQL_BEAT, me, control_deadline);
    } catch (const StoreError &error) {
        if (error.sqlstate != "SG404" || finished_)
            throw;
        forgotten = true;
    }
    if (forgotten) { // it was away for so long that the ring removed it
        incarnation_.reset();
        co_await enlist();
        co_return;
    }
    if (rows->text(0, 0) == "t") {
        const Parameters progress{settings_.node, incarnation, std::to_string(turns_),
                                  std::to_string(items_)};
        co_await ask(control_, SQL_CHECKPOINT, progress, control_deadline);
    }
    if (draining_ && !drain_told_ && !finished_) {
        co_await ask(control_, SQL_DRAIN, me, control_deadline);
        drain_told_ = true;
    }
}

} // namespace stacksaga::coordinator
