// Starting a saga: its row and its first stage.
#pragma once
#include "core/time/length.hpp"

#include "src/ring/rings.hpp"
#include "src/saga/saga_traits.hpp"
#include "src/saga/store.hpp"

namespace stacksaga {

struct NewSaga {
    pg_uuid_t id;
    const Definition *definition;
    Ring ring;
    int32 run;
    std::optional<std::string_view> key{};
    Datum input;       ///< jsonb
    Datum headers;     ///< jsonb
    Datum fingerprint; ///< bytea, of the input
    SagaTraits traits{};
    std::optional<pg_uuid_t> parent_id{};
    int16 parent_step = 0;
    TimestampTz due_at; ///< of the first stage
    std::optional<TimestampTz> deadline_at{};
    std::optional<core::Length> deadline{}; ///< of this saga, instead of its definition's
    TimestampTz now;
    bool is_new_id = false; ///< made for this saga, so no other session inserts it
};

/// Inserts the saga and makes its first stage due; false when the id is taken. Waits for another
/// transaction that inserts the same id. Inside with_spi.
bool insert_saga(const NewSaga &saga);

/// The keys of sagas that were removed at this instant or earlier are forgotten; DT_NOBEGIN: none
/// is.
TimestampTz forgotten_until(TimestampTz now);

} // namespace stacksaga
