// redact_saga: erases the personal data of a finished saga, and keeps the record that it ran.
//
// The rows stay, for retention, statistics and the identity: the same key with the same input still
// finds the saga, since the fingerprint of the input stays. Rows of the outbox, of idempotency keys
// and of other sagas are not touched: they are not the saga's.
#include "core/ring/token.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/saga/store.hpp"

namespace stacksaga {

namespace {

#define OF_SAGA " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
#define ERASED_VALUE "'{\"redacted\": true}'"
#define ERASED_TEXT "'redacted'"
constinit pg::Statement find_redaction{"SELECT FROM stacksaga.saga_action" OF_SAGA
                                       " AND action = 'redact'"};
enum class ParentColumn : uint8_t { parent_id, is_live };
constinit pg::Select<ParentColumn> find_parent{
    "SELECT parent_id, finished_at IS NULL AS is_live FROM stacksaga.saga" OF_SAGA};
// The trigger saga_transition lets these columns of a finished saga change to these values alone.
constinit pg::Statement erase_saga{
    "UPDATE stacksaga.saga"
    "   SET input = " ERASED_VALUE ", headers = '{}', group_key = NULL,"
    "       attributes = CASE WHEN attributes IS NOT NULL THEN '{}'::jsonb END,"
    "       error = CASE WHEN error IS NOT NULL THEN " ERASED_TEXT " END" OF_SAGA};
constinit std::array erase_rows{
    pg::Statement{"DELETE FROM stacksaga.saga_attribute" OF_SAGA},
    pg::Statement{"UPDATE stacksaga.effect SET output = " ERASED_VALUE OF_SAGA
                  " AND output IS NOT NULL"},
    pg::Statement{
        "UPDATE stacksaga.effect"
        "   SET published = pg_catalog.jsonb_set(published, '{messages}',"
        "           (SELECT coalesce(pg_catalog.jsonb_agg(m.value - 'key' ORDER BY m.n), '[]')"
        "              FROM pg_catalog.jsonb_array_elements(published -> 'messages')"
        "                   WITH ORDINALITY AS m(value, n)))" OF_SAGA " AND published IS NOT NULL"},
    pg::Statement{"UPDATE stacksaga.failure SET error = " ERASED_TEXT
                  ", error_detail = NULL, error_context = NULL" OF_SAGA},
    pg::Statement{"UPDATE stacksaga.step_release SET reason = " ERASED_TEXT OF_SAGA
                  " AND reason IS NOT NULL"},
    pg::Statement{"UPDATE stacksaga.saga_signal SET payload = " ERASED_VALUE OF_SAGA},
    pg::Statement{"UPDATE stacksaga.saga_action SET reason = " ERASED_TEXT OF_SAGA
                  " AND reason IS NOT NULL"}};

/// SG409 when the saga may still need its data: it has not finished, or a saga that it is a step of
/// has not and may have it compensated.
void require_finished(const Saga &saga) {
    if (!core::is_final(saga.status()))
        ereport(ERROR,
                (errcode(pg::sg409), errmsg("saga %s cannot be redacted", uuid_text(saga.id)),
                 errdetail("It is %s.", core::name_of(saga.status()).data()),
                 errhint("Redact it when it is completed or failed; cancel_saga() ends it.")));
    pg_uuid_t id = saga.id;
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        const auto row =
            find_parent.run(pg::param(id), pg::param(core::token_of_uuid(id.data).value()));
        if (!row.empty() && row.boolean(0, ParentColumn::is_live))
            ereport(ERROR,
                    (errcode(pg::sg409), errmsg("saga %s cannot be redacted", uuid_text(saga.id)),
                     errdetail("It belongs to saga %s, which has not finished.", uuid_text(id)),
                     errhint("Redact it when that saga is completed or failed: it may compensate "
                             "this one.")));
        if (row.empty() || row.is_null(0, ParentColumn::parent_id))
            return;
        id = row.uuid(0, ParentColumn::parent_id);
    }
}

void redact(const pg_uuid_t &id, std::string_view reason) {
    Saga &saga = require_saga(id, pg::clock_now());
    require_finished(saga);
    const pg::Param key = pg::param(saga.id), token = pg::param(saga.token);
    if (!find_redaction.run(key, token).empty())
        return; // nothing was added since
    erase_saga.run(key, token);
    CRASH_POINT("redact: the saga erased, not its rows");
    for (pg::Statement &erase : erase_rows)
        erase.run(key, token);
    write_action(saga, {.action = "redact", .status_before = saga.status(), .reason = reason});
}

} // namespace

// redact_saga(saga_id, reason) -> void
STACKSAGA_FUNCTION(redact_saga) {
    pg::Arguments arguments(fcinfo);
    const pg_uuid_t id = arguments.required_uuid(0, "saga_id");
    const std::string_view reason = required_reason(arguments, 1);
    pg::with_spi([&] { redact(id, reason); });
    PG_RETURN_VOID();
}

} // namespace stacksaga
