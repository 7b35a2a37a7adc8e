// Idempotency keys: begin, checkpoint, finish, release.
//
// The row of a key is written in the caller's transaction, so it commits with the effect or not at
// all. Its writer holds the key's lock (key_lock.hpp) until that transaction ends; a replay takes
// no lock and writes nothing. core/idempotency_state.hpp says what each call is answered in each
// state.
#include "core/idempotency_state.hpp"
#include "core/saga_state.hpp"
#include "core/token.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/random.hpp"
#include "pg/result.hpp"
#include "pg/table.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/dedupe.hpp"
#include "src/ring/fingerprint.hpp"
#include "src/ring/key_lock.hpp"

namespace stacksaga {

namespace {

/// The columns of the table, in their order.
enum class Column : uint8 {
    token = 1,
    lease,
    lease_until,
    completed_at,
    sweep_at,
    created_at,
    attempt,
    fingerprint_version,
    lease_length,
    retention,
    scope,
    key,
    fingerprint,
    recovery_point,
    response,
};
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
};
constexpr std::array indexes{
    pg::TableIndex{.name = "idempotency_key_pkey",
                   .key = {Column::token, Column::scope, Column::key},
                   .is_unique = true},
    pg::TableIndex{.name = "idempotency_key_sweep", .key = {Column::sweep_at}},
};
// The heavyweight lock on a key is what orders its writers, and a session that has waited for it
// goes on with what is there now, whatever the age of its snapshot.
constinit pg::Table keys{{.name = "idempotency_key",
                          .columns = columns,
                          .indexes = indexes,
                          .newer_versions = pg::NewerVersions::used}};

struct Key {
    explicit Key(const pg::Arguments &arguments)
        : scope(scope_argument(arguments, 0, "scope")), name(key_argument(arguments, 1, "key")),
          token(token_of_scoped_key(scope, name)), columns{pg::param(token.value()),
                                                           pg::param(scope), pg::param(name)} {}

    std::string_view scope, name;
    core::Token token;
    std::array<pg::Param, 3> columns; ///< of the primary key
};

struct Begin {
    Key key;
    std::optional<std::string_view> request; ///< its canonical text
    pg::Param fingerprint;
    int64 lease_us;
    int64 retention_us;
    bool wait;
    TimestampTz now;
};

/// The row of a key.
struct Entry {
    explicit Entry(const pg::TableRow &found)
        : row(found), lease(row.int8(Column::lease)), lease_until(row.time(Column::lease_until)),
          created_at(row.time(Column::created_at)), attempt(row.int4(Column::attempt)),
          completed_at(row.optional_time(Column::completed_at)),
          recovery_point(row.optional_text(Column::recovery_point)),
          fingerprint(row.optional_text(Column::fingerprint)),
          fingerprint_version(row.int2(Column::fingerprint_version)),
          response(row.optional(Column::response)) {
        if (completed_at)
            expires_at = pg::time_plus(*completed_at, length(Column::retention));
    }

    core::IdempotencyState state(TimestampTz now) const {
        return core::idempotency_state(lease_until, expires_at, now);
    }
    /// Of an interval.
    int64 length(Column column) const { return *pg::interval_in_range(row.value(column), false); }

    pg::TableRow row;
    int64 lease;
    TimestampTz lease_until;
    TimestampTz created_at;
    int32 attempt;
    std::optional<TimestampTz> completed_at;
    std::optional<TimestampTz> expires_at;
    std::optional<std::string_view> recovery_point;
    std::optional<std::string_view> fingerprint; ///< its bytes
    int16 fingerprint_version;
    std::optional<Datum> response;
};

std::optional<Entry> find_entry(const Key &key) {
    const std::optional<pg::TableRow> row = keys.find_one({.key = key.columns});
    return row ? std::optional<Entry>(*row) : std::nullopt;
}

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
        return "which has expired";
    }
}

/// The first bytes of a fingerprint, enough to find the request in a log of fingerprints.
const char *short_fingerprint(std::string_view bytes) {
    auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
    return psprintf("%02x%02x%02x%02x", byte(0), byte(1), byte(2), byte(3));
}

