// Connection strings: what is wrong with one, what its database is called, and how one is shown
// without its secrets. libpq reads them, so that no other spelling slips through.
#pragma once

#include <libpq-fe.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace stacksaga::coordinator {

struct FreeConninfo {
    void operator()(PQconninfoOption *options) const noexcept { PQconninfoFree(options); }
};
using ConninfoOptions = std::unique_ptr<PQconninfoOption, FreeConninfo>;

/// The value of one option; nothing when it is unset or empty.
[[nodiscard]] std::optional<std::string> option_value(const ConninfoOptions &options,
                                                      std::string_view keyword);

/// What is wrong with a connection string, without a value that may be a secret; nothing when it
/// can be used.
[[nodiscard]] std::optional<std::string> conninfo_complaint(const std::string &conninfo);

/// Which database a connection string names, for people: service, host, port and name, of those
/// that it sets, never a password. Empty where libpq's environment alone decides.
[[nodiscard]] std::string database_label(const std::string &conninfo);

/// The connection string as KEY=VALUE words, each secret as ****; "****" for what libpq cannot
/// read.
[[nodiscard]] std::string without_secrets(const std::string &conninfo);

} // namespace stacksaga::coordinator
