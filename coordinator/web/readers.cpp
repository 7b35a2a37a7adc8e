#include "web/readers.hpp"

#include "db/views.hpp"

#include <algorithm>
#include <limits>

namespace stacksaga::coordinator {
namespace {

constexpr Duration keep_for = std::chrono::seconds(1);
/// The answer of a view is kept for this multiple of the time that it took, so that a view costs at
/// most a tenth of the database's time.
constexpr int keep_times = 10;
constexpr std::size_t kept_max = 64;
constexpr Duration statement_deadline = std::chrono::seconds(5);

constexpr const char *SQL_STATUS_SESSION =
    "SELECT pg_catalog.set_config('statement_timeout', '6s', false),"
    "       pg_catalog.set_config('default_transaction_read_only', 'on', false)";
// Without JIT: compiling takes longer than any view.
constexpr const char *SQL_VIEW_SESSION =
    "SELECT pg_catalog.set_config('statement_timeout', '3s', false),"
    "       pg_catalog.set_config('lock_timeout', '1s', false),"
    "       pg_catalog.set_config('jit', 'off', false),"
    "       pg_catalog.set_config('default_transaction_read_only', 'on', false)";
constexpr const char *SQL_PING = "SELECT 1";
constexpr const char *SQL_STATUS = "SELECT stacksaga.status()";
constexpr const char *SQL_RINGS =
    "SELECT pg_catalog.string_agg(pg_catalog.format('ring %s/%s: epoch %s, %s %% owned, "
    "nodes active %s, suspected %s, dead %s, draining %s', r.region, r.cluster,"
    "           coalesce(r.epoch, 0), pg_catalog.round((100 * r.coverage)::numeric, 1), n.active,"
    "           n.suspected, n.dead, n.draining), E'\\n' ORDER BY r.region, r.cluster)"
    "  FROM stacksaga.ring_status AS r"
    " CROSS JOIN LATERAL (SELECT pg_catalog.count(*) FILTER (WHERE state = 'active') AS active,"
    "           pg_catalog.count(*) FILTER (WHERE state = 'suspected') AS suspected,"
    "           pg_catalog.count(*) FILTER (WHERE state = 'dead') AS dead,"
    "           pg_catalog.count(*) FILTER (WHERE state = 'draining') AS draining"
    "      FROM stacksaga.nodes AS n WHERE n.region = r.region AND n.cluster = r.cluster) AS n"
    " WHERE (r.region || r.cluster) !~ '[[:cntrl:]]'";
struct MetricColumns {
    enum { number, name, value, label, label_value };
};
// One row for each label; a sample without labels has one row with NULLs.
constexpr const char *SQL_METRICS =
    "SELECT m.n, m.name, m.value, l.key, l.value"
    "  FROM (SELECT pg_catalog.row_number() OVER () AS n, * FROM stacksaga.metrics()) AS m"
    "  LEFT JOIN LATERAL pg_catalog.jsonb_each_text(m.labels) AS l ON true"
    " ORDER BY m.n";
struct DescriptionColumns {
    enum { name, type, help };
};
constexpr const char *SQL_DESCRIPTIONS =
    "SELECT name, type, help FROM stacksaga.metric_descriptions()";
constexpr const char *SQL_TIMELINE = "SELECT " WITHOUT_PROGRESS(
    "line") "  FROM stacksaga.saga_timeline($1::uuid) WITH ORDINALITY AS t(line, n) ORDER BY n";

/// The server bounds the requests that can wait.
constexpr int unbounded = std::numeric_limits<int>::max();

SessionSettings settings_for(int waiting_max) {
    return {SQL_STATUS_SESSION, monitor_kinds, statement_deadline, waiting_max};
}

} // namespace

StatusReader::StatusReader(const asio::any_io_executor &executor, const std::string &conninfo,
                           const Connection::NoticeHandler &on_notice)
    : probe_connection_(executor, conninfo, on_notice, settings_for(unbounded)),
      connection_(executor, conninfo, on_notice, settings_for(unbounded)),
      timeline_connection_(executor, conninfo, on_notice, settings_for(timelines_max)) {}

template <class Value, class Ask>
asio::awaitable<Value> StatusReader::keep(SharedConnection &connection, Kept<Value> &kept,
                                          Ask ask) {
    // A failure is shared only by the requests that waited for it: the next one asks again.
    const SteadyTime asked = std::chrono::steady_clock::now();
    const auto is_known = [&kept, asked] {
        return kept.failure ? kept.at >= asked
                            : kept.value && std::chrono::steady_clock::now() < kept.at + keep_for;
    };
    if (!is_known()) {
        const auto turn = co_await connection.take_turn();
        if (!is_known()) { // the previous query may have asked the same
            kept.value.reset();
            kept.failure.reset();
            try {
                kept.value = co_await ask();
            } catch (const StoreError &error) {
                kept.failure = error;
            }
            kept.at = std::chrono::steady_clock::now();
        }
    }
    if (kept.failure)
        throw StoreError(*kept.failure);
    co_return *kept.value;
}

asio::awaitable<void> StatusReader::check_ready() {
    co_await keep(probe_connection_, ready_, [this]() -> asio::awaitable<bool> {
        co_await probe_connection_.query(SQL_PING, no_parameters); // replaces a broken connection
        co_await require_extension(probe_connection_.connection(), statement_deadline);
        co_return true;
    });
}

asio::awaitable<std::string> StatusReader::status() {
    co_return co_await keep(connection_, status_, [this]() -> asio::awaitable<std::string> {
        const Rows rows = co_await connection_.query(SQL_STATUS, no_parameters);
        co_return std::string(rows.text(0, only_column));
    });
}

asio::awaitable<std::string> StatusReader::rings() {
    co_return co_await keep(connection_, rings_, [this]() -> asio::awaitable<std::string> {
        const Rows rows = co_await connection_.query(SQL_RINGS, no_parameters);
        co_return std::string(rows.text(0, only_column));
    });
}

/// Reads the descriptions once for each connection. After an update of the extension they may be
/// old until the next connection.
asio::awaitable<void> StatusReader::describe() {
    const Rows rows = co_await connection_.query(SQL_DESCRIPTIONS, no_parameters);
    descriptions_.clear();
    for (int row = 0; row < rows.size(); ++row)
        descriptions_[std::string(rows.text(row, DescriptionColumns::name))] = {
            std::string(rows.text(row, DescriptionColumns::type)),
            std::string(rows.text(row, DescriptionColumns::help))};
    described_ = connection_.connections();
}

asio::awaitable<std::vector<Sample>> StatusReader::metrics() {
    co_return co_await keep(
        connection_, metrics_, [this]() -> asio::awaitable<std::vector<Sample>> {
            const Rows rows = co_await connection_.query(SQL_METRICS, no_parameters);
            if (described_ != connection_.connections())
                co_await describe();
            std::vector<Sample> samples;
            for (int row = 0; row < rows.size(); ++row) {
                if (row == 0 || rows.text(row, MetricColumns::number) !=
                                    rows.text(row - 1, MetricColumns::number))
                    samples.push_back({std::string(rows.text(row, MetricColumns::name)),
                                       {},
                                       rows.float8(row, MetricColumns::value)});
                if (!rows.is_null(row, MetricColumns::label))
                    samples.back().labels.emplace(rows.text(row, MetricColumns::label),
                                                  rows.text(row, MetricColumns::label_value));
            }
            co_return samples;
        });
}

asio::awaitable<std::vector<std::string>> StatusReader::timeline(const std::string &saga_id) {
    const auto turn = co_await timeline_connection_.take_turn();
    const Parameters parameters{saga_id};
    const Rows rows = co_await timeline_connection_.query(SQL_TIMELINE, parameters);
    std::vector<std::string> lines;
    for (int row = 0; row < rows.size(); ++row)
        lines.emplace_back(rows.text(row, only_column));
    co_return lines;
}

namespace {

/// A text that only this query with these parameters has.
std::string question_of(const char *sql, const Parameters &parameters) {
    std::string question = sql;
    for (const auto &parameter : parameters)
        question += parameter ? '\0' + std::to_string(parameter->size()) + ':' + *parameter
                              : std::string("\0-", 2);
    return question;
}

} // namespace

ViewReader::ViewReader(const asio::any_io_executor &executor, std::string conninfo,
                       Connection::NoticeHandler on_notice, int waiting_max)
    : connection_(executor, std::move(conninfo), std::move(on_notice),
                  {SQL_VIEW_SESSION, monitor_kinds, statement_deadline, waiting_max}) {}

const ViewReader::KeptBody *ViewReader::fresh(const std::string &question) {
    const auto found = kept_.find(question);
    return found != kept_.end() && std::chrono::steady_clock::now() < found->second.until
               ? &found->second
               : nullptr;
}

void ViewReader::keep(const std::string &question, const std::optional<std::string> &body,
                      Duration duration) {
    const SteadyTime now = std::chrono::steady_clock::now();
    std::erase_if(kept_, [now](const auto &each) { return each.second.until <= now; });
    if (kept_.size() < kept_max)
        kept_[question] = {body, now + duration};
}

asio::awaitable<std::optional<std::string>> ViewReader::read(const char *sql,
                                                             Parameters parameters) {
    const std::string question = question_of(sql, parameters);
    if (const KeptBody *kept = fresh(question))
        co_return kept->body;
    const auto turn = co_await connection_.take_turn();
    if (const KeptBody *kept = fresh(question)) // the previous query may have read the same
        co_return kept->body;
    const SteadyTime asked = std::chrono::steady_clock::now();
    const Rows rows = co_await connection_.query(sql, parameters);
    const Duration took = std::chrono::ceil<Duration>(std::chrono::steady_clock::now() - asked);
    std::optional<std::string> body;
    if (rows.size() > 0 && !rows.is_null(0, only_column))
        body = std::string(rows.text(0, only_column));
    keep(question, body, std::max(keep_for, keep_times * took));
    co_return body;
}

} // namespace stacksaga::coordinator
