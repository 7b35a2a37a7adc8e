// Appending to the log.
#pragma once
#include "core/ring/token.hpp"

#include "src/outbox/outbox.hpp"

namespace stacksaga {

/// The columns of a row of the log that its publisher decides. Datums of absent columns are 0;
/// topic, key and type are text, payload and headers jsonb.
struct NewRow {
    core::Token token = core::Token::from_int64(0);
    pg_uuid_t id;
    Datum topic, key, type, payload, headers;
    std::optional<TimestampTz> deliver_at;
};
static_assert(std::is_trivially_destructible_v<NewRow>);

/// Appends rows to the current generation, with numbers that rise in their order. As the owner of
/// the extension; 25006 in a transaction that is read only, SG409 when the table has a trigger.
void append_to_log(int32 ring_id, TimestampTz now, std::span<const NewRow> rows);

/// A new generation has begun: this session fills it from now on, others a moment later.
void forget_generation();

} // namespace stacksaga
