#include "connection.hpp"

#include <chrono>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

namespace stacksaga::property {

namespace {

constexpr int statement_timeout_ms = 120'000;

std::string field(const PGresult *result, int code) {
    const char *text = PQresultErrorField(result, code);
    return text != nullptr ? text : "";
}

Reply reply_of(PGconn *connection, const PGresult *result) {
    Reply reply;
    const ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        reply.sqlstate = field(result, PG_DIAG_SQLSTATE);
        reply.message = field(result, PG_DIAG_MESSAGE_PRIMARY);
        reply.detail = field(result, PG_DIAG_MESSAGE_DETAIL);
        if (PQstatus(connection) != CONNECTION_OK || reply.sqlstate.empty())
            reply.sqlstate = "lost";
        return reply;
    }
    for (int i = 0; i < PQntuples(result); ++i) {
        std::vector<std::optional<std::string>> &row = reply.rows.emplace_back();
        for (int j = 0; j < PQnfields(result); ++j)
            row.emplace_back(PQgetisnull(result, i, j) != 0
                                 ? std::nullopt
                                 : std::optional<std::string>(PQgetvalue(result, i, j)));
    }
    return reply;
}

} // namespace

std::string Reply::text() const {
    if (!is_accepted())
        return fmt::format("{} {}{}", sqlstate, message, detail.empty() ? "" : " (" + detail + ")");
    std::vector<std::string> lines;
    for (const auto &row : rows) {
        std::vector<std::string> values;
        for (const auto &value : row)
            values.push_back(value.value_or("NULL"));
        lines.push_back(fmt::format("{}", fmt::join(values, " | ")));
    }
    return lines.empty() ? "accepted" : fmt::format("{}", fmt::join(lines, "; "));
}

Connection::Connection(std::string conninfo, std::string options)
    : conninfo_(std::move(conninfo)), options_(std::move(options)) {
    open();
}

void Connection::open() {
    const char *keywords[] = {"dbname", "options", nullptr};
    const char *values[] = {conninfo_.c_str(), options_.c_str(), nullptr};
    connection_.reset(PQconnectdbParams(keywords, values, 1));
    if (PQstatus(connection_.get()) != CONNECTION_OK)
        throw std::runtime_error(PQerrorMessage(connection_.get()));
    PQsetNoticeReceiver(
        connection_.get(), [](void *, const PGresult *) {}, nullptr);
    pid_ = PQbackendPID(connection_.get());
    reply_.reset();
}

void Connection::send(const std::string &sql) {
    reply_.reset();
    if (PQsendQueryParams(connection_.get(), sql.c_str(), 0, nullptr, nullptr, nullptr, nullptr,
                          0) == 0)
        reply_ = Reply{.rows = {}, .sqlstate = "lost", .message = {}, .detail = {}};
}

const std::optional<Reply> &Connection::poll() {
    if (reply_)
        return reply_;
    if (PQconsumeInput(connection_.get()) == 0) {
        reply_ = Reply{.rows = {}, .sqlstate = "lost", .message = {}, .detail = {}};
        return reply_;
    }
    if (PQisBusy(connection_.get()) != 0)
        return reply_;
    while (PGresult *result = PQgetResult(connection_.get())) {
        reply_ = reply_of(connection_.get(), result);
        PQclear(result);
    }
    return reply_;
}

void Connection::wait(int timeout_ms) {
    pollfd readable{PQsocket(connection_.get()), POLLIN, 0};
    ::poll(&readable, 1, timeout_ms);
}

std::optional<Reply> Connection::take(int timeout_ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (!poll()) {
        if (std::chrono::steady_clock::now() > end)
            return std::nullopt;
        wait(100);
    }
    return std::exchange(reply_, std::nullopt);
}

Reply Connection::run(const std::string &sql) {
    send(sql);
    std::optional<Reply> reply = take(statement_timeout_ms);
    if (!reply)
        throw std::runtime_error("no answer to " + sql);
    return *reply;
}

Reply Connection::require(const std::string &sql) {
    Reply reply = run(sql);
    if (!reply.is_accepted())
        throw std::runtime_error(fmt::format("{} is answered {}", sql, reply.text()));
    return reply;
}

void Connection::cancel() {
    const std::unique_ptr<PGcancel, decltype(&PQfreeCancel)> request(PQgetCancel(connection_.get()),
                                                                     &PQfreeCancel);
    char error[256];
    if (PQcancel(request.get(), error, sizeof error) == 0)
        throw std::runtime_error(error);
}

void Connection::cut() {
    shutdown(PQsocket(connection_.get()), SHUT_RDWR);
    connection_.reset();
    reply_.reset();
}

void await_end_of(Connection &observer, int pid) {
    const std::string count =
        fmt::format("SELECT count(*) FROM pg_stat_activity WHERE pid = {}", pid);
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(statement_timeout_ms);
    while (observer.require(count).at(0, 0) != "0")
        if (std::chrono::steady_clock::now() > end)
            throw std::runtime_error("a session that was cut does not end");
}

} // namespace stacksaga::property
