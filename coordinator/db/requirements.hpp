// The daemon's requirements of a database: the extension in a compatible version, and privileges
// for its role.
#pragma once

#include "db/connection.hpp"

#include <span>
#include <string>
#include <string_view>

namespace stacksaga::coordinator {

/// Whether a daemon of version `daemon` can work with an extension of version `installed`: the same
/// major version, and a minor one that is not older. Both are MAJOR.MINOR; anything else does not
/// fit.
[[nodiscard]] bool version_fits(std::string_view installed, std::string_view daemon) noexcept;

/// The version of the extension in the database of this connection. Throws
/// StoreError(missing_extension), with the SQL that fixes it, when there is none or it does not
/// fit.
asio::awaitable<std::string> require_extension(Connection &connection, Duration deadline);

/// Kinds of roles, as grant_usage() has them.
using RoleKinds = std::span<const std::string_view>;

/// Runs a query as a role that should be of these kinds. If the role lacks a privilege and the
/// server has no hint, the error's hint is the SQL that grants it.
asio::awaitable<Rows> query_as(RoleKinds kinds, Connection &connection, const char *sql,
                               const Parameters &parameters, Duration deadline);

/// The SQL that grants the privileges that this connection's role lacks.
[[nodiscard]] std::string grant_advice(const Connection &connection, RoleKinds kinds);

} // namespace stacksaga::coordinator
