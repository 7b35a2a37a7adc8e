// Connection strings: checks one, names its database, and prints one without its secrets. libpq
// parses them, so that no spelling of a secret is missed. URLs are printed in the same way.
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

/// The mistake in a connection string, without a value that may be a secret; nothing when it is
/// valid.
[[nodiscard]] std::optional<std::string> conninfo_complaint(const std::string &conninfo);

/// The database of a connection string, for display: the service, host, port and name that it sets,
/// never a password. Empty where libpq's environment alone decides.
[[nodiscard]] std::string database_label(const std::string &conninfo);

/// The connection string as KEY=VALUE words, each secret as ****; "****" for a string that libpq
/// cannot parse.
[[nodiscard]] std::string without_secrets(const std::string &conninfo);

/// A URL with **** in place of possible secrets: user and password, query and fragment.
[[nodiscard]] std::string url_without_secrets(const std::string &url);

} // namespace stacksaga::coordinator
