#include "src/outbox/delivery/delivery_retry.hpp"

#include "core/common/retry.hpp"
#include "core/outbox/message_state.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/random.hpp"
#include "pg/statement/function.hpp"
#include "pg/table/lookup.hpp"
#include "src/common/limits.hpp"
#include "src/outbox/command.hpp"
#include "src/outbox/delivery/delivery_fit.hpp"
#include "src/outbox/delivery/delivery_loss.hpp"
#include "src/outbox/delivery/delivery_order.hpp"
#include "src/outbox/outbox_tables.hpp"

namespace stacksaga {

namespace {

using State = core::MessageState;
using Event = core::MessageEvent;

// By the primary key and not by a query, whose plan would hash all retries, or look through them.
using PlaceKey = std::array<pg::KeyColumn, 4>;

PlaceKey place_key(const Subscription &s, const Message &m) {
    return {pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
            pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(m.token.value())},
            pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(m.tick)},
            pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(m.number)}};
}

/// Whether the message's partition has retries, or dead messages that block a key or lie at or
/// behind the message's tick.
bool may_be_settled(const Subscription &s, const Message &m) {
    const std::array<pg::KeyColumn, 3> from_tick{
        pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
        pg::KeyColumn{F_INT2EQ, InvalidOid, Int16GetDatum(m.partition)},
        pg::KeyColumn{F_INT8GE, InvalidOid, Int64GetDatum(m.tick), BTGreaterEqualStrategyNumber}};
    const auto of_partition = std::span<const pg::KeyColumn>{from_tick}.first(2);
    CommandCounterIncrement(); // what this transaction has written itself counts as well
    return pg::has_row(retry_table, RetryIndex::due, of_partition) ||
           pg::has_row(dead_table, DeadIndex::open, of_partition) ||
           pg::has_row(dead_table, DeadIndex::place, from_tick);
}

/// Whether anything is due in a partition.
bool has_due(const Subscription &s, int16 partition, TimestampTz now) {
    const std::array<pg::KeyColumn, 3> key{
        pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
        pg::KeyColumn{F_INT2EQ, InvalidOid, Int16GetDatum(partition)},
        pg::KeyColumn{F_TIMESTAMPTZ_LE, InvalidOid, TimestampTzGetDatum(now),
                      BTLessEqualStrategyNumber}};
    CommandCounterIncrement();
    return pg::has_row(retry_table, RetryIndex::due, key);
}

TimestampTz due_at_of(TupleTableSlot *row) {
    bool is_null;
    return DatumGetTimestampTz(slot_getattr(row, pg::column_number(RetryColumn::due_at), &is_null));
}

/// Calls `visit` with the reader, the number of each partition that has retries, and when the first
/// of them is due.
template <class F> void each_first_retry(const Subscription &s, F &&visit) {
    CommandCounterIncrement();
    pg::with_index(retry_table, RetryIndex::due, [&](pg::IndexReader &reader) {
        // To the first retry of the next partition that has any.
        for (int16 partition = 0; partition < s.partitions; ++partition) {
            reader.seek(std::array{pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
                                   pg::KeyColumn{F_INT2GE, InvalidOid, Int16GetDatum(partition),
                                                 BTGreaterEqualStrategyNumber}});
            TupleTableSlot *row = reader.next();
            if (row == nullptr)
                return;
            bool is_null;
            partition = DatumGetInt16(
                slot_getattr(row, pg::column_number(RetryColumn::partition), &is_null));
            visit(reader, partition, due_at_of(row));
        }
    });
}

/// Holds those that would be delivered although an earlier message blocks their key.
void hold_blocked(const Subscription &s, std::span<const Message> messages,
                  std::span<Disposition> dispositions) {
    std::optional<KeyPlace> blocker;
    const Message *last = nullptr; // the message that it was looked up for
    for (size_t i = 0; i < messages.size(); ++i) {
        const Message &m = messages[i];
        if (dispositions[i] != Disposition::deliver || m.key == 0)
            continue;
        if (last == nullptr || last->token != m.token)
            blocker = first_blocker(s, m.token);
        last = &m;
        if (blocker && *blocker < place_of(m))
            dispositions[i] = Disposition::hold;
    }
}

bool is_blocking(const Subscription &s, const Message &m) {
    return s.stop_on_first_failure && m.key != 0;
}

bool is_deliverable_retry(State state) {
    return core::is_retry(state) && core::is_deliverable(state);
}
bool is_fallback(State state) {
    return state == State::fallback;
}

/// Removes the command of an attempt that has lost its lease.
bool withdraw(const Subscription &s, const Message &m, TimestampTz now) {
    if (!is_command_over(m))
        return false;
    finish_retry(s, m, now);
    return true;
}

/// Gives up on a message that has had all its attempts: it was lost with its batch, or failed while
/// the policy allowed more.
bool give_up(const Subscription &s, Message m, TimestampTz now) {
    --m.attempt;
    if (m.attempt == 0 || core::may_retry(m.attempt, s.retry.policy))
        return false;
    const bool is_unanswered = m.state == State::leased || m.last_error == 0;
    fail_message(s, m,
                 {.failure_class = core::FailureClass::non_retryable,
                  .error = is_unanswered ? unanswered_error : pg::view_of_text(m.last_error)},
                 now);
    return true;
}

