// idempotency_begin.
//
// The row of a key commits with the effect or not at all. The session that begins a key holds its
// lock (key_lock.hpp) until the end of that transaction; a replay takes no lock and writes nothing.
// core/dedupe/idempotency_state.hpp says what each call is answered in each state.
#include "core/dedupe/idempotency_state.hpp"
#include "core/ring/token.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/random.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/begun_keys.hpp"
#include "src/dedupe/fingerprint.hpp"
#include "src/dedupe/idempotency.hpp"
#include "src/dedupe/key_lock.hpp"

namespace stacksaga {

namespace {

struct Begin {
    IdempotencyKey key;
    std::optional<Datum> request; ///< jsonb
    pg::Param fingerprint;
    int64 lease_us;
    int64 retention_us;
    bool wait;
    TimestampTz now;
};

int64 seconds_left(TimestampTz until, TimestampTz now) {
    return (until - now + USECS_PER_SEC - 1) / USECS_PER_SEC;
}

const char *describe(core::IdempotencyState state) {
    switch (state) {
    case core::IdempotencyState::in_progress:
        return "which is in progress";
    case core::IdempotencyState::abandoned:
        return "whose lease has run out";
    case core::IdempotencyState::completed:
        return "which is completed";
    default:
        return "which is not there"; // nobody asks, nor of one that was forgotten
    }
}

/// The first bytes of a fingerprint, enough to find the request in a log of fingerprints.
const char *short_fingerprint(std::string_view bytes) {
    auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
    return psprintf("%02x%02x%02x%02x", byte(0), byte(1), byte(2), byte(3));
}

const char *describe_difference(const KeyEntry &entry, const Begin &begin) {
    if (!entry.fingerprint)
        return "That request was NULL";
    if (!begin.request)
        return "This request is NULL";
    return psprintf("The fingerprint of that request begins with %s, that of this one with %s",
                    short_fingerprint(*entry.fingerprint),
                    short_fingerprint(pg::view_of_text(begin.fingerprint.value)));
}

/// Whether the key was begun with this request.
bool is_same_request(const Begin &begin, const KeyEntry &entry) {
    if (!begin.request || !entry.fingerprint)
        return !begin.request && !entry.fingerprint;
    if (pg::view_of_text(begin.fingerprint.value) == *entry.fingerprint)
        return true;
    return entry.fingerprint_version == fingerprint_version_printed &&
           pg::view_of_text(fingerprint_as_printed(*begin.request)) == *entry.fingerprint;
}

void require_same_request(const Begin &begin, const KeyEntry &entry) {
    if (entry.fingerprint_version > fingerprint_version)
        ereport(ERROR,
                (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                 errmsg("key \"%s\" has an unsupported fingerprint version", clip(begin.key.name)),
                 errdetail("Its algorithm is %d; this version of stacksaga knows 1 to %d.",
                           entry.fingerprint_version, fingerprint_version),
                 errhint("Install the version of stacksaga that wrote it, or a later one.")));
    if (is_same_request(begin, entry))
        return;
    ereport(ERROR,
            (errcode(pg::sg422),
             errmsg("key \"%s\" of scope \"%s\" was used with another request",
                    clip(begin.key.name), clip(begin.key.scope)),
             errdetail("It stands for attempt %d, %s. %s.", entry.attempt,
                       describe(entry.state(begin.now)), describe_difference(entry, begin)),
             errhint("Use a new key for a new intent, and the same request when you repeat one.")));
}

[[noreturn]] void raise_in_progress(const Begin &begin, const KeyEntry &entry) {
    ereport(ERROR,
            (errcode(pg::sr409),
             errmsg("key \"%s\" of scope \"%s\" is in progress", clip(begin.key.name),
                    clip(begin.key.scope)),
             errdetail("Attempt %d has begun; its lease runs out in " INT64_FORMAT " seconds.",
                       entry.attempt, seconds_left(entry.lease_until, begin.now)),
             errhint("Repeat the call later with the same key.")));
}

void acquire(const Begin &begin) {
    if (begin.wait) {
        lock_key(pg::LockClass::idempotency_key, begin.key.token);
        return;
    }
    if (!try_lock_key(pg::LockClass::idempotency_key, begin.key.token))
        ereport(ERROR, (errcode(pg::sr409),
                        errmsg("key \"%s\" of scope \"%s\" is in progress", clip(begin.key.name),
                               clip(begin.key.scope)),
                        errdetail("Another transaction that has not ended holds it."),
                        errhint("Repeat the call later with the same key, or wait for the other "
                                "transaction with on_locked => 'wait'.")));
}

struct Begun {
    const char *outcome;
    std::optional<Datum> response;
    std::optional<std::string_view> recovery_point;
    int32 attempt;
    std::optional<int64> lease;
};

int64 new_lease(int32 attempt) {
    return core::make_lease(attempt, core::Direction::act, pg::random_bits());
}

pg::Param interval_param(int64 microseconds) {
    return pg::param_datum(INTERVALOID, pg::interval_of_microseconds(microseconds));
}

/// The key has no row, and this session has its lock.
std::optional<Begun> begin_new(const Begin &begin) {
    BegunKey key(begin.key, begin.request ? std::optional(pg::view_of_text(begin.fingerprint.value))
                                          : std::nullopt);
    key.lease = new_lease(1);
    key.lease_us = begin.lease_us;
    key.retention_us = begin.retention_us;
    key.begun = begin.now;
    CRASH_POINT("key: locked, not begun");
    const bool is_begun = keep_begun_key(key) || insert_begun_key(key);
    CRASH_POINT("key: begun");
    if (!is_begun)
        return std::nullopt;
    return Begun{"new", std::nullopt, std::nullopt, 1, key.lease};
}

/// Continues where the last attempt stopped, or begins again with a key that has expired. sweep_at
/// stays, since an index holds it: the sweep moves it on.
std::optional<Begun> take(const Begin &begin, KeyEntry &entry, bool resumes) {
    const int32 attempt = resumes ? entry.attempt + 1 : 1;
    const int64 lease = new_lease(attempt);
    std::optional<std::string_view> recovery_point =
        resumes ? entry.recovery_point : std::optional<std::string_view>{};
    const std::array changes{
        pg::assign(KeyColumn::fingerprint_version, pg::param(fingerprint_version)),
        pg::assign(KeyColumn::fingerprint, begin.fingerprint),
        pg::assign(KeyColumn::lease, pg::param(lease)),
        pg::assign(KeyColumn::lease_until,
                   pg::param_time(pg::time_plus(begin.now, begin.lease_us))),
        pg::assign(KeyColumn::lease_length, interval_param(begin.lease_us)),
        pg::assign(KeyColumn::retention, interval_param(begin.retention_us)),
        pg::assign(KeyColumn::created_at, pg::param_time(resumes ? entry.created_at : begin.now)),
        pg::assign(KeyColumn::attempt, pg::param(attempt)),
        pg::assign(KeyColumn::recovery_point, pg::param(recovery_point)),
        pg::assign(KeyColumn::completed_at, pg::param_null(TIMESTAMPTZOID)),
        pg::assign(KeyColumn::response, pg::param_null(JSONBOID)),
        pg::assign(KeyColumn::forgotten_at, pg::param_null(TIMESTAMPTZOID))};
    const bool taken = idempotency_keys.update(entry.row, changes);
    CRASH_POINT("key: taken over");
    if (!taken)
        return std::nullopt;
    return Begun{resumes ? "resume" : "new", std::nullopt, recovery_point, attempt, lease};
}

Begun begin_key(const Begin &begin) {
    bool locked = false;
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        if (BegunKey *begun = find_begun_key(begin.key))
            write_begun_key(*begun);
        const uint64 ended_transactions = pg::ended_transactions();
        std::optional<KeyEntry> entry = find_entry(begin.key); // before the lock a hint
        core::IdempotencyReply reply = core::IdempotencyReply::begun;
        if (entry) {
            reply = core::reply_to(entry->state(begin.now), core::IdempotencyEvent::begin);
            if (reply == core::IdempotencyReply::refused)
                raise_forgotten(begin.key, *entry);
            if (reply != core::IdempotencyReply::begun) // an expired key is new
                require_same_request(begin, *entry);
            if (reply == core::IdempotencyReply::replayed)
                return {"replay", entry->response, entry->recovery_point, entry->attempt,
                        std::nullopt};
            // A caller that waits also waits for an answer that is being committed.
            if (reply == core::IdempotencyReply::in_progress && (locked || !begin.wait))
                raise_in_progress(begin, *entry);
        }
        const bool was_locked = locked;
        if (!locked)
            acquire(begin);
        locked = true;
        std::optional<Begun> begun;
        // The holder before this session ended its transaction before it released the lock. So if
        // no transaction has ended since the key was read, the reading still holds.
        if (!entry && (was_locked || pg::ended_transactions() == ended_transactions))
            begun = begin_new(begin);
        else if (entry && was_locked)
            begun = take(begin, *entry, reply == core::IdempotencyReply::resumed);
        if (begun)
            return *begun;
        // There may be a row by now, or the sweep has removed the one that was there.
    }
}

Begin begin_arguments(const pg::Arguments &arguments) {
    Begin begin{.key = IdempotencyKey(arguments),
                .request = std::nullopt,
                .fingerprint = pg::param_null(BYTEAOID),
                .lease_us = 0,
                .retention_us = retention_argument(arguments, 4),
                .wait = false,
                .now = pg::clock_now()};
    if (!arguments.is_null(2)) {
        check_payload(arguments.datum(2), "request");
        begin.request = arguments.datum(2);
        begin.fingerprint = pg::param_datum(BYTEAOID, fingerprint_of(*begin.request));
    }
    arguments.require(3, "lease");
    begin.lease_us = duration_argument(arguments.datum(3), "lease");
    // Callers are asked to come back when the lease has run out: the answer must still be there.
    if (begin.retention_us < begin.lease_us)
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("the lease is longer than the retention"),
                 errdetail("The lease is %s, the retention %s.", interval_text(begin.lease_us),
                           interval_text(begin.retention_us)),
                 errhint("The retention must be at least as long as the lease: pass a longer "
                         "retention or a shorter lease.")));
    std::string_view on_locked = arguments.required_text(5, "on_locked");
    if (on_locked != "error" && on_locked != "wait")
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"on_locked\" is not valid"),
                        errdetail("The value is \"%s\".", clip(on_locked)),
                        errhint("Use error or wait.")));
    begin.wait = on_locked == "wait";
    require_writable("idempotency_begin()");
    return begin;
}

} // namespace

// idempotency_begin(scope, key, request, lease, retention, on_locked)
//   -> TABLE(outcome text, response jsonb, recovery_point text, attempt integer, lease bigint)
STACKSAGA_FUNCTION(idempotency_begin) {
    Begin begin = begin_arguments(pg::Arguments(fcinfo));
    pg::ResultSet result(fcinfo);
    explaining_locks([&] {
        Begun begun = begin_key(begin);
        result.add(pg::of(CStringGetTextDatum(begun.outcome)),
                   begun.response ? pg::of(*begun.response) : pg::null(),
                   begun.recovery_point
                       ? pg::of(PointerGetDatum(pg::make_text(*begun.recovery_point)))
                       : pg::null(),
                   pg::of(Int32GetDatum(begun.attempt)),
                   begun.lease ? pg::of(Int64GetDatum(*begun.lease)) : pg::null());
    });
    return result.finish();
}

} // namespace stacksaga
