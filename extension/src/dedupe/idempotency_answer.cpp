// Calls of the holder of a lease on an idempotency key: checkpoint, finish, release.
//
// core/dedupe/idempotency_state.hpp says what each call is answered in each state.
#include "core/dedupe/idempotency_state.hpp"
#include "core/ring/token.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/begun_keys.hpp"
#include "src/dedupe/idempotency.hpp"
#include "src/dedupe/key_lock.hpp"

namespace stacksaga {

namespace {

/// A call under the lease that idempotency_begin() gave.
struct Answer {
    IdempotencyKey key;
    int64 lease;

    bool holds(const KeyEntry &entry) const { return entry.lease == lease; }
};

Answer answer_arguments(const pg::Arguments &arguments, const char *function) {
    const int64 lease = arguments.required_int8(2, "lease");
    Answer answer{IdempotencyKey(arguments), lease};
    require_writable(function);
    return answer;
}

[[noreturn]] void raise_lost(const Answer &a, const char *holder) {
    ereport(ERROR, (errcode(pg::sg412),
                    errmsg("lease on key \"%s\" of scope \"%s\" is lost", clip(a.key.name),
                           clip(a.key.scope)),
                    errdetail("The lease given is " INT64_FORMAT "; %s.", a.lease, holder),
                    errhint("Roll back what was done under this lease, and begin again with the "
                            "same key.")));
}

[[noreturn]] void raise_completed(const Answer &a, core::IdempotencyEvent event) {
    ereport(ERROR,
            (errcode(pg::sg409),
             errmsg("key \"%s\" of scope \"%s\" is completed", clip(a.key.name), clip(a.key.scope)),
             errdetail("It was finished under lease " INT64_FORMAT " and cannot be %s.", a.lease,
                       event == core::IdempotencyEvent::release ? "released" : "taken further"),
             errhint("Call idempotency_finish() last.")));
}

[[noreturn]] void raise_other_response(const Answer &a) {
    ereport(ERROR, (errcode(pg::sg422),
                    errmsg("key \"%s\" of scope \"%s\" was finished with another response",
                           clip(a.key.name), clip(a.key.scope)),
                    errdetail("The first response under lease " INT64_FORMAT " holds.", a.lease),
                    errhint("Repeat a finish with the same response only.")));
}

bool is_same_response(const std::optional<Datum> &one, const pg::Param &other) {
    if (!one || other.isnull)
        return !one && other.isnull;
    return DatumGetBool(DirectFunctionCall2(jsonb_eq, *one, other.value));
}

/// The key is not in progress under the lease: it is completed or held by another attempt. Returns
/// only when a finish is repeated with the same response.
void answer_without_lease(const Answer &a, const std::optional<KeyEntry> &entry,
                          core::IdempotencyEvent event, const pg::Param &response) {
    if (!entry)
        raise_lost(a, "the key is not there: it was released, has expired, or its begin was rolled "
                      "back");
    if (!a.holds(*entry))
        raise_lost(a, psprintf("attempt %d %s it", entry->attempt,
                               entry->completed_at ? "has completed" : "holds"));
    if (entry->forgotten_at)
        raise_forgotten(a.key, *entry);
    if (core::reply_to(core::IdempotencyState::completed, event) == core::IdempotencyReply::refused)
        raise_completed(a, event);
    if (!is_same_response(entry->response, response))
        raise_other_response(a);
}

/// The key, if this transaction has begun it under the lease and its row is still to be written.
BegunKey *find_held(const Answer &a) {
    BegunKey *begun = find_begun_key(a.key);
    return begun != nullptr && begun->lease == a.lease ? begun : nullptr;
}

/// Locks the key, and does what `write` does with its row if it is in progress under the lease.
/// `write` is false when somebody else has changed the row at the same time.
template <class F>
void under_lease(const Answer &a, core::IdempotencyEvent event, const pg::Param &response,
                 F &&write) {
    lock_key(pg::LockClass::idempotency_key, a.key.token);
    if (BegunKey *begun = find_begun_key(a.key))
        write_begun_key(*begun);
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        std::optional<KeyEntry> entry = find_entry(a.key);
        if (!entry || !a.holds(*entry) || entry->completed_at)
            return answer_without_lease(a, entry, event, response);
        if (write(*entry))
            return;
    }
}

} // namespace

// idempotency_checkpoint(scope, key, lease, recovery_point) -> void
STACKSAGA_FUNCTION(idempotency_checkpoint) {
    pg::Arguments arguments(fcinfo);
    std::string_view recovery_point = key_argument(arguments, 3, "recovery_point");
    Answer a = answer_arguments(arguments, "idempotency_checkpoint()");
    explaining_locks([&] {
        under_lease(a, core::IdempotencyEvent::checkpoint, pg::param_null(JSONBOID),
                    [&](KeyEntry &entry) {
                        const TimestampTz until =
                            pg::time_plus(pg::clock_now(), entry.length(KeyColumn::lease_length));
                        const std::array changes{
                            pg::assign(KeyColumn::recovery_point, pg::param(recovery_point)),
                            pg::assign(KeyColumn::lease_until, pg::param_time(until))};
                        return idempotency_keys.update(entry.row, changes);
                    });
    });
    CRASH_POINT("key: checkpoint written");
    PG_RETURN_VOID();
}

// idempotency_finish(scope, key, lease, response) -> void
STACKSAGA_FUNCTION(idempotency_finish) {
    pg::Arguments arguments(fcinfo);
    Answer a = answer_arguments(arguments, "idempotency_finish()");
    if (!arguments.is_null(3))
        check_payload(arguments.datum(3), "response");
    pg::Param response = pg::param_datum(JSONBOID, arguments.datum(3), arguments.is_null(3));
    explaining_locks([&] {
        if (BegunKey *begun = find_held(a)) {
            CRASH_POINT("key: locked, not completed");
            return complete_begun_key(*begun, pg::clock_now(), response);
        }
        under_lease(a, core::IdempotencyEvent::finish, response, [&](KeyEntry &entry) {
            CRASH_POINT("key: locked, not completed");
            const std::array changes{
                pg::assign(KeyColumn::completed_at, pg::param_time(pg::clock_now())),
                pg::assign(KeyColumn::response, response)};
            return idempotency_keys.update(entry.row, changes);
        });
    });
    CRASH_POINT("key: completed");
    PG_RETURN_VOID();
}

// idempotency_release(scope, key, lease) -> void
STACKSAGA_FUNCTION(idempotency_release) {
    pg::Arguments arguments(fcinfo);
    Answer a = answer_arguments(arguments, "idempotency_release()");
    explaining_locks([&] {
        if (BegunKey *begun = find_held(a))
            return release_begun_key(*begun);
        under_lease(
            a, core::IdempotencyEvent::release, pg::param_null(JSONBOID), [&](KeyEntry &entry) {
                if (core::release_event(entry.attempt, entry.recovery_point.has_value()) ==
                    core::IdempotencyEvent::release)
                    return idempotency_keys.remove(entry.row);
                const TimestampTz now = std::min(pg::clock_now(), entry.lease_until);
                return idempotency_keys.update(
                    entry.row, std::array{pg::assign(KeyColumn::lease_until, pg::param_time(now))});
            });
    });
    CRASH_POINT("key: released");
    PG_RETURN_VOID();
}

} // namespace stacksaga
