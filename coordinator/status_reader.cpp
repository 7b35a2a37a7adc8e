#include "status_reader.hpp"

#include "requirements.hpp"

#include <asio/use_awaitable.hpp>

#include <array>

namespace stacksaga::coordinator {
namespace {

constexpr Duration keep_for = std::chrono::seconds(1);
constexpr Duration statement_deadline = std::chrono::seconds(5);
constexpr std::array<std::string_view, 1> role_kinds{"monitor"};
constexpr int waiting_max = 64;

constexpr const char *SQL_SESSION =
    "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false),"
    "       pg_catalog.set_config('statement_timeout', '6s', false),"
    "       pg_catalog.set_config('default_transaction_read_only', 'on', false)";
constexpr const char *SQL_STATUS = "SELECT stacksaga.status()";
// One row for each label; a sample without labels has one row with NULLs.
constexpr const char *SQL_METRICS =
    "SELECT m.n, m.name, m.value, l.key, l.value"
    "  FROM (SELECT row_number() OVER () AS n, * FROM stacksaga.metrics()) AS m"
    "  LEFT JOIN LATERAL pg_catalog.jsonb_each_text(m.labels) AS l ON true"
    " ORDER BY m.n";
constexpr const char *SQL_DESCRIPTIONS =
    "SELECT name, type, help FROM stacksaga.metric_descriptions()";
constexpr const char *SQL_TIMELINE =
    "SELECT line FROM stacksaga.saga_timeline($1::uuid) WITH ORDINALITY AS t(line, n) ORDER BY n";

} // namespace

/// The right to use the connection; returned at the end of the scope.
class StatusReader::Turn {
public:
    explicit Turn(StatusReader &reader) : reader_(reader) {}
    Turn(const Turn &) = delete;
    Turn &operator=(const Turn &) = delete;
    ~Turn() { reader_.turn_.try_send(asio::error_code(), true); }

private:
    StatusReader &reader_;
};

StatusReader::StatusReader(const asio::any_io_executor &executor, std::string conninfo,
                           Connection::NoticeHandler on_notice)
    : conninfo_(std::move(conninfo)), connection_(executor, std::move(on_notice)),
      turn_(executor, 1) {
    turn_.try_send(asio::error_code(), true);
}

asio::awaitable<void> StatusReader::connect() {
    const Parameters none;
    if (closed_)
        throw StoreError(ErrorClass::refused, "the daemon is stopping");
    if (connection_.is_open())
        co_return;
    described_ = false;
    co_await connection_.open(conninfo_);
    co_await connection_.query(SQL_SESSION, none, statement_deadline);
}

asio::awaitable<Rows> StatusReader::query(const char *sql, const Parameters &parameters) {
    co_await connect();
    Rows rows = co_await query_as(role_kinds, connection_, sql, parameters, statement_deadline);
    co_return rows;
}

template <class Value, class Ask>
asio::awaitable<Value> StatusReader::keep(Kept<Value> &kept, Ask ask) {
    const auto is_fresh = [&kept] {
        return kept.value && std::chrono::steady_clock::now() < kept.until;
    };
    if (is_fresh())
        co_return *kept.value;
    if (waiting_ >= waiting_max)
        throw StoreError(ErrorClass::refused, "too many queries wait for the database");
    ++waiting_;
    try {
        co_await turn_.async_receive(asio::use_awaitable);
    } catch (...) {
        --waiting_;
        throw;
    }
    --waiting_;
    const Turn turn(*this);
    if (!is_fresh()) { // the query before may have read the same
        kept.value.reset();
        const bool is_reused = connection_.is_open();
        const SteadyTime asked = std::chrono::steady_clock::now();
        bool was_dead = false;
        try {
            kept.value = co_await ask();
        } catch (const StoreError &error) {
            // The server may have restarted since the last query: a reused connection that fails at
            // once says nothing about the server now.
            was_dead = is_reused && error.kind == ErrorClass::reconnect && !connection_.is_open() &&
                       std::chrono::steady_clock::now() - asked < keep_for;
            if (!was_dead)
                throw;
        }
        if (was_dead)
            kept.value = co_await ask();
        kept.until = std::chrono::steady_clock::now() + keep_for;
    }
    co_return *kept.value;
}

asio::awaitable<void> StatusReader::check_ready() {
    co_await keep(ready_, [this]() -> asio::awaitable<bool> {
        co_await connect();
        co_await require_extension(connection_, statement_deadline);
        co_return true;
    });
}

asio::awaitable<std::string> StatusReader::status() {
    co_return co_await keep(status_, [this]() -> asio::awaitable<std::string> {
        const Parameters none;
        const Rows rows = co_await query(SQL_STATUS, none);
        co_return std::string(rows.text(0, 0));
    });
}

/// Reads the descriptions once for each connection. After an update of the extension they may be
/// old until the next connection.
asio::awaitable<void> StatusReader::describe() {
    const Parameters none;
    const Rows rows = co_await query(SQL_DESCRIPTIONS, none);
    descriptions_.clear();
    for (int row = 0; row < rows.size(); ++row)
        descriptions_[std::string(rows.text(row, 0))] = {std::string(rows.text(row, 1)),
                                                         std::string(rows.text(row, 2))};
    described_ = true;
}

asio::awaitable<std::vector<Sample>> StatusReader::metrics() {
    co_return co_await keep(metrics_, [this]() -> asio::awaitable<std::vector<Sample>> {
        const Parameters none;
        const Rows rows = co_await query(SQL_METRICS, none);
        if (!described_)
            co_await describe();
        std::vector<Sample> samples;
        for (int row = 0; row < rows.size(); ++row) {
            if (row == 0 || rows.text(row, 0) != rows.text(row - 1, 0))
                samples.push_back({std::string(rows.text(row, 1)), {}, rows.float8(row, 2)});
            if (!rows.is_null(row, 3))
                samples.back().labels.emplace(rows.text(row, 3), rows.text(row, 4));
        }
        co_return samples;
    });
}

asio::awaitable<std::vector<std::string>> StatusReader::timeline(const std::string &saga_id) {
    Kept<std::vector<std::string>> not_kept;
    co_return co_await keep(not_kept, [&]() -> asio::awaitable<std::vector<std::string>> {
        const Parameters parameters{saga_id};
        const Rows rows = co_await query(SQL_TIMELINE, parameters);
        std::vector<std::string> lines;
        for (int row = 0; row < rows.size(); ++row)
            lines.emplace_back(rows.text(row, 0));
        co_return lines;
    });
}

} // namespace stacksaga::coordinator
