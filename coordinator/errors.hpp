// What a failed call means for the coordinator: only distinctions that change what it does next.
#pragma once

#include "log.hpp"

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stacksaga::coordinator {

enum class ErrorClass {
    retry_now, ///< a conflict with a neighbour: the same call again, soon
    reconnect, ///< the connection or the server is gone, or not ready: connect again, with backoff
    in_doubt,  ///< the connection was lost while a window was published: connect, read what stands
    refused,   ///< the database refused this ring's request: look again later, serve other rings
    ring_missing,      ///< no such ring: it may be created yet
    shared_session,    ///< a pooler stands between: the session may not be our own: stop
    permission,        ///< the role lacks a grant or may not log in: stop
    missing_extension, ///< stacksaga is not in this database, or older than this daemon: stop
    fatal              ///< anything else: stop, a supervisor starts it anew
};

[[nodiscard]] std::string_view name_of(ErrorClass kind) noexcept;

/// The class of a server error; an empty SQLSTATE means that no verdict came, the connection broke.
[[nodiscard]] ErrorClass classify(std::string_view sqlstate) noexcept;

/// Whether the connection cannot be used after it.
[[nodiscard]] constexpr bool ends_connection(ErrorClass kind) noexcept {
    return kind == ErrorClass::reconnect || kind == ErrorClass::in_doubt;
}

/// What to do about a connection that was refused; empty where the refusal says it all.
[[nodiscard]] std::string_view advice_on_connecting(std::string_view sqlstate) noexcept;

/// A failed call to the database. what() is the primary message (libpq's may hold newlines).
struct StoreError : std::runtime_error {
    StoreError(ErrorClass kind_of_error, const std::string &message, std::string state = {},
               std::string more = {}, std::string advice = {})
        : std::runtime_error(message), kind(kind_of_error), sqlstate(std::move(state)),
          detail(std::move(more)), hint(std::move(advice)) {}

    ErrorClass kind;
    std::string sqlstate; ///< empty when the server said none
    std::string detail;
    std::string hint;
};

/// The error as fields of a log event; what the server left empty is left out.
[[nodiscard]] std::vector<LogField> fields_of(const StoreError &error);

/// The error as lines for people: what was wrong, and what to do.
[[nodiscard]] std::string explain(const StoreError &error);

/// Exit codes, those of sysexits.h where it has one.
namespace exit_code {
inline constexpr int ok = 0;
inline constexpr int usage = 64;
inline constexpr int bad_config = 65;        ///< a ring that does not exist, with --once; a pooler
inline constexpr int unavailable = 69;       ///< no database, with --once
inline constexpr int internal = 70;          ///< a defect, or a server error nobody foresaw
inline constexpr int temporary = 75;         ///< the request was refused for now, with --once
inline constexpr int permission = 77;        ///< EX_NOPERM
inline constexpr int missing_extension = 78; ///< EX_CONFIG: extension missing or too old
} // namespace exit_code

/// The exit code of a process that ends because of an error of this class.
[[nodiscard]] int exit_code_of(ErrorClass kind) noexcept;

} // namespace stacksaga::coordinator
