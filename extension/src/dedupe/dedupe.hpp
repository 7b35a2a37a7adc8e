// Shared by the dedupe methods: limits of their arguments, tokens, retention; and for other rooms
// the removal of expired keys, and the check of a definition against the retention.
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

/// Removes up to `limit` idempotency keys and accepted messages whose retention is over, the oldest
/// first, and returns how many it removed. It leaves rows that another session is writing for
/// another time. Inside with_spi.
int64 remove_expired_keys(int64 limit);

/// Returns `version` of `saga`, unless retrying one of its steps or compensations may take longer
/// than stacksaga.dedupe_retention: SG400 with both numbers. A deadline bounds actions. Steps with
/// the effect "idempotent" need nothing to be remembered; attempts without limit (max_attempts 0)
/// have no number to compare. Inside pg::with_spi, as the extension's owner.
int32 require_short_retries(std::string_view saga, int32 version);

} // namespace stacksaga
