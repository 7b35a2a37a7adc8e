// The table of idempotency keys, and what its functions share.
#pragma once
#include "core/dedupe/idempotency_state.hpp"
#include "core/ring/token.hpp"
#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/statement/function.hpp"
#include "pg/table/table.hpp"
#include "src/dedupe/dedupe.hpp"

namespace stacksaga {

/// The columns of the table, in their order.
enum class KeyColumn : uint8 {
    token = 1,
    lease,
    lease_until,
    completed_at,
    sweep_at,
    created_at,
    attempt,
    fingerprint_version,
    lease_length,
    retention,
    scope,
    key,
    fingerprint,
    recovery_point,
    response,
    forgotten_at,
};

extern pg::Table idempotency_keys;

struct IdempotencyKey {
    /// The first two arguments of a call.
    explicit IdempotencyKey(const pg::Arguments &arguments);

    std::string_view scope, name;
    core::Token token;
    std::array<pg::Param, 3> columns; ///< of the primary key
};

/// The row of a key.
struct KeyEntry {
    explicit KeyEntry(const pg::TableRow &found)
        : row(found), lease(row.int8(KeyColumn::lease)),
          lease_until(row.time(KeyColumn::lease_until)),
          created_at(row.time(KeyColumn::created_at)), attempt(row.int4(KeyColumn::attempt)),
          completed_at(row.optional_time(KeyColumn::completed_at)),
          recovery_point(row.optional_text(KeyColumn::recovery_point)),
          fingerprint(row.optional_text(KeyColumn::fingerprint)),
          fingerprint_version(row.int2(KeyColumn::fingerprint_version)),
          response(row.optional(KeyColumn::response)),
          forgotten_at(row.optional_time(KeyColumn::forgotten_at)) {
        if (completed_at)
            expires_at = pg::time_plus(*completed_at, length(KeyColumn::retention));
    }

    core::IdempotencyState state(TimestampTz now) const {
        return core::idempotency_state(lease_until, expires_at, forgotten_at.has_value(), now);
    }
    /// Of an interval.
    int64 length(KeyColumn column) const {
        return core::longest(*pg::interval_in_range(row.value(column), false));
    }

    pg::TableRow row;
    int64 lease;
    TimestampTz lease_until;
    TimestampTz created_at;
    int32 attempt;
    std::optional<TimestampTz> completed_at;
    std::optional<TimestampTz> expires_at;
    std::optional<std::string_view> recovery_point;
    std::optional<std::string_view> fingerprint; ///< its bytes
    int16 fingerprint_version;
    std::optional<Datum> response;
    std::optional<TimestampTz> forgotten_at;
};

std::optional<KeyEntry> find_entry(const IdempotencyKey &key);

/// SG409: an operator has erased what would be the answer.
[[noreturn]] void raise_forgotten(const IdempotencyKey &key, const KeyEntry &entry);

} // namespace stacksaga
