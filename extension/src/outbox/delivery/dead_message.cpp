// Operators' actions on dead messages: redrive one or many, discard one.
#include "core/outbox/message_state.hpp"
#include "core/ring/token.hpp"
#include "core/work/spread.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/settings.hpp"
#include "pg/statement/array.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/common/wake.hpp"
#include "src/outbox/delivery/dead_unread.hpp"
#include "src/outbox/delivery/delivery_order.hpp"
#include "src/outbox/log/message_waiters.hpp"
#include "src/outbox/subscription/position.hpp"

namespace stacksaga {

namespace {

// The condition on discarded_at is written so that the index of what is not discarded, which knows
// nothing of ids, does not match it.
enum class PlaceColumn : uint8_t {
    token,
    tick,
    number,
    partition,
    key,
    published_at,
    message_id,
    is_lost,
};
constinit pg::Select<PlaceColumn> find_dead{
    "SELECT token::bigint, tick, number, partition, key, published_at, message_id,"
    "       payload IS NULL AS is_lost"
    "  FROM stacksaga.dead_message"
    " WHERE subscription_id = $1 AND message_id = $2"
    "   AND coalesce(discarded_at, 'infinity') = 'infinity'"};
// Those of its key that were read; its partition is locked.
constinit pg::Select<PlaceColumn> find_behind{
    "SELECT token::bigint, tick, number, partition, key, published_at, message_id,"
    "       payload IS NULL AS is_lost"
    "  FROM stacksaga.dead_message"
    " WHERE subscription_id = $1 AND partition = $2"
    "   AND token OPERATOR(stacksaga.=) $3::stacksaga.ring_token AND (tick, number) >= ($4, $5)"
    "   AND discarded_at IS NULL AND key IS NOT NULL AND payload IS NOT NULL"};
// Redriven, and not tried since.
constinit pg::Statement is_redriven{
    "SELECT FROM stacksaga.message_retry"
    " WHERE subscription_id = $1 AND message_id = $2 AND attempt = 0 AND failed_since IS NOT NULL"};
constinit pg::Select<PlaceColumn> find_oldest{
    "SELECT token::bigint, tick, number, partition, key, published_at, message_id,"
    "       payload IS NULL AS is_lost"
    "  FROM stacksaga.dead_message"
    " WHERE subscription_id = $1 AND discarded_at IS NULL"
    " ORDER BY dead_since, tick, number LIMIT $2"};
constinit pg::Select<PlaceColumn> find_oldest_of_topic{
    "SELECT token::bigint, tick, number, partition, key, published_at, message_id,"
    "       payload IS NULL AS is_lost"
    "  FROM stacksaga.dead_message"
    " WHERE subscription_id = $1 AND discarded_at IS NULL AND topic = $3"
    " ORDER BY topic, dead_since, tick, number LIMIT $2"};
constinit pg::Select<PlaceColumn> find_oldest_of_topics{
    "SELECT token::bigint, tick, number, partition, key, published_at, message_id,"
    "       payload IS NULL AS is_lost"
    "  FROM stacksaga.dead_message"
    " WHERE subscription_id = $1 AND discarded_at IS NULL AND pg_catalog.starts_with(topic, $3)"
    " ORDER BY dead_since, tick, number LIMIT $2"};
// Without those that another session has redriven or discarded meanwhile.
enum class DeadColumn : uint8_t {
    token,
    tick,
    number,
    partition,
    key,
    published_at,
    message_id,
    topic,
    dead_since,
    last_error,
};
constinit pg::Select<DeadColumn> read_dead{
    "SELECT d.token::bigint, d.tick, d.number, d.partition, d.key, d.published_at, d.message_id,"
    "       d.topic, d.dead_since, d.last_error"
    "  FROM unnest($2, $3, $4) AS p(token, tick, number)"
    "  JOIN stacksaga.dead_message AS d"
    "    ON d.subscription_id = $1 AND d.tick = p.tick AND d.number = p.number"
    "   AND d.token OPERATOR(stacksaga.=) p.token::stacksaga.ring_token"
    " WHERE d.discarded_at IS NULL"
    " ORDER BY d.tick, d.number"};
constinit pg::Statement revive{
    "WITH dead AS (DELETE FROM stacksaga.dead_message AS d"
    "   USING unnest($2, $3, $4, $5, $6) AS p(token, tick, number, state, due_at)"
    "   WHERE d.subscription_id = $1 AND d.tick = p.tick AND d.number = p.number"
    "     AND d.token OPERATOR(stacksaga.=) p.token::stacksaga.ring_token"
    "     AND d.discarded_at IS NULL RETURNING d.*, p.state, p.due_at)"
    " INSERT INTO stacksaga.message_retry (subscription_id, token, number, tick, partition, attempt,"
    "       state, due_at, failed_since, published_at, failed_in, message_id, topic, key, type,"
    "       payload, headers, last_error, in_doubt, error_details)"
    " SELECT subscription_id, token, number, tick, partition, 0, state, due_at, since, published_at,"
    "        failed_in, message_id, topic, key, type, payload, headers, last_error,"
    "        in_doubt, error_details FROM dead"};
constinit pg::Statement discard{
    "UPDATE stacksaga.dead_message"
    "   SET discarded_at = $5, discarded_by = $6::name, discard_reason = $7"
    " WHERE subscription_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND tick = $3 AND number = $4 AND discarded_at IS NULL"};

/// The places of the messages, in their order.
template <class Column> std::span<Message> places_of(const pg::RowsOf<Column> &rows) {
    auto *messages = static_cast<Message *>(palloc0(sizeof(Message) * (rows.count() + 1)));
    for (uint64 row = 0; row < rows.count(); ++row) {
        const NullableDatum key = rows.nullable(row, Column::key);
        messages[row].token = core::Token::from_int64(rows.int8(row, Column::token));
        messages[row].tick = rows.int8(row, Column::tick);
        messages[row].number = rows.int8(row, Column::number);
        messages[row].partition = rows.int2(row, Column::partition);
        messages[row].key = key.isnull ? Datum{0} : key.value;
        messages[row].published_at = rows.time(row, Column::published_at);
        messages[row].id = rows.uuid(row, Column::message_id);
    }
    std::sort(messages, messages + rows.count(), by_place);
    return {messages, static_cast<size_t>(rows.count())};
}

/// A column of the messages as an array parameter.
template <class F> pg::Param column(std::span<const Message> messages, F &&value) {
    auto *values = static_cast<int64 *>(palloc(sizeof(int64) * (messages.size() + 1)));
    std::transform(messages.begin(), messages.end(), values, value);
    return pg::param_array(std::span<const int64>{values, messages.size()});
}
pg::Param tokens_of(std::span<const Message> messages) {
    return column(messages, [](const Message &m) { return m.token.value(); });
}
pg::Param ticks_of(std::span<const Message> messages) {
    return column(messages, [](const Message &m) { return m.tick; });
}
pg::Param numbers_of(std::span<const Message> messages) {
    return column(messages, [](const Message &m) { return m.number; });
}

const Subscription &hold_named(std::string_view name) {
    const Subscription *held = nullptr;
    while (held == nullptr) // it may be dropped, and created again, while we wait
        held = hold_subscription(find_subscription(name).id, true);
    return *held;
}

struct DeadMessage {
    Message message;
    bool is_lost; ///< it has no payload
};

/// The message, with its partition locked; nothing when there is none.
std::optional<DeadMessage> find_locked(const Subscription &s, const pg_uuid_t &id) {
    auto rows = find_dead.run(pg::param(s.id), pg::param(id));
    if (!rows.empty()) {
        lock_position(s.id, rows.int2(0, PlaceColumn::partition), true);
        rows = find_dead.run(pg::param(s.id), pg::param(id));
    }
    if (rows.empty())
        return std::nullopt;
    return DeadMessage{.message = places_of(rows)[0],
                       .is_lost = rows.boolean(0, PlaceColumn::is_lost)};
}

[[noreturn]] void raise_not_dead(const Subscription &s, const pg_uuid_t &id) {
    ereport(ERROR,
            (errcode(pg::sg404), errmsg("message %s is not dead", uuid_text(id)),
             errdetail("Subscription \"%s\" has no dead message with this id.", clip(s.name)),
             errhint("Look at the view stacksaga.dead_messages.")));
}

void record(std::string_view action, const Subscription &s, const pg_uuid_t &id,
            std::optional<std::string_view> reason = std::nullopt) {
    const char *kind = psprintf("message %s of subscription", uuid_text(id));
    record_action({.action = action, .object = object_text(kind, s.name), .reason = reason});
}

/// Wakes workers, where they have something to do: services fetch their messages themselves.
void wake_for(const Subscription &s) {
    if (s.handler || s.fallback)
        wake_workers_at_commit();
}

/// Holds those that are behind a message of their key that blocks it and is not among them.
void hold_blocked(const Subscription &s, std::span<const Message> dead,
                  std::span<core::MessageState> states) {
    auto *order = static_cast<size_t *>(palloc(sizeof(size_t) * (dead.size() + 1)));
    for (size_t i = 0; i < dead.size(); ++i)
        order[i] = i;
    std::sort(order, order + dead.size(),
              [&](size_t a, size_t b) { return dead[a].token.value() < dead[b].token.value(); });
    std::optional<KeyPlace> blocker;
    const Message *last = nullptr; // the message that it was looked up for
    for (size_t i : std::span{order, dead.size()}) {
        const Message &m = dead[i];
        if (m.key == 0)
            continue;
        if (last == nullptr || last->token != m.token)
            blocker = first_blocker(s, m.token, dead);
        last = &m;
        if (blocker && *blocker < place_of(m))
            states[i] = next_state(states[i], core::MessageEvent::hold);
    }
}

/// Dead messages, which are in the order of their places and whose partitions are locked, are
/// delivered again over `spread`. Those of a key stay in their order: each is due later than those
/// before it, and waits for one of them that fails again.
void bring_back(const Subscription &s, std::span<const Message> dead, int64 spread) {
    using Event = core::MessageEvent;
    const TimestampTz now = pg::clock_now();
    auto *states =
        static_cast<core::MessageState *>(palloc(sizeof(core::MessageState) * (dead.size() + 1)));
    auto *names =
        static_cast<std::string_view *>(palloc(sizeof(std::string_view) * (dead.size() + 1)));
    auto *due_at = static_cast<TimestampTz *>(palloc(sizeof(TimestampTz) * (dead.size() + 1)));
    for (size_t i = 0; i < dead.size(); ++i) {
        const int64 delay =
            core::spread_delay(spread, static_cast<int64>(i), static_cast<int64>(dead.size()));
        due_at[i] = pg::time_plus(now, delay);
        states[i] =
            next_state(core::MessageState::dead, delay == 0 ? Event::redrive : Event::redrive_at);
    }
    if (s.stop_on_first_failure)
        hold_blocked(s, dead, {states, dead.size()});
    for (size_t i = 0; i < dead.size(); ++i) {
        names[i] = core::name_of(states[i]);
        if (core::is_held(states[i]))
            due_at[i] = DT_NOEND;
    }
    revive.run(pg::param(s.id), tokens_of(dead), ticks_of(dead), numbers_of(dead),
               pg::param_array(std::span<const std::string_view>{names, dead.size()}),
               pg::param_time_array({due_at, dead.size()}));
    wake_receivers_at_commit(s);
    CRASH_POINT("dead: redriven");
    wake_for(s);
}

/// SG409 when it has lost its payload, since it could not be read when it died.
void require_payload(const Subscription &s, const DeadMessage &dead) {
    if (!dead.is_lost)
        return;
    ereport(ERROR,
            (errcode(pg::sg409),
             errmsg("a dead message of subscription \"%s\" has lost its payload", clip(s.name)),
             errdetail("Message %s died because it could not be read.", uuid_text(dead.message.id)),
             errhint("In the view stacksaga.dead_messages its payload is NULL. publish() what it "
                     "said again, and discard_message() it.")));
}

/// SG409 when one of them is so old that its consumer may have forgotten that it took effect.
void require_remembered(const Subscription &s, std::span<const Message> dead, bool is_past_wanted) {
    const int64 retention = int64{pg::settings.dedupe_retention} * USECS_PER_SEC;
    const TimestampTz since = pg::time_plus(pg::clock_now(), -retention);
    const auto is_old = [&](const Message &m) { return m.published_at < since; };
    const auto old = std::count_if(dead.begin(), dead.end(), is_old);
    if (is_past_wanted || old == 0)
        return;
    ereport(ERROR,
            (errcode(pg::sg409),
             errmsg("dead messages of subscription \"%s\" are older than "
                    "stacksaga.dedupe_retention",
                    clip(s.name)),
             errdetail("Of %zu messages " INT64_FORMAT " were published more than %s ago: their "
                       "consumer may have forgotten that an attempt took effect.",
                       dead.size(), static_cast<int64>(old), interval_text(retention)),
             errhint("Look whether they took effect. Then pass past_dedupe_retention => true to "
                     "deliver them all the same, or discard_message() them.")));
}

/// Delivers these messages again, which are locked, and records it.
void redrive_all(const Subscription &s, std::span<const Message> dead, int64 spread,
                 bool past_dedupe_retention, std::optional<std::string_view> reason) {
    require_remembered(s, dead, past_dedupe_retention);
    bring_back(s, dead, spread);
    for (const Message &m : dead)
        record("redrive", s, m.id, reason);
}

/// The message, and the dead ones of its key behind it: each of them would stop the key again.
void redrive(std::string_view name, const pg_uuid_t &id, std::optional<std::string_view> reason,
             bool past_dedupe_retention) {
    const Subscription &s = hold_named(name);
    const std::optional<DeadMessage> found = find_locked(s, id);
    if (!found) {
        if (is_redriven.run(pg::param(s.id), pg::param(id)).empty())
            raise_not_dead(s, id);
        return; // with an earlier one of its key
    }
    const Message &m = found->message;
    require_payload(s, *found);
    UnreadMessages unread(s);
    std::span<const Message> dead{&m, 1};
    if (s.stop_on_first_failure && m.key != 0)
        dead = places_of(find_behind.run(pg::param(s.id), pg::param(m.partition),
                                         pg::param(m.token.value()), pg::param(m.tick),
                                         pg::param(m.number)));
    const auto bring = [&] { redrive_all(s, dead, 0, past_dedupe_retention, reason); };
    while (!redrive_unless_damaged(unread, bring, [&] { return dead; })) {
        if (unread.has(m.id)) {
            bring(); // raises why it cannot be read
            return;
        }
        dead = unread.others(dead);
    }
    unread.report();
}

struct Redrive {
    std::string_view subscription;
    std::optional<std::string_view> topic;
    int32 max_messages;
    std::optional<std::string_view> reason;
    bool dry_run;
    int64 spread;
    bool past_dedupe_retention;
};

/// In ascending order: two calls never wait for each other in a circle.
void lock_partitions(const Subscription &s, std::span<const Message> messages) {
    PartitionSet is_wanted{};
    for (const Message &m : messages)
        is_wanted[static_cast<size_t>(m.partition)] = true;
    for (int16 partition = 0; partition < s.partitions; ++partition)
        if (is_wanted[static_cast<size_t>(partition)])
            lock_position(s.id, partition, true);
}

/// Of one topic, of those that begin with what stands before a * at its end, or of all.
pg::RowsOf<PlaceColumn> find_oldest_rows(const Subscription &s, const Redrive &r, int64 count) {
    const pg::Param id = pg::param(s.id), max = pg::param(count);
    if (!r.topic)
        return find_oldest.run(id, max);
    if (r.topic->ends_with('*'))
        return find_oldest_of_topics.run(id, max,
                                         pg::param(r.topic->substr(0, r.topic->size() - 1)));
    return find_oldest_of_topic.run(id, max, pg::param(*r.topic));
}

/// Whether any of them has no payload and was not known for it.
bool note_lost(const pg::RowsOf<PlaceColumn> &rows, UnreadMessages &unread) {
    const size_t before = unread.count();
    for (uint64 row = 0; row < rows.count(); ++row) {
        const pg_uuid_t id = rows.uuid(row, PlaceColumn::message_id);
        if (rows.boolean(row, PlaceColumn::is_lost) && !unread.has(id))
            unread.note(id, "it could not be read when it died, and has no payload");
    }
    return unread.count() > before;
}

/// The oldest messages, without those that cannot be read as far as that is known.
std::span<const Message> find_oldest_read(const Subscription &s, const Redrive &r,
                                          UnreadMessages &unread) {
    const auto most = static_cast<size_t>(r.max_messages);
    for (;;) {
        const auto wanted = static_cast<int64>(most + unread.count());
        const auto rows = find_oldest_rows(s, r, wanted);
        if (note_lost(rows, unread))
            continue;
        const std::span<const Message> found = unread.others(places_of(rows));
        return found.first(std::min(found.size(), most));
    }
}

pg::RowsOf<DeadColumn> read_found(const Subscription &s, std::span<const Message> found) {
    return read_dead.run(pg::param(s.id), tokens_of(found), ticks_of(found), numbers_of(found));
}

void add_to(pg::ResultSet &result, const pg::RowsOf<DeadColumn> &rows) {
    for (uint64 row = 0; row < rows.count(); ++row) {
        const auto column = [&](DeadColumn c) { return pg::of(rows.nullable(row, c)); };
        result.add(column(DeadColumn::message_id), column(DeadColumn::topic),
                   column(DeadColumn::key), column(DeadColumn::dead_since),
                   column(DeadColumn::last_error));
    }
}

/// Those that another session has redriven or discarded meanwhile are left out.
void redrive_found(const Subscription &s, const Redrive &r, std::span<const Message> found,
                   pg::ResultSet &result) {
    lock_partitions(s, found);
    const auto rows = read_found(s, found);
    if (rows.empty())
        return;
    redrive_all(s, places_of(rows), r.spread, r.past_dedupe_retention, r.reason);
    add_to(result, rows);
}

void redrive_oldest(const Redrive &r, pg::ResultSet &result) {
    const Subscription &s =
        r.dry_run ? find_subscription(r.subscription) : hold_named(r.subscription);
    UnreadMessages unread(s);
    std::span<const Message> found = find_oldest_read(s, r, unread);
    if (r.dry_run)
        add_to(result, read_found(s, found));
    else
        while (!redrive_unless_damaged(
            unread, [&] { redrive_found(s, r, found, result); }, [&] { return found; }))
            found = find_oldest_read(s, r, unread);
    unread.report();
}

void discard_message(std::string_view name, const pg_uuid_t &id, std::string_view reason) {
    const Subscription &s = hold_named(name);
    const std::optional<DeadMessage> found = find_locked(s, id);
    if (!found)
        raise_not_dead(s, id);
    const Message &m = found->message;
    const TimestampTz now = pg::clock_now();
    discard.run(pg::param(s.id), pg::param(m.token.value()), pg::param(m.tick), pg::param(m.number),
                pg::param_time(now), pg::param(acting_role()), pg::param(reason));
    if (m.key != 0)
        release_key(s, m.token, now);
    CRASH_POINT("dead: discarded");
    wake_for(s);
    record("discard", s, id, reason);
}

} // namespace

// redrive_message(subscription, message_id, reason, past_dedupe_retention) -> void
STACKSAGA_FUNCTION(redrive_message) {
    pg::Arguments arguments(fcinfo);
    const std::string_view name = arguments.required_text(0, "subscription");
    const pg_uuid_t id = arguments.required_uuid(1, "message_id");
    const std::optional<std::string_view> reason = arguments.optional_text(2);
    if (reason)
        check_error_text(*reason, "reason");
    const bool past = arguments.required_bool(3, "past_dedupe_retention");
    pg::with_spi([&] { redrive(name, id, reason, past); });
    PG_RETURN_VOID();
}

// redrive_messages(subscription, topic, max_messages, reason, dry_run, spread,
//                  past_dedupe_retention)
//   -> TABLE(message_id, topic, key, dead_since, last_error)
STACKSAGA_FUNCTION(redrive_messages) {
    pg::Arguments arguments(fcinfo);
    const Redrive r{.subscription = arguments.required_text(0, "subscription"),
                    .topic = arguments.optional_text(1),
                    .max_messages = arguments.required_int4(2, "max_messages"),
                    .reason = arguments.optional_text(3),
                    .dry_run = arguments.required_bool(4, "dry_run"),
                    .spread = spread_argument(arguments, 5),
                    .past_dedupe_retention = arguments.required_bool(6, "past_dedupe_retention")};
    if (r.max_messages < 1 || r.max_messages > pg::array_elements_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"max_messages\" is out of range"),
                        errdetail("The value is %d.", r.max_messages),
                        errhint("Use 1 to %d.", pg::array_elements_max)));
    if (r.reason)
        check_error_text(*r.reason, "reason");
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { redrive_oldest(r, result); });
    return pg::ResultSet::finish();
}

// discard_message(subscription, message_id, reason) -> void
STACKSAGA_FUNCTION(discard_message) {
    pg::Arguments arguments(fcinfo);
    const std::string_view name = arguments.required_text(0, "subscription");
    const pg_uuid_t id = arguments.required_uuid(1, "message_id");
    const std::string_view reason = arguments.required_text(2, "reason");
    check_error_text(reason, "reason");
    pg::with_spi([&] { discard_message(name, id, reason); });
    PG_RETURN_VOID();
}

} // namespace stacksaga
