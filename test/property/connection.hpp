// A session whose statements may wait for another session's locks: it sends one without waiting for
// its answer, so that one thread plays several sessions.
#pragma once

#include <libpq-fe.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stacksaga::property {

/// What a statement was answered: rows, or an SQLSTATE.
struct Reply {
    std::vector<std::vector<std::optional<std::string>>> rows;
    std::string sqlstate; ///< empty: accepted; "lost": the connection broke
    std::string message;
    std::string detail;

    [[nodiscard]] bool is_accepted() const { return sqlstate.empty(); }
    [[nodiscard]] const std::optional<std::string> &at(size_t row, size_t column) const {
        return rows.at(row).at(column);
    }
    /// The SQLSTATE and message, or the values of all rows.
    [[nodiscard]] std::string text() const;
};

class Connection {
public:
    /// `options` as libpq's keyword of that name.
    Connection(std::string conninfo, std::string options);

    /// Connects again where cut() or the server ended the session.
    void open();
    [[nodiscard]] bool is_open() const { return connection_ != nullptr; }
    /// Sends a statement; the one before it has been answered.
    void send(const std::string &sql);
    /// The answer, as soon as it is there; it is not taken.
    const std::optional<Reply> &poll();
    /// Waits for the answer so long, and takes it.
    std::optional<Reply> take(int timeout_ms);
    /// Sends a statement and takes its answer. Throws when that takes minutes.
    Reply run(const std::string &sql);
    /// The same of a statement that must be accepted. Throws when it is not.
    Reply require(const std::string &sql);
    /// Asks the server to cancel the statement under way.
    void cancel();
    /// Breaks the connection without a word to the server.
    void cut();
    /// Waits so long for something to read.
    void wait(int timeout_ms);

    [[nodiscard]] int pid() const { return pid_; }

private:
    struct Finish {
        void operator()(PGconn *connection) const noexcept { PQfinish(connection); }
    };
    std::string conninfo_, options_;
    std::unique_ptr<PGconn, Finish> connection_;
    std::optional<Reply> reply_;
    int pid_ = 0;
};

/// Waits until the server process of a session that was cut has ended, and its locks with it.
void await_end_of(Connection &observer, int pid);

} // namespace stacksaga::property