const char *describe_difference(const Entry &entry, const Begin &begin) {
    if (!entry.fingerprint)
        return "That request was NULL";
    if (!begin.request)
        return "This request is NULL";
    return psprintf("The fingerprint of that request begins with %s, that of this one with %s",
                    short_fingerprint(*entry.fingerprint),
                    short_fingerprint(pg::view_of_text(begin.fingerprint.value)));
}

/// A request is compared in every state, also when its key has expired and is still there.
void require_same_request(const Begin &begin, const Entry &entry) {
    if (entry.fingerprint_version != fingerprint_version)
        ereport(ERROR,
                (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                 errmsg("key \"%s\" has an unsupported fingerprint version", clip(begin.key.name)),
                 errdetail("Its algorithm is %d; this version of stacksaga knows %d.",
                           entry.fingerprint_version, fingerprint_version),
                 errhint("Install the version of stacksaga that wrote it, or a later one.")));
    const bool has_request = begin.request.has_value();
    if (has_request == entry.fingerprint.has_value() &&
        (!has_request || pg::view_of_text(begin.fingerprint.value) == *entry.fingerprint))
        return;
    ereport(ERROR,
            (errcode(pg::sg422),
             errmsg("key \"%s\" of scope \"%s\" was used with another request",
                    clip(begin.key.name), clip(begin.key.scope)),
             errdetail("It stands for attempt %d, %s. %s.", entry.attempt,
                       describe(entry.state(begin.now)), describe_difference(entry, begin)),
             errhint("Use a new key for a new intent, and the same request when you repeat one.")));
}

