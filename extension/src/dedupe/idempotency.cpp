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
#include "pg/lookup.hpp"
#include "pg/query.hpp"
#include "pg/random.hpp"
#include "pg/result.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/dedupe.hpp"
#include "src/ring/fingerprint.hpp"
#include "src/ring/key_lock.hpp"

namespace stacksaga {

namespace {

#define OF_KEY                                                                                     \
    " WHERE token OPERATOR(stacksaga.=) $1::stacksaga.ring_token AND scope = $2 AND key = $3"
#define UNDER_LEASE OF_KEY " AND lease = $4 AND completed_at IS NULL"

constinit pg::Statement select_key{
    "SELECT token, lease, lease_until, completed_at, sweep_at, attempt, fingerprint_version,"
    "       lease_length, retention, scope, key, fingerprint, recovery_point,"
    "       response"
    "  FROM stacksaga.idempotency_key" OF_KEY};
constinit pg::Statement insert_key{
    "INSERT INTO stacksaga.idempotency_key (token, scope, key, lease, lease_until, lease_length,"
    "       retention, sweep_at, attempt, fingerprint_version, fingerprint)"
    " VALUES ($1::stacksaga.ring_token, $2, $3, $4, $5, $6, $7, $8, 1, $9, $10)"
    " ON CONFLICT (token, scope, key) DO NOTHING"};
// sweep_at stays, since an index holds it: the sweep moves it on.
constinit pg::Statement take_key{
    "UPDATE stacksaga.idempotency_key"
    "   SET lease = $5, lease_until = $6, lease_length = $7, retention = $8, attempt = $9,"
    "       recovery_point = $10, completed_at = NULL, response = NULL" OF_KEY " AND lease = $4"};
constinit pg::Statement checkpoint_key{
    "UPDATE stacksaga.idempotency_key"
    "   SET recovery_point = $5, lease_until = $6::timestamptz + lease_length" UNDER_LEASE};
constinit pg::Statement finish_key{
    "UPDATE stacksaga.idempotency_key SET completed_at = $5, response = $6" UNDER_LEASE};
constinit pg::Statement release_key{"DELETE FROM stacksaga.idempotency_key" UNDER_LEASE};
constinit pg::Statement select_holder{
    "SELECT lease = $4, attempt, completed_at IS NOT NULL, response IS NOT DISTINCT FROM $5"
    "  FROM stacksaga.idempotency_key" OF_KEY};

#undef UNDER_LEASE
#undef OF_KEY

struct Key {
    explicit Key(const pg::Arguments &arguments)
        : scope(scope_argument(arguments, 0, "scope")), name(key_argument(arguments, 1, "key")),
          token(token_of_scoped_key(scope, name)), token_param(pg::param(token.value())),
          scope_param(pg::param(scope)), name_param(pg::param(name)) {}

    std::string_view scope, name;
    core::Token token;
    pg::Param token_param, scope_param, name_param;
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

/// The columns of the table, in their order.
enum class Column : uint8_t {
    token = 1,
    lease,
    lease_until,
    completed_at,
    sweep_at,
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
constexpr size_t column_count = static_cast<size_t>(Column::response);

/// The row of a key. What it points to lives until SPI_finish.
struct Entry {
    int64 lease;
    TimestampTz lease_until;
    int32 attempt;
    std::optional<TimestampTz> completed_at;
    std::optional<TimestampTz> expires_at;
    std::optional<std::string_view> recovery_point;
    std::optional<std::string_view> fingerprint; ///< its bytes
    int16 fingerprint_version;
    std::optional<Datum> response;

