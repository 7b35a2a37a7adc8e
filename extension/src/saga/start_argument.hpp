// The arguments of start_saga() and start_sagas(), checked: SG400 and SG413 for invalid ones.
#pragma once
#include "core/time/length.hpp"

#include "pg/statement/array.hpp"
#include "pg/statement/function.hpp"
#include "src/saga/saga_traits.hpp"

namespace stacksaga {

/// The outcome of a start whose key or id already belongs to a saga.
enum class OnConflict : uint8_t { use_existing, fail, restart_if_failed };

/// One saga to be started.
struct Start {
    std::string_view saga;
    Datum input;
    Datum headers;
    Datum fingerprint;
    std::optional<std::string_view> key;
    OnConflict on_conflict;
    std::optional<TimestampTz> run_at;
    std::optional<core::Length> deadline;
    std::optional<pg_uuid_t> saga_id;
    std::optional<int32> version;
    SagaTraits traits;
    TimestampTz now;
};

/// The arrays of start_sagas().
struct StartBatch {
    pg::Elements inputs;
    pg::Elements keys; ///< empty: no keys
    int16 priority;    ///< of all of them
    pg::Elements group_keys;
    pg::Elements attributes;
};

/// The key of a saga: 1 to key_bytes_max bytes.
void check_key(std::string_view key);

Start start_argument(const pg::Arguments &arguments);
StartBatch batch_argument(const pg::Arguments &arguments);
/// Element `i` of a batch, as a start.
Start element_of(const StartBatch &batch, int i, std::string_view saga, TimestampTz now);

} // namespace stacksaga
