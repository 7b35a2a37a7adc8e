#include "src/dedupe/idempotency.hpp"

#include "core/dedupe/idempotency_state.hpp"
#include "core/ring/token.hpp"

#include "pg/errors.hpp"
#include "pg/statement/result.hpp"
#include "src/common/limits.hpp"

namespace stacksaga {

namespace {

constexpr std::array columns{
    pg::TableColumn{"token", INT8OID, pg::Nulls::refused, "ring_token"},
    pg::TableColumn{"lease", INT8OID},
    pg::TableColumn{"lease_until", TIMESTAMPTZOID},
    pg::TableColumn{"completed_at", TIMESTAMPTZOID, pg::Nulls::allowed},
    pg::TableColumn{"sweep_at", TIMESTAMPTZOID},
    pg::TableColumn{"created_at", TIMESTAMPTZOID},
    pg::TableColumn{"attempt", INT4OID},
    pg::TableColumn{"fingerprint_version", INT2OID},
    pg::TableColumn{"lease_length", INTERVALOID},
    pg::TableColumn{"retention", INTERVALOID},
    pg::TableColumn{"scope", TEXTOID},
    pg::TableColumn{"key", TEXTOID},
    pg::TableColumn{"fingerprint", BYTEAOID, pg::Nulls::allowed},
    pg::TableColumn{"recovery_point", TEXTOID, pg::Nulls::allowed},
    pg::TableColumn{"response", JSONBOID, pg::Nulls::allowed},
    pg::TableColumn{"forgotten_at", TIMESTAMPTZOID, pg::Nulls::allowed},
};
constexpr std::array indexes{
    pg::TableIndex{.name = "idempotency_key_pkey",
                   .key = {KeyColumn::token, KeyColumn::scope, KeyColumn::key},
                   .is_unique = true},
    pg::TableIndex{.name = "idempotency_key_sweep", .key = {KeyColumn::sweep_at}},
};

} // namespace

// The heavyweight lock on a key is what orders its writers, and a session that has waited for it
// goes on with what is there now, whatever the age of its snapshot.
constinit pg::Table idempotency_keys{{.name = "idempotency_key",
                                      .columns = columns,
                                      .indexes = indexes,
                                      .newer_versions = pg::NewerVersions::used}};

IdempotencyKey::IdempotencyKey(const pg::Arguments &arguments)
    : scope(scope_argument(arguments, 0, "scope")), name(key_argument(arguments, 1, "key")),
      token(token_of_scoped_key(scope, name)), columns{pg::param(token.value()), pg::param(scope),
                                                       pg::param(name)} {}

std::optional<KeyEntry> find_entry(const IdempotencyKey &key) {
    const std::optional<pg::TableRow> row = idempotency_keys.find_one({.key = key.columns});
    return row ? std::optional<KeyEntry>(*row) : std::nullopt;
}

void raise_forgotten(const IdempotencyKey &key, const KeyEntry &entry) {
    ereport(ERROR,
            (errcode(pg::sg409),
             errmsg("key \"%s\" of scope \"%s\" was forgotten", clip(key.name), clip(key.scope)),
             errdetail("It was completed and has been forgotten: its request and response were "
                       "erased. It answers nothing else until its retention ends at %s.",
                       timestamptz_to_str(*entry.expires_at)),
             errhint("What it stands for was done. Use a new key only for a new intent.")));
}

// idempotency_transitions() -> TABLE(from_state, event, to_state, reply, sentence)
STACKSAGA_FUNCTION(idempotency_transitions) {
    pg::ResultSet result(fcinfo);
    auto text = [](std::string_view s) { return pg::of(PointerGetDatum(pg::make_text(s))); };
    for (const core::IdempotencyTransition &t : core::idempotency_transitions)
        result.add(text(core::name_of(t.from)), text(core::name_of(t.event)),
                   text(core::name_of(t.to)), text(core::name_of(t.reply)), text(t.sentence));
    return result.finish();
}

} // namespace stacksaga
