// Calls of services: receive a batch, answer for single messages of it, acknowledge it, give it
// back.
//
// A batch is no list: it is the partitions that it holds and how far it reaches in each of them
// (subscription_position). ack_messages() moves the positions on; when another session has written
// a later version since, the lease is lost.
#include "core/outbox/batch_room.hpp"
#include "core/outbox/partition.hpp"
#include "core/ring/token.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/random.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/common/waiting.hpp"
#include "src/common/wake.hpp"
#include "src/outbox/delivery/delivery_poll.hpp"
#include "src/outbox/delivery/held_batch.hpp"
#include "src/outbox/log/log_lock.hpp"
#include "src/outbox/log/log_tick.hpp"
#include "src/outbox/log/message_waiters.hpp"
#include "src/outbox/message_row.hpp"

namespace stacksaga {

namespace {

constexpr int32 receive_max = core::batch_messages_max;
// Maximum number of messages that a call copies out while it finds none to deliver. The next one
// continues behind them.
constexpr int64 copied_max = 10000;
// Longest wait of a call that finds nothing for a session that makes a tick or maintains the log.
constexpr int others_timeout_ms = 100;
constexpr int64 release_max = USECS_PER_HOUR; ///< longest pause of a batch that is given back

constinit pg::Statement next_batch_id{
    "SELECT pg_catalog.nextval('stacksaga.message_batch_id_seq')"};
constinit pg::Statement insert_batch{
    "INSERT INTO stacksaga.message_batch"
    " (batch_id, subscription_id, partitions, consumer, received_at)"
    " VALUES ($1, $2, $3::integer[]::smallint[], $4, $5)"};
// By the batch alone: the partition may have many more retries.
constinit pg::Statement find_failed{
    "SELECT FROM stacksaga.message_retry"
    " WHERE subscription_id + 0 = $1 AND partition + 0 = $2 AND failed_in = $3 AND message_id = $4"
    " UNION ALL"
    " SELECT FROM stacksaga.dead_message"
    " WHERE subscription_id + 0 = $1 AND partition + 0 = $2 AND failed_in = $3 AND message_id = $4"};
enum class FailureColumn : uint8_t { token, tick, number };
using Failures = pg::RowsOf<FailureColumn>;
constinit pg::Select<FailureColumn> list_failures{
    "SELECT token::bigint, tick, number FROM stacksaga.message_retry"
    " WHERE subscription_id + 0 = $1 AND partition + 0 = $2 AND failed_in = $3"
    " UNION ALL"
    " SELECT token::bigint, tick, number FROM stacksaga.dead_message"
    " WHERE subscription_id + 0 = $1 AND partition + 0 = $2 AND failed_in = $3"};

/// Reads on past messages that are not to be delivered.
Gathering gather_enough(const Subscription &s, int32 room, ConsumerShare share, TimestampTz now) {
    PartitionSet all{};
    all.fill(true);
    const auto rotation = static_cast<int32>(pg::random_fraction() * core::partitions_max);
    Gathering g = gather(s, all, nullptr, room, rotation, now, share);
    for (int64 copied = g.copied;
         g.messages.empty() && g.more && !g.has_lone && copied < copied_max; copied += g.copied)
        g = gather(s, all, nullptr, room, rotation, now, share);
    return g;
}

/// The same without sessions that work for all readers, which take a moment each: one that ticks,
/// and who maintains the log. (Another consumer may keep its partitions for long.)
Gathering gather_undisturbed(const Subscription &s, int32 room, ConsumerShare share,
                             TimestampTz now, Ticking ticking) {
    if (ticking == Ticking::elsewhere) {
        wait_for_ticking(others_timeout_ms);
        tick_if_due();
    }
    const bool is_undisturbed = lock_out_maintenance(others_timeout_ms);
    const Gathering g = gather_enough(s, room, share, now);
    if (is_undisturbed)
        let_maintenance_in();
    return g;
}

void receive(std::string_view name, std::string_view consumer, int32 room, int64 lease_us,
             pg::ResultSet &result) {
    const Ticking ticking = tick_soon();
    const Subscription *held = hold_subscription(find_subscription(name).id, false);
    if (held == nullptr)
        return;
    const Subscription &s = *held;
    require_no_handler(s);
    const TimestampTz now = pg::clock_now();
    const ConsumerShare share = ask_for_share(s, consumer, now);
    Gathering g = gather_enough(s, room, share, now);
    if (g.messages.empty() && !g.has_lone && (ticking == Ticking::elsewhere || g.contended))
        g = gather_undisturbed(s, room, share, now, ticking);
    const auto taken = static_cast<int32>(g.parts.size());
    note_claim(claims_of(s), taken, taken);
    if (g.messages.empty())
        return;
    forget_pauses();
    const int64 batch_id = next_batch_id.run().int8(0);
    std::array<int32, core::partitions_max> partitions{};
    for (size_t i = 0; i < g.parts.size(); ++i) {
        Position &p = g.parts[i].position;
        p.batch_id = batch_id;
        p.released_batch = 0;
        p.batch_end = g.parts[i].end;
        p.batch_size = g.parts[i].from_log;
        p.batch_total = static_cast<int32>(g.messages.size());
        p.lease_until = pg::time_plus(now, lease_us);
        write_position(s.id, p, now, consumer);
        partitions[i] = p.partition;
    }
    CRASH_POINT("receive: leased, no batch");
    insert_batch.run(pg::param(batch_id), pg::param(s.id),
                     pg::param_array(std::span<const int32>{partitions.data(), g.parts.size()}),
                     pg::param(consumer), pg::param_time(now));
    note_delivery(s, g.messages, batch_id);
    CRASH_POINT("receive: batch written");
    note_held(s.id, consumer, pg::time_plus(now, lease_us));
    for (const Message &m : g.messages)
        add_message(result, m, batch_id);
}

/// The messages of the log that the batch was given in a partition, failed ones included.
std::span<Message> log_of(const HeldBatch &batch, const Position &p) {
    const std::span<Message> messages =
        read_log_again(batch.subscription->filter, p.partition, p.at, p.batch_end).messages;
    mark_in_doubt(p, messages);
    return messages;
}

bool is_behind_failure(const Message &m, const Failures &failures) {
    for (uint64 row = 0; row < failures.count(); ++row) {
        const int64 tick = failures.int8(row, FailureColumn::tick),
                    number = failures.int8(row, FailureColumn::number);
        if (failures.int8(row, FailureColumn::token) == m.token.value() &&
            (tick < m.tick || (tick == m.tick && number < m.number)))
            return true;
    }
    return false;
}

/// Holds the messages behind a failure of this batch, which its consumer has left out; returns how
/// many messages neither failed nor are held.
int64 hold_behind_failures(const HeldBatch &batch, const Position &p, const Failures &failures,
                           TimestampTz now) {
    const Subscription &s = *batch.subscription;
    std::span<Message> messages = log_of(batch, p);
    auto *dispositions =
        static_cast<Disposition *>(palloc(sizeof(Disposition) * (messages.size() + 1)));
    decide_dispositions(s, messages, now, {dispositions, messages.size()});
    int64 count = 0;
    for (size_t i = 0; i < messages.size(); ++i) {
        const Message &m = messages[i];
        if (dispositions[i] == Disposition::settled)
            continue;
        if (s.stop_on_first_failure && m.key != 0 && is_behind_failure(m, failures))
            copy_out(s, m, Disposition::hold);
        else
            ++count;
    }
    // The failure may be discarded already, and block them no longer.
    for (uint64 row = 0; row < failures.count(); ++row) {
        const core::Token token = core::Token::from_int64(failures.int8(row, FailureColumn::token));
        release_key(s, token, now);
    }
    return count;
}

/// Acknowledges one partition's part of the batch; returns for how many messages. `has_changed`:
/// retries, of which some may be due, or later.
int64 ack_part(const HeldBatch &batch, Position &p, TimestampTz now, bool &has_changed) {
    const Subscription &s = *batch.subscription;
    const Failures failures =
        list_failures.run(pg::param(s.id), pg::param(p.partition), pg::param(batch.batch_id));
    int64 count = failures.empty() ? p.batch_size : hold_behind_failures(batch, p, failures, now);
    std::span<const Message> retries = messages_given(s, p.partition, batch.batch_id, false);
    for (const Message &m : retries)
        finish_retry(s, m, now);
    has_changed = has_changed || !failures.empty() || !retries.empty();
    CRASH_POINT("ack: retries removed, position not moved");
    p.room = core::room_after_answer(p.room);
    p.end_release(now);
    move_position(s.id, p, p.batch_end, now);
    return count + static_cast<int64>(retries.size());
}

/// Whether the log goes on behind one of its positions.
bool is_behind(const HeldBatch &batch) {
    const int64 last = last_tick();
    return std::any_of(batch.parts.begin(), batch.parts.end(),
                       [=](const Position &p) { return p.at.number != 0 || p.at.tick < last; });
}

int64 ack(int64 batch_id) {
    HeldBatch batch = hold_batch(batch_id, Released::refused);
    const TimestampTz now = pg::clock_now();
    int64 count = 0;
    TimestampTz until = DT_NOBEGIN;
    bool has_changed = false; // retries
    for (Position &p : batch.parts) {
        until = std::max(until, p.lease_until);
        count += ack_part(batch, p, now, has_changed);
    }
    CRASH_POINT("ack: positions moved");
    // Others may receive what is behind it, or what it held back, and learn when it is due.
    if (!is_waited_for(*batch.subscription) || has_changed || is_behind(batch))
        wake_receivers_at_commit(*batch.subscription);
    note_answered(batch.subscription->id, batch.consumer, until, now);
    if (batch.subscription->fallback)
        wake_workers_at_commit();
    return count;
}

TimestampTz extend(int64 batch_id, int64 extend_by_us) {
    HeldBatch batch = hold_batch(batch_id, Released::refused);
    const TimestampTz now = pg::clock_now();
    TimestampTz until = DT_NOEND;
    for (Position &p : batch.parts) {
        p.lease_until = std::max(p.lease_until, pg::time_plus(now, extend_by_us));
        until = std::min(until, p.lease_until);
        write_position(batch.subscription->id, p, now, batch.consumer);
    }
    CRASH_POINT("receive: lease extended");
    note_held(batch.subscription->id, batch.consumer, until);
    return until;
}

struct Release {
    int64 after_us;
    std::optional<std::string_view> reason;
};

/// No loss: the room of the next batch, the attempts and what was in doubt before stay as they are.
void release_batch(int64 batch_id, const Release &release) {
    const HeldBatch batch = hold_batch(batch_id, Released::taken);
    if (batch.is_released())
        return; // an answer that was lost, and is repeated
    const Subscription &s = *batch.subscription;
    const TimestampTz now = pg::clock_now();
    TimestampTz until = DT_NOBEGIN;
    for (Position &p : batch.parts) {
        until = std::max(until, p.lease_until);
        note_given_back(s, p.partition, batch_id);
        CRASH_POINT("release: retries given back, position not written");
        p.answered_at = now;
        p.released_batch = batch_id;
        p.released_until = pg::time_plus(now, release.after_us);
        p.release_reason = release.reason;
        move_position(s.id, p, p.at, now);
    }
    wake_receivers_at_commit(s);
    note_answered(s.id, batch.consumer, until, now);
}

/// The message of the batch with this id, with the attempt that it was given as.
std::optional<Message> find_message(const HeldBatch &batch, const Position &p,
                                    const pg_uuid_t &id) {
    auto has_id = [&](const Message &m) { return memcmp(m.id.data, id.data, UUID_LEN) == 0; };
    const Subscription &s = *batch.subscription;
    for (const Message &m : messages_given(s, p.partition, batch.batch_id, true))
        if (has_id(m))
            return m;
    std::span<Message> messages = log_of(batch, p);
    for (Message &m : messages) {
        if (!has_id(m))
            continue;
        Disposition disposition;
        decide_dispositions(s, {&m, 1}, pg::clock_now(), {&disposition, 1});
        if (disposition == Disposition::settled)
            continue;
        return m;
    }
    return std::nullopt;
}

void fail(int64 batch_id, const pg_uuid_t &id, const MessageFailure &failure) {
    HeldBatch batch = hold_batch(batch_id, Released::refused);
    for (const Position &p : batch.parts) {
        if (!find_failed
                 .run(pg::param(batch.subscription->id), pg::param(p.partition),
                      pg::param(batch_id), pg::param(id))
                 .empty())
            return; // it failed before
        std::optional<Message> m = find_message(batch, p, id);
        if (!m)
            continue;
        fail_message(*batch.subscription, *m, failure, pg::clock_now());
        if (batch.subscription->fallback)
            wake_workers_at_commit();
        return;
    }
    ereport(ERROR,
            (errcode(pg::sg404),
             errmsg("message %s is not in batch " INT64_FORMAT, uuid_text(id), batch_id),
             errdetail("The batch was received for subscription \"%s\" by \"%s\".",
                       clip(batch.subscription->name), clip(batch.consumer)),
             errhint("Pass the batch_id and the message_id of one row of receive_messages().")));
}

core::FailureClass class_argument(const pg::Arguments &arguments, int i) {
    const std::string_view name = arguments.required_text(i, "error_class");
    const std::optional<core::FailureClass> found = core::failure_class_of(name);
    if (!found)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"error_class\" is not valid"),
                        errdetail("The value is \"%s\".", clip(name)),
                        errhint("Use retryable, non_retryable or unknown.")));
    return *found;
}

