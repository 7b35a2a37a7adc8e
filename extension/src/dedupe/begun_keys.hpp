// Keys that this transaction has begun and whose rows are not written yet.
//
// A request that begins its key and finishes it in one transaction writes one row, the finished
// one. Until then the key is kept here, and the lock that its begin has taken keeps other sessions
// from it. Its row is written, in progress, at the first of these: a call on the key other than
// finish and release, an event that deferred_rows.hpp names, COMMIT, and PREPARE TRANSACTION.
//
// The list of kept keys follows savepoints as a row would. A key that was begun in a subtransaction
// goes with it. One whose row was written in an inner subtransaction is to be written again when
// that is rolled back, so it stays here until the row is as lasting as the begin.
#pragma once
#include "core/common/savepoints.hpp"
#include "core/ring/token.hpp"

#include "pg/table/table.hpp"
#include "pg/transaction_events.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/dedupe.hpp"
#include "src/dedupe/idempotency.hpp"

namespace stacksaga {

/// The row of a new key, as its begin decided it.
struct BegunKey {
    BegunKey(const IdempotencyKey &key, std::optional<std::string_view> fingerprint_bytes);

    std::string_view scope() const { return {scope_bytes.data(), scope_size}; }
    std::string_view name() const { return {name_bytes.data(), name_size}; }

    core::Token token;
    int64 lease = 0;
    int64 lease_us = 0;
    int64 retention_us = 0;
    TimestampTz begun = 0;
    core::Lasting begun_in; ///< the subtransaction that has begun it
    core::Lasting
        settled; ///< by the one that wrote or released it, unless it is still to be written
    bool has_request;
    uint8 scope_size, name_size;
    std::array<char, scope_bytes_max> scope_bytes;
    std::array<char, key_bytes_max> name_bytes;
    std::array<char, 32> fingerprint;
};
static_assert(std::is_trivially_copyable_v<BegunKey>);

extern const pg::TransactionUser begun_key_events;

/// Keeps the key, to be written later. False when its row has to be written at once.
bool keep_begun_key(const BegunKey &key);

/// Writes the row of a key that was not kept. False when there is one by now.
bool insert_begun_key(const BegunKey &key);

/// The key, if it is still to be written; null otherwise.
BegunKey *find_begun_key(const IdempotencyKey &key);

/// Writes its row, in progress.
void write_begun_key(BegunKey &key);

/// Writes its row, completed.
void complete_begun_key(BegunKey &key, TimestampTz now, const pg::Param &response);

/// It needs no row: it is free again.
void release_begun_key(BegunKey &key);

} // namespace stacksaga