/// Returns whether all of the messages, which are due and in the order of their places, can be
/// delivered, without those behind `bytes`. Gives up on one that has had its attempts, and holds
/// one that is behind another of its key that is not among them.
bool give_up_or_hold(const Subscription &s, std::span<Message> &messages, uint64 bytes,
                     TimestampTz now) {
    uint64 read = 0;
    for (size_t i = 0; i < messages.size(); ++i) {
        Message &m = messages[i];
        if (settle_unfit(s, m, now) != Fit::fits || withdraw(s, m, now) || give_up(s, m, now))
            return false; // the later ones of its key may be due or not due now
        read += m.payload_bytes;
        if (read > bytes)
            messages = messages.first(i + 1);
    }
    bool are_kept = true;
    std::optional<KeyPlace> first;
    const Message *last = nullptr; // the message that it was looked up for
    for (const Message &m : messages) {
        if (!is_blocking(s, m))
            continue;
        if (last == nullptr || last->token != m.token)
            first = first_blocker(s, m.token, messages);
        last = &m;
        if (!first || !(*first < place_of(m)))
            continue;
        hold(s, m.token, place_of(m), m.state);
        are_kept = false;
    }
    return are_kept;
}

/// Says also why the fallback was not run, where there is one.
std::string_view error_of_dead(const Subscription &s, const Message &m, std::string_view error) {
    if (!s.fallback || !m.in_doubt)
        return error;
    return psprintf("%.*s; its fallback was not run, since an attempt may have taken effect",
                    static_cast<int>(error.size()), error.data());
}

} // namespace

DueMessages due_messages(const Subscription &s, int16 partition, int32 limit, uint64 bytes,
                         TimestampTz now) {
    // The caller has locked the partition's position, so no other session delivers from it. Giving
    // up or holding a message changes which are due: they are read again until all can be
    // delivered.
    while (has_due(s, partition, now)) {
        const std::span<Message> all = due_rows(s, partition, limit, now, is_deliverable_retry);
        std::span<Message> due = all;
        if (give_up_or_hold(s, due, bytes, now))
            return {.messages = due,
                    .is_cut = due.size() < all.size() || due.size() == static_cast<size_t>(limit)};
    }
    return {.messages = {}, .is_cut = false};
}

PartitionSet due_partitions(const Subscription &s, TimestampTz now) {
    PartitionSet due{};
    each_first_retry(s, [&](pg::IndexReader &, int16 partition, TimestampTz due_at) {
        due[static_cast<size_t>(partition)] = due_at <= now;
    });
    return due;
}

bool has_due_message(const Subscription &s, int16 partition, TimestampTz now) {
    return has_due(s, partition, now) &&
           !due_rows(s, partition, 1, now, is_deliverable_retry).empty();
}

TimestampTz next_retry(const Subscription &s, const PartitionSet &partitions, TimestampTz now) {
    TimestampTz next = DT_NOEND;
    each_first_retry(s, [&](pg::IndexReader &reader, int16 partition, TimestampTz due_at) {
        if (!partitions[static_cast<size_t>(partition)])
            return;
        if (due_at <= now) {
            reader.seek(
                std::array{pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
                           pg::KeyColumn{F_INT2EQ, InvalidOid, Int16GetDatum(partition)},
                           pg::KeyColumn{F_TIMESTAMPTZ_GT, InvalidOid, TimestampTzGetDatum(now),
                                         BTGreaterStrategyNumber}});
            TupleTableSlot *row = reader.next();
            due_at = row == nullptr ? DT_NOEND : due_at_of(row);
        }
        next = std::min(next, due_at);
    });
    return next;
}

bool has_due_fallback(const Subscription &s, int16 partition, TimestampTz now) {
    return has_due(s, partition, now) && !due_rows(s, partition, 1, now, is_fallback).empty();
}

std::span<Message> due_fallbacks(const Subscription &s, int16 partition, int32 limit,
                                 TimestampTz now) {
    std::span<Message> messages = due_rows(s, partition, limit, now, is_fallback);
    size_t count = 0;
    for (Message &m : messages) {
        if (settle_unfit(s, m, now) != Fit::fits || withdraw(s, m, now))
            continue;
        if (is_blocking(s, m) && is_behind_another(s, m.token, place_of(m))) {
            hold(s, m.token, place_of(m), m.state);
            continue;
        }
        --m.attempt; // it is not another attempt at the message
        messages[count++] = m;
    }
    return messages.first(count);
}

bool is_settled(const Subscription &s, const Message &m) {
    const PlaceKey key = place_key(s, m);
    CommandCounterIncrement();
    return pg::has_row(retry_table, RetryIndex::primary_key, key) ||
           pg::has_row(dead_table, DeadIndex::primary_key, key);
}

