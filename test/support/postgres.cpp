#include "postgres.hpp"

namespace stacksaga::support {

namespace {

/// The first line of a message, from the server's own words on.
std::string gist(std::string_view message) {
    constexpr std::string_view severity = "FATAL:  ";
    if (const auto place = message.find(severity); place != std::string_view::npos)
        message.remove_prefix(place + severity.size());
    return std::string(message.substr(0, message.find('\n')));
}

} // namespace

void Session::connect() {
    const char *keywords[] = {"dbname", "connect_timeout", "options", nullptr};
    const char *values[] = {conninfo_.c_str(), "5", options_.c_str(), nullptr};
    std::unique_ptr<PGconn, Finish> connection(PQconnectdbParams(keywords, values, 1));
    if (PQstatus(connection.get()) != CONNECTION_OK)
        throw Disconnected(gist(PQerrorMessage(connection.get())));
    PQsetNoticeReceiver(
        connection.get(),
        [](void *session, const PGresult *notice) {
            const auto &listener = static_cast<Session *>(session)->listener_;
            const char *text = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);
            if (listener && text != nullptr)
                listener(text);
        },
        this);
    connection_ = std::move(connection);
}

Rows Session::run(const char *sql, const std::vector<std::string> &parameters) {
    if (!connection_)
        connect();
    std::vector<const char *> values;
    for (const std::string &parameter : parameters)
        values.push_back(parameter.c_str());
    return check(PQexecParams(connection_.get(), sql, static_cast<int>(values.size()), nullptr,
                              values.data(), nullptr, nullptr, 0));
}

void Session::run_script(const std::string &sql) {
    if (!connection_)
        connect();
    check(PQexec(connection_.get(), sql.c_str()));
}

Rows Session::check(PGresult *result) {
    Rows rows(result);
    const ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
        return rows;
    const char *field = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const std::string sqlstate = field != nullptr ? field : "";
    const std::string message = gist(PQerrorMessage(connection_.get()));
    // libpq has no SQLSTATE for what it notices itself; 57P is a server that ends the session.
    if (PQstatus(connection_.get()) != CONNECTION_OK || sqlstate.empty() ||
        sqlstate.starts_with("57P")) {
        disconnect();
        throw Disconnected(message);
    }
    throw Refused(sqlstate, message);
}

Transaction::~Transaction() {
    if (is_over_ || !session_.is_connected())
        return;
    try {
        session_.run("ROLLBACK");
    } catch (const std::exception &) {
        session_.disconnect(); // which rolls it back as well
    }
}

} // namespace stacksaga::support
