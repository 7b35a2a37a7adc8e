#include "src/dedupe/begun_keys.hpp"

#include "core/common/savepoints.hpp"
#include "core/dedupe/idempotency_state.hpp"
#include "core/ring/token.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "src/common/deferred_rows.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/fingerprint.hpp"
#include "src/dedupe/key_lock.hpp"

namespace stacksaga {

namespace {

// A transaction that begins more before it finishes them does not gain by waiting.
constexpr size_t kept_max = 16;

struct KeptKeys {
    alignas(BegunKey) std::array<std::byte, sizeof(BegunKey) * kept_max> room;
    size_t count;

    std::span<BegunKey> all() {
        return {std::launder(reinterpret_cast<BegunKey *>(room.data())), count};
    }
    void add(const BegunKey &key) { new (&room[sizeof(BegunKey) * count++]) BegunKey(key); }
    template <class F> void drop_if(F &&condition) {
        const std::span<BegunKey> keys = all();
        count = static_cast<size_t>(
            std::remove_if(keys.begin(), keys.end(), static_cast<F &&>(condition)) - keys.begin());
    }
};
constinit KeptKeys kept{};

/// A row that lasts as long as the begin is all there is to know.
bool is_settled_for_good(const BegunKey &key) {
    return key.settled.is_as_lasting_as(key.begun_in);
}

/// From here on the key counts as written; if that fails, its (sub)transaction takes this back.
BegunKey settle(BegunKey &key) {
    key.settled = core::Lasting(GetCurrentTransactionNestLevel());
    const BegunKey copy = key;
    kept.drop_if(is_settled_for_good);
    return copy;
}

pg::Param interval_param(int64 microseconds) {
    return pg::param_datum(INTERVALOID, pg::interval_of_microseconds(microseconds));
}

auto row_of(const BegunKey &key, std::optional<TimestampTz> completed_at,
            const pg::Param &response) {
    pg::Param hash = pg::param_null(BYTEAOID);
    if (key.has_request)
        hash = pg::param_datum(BYTEAOID, PointerGetDatum(pg::make_text(
                                             {key.fingerprint.data(), key.fingerprint.size()})));
    return std::array{
        pg::assign(KeyColumn::token, pg::param(key.token.value())),
        pg::assign(KeyColumn::scope, pg::param(key.scope())),
        pg::assign(KeyColumn::key, pg::param(key.name())),
        pg::assign(KeyColumn::lease, pg::param(key.lease)),
        pg::assign(KeyColumn::lease_until, pg::param_time(pg::time_plus(key.begun, key.lease_us))),
        pg::assign(KeyColumn::lease_length, interval_param(key.lease_us)),
        pg::assign(KeyColumn::retention, interval_param(key.retention_us)),
        pg::assign(KeyColumn::sweep_at, pg::param_time(pg::time_plus(key.begun, key.retention_us))),
        pg::assign(KeyColumn::created_at, pg::param_time(key.begun)),
        pg::assign(KeyColumn::attempt, pg::param(int32{1})),
        pg::assign(KeyColumn::fingerprint_version, pg::param(fingerprint_version)),
        pg::assign(KeyColumn::fingerprint, hash),
        pg::assign(KeyColumn::completed_at, pg::param_time(completed_at)),
        pg::assign(KeyColumn::response, response)};
}

/// An ErrorContextCallback: the key may be written by a statement that does not name it, the COMMIT
/// above all.
void name_begun_key(void *begun) {
    const auto &key = *static_cast<const BegunKey *>(begun);
    if (geterrcode() == ERRCODE_UNIQUE_VIOLATION)
        errhint("Somebody has written this key without idempotency_begin(). Roll back, and begin "
                "it again.");
    errcontext("row of key \"%s\" of scope \"%s\", which this transaction has begun",
               clip(key.name()), clip(key.scope()));
}

/// The lock on the key keeps out all who come through the functions of the extension, so another
/// row is an error.
void insert(const BegunKey &key, std::optional<TimestampTz> completed_at,
            const pg::Param &response) {
    ErrorContextCallback context{error_context_stack, name_begun_key, const_cast<BegunKey *>(&key)};
    error_context_stack = &context;
    explaining_locks([&] { idempotency_keys.insert(row_of(key, completed_at, response)); });
    error_context_stack = context.previous;
}

BegunKey *find_unwritten() {
    const std::span<BegunKey> keys = kept.all();
    const auto found = std::find_if(
        keys.begin(), keys.end(), [](const BegunKey &key) { return !key.settled.has_happened(); });
    return found == keys.end() ? nullptr : &*found;
}

void write_begun_keys() {
    if (find_unwritten() == nullptr)
        return;
    // The end of a transaction and some utility statements have none.
    const bool has_snapshot = ActiveSnapshotSet();
    if (!has_snapshot)
        PushActiveSnapshot(GetTransactionSnapshot());
    while (BegunKey *key = find_unwritten())
        write_begun_key(*key);
    if (!has_snapshot)
        PopActiveSnapshot();
}

void roll_back(const pg::Subtransaction &ended) {
    kept.drop_if([&](const BegunKey &key) { return key.begun_in.is_undone_with(ended.level); });
    for (BegunKey &key : kept.all())
        if (key.settled.is_undone_with(ended.level))
            key.settled = {};
}

void release(const pg::Subtransaction &ended) {
    for (BegunKey &key : kept.all()) {
        key.begun_in.release(ended.level);
        key.settled.release(ended.level);
    }
    kept.drop_if(is_settled_for_good);
}

} // namespace

constinit const pg::TransactionUser begun_key_events{
    .before_commit = write_begun_keys,
    .before_prepare = write_begun_keys,
    .at_end = [] { kept.count = 0; },
    .at_release = release,
    .at_rollback = roll_back,
};

BegunKey::BegunKey(const IdempotencyKey &key, std::optional<std::string_view> fingerprint_bytes)
    : token(key.token), has_request(fingerprint_bytes.has_value()),
      scope_size(static_cast<uint8>(key.scope.size())),
      name_size(static_cast<uint8>(key.name.size())) {
    std::copy(key.scope.begin(), key.scope.end(), scope_bytes.begin());
    std::copy(key.name.begin(), key.name.end(), name_bytes.begin());
    if (fingerprint_bytes) {
        Assert(fingerprint_bytes->size() == fingerprint.size());
        std::copy_n(fingerprint_bytes->begin(), fingerprint.size(), fingerprint.begin());
    }
}

bool keep_begun_key(const BegunKey &key) {
    // Triggers and the like may do anything with the row, and deferred ones of a row that is
    // written at the commit would not fire.
    if (kept.count == kept_max || !idempotency_keys.lock_for_write())
        return false;
    set_deferred_writer(write_begun_keys);
    kept.add(key);
    kept.all().back().begun_in = core::Lasting(GetCurrentTransactionNestLevel());
    return true;
}

bool insert_begun_key(const BegunKey &key) {
    return idempotency_keys.insert_if_absent(row_of(key, std::nullopt, pg::param_null(JSONBOID)),
                                             pg::KnownRow::no);
}

BegunKey *find_begun_key(const IdempotencyKey &key) {
    for (BegunKey &known : kept.all())
        if (!known.settled.has_happened() && known.token == key.token && known.name() == key.name &&
            known.scope() == key.scope)
            return &known;
    return nullptr;
}

void write_begun_key(BegunKey &key) {
    // Its transaction could write when it was begun, and may have become read-only since.
    const bool was_read_only = std::exchange(XactReadOnly, false);
    insert(settle(key), std::nullopt, pg::param_null(JSONBOID));
    XactReadOnly = was_read_only;
    CRASH_POINT("key: begun, row written");
}

void complete_begun_key(BegunKey &key, TimestampTz now, const pg::Param &response) {
    insert(settle(key), now, response);
}

void release_begun_key(BegunKey &key) {
    static_cast<void>(settle(key));
}

} // namespace stacksaga
