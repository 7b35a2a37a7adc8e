// idempotency_forget: erases the answer of a completed key before its retention ends.
//
// core/dedupe/idempotency_state.hpp says what the call is answered in each state.
#include "core/dedupe/idempotency_state.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/dedupe/begun_keys.hpp"
#include "src/dedupe/idempotency.hpp"
#include "src/dedupe/key_lock.hpp"

namespace stacksaga {

namespace {

struct Forget {
    IdempotencyKey key;
    std::string_view reason;
    TimestampTz now;
};

[[noreturn]] void raise_unknown(const Forget &f, const std::optional<KeyEntry> &entry) {
    ereport(ERROR,
            (errcode(pg::sg404),
             errmsg("key \"%s\" of scope \"%s\" is not there", clip(f.key.name), clip(f.key.scope)),
             errdetail("%s", entry ? "Its retention is over, and its row is to be removed."
                                   : "Nobody has begun it, or its row has been removed."),
             errhint("Look at dedupe_state(); expire_dedupe() removes what has expired.")));
}

[[noreturn]] void raise_in_progress(const Forget &f, const char *detail) {
    ereport(
        ERROR,
        (errcode(pg::sg409),
         errmsg("key \"%s\" of scope \"%s\" is in progress", clip(f.key.name), clip(f.key.scope)),
         errdetail("%s", detail), errhint("Repeat the call once the key is completed.")));
}

/// Waits only for a session that repeats an answer or forgets the key, too: a request that has
/// begun the key may take long.
void acquire(const Forget &f) {
    if (try_lock_key(pg::LockClass::idempotency_key, f.key.token))
        return;
    const std::optional<KeyEntry> entry = find_entry(f.key);
    if (!entry || !entry->completed_at || *entry->expires_at <= f.now)
        raise_in_progress(f, "Another transaction that has not ended holds it.");
    lock_key(pg::LockClass::idempotency_key, f.key.token);
}

/// Under the key's lock. False when somebody else has changed the row at the same time.
bool forget_key(const Forget &f) {
    std::optional<KeyEntry> entry = find_entry(f.key);
    const auto state = entry ? entry->state(f.now) : core::IdempotencyState::absent;
    switch (core::reply_to(state, core::IdempotencyEvent::forget)) {
    case core::IdempotencyReply::unknown:
        raise_unknown(f, entry);
    case core::IdempotencyReply::refused:
        raise_in_progress(f,
                          psprintf("Attempt %d has begun and has not finished.", entry->attempt));
    default:
        break;
    }
    if (state == core::IdempotencyState::forgotten)
        return true;
    const std::array changes{pg::assign(KeyColumn::fingerprint, pg::param_null(BYTEAOID)),
                             pg::assign(KeyColumn::recovery_point, pg::param_null(TEXTOID)),
                             pg::assign(KeyColumn::response, pg::param_null(JSONBOID)),
                             pg::assign(KeyColumn::forgotten_at, pg::param_time(f.now))};
    if (!idempotency_keys.update(entry->row, changes))
        return false;
    const char *kind = psprintf("key \"%s\" of scope", clip(f.key.name));
    record_action(
        {.action = "forget", .object = object_text(kind, f.key.scope), .reason = f.reason});
    return true;
}

} // namespace

// idempotency_forget(scope, key, reason) -> void
STACKSAGA_FUNCTION(idempotency_forget) {
    const pg::Arguments arguments(fcinfo);
    const Forget f{.key = IdempotencyKey(arguments),
                   .reason = required_reason(arguments, 2),
                   .now = pg::clock_now()};
    require_writable("idempotency_forget()");
    with_key([&] {
        acquire(f);
        if (BegunKey *begun = find_begun_key(f.key))
            write_begun_key(*begun);
        while (!forget_key(f))
            CHECK_FOR_INTERRUPTS();
    });
    CRASH_POINT("key: forgotten");
    PG_RETURN_VOID();
}

} // namespace stacksaga
