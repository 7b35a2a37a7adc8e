// As much of libpq as the programs of the tests need, with owners and exceptions.
#pragma once

#include <libpq-fe.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace stacksaga::support {

/// The server refused a statement; the session goes on.
class Refused : public std::runtime_error {
public:
    Refused(std::string sqlstate, const std::string &message)
        : std::runtime_error(message), sqlstate_(std::move(sqlstate)) {}
    [[nodiscard]] const std::string &sqlstate() const noexcept { return sqlstate_; }

private:
    std::string sqlstate_;
};

/// There is no connection, or it broke. Whether a statement under way took effect is not known.
class Disconnected : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Values of a result, in text form.
class Rows {
public:
    explicit Rows(PGresult *result) : result_(result) {}

    [[nodiscard]] int size() const noexcept { return PQntuples(result_.get()); }
    [[nodiscard]] bool empty() const noexcept { return size() == 0; }
    [[nodiscard]] std::string text(int row, int column) const {
        return PQgetvalue(result_.get(), row, column);
    }
    [[nodiscard]] bool is_null(int row, int column) const {
        return PQgetisnull(result_.get(), row, column) != 0;
    }
    /// Throws std::invalid_argument for what is not a number, NULL included.
    [[nodiscard]] long long number(int row, int column) const {
        return std::stoll(text(row, column));
    }

private:
    struct Clear {
        void operator()(PGresult *result) const noexcept { PQclear(result); }
    };
    std::unique_ptr<PGresult, Clear> result_;
};

/// A connection that is made when it is needed, and made again after it broke. No statement takes
/// longer than 10 seconds, unless the options (as libpq's keyword `options`) say so.
class Session {
public:
    explicit Session(std::string conninfo, std::string options = "-c statement_timeout=10s")
        : conninfo_(std::move(conninfo)), options_(std::move(options)) {}
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    /// Who gets the text of the server's notices; nobody does otherwise. Before the first run().
    void on_notice(std::function<void(std::string_view)> listener) {
        listener_ = std::move(listener);
    }

    /// Runs one statement; parameters are in text form. Throws Refused or Disconnected.
    Rows run(const char *sql, const std::vector<std::string> &parameters = {});

    /// Runs a script of statements. Throws as run() does.
    void run_script(const std::string &sql);

    [[nodiscard]] bool is_connected() const noexcept { return connection_ != nullptr; }
    void disconnect() noexcept { connection_.reset(); }

private:
    struct Finish {
        void operator()(PGconn *connection) const noexcept { PQfinish(connection); }
    };
    void connect();
    Rows check(PGresult *result);

    std::string conninfo_;
    std::string options_;
    std::function<void(std::string_view)> listener_;
    std::unique_ptr<PGconn, Finish> connection_;
};

/// A transaction that is rolled back unless it is committed.
class Transaction {
public:
    explicit Transaction(Session &session) : session_(session) { session_.run("BEGIN"); }
    Transaction(const Transaction &) = delete;
    Transaction &operator=(const Transaction &) = delete;
    ~Transaction();

    Rows run(const char *sql, const std::vector<std::string> &parameters) {
        return session_.run(sql, parameters);
    }
    /// Disconnected means that nobody knows whether it was committed.
    void commit() {
        session_.run("COMMIT");
        is_over_ = true;
    }

private:
    Session &session_;
    bool is_over_ = false;
};

} // namespace stacksaga::support
