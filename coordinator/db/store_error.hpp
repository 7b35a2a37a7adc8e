// The classes of failed calls: only distinctions that change what the coordinator does next.
#pragma once

#include "base/log.hpp"

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stacksaga::coordinator {

enum class ErrorClass {
    retry_now, ///< a conflict with a neighbour: the same call again, soon
    reconnect, ///< the connection is lost or the server is not ready: connect again, with backoff
    in_doubt,  ///< the connection was lost during a publication: connect, read the outcome
    refused,   ///< the database refused this ring's request: retry later, serve the other rings
    ring_missing,      ///< no such ring: it may be created yet
    shared_session,    ///< a pooler is in between, which may share the session: stop
    permission,        ///< the role lacks a grant or may not log in: stop
    missing_extension, ///< stacksaga is not in this database, or older than this daemon: stop
    fatal              ///< anything else: stop, a supervisor restarts the daemon
};

[[nodiscard]] std::string_view name_of(ErrorClass kind) noexcept;

/// The class of a server error; an empty SQLSTATE means that the connection broke before an answer.
[[nodiscard]] ErrorClass classify(std::string_view sqlstate) noexcept;

/// Whether the connection is unusable afterwards.
[[nodiscard]] constexpr bool ends_connection(ErrorClass kind) noexcept {
    return kind == ErrorClass::reconnect || kind == ErrorClass::in_doubt;
}

/// The hint for a refused connection; empty when the error says enough.
[[nodiscard]] std::string_view advice_on_connecting(std::string_view sqlstate) noexcept;

/// A failed call to the database. what() is the primary message (libpq's may hold newlines).
struct StoreError : std::runtime_error {
    StoreError(ErrorClass kind_of_error, const std::string &message, std::string state = {},
               std::string more = {}, std::string advice = {})
        : std::runtime_error(message), kind(kind_of_error), sqlstate(std::move(state)),
          detail(std::move(more)), hint(std::move(advice)) {}

    ErrorClass kind;
    std::string sqlstate; ///< empty when the server sent none
    std::string detail;
    std::string hint;
};

/// The error as fields of a log event, without the empty ones.
[[nodiscard]] std::vector<LogField> fields_of(const StoreError &error);

/// The error as text: lines with the message, the detail and the hint.
[[nodiscard]] std::string explain(const StoreError &error);

/// Exit codes, those of sysexits.h where it has one.
namespace exit_code {
inline constexpr int ok = 0;
inline constexpr int usage = 64;
inline constexpr int bad_config = 65;        ///< a ring that does not exist, with --once; a pooler
inline constexpr int unavailable = 69;       ///< no database, with --once
inline constexpr int internal = 70;          ///< a defect, or an unexpected server error
inline constexpr int temporary = 75;         ///< the request was refused for now, with --once
inline constexpr int permission = 77;        ///< EX_NOPERM
inline constexpr int missing_extension = 78; ///< EX_CONFIG: extension missing or too old
} // namespace exit_code

/// The exit code of a process that ends because of an error of this class.
[[nodiscard]] int exit_code_of(ErrorClass kind) noexcept;

} // namespace stacksaga::coordinator
