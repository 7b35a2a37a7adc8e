#include "src/outbox/delivery_worker.hpp"

#include "pg/clock.hpp"
#include "pg/query.hpp"
#include "pg/random.hpp"
#include "pg/scope.hpp"
#include "pg/settings.hpp"
#include "pg/transaction.hpp"
#include "src/common/presence.hpp"
#include "src/handler/crash_record.hpp"
#include "src/outbox/delivery_budget.hpp"
#include "src/outbox/delivery_call.hpp"
#include "src/outbox/log_generation.hpp"
#include "src/outbox/log_tick.hpp"
#include "src/ring/fence.hpp"
#include "src/ring/ring.hpp"

namespace stacksaga {

namespace {

// A transaction ends after so long, done or not, as a turn of sagas does.
constexpr int64 batch_time_max_us = 250 * 1000;
// So long batch follows batch for a subscription, before others and sagas have their turn.
constexpr int64 subscription_time_max_us = 50 * 1000;
constexpr int32 fallbacks_at_once = 16;
constexpr int64 tend_interval_us = 10 * USECS_PER_SEC;

using Wanted = std::array<bool, log_partitions>;

constinit pg::Statement find_owned{
    "SELECT slot FROM stacksaga.slot WHERE ring_id = $1 AND slot = ANY ($3)"
    " AND (owner = $2 OR owner IN (SELECT incarnation FROM stacksaga.node WHERE pid IS NULL))"
    " ORDER BY slot"};
constinit pg::Statement find_next_due{
    "SELECT due_at FROM stacksaga.message_retry ORDER BY due_at LIMIT 1"};

/// A handler that failed on a message, known by its number.
struct Failed {
    int64 number;
    HandlerError error;
};

/// One batch until it commits. A handler that fails rolls it back; then it is run again up to that
/// message, whose failure it writes.
struct Run {
    const NodeIdentity &node;
    int32 subscription_id;
    TimestampTz now; ///< what is due by then; the budget has been asked about all of it
    int32 rotation;
    int32 room;
    Failed *failed; ///< the latest one only: what comes behind it is left for the next batch
    bool fallbacks;

