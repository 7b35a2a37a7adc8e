// dedupe_state: what each rung of the ladder knows of a scope and a key. It reads neither stored
// responses nor values, since a monitor may not see payloads.
#include "core/dedupe/idempotency_state.hpp"
#include "core/ring/token.hpp"

#include "pg/clock.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/deferred_rows.hpp"
#include "src/dedupe/dedupe.hpp"
#include "src/ring/token_functions.hpp"

namespace stacksaga {

namespace {

// The state of a key is that of core/dedupe/idempotency_state.hpp, so the column is NULL here;
// lease_until and is_forgotten are of keys alone.
enum class RungColumn : uint8_t {
    rung,
    state,
    created_at,
    expires_at,
    detail,
    lease_until,
    is_forgotten,
};
constinit pg::Select<RungColumn> select_rungs{
    "SELECT 'idempotency_key' AS rung, NULL AS state, created_at,"
    "       completed_at + retention AS expires_at,"
    "       pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('attempt', attempt,"
    "         'lease_until', CASE WHEN completed_at IS NULL THEN lease_until END,"
    "         'completed_at', completed_at, 'recovery_point', recovery_point,"
    "         'forgotten_at', forgotten_at)) AS detail, lease_until,"
    "       forgotten_at IS NOT NULL AS is_forgotten"
    "  FROM stacksaga.idempotency_key"
    " WHERE token OPERATOR(stacksaga.=) $1::stacksaga.ring_token AND scope = $3 AND key = $4"
    " UNION ALL "
    "SELECT 'accepted_message', CASE WHEN expires_at > $5 THEN 'accepted' ELSE 'expired' END,"
    "       created_at, expires_at, '{}', NULL, NULL"
    "  FROM stacksaga.accepted_message"
    " WHERE token OPERATOR(stacksaga.=) $1::stacksaga.ring_token"
    "   AND consumer = $3 AND message_id = $4"
    " UNION ALL "
    "SELECT 'sequence', 'accepted', created_at, NULL,"
    "       pg_catalog.jsonb_build_object('epoch', epoch, 'sequence', sequence,"
    "         'updated_at', updated_at), NULL, NULL"
    "  FROM stacksaga.producer_sequence"
    " WHERE token OPERATOR(stacksaga.=) $2::stacksaga.ring_token AND producer = $3"
    " UNION ALL "
    "SELECT 'versioned_value', CASE WHEN value IS NULL THEN 'deleted' ELSE 'present' END,"
    "       created_at, NULL,"
    "       pg_catalog.jsonb_build_object('version', version, 'updated_at', updated_at), NULL, NULL"
    "  FROM stacksaga.versioned_value"
    " WHERE token OPERATOR(stacksaga.=) $1::stacksaga.ring_token AND scope = $3 AND key = $4"};

using Rungs = pg::RowsOf<RungColumn>;

/// The state, or what the instants of an idempotency key say.
pg::Column state_of(const Rungs &rows, uint64 row, TimestampTz now) {
    if (!rows.is_null(row, RungColumn::state))
        return pg::of(rows.value(row, RungColumn::state));
    const core::IdempotencyState state = core::idempotency_state(
        rows.time(row, RungColumn::lease_until), rows.optional_time(row, RungColumn::expires_at),
        rows.boolean(row, RungColumn::is_forgotten), now);
    return pg::of(PointerGetDatum(pg::make_text(core::name_of(state))));
}

} // namespace

// dedupe_state(scope, key) -> TABLE(rung, state, created_at, expires_at, detail)
STACKSAGA_FUNCTION(dedupe_state) {
    pg::Arguments arguments(fcinfo);
    const std::string_view scope = scope_argument(arguments, 0, "scope");
    const std::string_view key = key_argument(arguments, 1, "key");
    pg::ResultSet result(fcinfo);
    write_deferred_rows();
    pg::with_spi([&] {
        const TimestampTz now = pg::clock_now();
        const Rungs rows = select_rungs.run(pg::param(token_of_scoped_key(scope, key).value()),
                                            pg::param(token_of_text(scope).value()),
                                            pg::param(scope), pg::param(key), pg::param_time(now));
        for (uint64 i = 0; i < rows.count(); ++i)
            result.add(pg::of(rows.value(i, RungColumn::rung)), state_of(rows, i, now),
                       pg::of(rows.nullable(i, RungColumn::created_at)),
                       pg::of(rows.nullable(i, RungColumn::expires_at)),
                       pg::of(rows.nullable(i, RungColumn::detail)));
    });
    return pg::ResultSet::finish();
}

} // namespace stacksaga