void decide_dispositions(const Subscription &s, std::span<const Message> messages, TimestampTz now,
                         std::span<Disposition> dispositions) {
    for (size_t i = 0; i < messages.size(); ++i)
        dispositions[i] = messages[i].deliver_at && *messages[i].deliver_at > now
                              ? Disposition::delay
                              : Disposition::deliver;
    for (size_t i = 0; i < messages.size(); ++i)
        if (is_command_over(messages[i]))
            dispositions[i] = Disposition::over;
    // Three index probes spare the others in a partition where nothing has failed. The messages are
    // in the order of their places, so the first one has the smallest tick.
    if (messages.empty() || !may_be_settled(s, messages[0]))
        return;
    for (size_t i = 0; i < messages.size(); ++i)
        if (is_settled(s, messages[i]))
            dispositions[i] = Disposition::settled;
    if (s.stop_on_first_failure)
        hold_blocked(s, messages, dispositions);
}

void copy_out(const Subscription &s, const Message &m, Disposition disposition) {
    if (disposition == Disposition::delay) {
        write_retry(s, m, {.state = next_state(m.state, Event::delay), .due_at = *m.deliver_at});
        return;
    }
    write_retry(s, m, {.state = next_state(m.state, Event::hold), .due_at = DT_NOEND});
    CRASH_POINT("retry: a message behind a failed one held");
    // Of a batch that was lost a later message may be ready.
    hold_behind(s, m);
}

namespace {

/// release_key() has to follow.
void copy_out_unread(const Subscription &s, const Message &m, std::string_view reason,
                     TimestampTz now) {
    if (!is_blocking(s, m)) {
        write_retry(s, m,
                    {.state = next_state(m.state, Event::expire), .due_at = now, .error = reason});
        return;
    }
    write_retry(s, m,
                {.state = next_state(m.state, Event::hold), .due_at = DT_NOEND, .error = reason});
    hold_behind(s, m);
}

} // namespace

void copy_out_unhandled(const Subscription &s, std::span<const Message> messages,
                        std::string_view reason, TimestampTz now) {
    auto *dispositions =
        static_cast<Disposition *>(palloc(sizeof(Disposition) * (messages.size() + 1)));
    decide_dispositions(s, messages, now, {dispositions, messages.size()});
    for (size_t i = 0; i < messages.size(); ++i)
        if (dispositions[i] == Disposition::delay)
            copy_out(s, messages[i], Disposition::delay);
        else if (dispositions[i] != Disposition::settled && dispositions[i] != Disposition::over)
            copy_out_unread(s, messages[i], reason, now);
    // After all of them are copied, so that the first message of each key is the one released.
    for (const Message &m : messages)
        if (m.key != 0)
            release_key(s, m.token, now);
}

void copy_out_after_crash(const Subscription &s, const Message &m, std::string_view error,
                          TimestampTz now) {
    write_retry(s, m,
                {.state = next_state(m.state, Event::process_dies),
                 .due_at = now,
                 .crashes = 1,
                 .error = error});
}

void finish_retry(const Subscription &s, const Message &m, TimestampTz now) {
    // The row goes before its key is released: release_key() looks for the first message that still
    // blocks the key, and must not find this one.
    delete_retry(s, m);
    CRASH_POINT("retry: removed, its key not released");
    if (m.key != 0)
        release_key(s, m.token, now);
}

void fail_message(const Subscription &s, const Message &failed, const MessageFailure &failure,
                  TimestampTz now) {
    Message m = failed;
    m.in_doubt = m.in_doubt || failure.failure_class == core::FailureClass::unknown;
    const core::RetryPolicy &policy = s.retry.policy;
    // An effect and its fallback must never both be there.
    const Event event = core::event_of_failure(
        failure.failure_class, core::may_retry(m.attempt, policy), s.fallback && !m.in_doubt);
    const State state = next_state(m.state, event);
    if (state == State::dead) {
        write_dead(s, m, failure.batch_id, error_of_dead(s, m, failure.error), failure.detail, now);
    } else {
        int64 delay = 0;
        if (event == Event::fail)
            delay = failure.retry_after_us.value_or(core::delay_before(
                static_cast<int64>(m.attempt) + 1, policy, pg::random_fraction()));
        write_retry(s, m,
                    {.state = state,
                     .due_at = pg::time_plus(now, delay),
                     .attempt = m.attempt,
                     .crashes = failure.process_crashed ? m.crashes + 1 : 0,
                     .failed_since = now,
                     .failed_in = failure.batch_id,
                     .error = failure.error,
                     .detail = failure.detail});
    }
    CRASH_POINT("retry: failure written, later ones not held");
    // After the failure is written, in the same transaction: the held messages wait for this row.
    if (is_blocking(s, m))
        hold_behind(s, m);
}

void fail_fallback(const Subscription &s, const Message &m, const MessageFailure &failure,
                   TimestampTz now) {
    write_dead(s, m, failure.batch_id, failure.error, failure.detail, now);
}

} // namespace stacksaga