int64 interval_argument(const pg::Arguments &arguments, int i, const char *name) {
    arguments.require(i, name);
    return pg::interval_microseconds(arguments.datum(i), name, true);
}

} // namespace

// receive_messages(subscription, consumer, max_messages, lease) -> SETOF message
STACKSAGA_FUNCTION(receive_messages) {
    PreventCommandDuringRecovery("receive_messages()"); // also where there is nothing
    pg::Arguments arguments(fcinfo);
    const std::string_view subscription = arguments.required_text(0, "subscription");
    const std::string_view consumer = arguments.required_text(1, "consumer");
    check_name(consumer, "consumer");
    const int32 room = arguments.required_int4(2, "max_messages");
    if (room < 1 || room > receive_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"max_messages\" is out of range"),
                        errdetail("The value is %d.", room), errhint("Use 1 to %d.", receive_max)));
    const int64 lease_us = interval_argument(arguments, 3, "lease");
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { receive(subscription, consumer, room, lease_us, result); });
    return pg::ResultSet::finish();
}

// ack_messages(batch_id) -> bigint
STACKSAGA_FUNCTION(ack_messages) {
    const int64 batch_id = pg::Arguments(fcinfo).required_int8(0, "batch_id");
    PG_RETURN_INT64(pg::with_spi([&] { return ack(batch_id); }));
}