[[noreturn]] void raise_in_progress(const Begin &begin, const Entry &entry) {
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

std::optional<Begun> insert(const Begin &begin) {
    const int64 lease = new_lease(1);
    const std::array row{
        pg::assign(Column::token, begin.key.columns[0]),
        pg::assign(Column::scope, begin.key.columns[1]),
        pg::assign(Column::key, begin.key.columns[2]),
        pg::assign(Column::lease, pg::param(lease)),
        pg::assign(Column::lease_until, pg::param_time(pg::time_plus(begin.now, begin.lease_us))),
        pg::assign(Column::lease_length, interval_param(begin.lease_us)),
        pg::assign(Column::retention, interval_param(begin.retention_us)),
        pg::assign(Column::sweep_at, pg::param_time(pg::time_plus(begin.now, begin.retention_us))),
        pg::assign(Column::created_at, pg::param_time(begin.now)),
        pg::assign(Column::attempt, pg::param(int32{1})),
        pg::assign(Column::fingerprint_version, pg::param(fingerprint_version)),
        pg::assign(Column::fingerprint, begin.fingerprint)};
    CRASH_POINT("key: locked, not begun");
    const bool inserted = keys.insert_if_absent(row, pg::KnownRow::no);
    CRASH_POINT("key: begun");
    if (!inserted)
        return std::nullopt;
    return Begun{"new", std::nullopt, std::nullopt, 1, lease};
}

/// Continues where the last attempt stopped, or begins anew with a key that has expired. sweep_at
/// stays, since an index holds it: the sweep moves it on.
std::optional<Begun> take(const Begin &begin, Entry &entry, bool resumes) {
    const int32 attempt = resumes ? entry.attempt + 1 : 1;
    const int64 lease = new_lease(attempt);
    std::optional<std::string_view> recovery_point =
        resumes ? entry.recovery_point : std::optional<std::string_view>{};
    const std::array changes{
        pg::assign(Column::lease, pg::param(lease)),
        pg::assign(Column::lease_until, pg::param_time(pg::time_plus(begin.now, begin.lease_us))),
        pg::assign(Column::lease_length, interval_param(begin.lease_us)),
        pg::assign(Column::retention, interval_param(begin.retention_us)),
        pg::assign(Column::created_at, pg::param_time(resumes ? entry.created_at : begin.now)),
        pg::assign(Column::attempt, pg::param(attempt)),
        pg::assign(Column::recovery_point, pg::param(recovery_point)),
        pg::assign(Column::completed_at, pg::param_null(TIMESTAMPTZOID)),
        pg::assign(Column::response, pg::param_null(JSONBOID))};
    const bool taken = keys.update(entry.row, changes);
    CRASH_POINT("key: taken over");
    if (!taken)
        return std::nullopt;
    return Begun{resumes ? "resume" : "new", std::nullopt, recovery_point, attempt, lease};
}

Begun begin_key(const Begin &begin) {
    bool locked = false;
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        std::optional<Entry> entry = find_entry(begin.key); // before the lock a hint
        core::IdempotencyReply reply = core::IdempotencyReply::begun;
        if (entry) {
            require_same_request(begin, *entry);
            reply = core::reply_to(entry->state(begin.now), core::IdempotencyEvent::begin);
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
        if (!entry)
            begun = insert(begin);
        else if (was_locked)
            begun = take(begin, *entry, reply == core::IdempotencyReply::resumed);
        if (begun)
            return *begun;
        // There is a row by now, or the sweep has removed the one that was there.
    }
}

Begin begin_arguments(const pg::Arguments &arguments) {
    Begin begin{.key = Key(arguments),
                .request = std::nullopt,
                .fingerprint = pg::param_null(BYTEAOID),
                .lease_us = 0,
                .retention_us = retention_argument(arguments, 4),
                .wait = false,
                .now = pg::clock_now()};
    if (!arguments.is_null(2)) {
        check_payload(arguments.datum(2), "request");
        begin.request = canonical_text(arguments.datum(2));
        begin.fingerprint = pg::param_datum(BYTEAOID, fingerprint_of_text(*begin.request));
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

/// What a caller does under the lease that idempotency_begin() gave it.
struct Answer {
    Key key;
    int64 lease;

    bool holds(const Entry &entry) const { return entry.lease == lease; }
};

Answer answer_arguments(const pg::Arguments &arguments, const char *function) {
    const int64 lease = arguments.required_int8(2, "lease");
    Answer answer{Key(arguments), lease};
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
void answer_without_lease(const Answer &a, const std::optional<Entry> &entry,
                          core::IdempotencyEvent event, const pg::Param &response) {
    if (!entry)
        raise_lost(a, "the key is not there: it was released, has expired, or its begin was rolled "
                      "back");
    if (!a.holds(*entry))
        raise_lost(a, psprintf("attempt %d %s it", entry->attempt,
                               entry->completed_at ? "has completed" : "holds"));
    if (core::reply_to(core::IdempotencyState::completed, event) == core::IdempotencyReply::refused)
        raise_completed(a, event);
    if (!is_same_response(entry->response, response))
        raise_other_response(a);
}

/// Locks the key, and does what `write` does with its row if it is in progress under the lease.
/// `write` is false when somebody else has changed the row at the same time.
template <class F>
void under_lease(const Answer &a, core::IdempotencyEvent event, const pg::Param &response,
                 F &&write) {
    lock_key(pg::LockClass::idempotency_key, a.key.token);
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        std::optional<Entry> entry = find_entry(a.key);
        if (!entry || !a.holds(*entry) || entry->completed_at)
            return answer_without_lease(a, entry, event, response);
        if (write(*entry))
            return;
    }
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

// idempotency_checkpoint(scope, key, lease, recovery_point) -> void
STACKSAGA_FUNCTION(idempotency_checkpoint) {
    pg::Arguments arguments(fcinfo);
    std::string_view recovery_point = key_argument(arguments, 3, "recovery_point");
    Answer a = answer_arguments(arguments, "idempotency_checkpoint()");
    explaining_locks([&] {
        under_lease(a, core::IdempotencyEvent::checkpoint, pg::param_null(JSONBOID),
                    [&](Entry &entry) {
                        const TimestampTz until =
                            pg::time_plus(pg::clock_now(), entry.length(Column::lease_length));
                        const std::array changes{
                            pg::assign(Column::recovery_point, pg::param(recovery_point)),
                            pg::assign(Column::lease_until, pg::param_time(until))};
                        return keys.update(entry.row, changes);
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
        under_lease(a, core::IdempotencyEvent::finish, response, [&](Entry &entry) {
            CRASH_POINT("key: locked, not completed");
            const std::array changes{
                pg::assign(Column::completed_at, pg::param_time(pg::clock_now())),
                pg::assign(Column::response, response)};
            return keys.update(entry.row, changes);
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
        under_lease(a, core::IdempotencyEvent::release, pg::param_null(JSONBOID),
                    [&](Entry &entry) { return keys.remove(entry.row); });
    });
    CRASH_POINT("key: released");
    PG_RETURN_VOID();
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