    core::IdempotencyState state(TimestampTz now) const {
        return core::idempotency_state(lease_until, expires_at, now);
    }
};

/// `datum(column, &isnull)` gives the columns of a row.
template <class F> Entry entry_of(F &&datum) {
    auto optional_datum = [&](Column column) {
        bool isnull;
        Datum value = datum(column, &isnull);
        return isnull ? std::optional<Datum>{} : std::optional<Datum>{value};
    };
    auto value = [&](Column column) { return *optional_datum(column); };
    auto optional_text = [&](Column column) {
        std::optional<Datum> bytes = optional_datum(column);
        return bytes ? std::optional<std::string_view>{pg::view_of_text(*bytes)}
                     : std::optional<std::string_view>{};
    };
    Entry entry{.lease = DatumGetInt64(value(Column::lease)),
                .lease_until = DatumGetTimestampTz(value(Column::lease_until)),
                .attempt = DatumGetInt32(value(Column::attempt)),
                .completed_at = std::nullopt,
                .expires_at = std::nullopt,
                .recovery_point = optional_text(Column::recovery_point),
                .fingerprint = optional_text(Column::fingerprint),
                .fingerprint_version = DatumGetInt16(value(Column::fingerprint_version)),
                .response = optional_datum(Column::response)};
    if (std::optional<Datum> completed_at = optional_datum(Column::completed_at)) {
        entry.completed_at = DatumGetTimestampTz(*completed_at);
        entry.expires_at = pg::time_plus(*entry.completed_at,
                                         *pg::interval_in_range(value(Column::retention), false));
    }
    return entry;
}

std::optional<Entry> find_entry(const Key &key) {
    pg::Rows rows = select_key.run(key.token_param, key.scope_param, key.name_param);
    if (rows.empty())
        return std::nullopt;
    return entry_of([&](Column column, bool *isnull) {
        return rows.datum(0, static_cast<int>(column) - 1, isnull);
    });
}

/// The same without the executor: what it finds is there; what it does not find may be there all
/// the same.
std::optional<Entry> peek_entry(const Key &key) {
    std::array<Datum, column_count> values{};
    std::array<bool, column_count> nulls{};
    const std::array<pg::KeyColumn, 3> columns{
        pg::KeyColumn{F_INT8EQ, InvalidOid, key.token_param.value},
        pg::KeyColumn{F_TEXTEQ, C_COLLATION_OID, key.scope_param.value},
        pg::KeyColumn{F_TEXTEQ, C_COLLATION_OID, key.name_param.value}};
    if (!pg::find_row("idempotency_key", columns, values, nulls))
        return std::nullopt;
    return entry_of([&](Column column, bool *isnull) {
        const auto i = static_cast<size_t>(column) - 1;
        *isnull = nulls[i];
        return values[i];
    });
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

std::optional<Begun> insert(const Begin &begin) {
    const int64 lease = new_lease(1);
    CRASH_POINT("key: locked, not begun");
    uint64 inserted = insert_key.touch(
        begin.key.token_param, begin.key.scope_param, begin.key.name_param, pg::param(lease),
        pg::param_time(pg::time_plus(begin.now, begin.lease_us)),
        pg::param_datum(INTERVALOID, pg::interval_of_microseconds(begin.lease_us)),
        pg::param_datum(INTERVALOID, pg::interval_of_microseconds(begin.retention_us)),
        pg::param_time(pg::time_plus(begin.now, begin.retention_us)),
        pg::param(fingerprint_version), begin.fingerprint);
    CRASH_POINT("key: begun");
    if (inserted == 0)
        return std::nullopt;
    return Begun{"new", std::nullopt, std::nullopt, 1, lease};
}

/// Continues where the last attempt stopped, or begins anew with a key that has expired.
std::optional<Begun> take(const Begin &begin, const Entry &entry, bool resumes) {
    const int32 attempt = resumes ? entry.attempt + 1 : 1;
    const int64 lease = new_lease(attempt);
    std::optional<std::string_view> recovery_point =
        resumes ? entry.recovery_point : std::optional<std::string_view>{};
    uint64 taken = take_key.touch(
        begin.key.token_param, begin.key.scope_param, begin.key.name_param, pg::param(entry.lease),
        pg::param(lease), pg::param_time(pg::time_plus(begin.now, begin.lease_us)),
        pg::param_datum(INTERVALOID, pg::interval_of_microseconds(begin.lease_us)),
        pg::param_datum(INTERVALOID, pg::interval_of_microseconds(begin.retention_us)),
        pg::param(attempt), pg::param(recovery_point));
    CRASH_POINT("key: taken over");
    if (taken == 0)
        return std::nullopt;
    return Begun{resumes ? "resume" : "new", std::nullopt, recovery_point, attempt, lease};
}

Begun begin_key(const Begin &begin) {
    bool locked = false;
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        // What was read before the lock is a hint, so it may be found the quick way.
        std::optional<Entry> entry = locked ? find_entry(begin.key) : peek_entry(begin.key);
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
    pg::Param lease_param;
};

Answer answer_arguments(const pg::Arguments &arguments, const char *function) {
    const int64 lease = arguments.required_int8(2, "lease");
    Answer answer{Key(arguments), lease, pg::param(lease)};
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

/// The statement of `event` found no row in progress under the lease, so the key is completed or
/// held by another attempt. Returns only when a finish is repeated with the same response.
void answer_without_lease(const Answer &a, core::IdempotencyEvent event,
                          const pg::Param &response) {
    pg::Rows rows = select_holder.run(a.key.token_param, a.key.scope_param, a.key.name_param,
                                      a.lease_param, response);
    if (rows.empty())
        raise_lost(a, "the key is not there: it was released, has expired, or its begin was rolled "
                      "back");
    const bool is_own = rows.boolean(0, 0), is_completed = rows.boolean(0, 2);
    if (!is_own)
        raise_lost(a, psprintf("attempt %d %s it", rows.int4(0, 1),
                               is_completed ? "has completed" : "holds"));
    if (core::reply_to(core::IdempotencyState::completed, event) == core::IdempotencyReply::refused)
        raise_completed(a, event);
    if (!rows.boolean(0, 3))
        raise_other_response(a);
}

} // namespace

// idempotency_begin(scope, key, request, lease, retention, on_locked)
//   -> TABLE(outcome text, response jsonb, recovery_point text, attempt integer, lease bigint)
STACKSAGA_FUNCTION(idempotency_begin) {
    Begin begin = begin_arguments(pg::Arguments(fcinfo));
    pg::ResultSet result(fcinfo);
    with_key([&] {
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
    with_key([&] {
        lock_key(pg::LockClass::idempotency_key, a.key.token);
        if (checkpoint_key.touch(a.key.token_param, a.key.scope_param, a.key.name_param,
                                 a.lease_param, pg::param(recovery_point),
                                 pg::param_time(pg::clock_now())) == 0)
            answer_without_lease(a, core::IdempotencyEvent::checkpoint, pg::param_null(JSONBOID));
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
    with_key([&] {
        lock_key(pg::LockClass::idempotency_key, a.key.token);
        CRASH_POINT("key: locked, not completed");
        if (finish_key.touch(a.key.token_param, a.key.scope_param, a.key.name_param, a.lease_param,
                             pg::param_time(pg::clock_now()), response) == 0)
            answer_without_lease(a, core::IdempotencyEvent::finish, response);
    });
    CRASH_POINT("key: completed");
    PG_RETURN_VOID();
}

// idempotency_release(scope, key, lease) -> void
STACKSAGA_FUNCTION(idempotency_release) {
    pg::Arguments arguments(fcinfo);
    Answer a = answer_arguments(arguments, "idempotency_release()");
    with_key([&] {
        lock_key(pg::LockClass::idempotency_key, a.key.token);
        if (release_key.touch(a.key.token_param, a.key.scope_param, a.key.name_param,
                              a.lease_param) == 0)
            answer_without_lease(a, core::IdempotencyEvent::release, pg::param_null(JSONBOID));
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
