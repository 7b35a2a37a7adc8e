#include "src/outbox/delivery/delivery_look.hpp"

#include "core/outbox/partition.hpp"
#include "core/outbox/snapshot_window.hpp"

#include "pg/clock.hpp"
#include "pg/statement/query.hpp"
#include "src/outbox/delivery/delivery_loss.hpp"
#include "src/outbox/delivery/delivery_poll.hpp"
#include "src/outbox/log/log_lock.hpp"
#include "src/outbox/log/log_tick.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement find_prepared{
    "SELECT FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database()"
    " LIMIT 1"};

bool may_prepare() {
    return strcmp(GetConfigOption("max_prepared_transactions", false, false), "0") != 0;
}

/// How many messages a look reads at once, which only have to be seen.
constexpr int32 read_at_once = 16;

struct Look {
    const Subscription &s;
    size_t enough;
    ReadAhead &ahead;
    Positions positions;
    PartitionSet offered; ///< to the consumer
    TimestampTz now;
    PartitionSet free{};
    size_t counted = 0;
    Receivable found{};

    void find_free();
    void count(int16 partition);
    void count_retries();
    void count_of_log(size_t first, size_t size, LoadedTicks &ticks);
    void read_on(size_t first, std::span<core::LogPosition> from, LoadedTicks &ticks);
};

void Look::find_free() {
    for (const Position &p : positions) {
        if (!p.is_free(now))
            found.next = std::min(found.next, p.free_from());
        else
            free[static_cast<size_t>(p.partition)] = !waits_for_company(s, p, now);
    }
}

/// A partition that has something. Who receives has it locked until the commit.
void Look::count(int16 partition) {
    bool &is_free = free[static_cast<size_t>(partition)];
    if (!is_free)
        return;
    is_free = false; // each counts once
    ++counted;
    if (is_partition_locked(s.id, partition))
        found.is_being_taken = true;
    else if (offered[static_cast<size_t>(partition)])
        ++found.due;
    else
        found.has_others = true;
}

void Look::count_retries() {
    found.next = std::min(found.next, next_retry(s, free, now));
    const PartitionSet due = due_partitions(s, now);
    for (const Position &p : positions)
        // A lost batch gives what it held once more.
        if (p.batch_id != 0 ||
            (due[static_cast<size_t>(p.partition)] && free[static_cast<size_t>(p.partition)] &&
             has_due_message(s, p.partition, now)))
            count(p.partition);
}

/// Reads on until it finds something or the end of the ticks.
void Look::read_on(size_t first, std::span<core::LogPosition> from, LoadedTicks &ticks) {
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        const std::optional<LogPart> log = read_log(
            s.filter, ticks, {.first = static_cast<int16>(first), .from = from}, read_at_once);
        if (!log) {
            found.is_behind_ticks = true;
            ahead.forget();
            return;
        }
        for (const Message &m : log->messages)
            count(m.partition);
        if (!log->messages.empty())
            return;
        for (size_t i = 0; i < from.size(); ++i)
            if (from[i] != LogShare::nowhere) {
                from[i] = std::max(from[i], log->end);
                ahead.note(positions[first + i], from[i]);
            }
        if (!log->more)
            return;
    }
}

void Look::count_of_log(size_t first, size_t size, LoadedTicks &ticks) {
    auto *from = static_cast<core::LogPosition *>(palloc(sizeof(core::LogPosition) * size));
    bool has_free = false;
    for (size_t i = 0; i < size; ++i) {
        from[i] = free[first + i] ? ahead.from(positions[first + i]) : LogShare::nowhere;
        has_free = has_free || free[first + i];
    }
    if (has_free)
        read_on(first, {from, size}, ticks);
}

} // namespace

Receivable look_for_messages(const Subscription &s, std::optional<std::string_view> consumer,
                             size_t enough, ReadAhead &ahead) {
    // Before anything is read: what is prepared now may be committed after that.
    const bool is_prepared = may_prepare() && !find_prepared.run().empty();
    const Ticking ticking = tick_if_due();
    const TimestampTz now = pg::clock_now();
    const std::optional<Positions> positions = read_positions(s.id, s.partitions);
    Receivable none{};
    if (!positions) { // it has been dropped meanwhile: what it is the next call says
        none.due = 1;
        return none;
    }
    const ConsumerShare share = consumer ? ask_for_share(s, *consumer, now) : whole_share;
    Look look{.s = s,
              .enough = enough,
              .ahead = ahead,
              .positions = *positions,
              .offered = offered_to(share, *positions, now),
              .now = now};
    look.found.is_prepared = is_prepared;
    look.found.is_behind_ticks = ticking == Ticking::elsewhere;
    if (s.is_paused(now)) {
        look.found.next = s.paused_until;
        return look.found;
    }
    look.find_free();
    look.count_retries();
    const auto size = static_cast<size_t>(core::partitions_together(s.partitions));
    LoadedTicks ticks{};
    for (size_t first = 0; first < positions->size() && look.counted < enough; first += size)
        look.count_of_log(first, size, ticks);
    return look.found;
}

} // namespace stacksaga
