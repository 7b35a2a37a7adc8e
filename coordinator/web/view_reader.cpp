#include "web/view_reader.hpp"

#include <algorithm>
#include <array>

namespace stacksaga::coordinator {
namespace {

constexpr Duration keep_for = std::chrono::seconds(1);
/// An answer is kept for this multiple of the time that it took, so that a view costs at most a
/// tenth of the database's time.
constexpr int keep_times = 10;
constexpr std::size_t kept_max = 64;
constexpr Duration statement_deadline = std::chrono::seconds(5);
constexpr std::array<std::string_view, 1> role_kinds{"monitor"};

// Without JIT: compiling takes longer than any view.
constexpr const char *SQL_SESSION =
    "SELECT pg_catalog.set_config('statement_timeout', '3s', false),"
    "       pg_catalog.set_config('lock_timeout', '1s', false),"
    "       pg_catalog.set_config('jit', 'off', false),"
    "       pg_catalog.set_config('default_transaction_read_only', 'on', false)";

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
                  {SQL_SESSION, role_kinds, statement_deadline, waiting_max}) {}

const ViewReader::Kept *ViewReader::fresh(const std::string &question) {
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
    if (const Kept *kept = fresh(question))
        co_return kept->body;
    const auto turn = co_await connection_.take_turn();
    if (const Kept *kept = fresh(question)) // the query before may have read the same
        co_return kept->body;
    const SteadyTime asked = std::chrono::steady_clock::now();
    const Rows rows = co_await connection_.query(sql, parameters);
    const Duration took = std::chrono::ceil<Duration>(std::chrono::steady_clock::now() - asked);
    std::optional<std::string> body;
    if (rows.size() > 0 && !rows.is_null(0, 0))
        body = std::string(rows.text(0, 0));
    keep(question, body, std::max(keep_for, keep_times * took));
    co_return body;
}

} // namespace stacksaga::coordinator