    int64 items = 0;
    int64 first_attempts = 0;
    int64 failures = 0;
    int64 moved = 0;   ///< messages of the log that were moved aside
    int64 running = 0; ///< the number of the message that a handler is at
    int64 running_count = 0;
    bool more = false;
};

/// The partitions that the node owns, locked against a change of owner.
Wanted lock_owned_partitions(const NodeIdentity &node) {
    const int32 stride = ring_of_id(node.ring_id).slots / log_partitions;
    std::array<int32, log_partitions> first_slots{};
    for (int32 p = 0; p < log_partitions; ++p)
        first_slots[static_cast<size_t>(p)] = p * stride;
    pg::Rows rows = find_owned.run(pg::param(node.ring_id), pg::param(node.incarnation),
                                   pg::param_array(std::span<const int32>{first_slots}));
    std::array<int32, log_partitions> slots{};
    std::array<bool, log_partitions> owned{};
    const auto count = static_cast<size_t>(rows.count());
    for (size_t i = 0; i < count; ++i)
        slots[i] = rows.int4(i, 0);
    lock_slots(node, {slots.data(), count}, {owned.data(), count});
    Wanted wanted{};
    for (size_t i = 0; i < count; ++i)
        wanted[static_cast<size_t>(slots[i] / stride)] = owned[i];
    return wanted;
}

const HandlerError *error_of(const Run &run, const Message &m) {
    return run.failures > 0 && run.failed->number == m.number ? &run.failed->error : nullptr;
}

RecordedMessage name_of(const Run &run, const Message &m) {
    return {.subscription_id = run.subscription_id,
            .partition = m.partition,
            .is_aside = m.is_aside,
            .is_fallback = run.fallbacks,
            .attempt = m.attempt,
            .token = m.token.value(),
            .tick = m.tick,
            .number = m.number,
            .end = m.end()};
}

RecordedBatch name_of(const Run &run, const Gathering &g) {
    RecordedBatch batch{.subscription_id = run.subscription_id, .parts = {}};
    for (const GatheredPart &part : g.parts)
        batch.parts[static_cast<size_t>(part.position.partition)] = {
            .is_used = true, .from = part.position.at, .until = part.end};
    return batch;
}

/// Hands messages over at once, under the name that stands in the worker's file meanwhile.
void hand_over(Run &run, const Subscription &s, std::span<const Message> messages,
               TimestampTz now) {
    run.running = messages[0].number;
    run.running_count = static_cast<int64>(messages.size());
    if (run.fallbacks)
        call_with(s, s.fallback, HandlerKind::message, messages);
    else
        call_with(s, s.handler, s.takes_batch ? HandlerKind::message_batch : HandlerKind::message,
                  messages);
    record_nothing();
    for (const Message &m : messages) {
        note_handled(s, m, now);
        run.first_attempts += m.attempt == 1 ? 1 : 0;
    }
    run.items += static_cast<int64>(messages.size());
}

/// How many of the messages, from the first one on, are handed over together.
size_t count_together(const Subscription &s, bool fallbacks, std::span<const Message> messages) {
    if (!s.takes_batch || fallbacks || messages[0].is_suspect)
        return 1;
    auto end = std::find_if(messages.begin(), messages.end(),
                            [](const Message &m) { return m.is_suspect; });
    return static_cast<size_t>(end - messages.begin());
}

/// Returns how many of the messages are done with; a failure that is written down ends the batch.
size_t run_messages(Run &run, const Subscription &s, const Gathering &g, TimestampTz now) {
    const std::span<const Message> messages = g.messages;
    const int64 end = pg::steady_now() + batch_time_max_us;
    for (size_t done = 0; done < messages.size();) {
        CHECK_FOR_INTERRUPTS();
        const Message &m = messages[done];
        const size_t count = count_together(s, run.fallbacks, messages.subspan(done));
        const HandlerError *error = count == 1 ? error_of(run, m) : nullptr;
        if (error != nullptr) {
            if (run.fallbacks)
                fail_fallback(s, m, failure_of(s, *error), now);
            else
                fail_message(s, m, failure_of(s, *error), now);
            run.first_attempts += m.attempt == 1 ? 1 : 0;
            return done + 1;
        }
        if (count == 1)
            record_message(name_of(run, m));
        else
            record_batch(name_of(run, g));
        hand_over(run, s, messages.subspan(done, count), now);
        done += count;
        if (run.failures == 0 && pg::steady_now() > end)
            return done;
    }
    return messages.size();
}

void run_batch(Run &run) {
    run.items = 0;
    run.first_attempts = 0;
    const Subscription *s = hold_subscription(run.subscription_id, false);
    if (s == nullptr)
        return;
    const TimestampTz now = run.now;
    const Wanted wanted = lock_owned_partitions(run.node);
    if (run.fallbacks) {
        run_messages(run, *s,
                     {.parts = {},
                      .messages = gather_fallbacks(*s, wanted, fallbacks_at_once, now),
                      .more = false,
                      .moved = 0},
                     now);
        return;
    }
    if (!s->handler) // services fetch them
        return;
    Gathering g = gather(*s, wanted, run.room, run.rotation, now);
    const size_t done = run_messages(run, *s, g, now);
    move_positions(*s, g, done, now);
    run.moved = g.moved;
    run.more = g.more || done < g.messages.size() || run.room < pg::settings.batch_size;
}

template <class F> void in_transaction(F &&body) {
    pg::in_transaction([&] {
        require_extension();
        pg::with_spi(body);
    });
}

/// Asks the retry budget about what is due to be tried again; returns how much of it has to wait.
int64 defer_retries(const NodeIdentity &node, int32 subscription_id, TimestampTz now) {
    int64 deferred = 0;
    in_transaction([&] {
        deferred = defer_message_retries(node, subscription_id, lock_owned_partitions(node), now);
    });
    return deferred;
}

void run_until_committed(Run &run, MemoryContext memory) {
    volatile bool committed = false;
    while (!committed) {
        PG_TRY();
        {
            in_transaction([&] { run_batch(run); });
            committed = true;
            for (int64 i = 0; i < run.first_attempts; ++i)
                count_first_attempt(budget_of_subscription(run.subscription_id));
        }
        PG_CATCH();
        {
            record_nothing();
            if (!running_handler.is_active)
                PG_RE_THROW();
            MemoryContextSwitchTo(memory);
            // A cancel, too: if that ended the turn, a handler that is cancelled each time would
            // hold up every subscription.
            HandlerError error = read_handler_error();
            AbortCurrentTransaction();
            FlushErrorState();
            if (run.running_count > 1) {
                run.room = static_cast<int32>(run.running_count / 2); // it is one of them
            } else {
                *run.failed = {run.running, error};
                ++run.failures;
            }
        }
        PG_END_TRY();
    }
}

/// What a worker remembers, so that a turn with nothing new costs two look-ups.
struct WorkerState {
    NodeIdentity node{};
    int64 tick = 0;
    int64 looked_at = 0; ///< when it last looked at every subscription
    int64 tend_at = 0;   ///< when to tend the log
    bool is_idle = false;
};
constinit WorkerState state{};

struct Outlook {
    std::span<const int32> subscriptions;
    int64 tick;
    TimestampTz next_due;
};

Outlook look(int32 ring_id, MemoryContext memory) {
    Outlook outlook{.subscriptions = {}, .tick = 0, .next_due = DT_NOEND};
    in_transaction([&] {
        // Whatever depends on the tick is committed after it, so that it need not be waited for;
        // but for the names of messages, which survive a crash.
        if (!follows_crash())
            set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION,
                              GUC_ACTION_LOCAL, true, 0, false);
        tick_if_due();
        std::span<const int32> ids = subscriptions_with_handlers(ring_id);
        if (ids.empty())
            return;
        auto *copy = static_cast<int32 *>(MemoryContextAlloc(memory, sizeof(int32) * ids.size()));
        std::copy(ids.begin(), ids.end(), copy);
        outlook.subscriptions = {copy, ids.size()};
        outlook.tick = last_tick();
        pg::Rows rows = find_next_due.run();
        if (!rows.empty())
            outlook.next_due = rows.time(0, 0);
    });
    return outlook;
}

bool may_rest(const NodeIdentity &node, const Outlook &outlook) {
    const int64 poll_us = static_cast<int64>(pg::settings.poll_interval) * 1000;
    return state.is_idle && state.node.ring_id == node.ring_id &&
           state.node.incarnation == node.incarnation && state.tick == outlook.tick &&
           outlook.next_due > pg::clock_now() && pg::steady_now() - state.looked_at < poll_us;
}

/// The generations of the log, from time to time; of a backlog of that at most half of the time.
void tend() {
    const int64 begun = pg::steady_now();
    if (begun < state.tend_at)
        return;
    bool more = false;
    in_transaction([&] { more = tend_log(false); });
    const int64 ended = pg::steady_now();
    state.tend_at = ended + (more ? ended - begun : tend_interval_us);
}

/// One batch of a subscription, or what its fallback is to be run on.
Run run_once(const NodeIdentity &node, int32 subscription_id, TimestampTz now, bool fallbacks,
             Failed &failed, MemoryContext memory) {
    Run run{.node = node,
            .subscription_id = subscription_id,
            .now = now,
            .rotation = static_cast<int32>(pg::random_fraction() * log_partitions),
            .room = pg::settings.batch_size,
            .failed = &failed,
            .fallbacks = fallbacks};
    run_until_committed(run, memory);
    return run;
}

/// Batch after batch of a subscription. The look for due steps of sagas between two turns costs as
/// much as a batch of messages does.
void deliver_subscription(const NodeIdentity &node, int32 id, TimestampTz now, MemoryContext memory,
                          DeliveryOutcome &outcome) {
    auto add = [&](const Run &run) {
        outcome.items += run.items;
        outcome.failures += run.failures;
        outcome.more = outcome.more || run.more || run.items > 0 || run.failures > 0;
    };
    Failed failed{};
    const int64 end = pg::steady_now() + subscription_time_max_us;
    bool goes_on = true;
    while (goes_on) {
        const Run run = run_once(node, id, now, false, failed, memory);
        add(run);
        goes_on = run.more && (run.items > 0 || run.moved > 0) && run.failures == 0 &&
                  pg::steady_now() < end;
    }
    add(run_once(node, id, now, true, failed, memory));
}

} // namespace

DeliveryOutcome deliver_messages(const NodeIdentity &node, MemoryContext memory) {
    running_handler.is_at_top_level = true;
    const Outlook outlook = look(node.ring_id, memory);
    tend();
    DeliveryOutcome outcome{
        .items = 0, .failures = 0, .deferred = 0, .more = false, .next_due = DT_NOEND};
    if (outlook.subscriptions.empty())
        return outcome;
    if (may_rest(node, outlook)) {
        outcome.next_due = outlook.next_due;
        return outcome;
    }
    for (int32 id : outlook.subscriptions) {
        const TimestampTz now = pg::clock_now();
        if (outlook.next_due <= now)
            outcome.deferred += defer_retries(node, id, now);
        deliver_subscription(node, id, now, memory, outcome);
    }
    state.node = node;
    state.tick = outlook.tick;
    state.looked_at = pg::steady_now();
    state.is_idle = !outcome.more;
    outcome.next_due = outlook.next_due > pg::clock_now() ? outlook.next_due : DT_NOEND;
    return outcome;
}

} // namespace stacksaga