// release_batch(batch_id, retry_after, reason) -> void
STACKSAGA_FUNCTION(release_batch) {
    pg::Arguments arguments(fcinfo);
    const int64 batch_id = arguments.required_int8(0, "batch_id");
    arguments.require(1, "retry_after");
    const Release release{.after_us =
                              pg::interval_microseconds(arguments.datum(1), "retry_after", false),
                          .reason = arguments.optional_text(2)};
    if (release.after_us > release_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"retry_after\" is too long"),
                        errdetail("The value is %s.", interval_text(release.after_us)),
                        errhint("Use at most %s; a consumer that gets the messages then may give "
                                "them back again.",
                                interval_text(release_max))));
    if (release.reason)
        check_length(*release.reason, "reason", reason_bytes_max);
    pg::with_spi([&] { release_batch(batch_id, release); });
    PG_RETURN_VOID();
}

// extend_batch(batch_id, extend_by) -> timestamptz
STACKSAGA_FUNCTION(extend_batch) {
    pg::Arguments arguments(fcinfo);
    const int64 batch_id = arguments.required_int8(0, "batch_id");
    const int64 extend_by_us = interval_argument(arguments, 1, "extend_by");
    PG_RETURN_TIMESTAMPTZ(pg::with_spi([&] { return extend(batch_id, extend_by_us); }));
}

// fail_message(batch_id, message_id, error, error_class, retry_after) -> void
STACKSAGA_FUNCTION(fail_message) {
    pg::Arguments arguments(fcinfo);
    const int64 batch_id = arguments.required_int8(0, "batch_id");
    const pg_uuid_t id = arguments.required_uuid(1, "message_id");
    MessageFailure failure{};
    failure.batch_id = batch_id;
    failure.error = arguments.required_text(2, "error");
    check_error_text(failure.error, "error");
    failure.failure_class = class_argument(arguments, 3);
    failure.retry_after_us = retry_after_argument(arguments, 4);
    pg::with_spi([&] { fail(batch_id, id, failure); });
    PG_RETURN_VOID();
}

} // namespace stacksaga
