// Shared by the dedupe methods: limits of their arguments, tokens, retention.
#pragma once
#include "core/ring/token.hpp"

#include "pg/statement/function.hpp"

namespace stacksaga {

inline constexpr int scope_bytes_max = 63;

/// The text argument `i`, 1 to 255 bytes long; SG400 otherwise. For keys, ids, producers.
std::string_view key_argument(const pg::Arguments &arguments, int i, const char *name);

/// The text argument `i`, 1 to scope_bytes_max bytes long; SG400 otherwise.
std::string_view scope_argument(const pg::Arguments &arguments, int i, const char *name);

/// The token of (scope, key): of scope || chr(31) || key.
core::Token token_of_scoped_key(std::string_view scope, std::string_view key);

/// The length of a positive interval without months that is at most a hundred years, in
/// microseconds; SG400 otherwise.
int64 duration_argument(Datum interval, const char *name);

/// How long to remember from now on, in microseconds: argument `i`, or stacksaga.dedupe_retention
/// where it is NULL.
int64 retention_argument(const pg::Arguments &arguments, int i);

/// 25006 in a read-only transaction, and so on a standby: without a record there is no effect.
void require_writable(const char *function);

} // namespace stacksaga
