#include "src/outbox/delivery/delivery_worker.hpp"

#include "core/outbox/partition.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/random.hpp"
#include "pg/settings.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/transaction.hpp"
#include "src/common/extension_lock.hpp"
#include "src/common/loop_guard.hpp"
#include "src/handler/batch.hpp"
#include "src/handler/crash_record.hpp"
#include "src/handler/process_retry_budget.hpp"
#include "src/outbox/delivery/delivery_call.hpp"
#include "src/outbox/delivery/delivery_owner.hpp"
#include "src/outbox/log/log_generation.hpp"
#include "src/outbox/log/log_tick.hpp"
#include "src/ring/node.hpp"

namespace stacksaga {

namespace {

// How long a worker runs batches of one subscription before the turn of others and of sagas.
constexpr int64 subscription_time_max_us = 50 * 1000;
constexpr int32 fallbacks_at_once = 16;
constexpr int64 maintenance_interval_us = 10 * USECS_PER_SEC;
// When to look again after another session kept us from a partition, or made a tick that may lack
// the message that woke us.
constexpr int64 contended_interval_us = 50 * 1000;
constexpr int64 ticking_interval_us = 5 * 1000;

constinit pg::Statement find_next_due{
    "SELECT due_at FROM stacksaga.message_retry ORDER BY due_at LIMIT 1"};

/// Messages of a subscription, for run_batch(): for its handler, or for its fallback.
struct Delivery {
    static constexpr bool can_postpone = false;
    static constexpr bool goes_on_after_failure = false; // later messages of its key wait

    void open(int32 room, bool is_guarded);
    bool has_next() const { return done < gathering.messages.size(); }
    int64 id() const { return gathering.messages[done].number; }
    int32 weight() const { return static_cast<int32>(count_together()); }
    void run();
    void keep();
    bool charge(const HandlerError &error);
    void postpone() {}
    void close();

    const NodeIdentity &node;
    int32 subscription_id;
    TimestampTz now; ///< delivers what is due by then; the budget has been asked about all of that
    int32 rotation;
    bool are_fallbacks;
    // Of the last try.
    const Subscription *subscription = nullptr;
    Gathering gathering{};
    size_t done = 0;
    int64 items = 0;
    int64 first_attempts = 0;
    int64 failures = 0;
    bool more = false;

private:
    size_t count_together() const;
    RecordedMessage record_of(const Message &m) const;
    RecordedBatch record_of_batch() const;
};
static_assert(std::is_trivially_destructible_v<Delivery>);

RecordedMessage Delivery::record_of(const Message &m) const {
    return {.subscription_id = subscription_id,
            .partition = m.partition,
            .is_retry = m.is_retry(),
            .is_fallback = are_fallbacks,
            .attempt = m.attempt,
            .token = m.token.value(),
            .tick = m.tick,
            .number = m.number,
            .end = m.end()};
}

RecordedBatch Delivery::record_of_batch() const {
    RecordedBatch batch;
    batch.subscription_id = subscription_id;
    batch.count = 0;
    for (const GatheredPart &part : gathering.parts)
        batch.parts[static_cast<size_t>(batch.count++)] = {
            .partition = part.position.partition, .from = part.position.at, .until = part.end};
    return batch;
}

/// How many messages, from the next one on, one call gets.
size_t Delivery::count_together() const {
    const std::span<const Message> left = gathering.messages.subspan(done);
    if (!subscription->takes_batch || are_fallbacks || left[0].is_alone())
        return 1;
    auto end =
        std::find_if(left.begin(), left.end(), [](const Message &m) { return m.is_alone(); });
    return static_cast<size_t>(end - left.begin());
}

void Delivery::open(int32 room, bool /*is_guarded*/) {
    record_beginning();
    gathering = {};
    done = 0;
    items = first_attempts = failures = 0;
    more = false;
    subscription = hold_subscription(subscription_id, false);
    if (subscription == nullptr)
        return;
    const PartitionSet wanted = owned_partitions(node, subscription->partitions);
    if (are_fallbacks) {
        gathering.messages =
            gather_fallbacks(*subscription, wanted, &node, std::min(room, fallbacks_at_once), now);
    } else if (subscription->handler) { // else services fetch them
        gathering = gather(*subscription, wanted, &node, room, rotation, now);
        more = room < pg::settings.batch_size;
    }
}

/// Calls the function with messages, which the crash record names meanwhile.
void Delivery::run() {
    const std::span<const Message> messages = gathering.messages.subspan(done, count_together());
    if (messages.size() == 1)
        record_message(record_of(messages[0]));
    else
        record_batch(record_of_batch());
    CRASH_POINT("delivery: recorded, before the handler");
    const Subscription &s = *subscription;
    if (are_fallbacks)
        call_with(s, s.fallback, HandlerKind::message, messages);
    else
        call_with(s, s.handler, s.takes_batch ? HandlerKind::message_batch : HandlerKind::message,
                  messages);
    CRASH_POINT("delivery: after the handler");
    record_nothing();
    CRASH_POINT("delivery: record erased");
    for (const Message &m : messages)
        note_handled(s, m, now);
}

void Delivery::keep() {
    const size_t count = count_together();
    for (const Message &m : gathering.messages.subspan(done, count))
        first_attempts += m.attempt == 1 ? 1 : 0;
    items += static_cast<int64>(count);
    done += count;
}

bool Delivery::charge(const HandlerError &error) {
    const Message &m = gathering.messages[done];
    if (are_fallbacks)
        fail_fallback(*subscription, m, failure_of(*subscription, error), now);
    else
        fail_message(*subscription, m, failure_of(*subscription, error), now);
    first_attempts += m.attempt == 1 ? 1 : 0;
    ++failures;
    ++done;
    return true;
}

void Delivery::close() {
    if (subscription == nullptr || are_fallbacks)
        return;
    CRASH_POINT("delivery: before the positions move");
    move_positions(*subscription, gathering, done, now);
    CRASH_POINT("delivery: positions moved");
    more = more || gathering.more || done < gathering.messages.size();
}

template <class F> void in_transaction(F &&body) {
    pg::in_transaction([&] {
        require_extension();
        pg::with_spi(body);
    });
}

/// Asks the retry budget about the retries that are due; returns how many it defers.
int64 defer_retries(const NodeIdentity &node, int32 subscription_id, TimestampTz now) {
    int64 deferred = 0;
    in_transaction([&] {
        if (const Subscription *s = find_subscription(subscription_id))
            deferred = defer_message_retries(node, *s, now);
    });
    return deferred;
}

/// The worker's memory between turns, so that a turn without new messages costs two look-ups.
struct WorkerState {
    int64 tick = 0;
    int64 looked_at = 0;   ///< when it last looked at every subscription
    uint32 looked_for = 0; ///< a hash of which they were: a pause may have ended
    bool is_idle = false;
};
constinit NodeMemory<WorkerState> memories{};
constinit int64 maintain_at = 0; ///< when to maintain the log, which all rings share

struct Outlook {
    std::span<const int32> subscriptions;
    int64 tick;
    TimestampTz next_due;  ///< the next retry
    TimestampTz next_look; ///< earlier than the next wake
};

std::span<const int32> copy_to(MemoryContext memory, std::span<const int32> ids) {
    auto *copy = static_cast<int32 *>(MemoryContextAlloc(memory, sizeof(int32) * (ids.size() + 1)));
    std::copy(ids.begin(), ids.end(), copy);
    return {copy, ids.size()};
}

Outlook look(int32 ring_id, MemoryContext memory) {
    Outlook outlook{.subscriptions = {}, .tick = 0, .next_due = DT_NOEND, .next_look = DT_NOEND};
    in_transaction([&] {
        // All that depends on the tick commits after it, so this commit need not be flushed, except
        // after a crash: the crash record survives, and names messages by their ticks.
        if (!follows_crash())
            set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION,
                              GUC_ACTION_LOCAL, true, 0, false);
        const Ticking ticking = tick_if_due();
        notify_again();
        const Handled handled = subscriptions_with_handlers(ring_id, pg::clock_now());
        outlook.next_look = handled.next;
        if (handled.ids.empty())
            return;
        if (ticking == Ticking::elsewhere)
            outlook.next_look =
                std::min(outlook.next_look, pg::time_plus(pg::clock_now(), ticking_interval_us));
        outlook.subscriptions = copy_to(memory, handled.ids);
        outlook.tick = last_tick();
        pg::Rows rows = find_next_due.run();
        if (!rows.empty())
            outlook.next_due = rows.time(0);
    });
    return outlook;
}

uint32 hash_of(std::span<const int32> ids) {
    return hash_bytes(reinterpret_cast<const unsigned char *>(ids.data()),
                      static_cast<int>(ids.size_bytes()));
}

bool may_rest(const WorkerState &state, const Outlook &outlook) {
    const int64 poll_us = static_cast<int64>(pg::settings.poll_interval) * 1000;
    return state.is_idle && state.tick == outlook.tick &&
           state.looked_for == hash_of(outlook.subscriptions) &&
           outlook.next_due > pg::clock_now() && pg::steady_now() - state.looked_at < poll_us;
}

/// Maintains the log from time to time, and spends at most half of the time on a backlog of that.
/// An error there (about the position of one subscription, say) keeps no messages from their
/// handlers.
void maintain_log_at_times(MemoryContext memory) {
    static constinit LoopGuard guard{};
    const int64 begun = pg::steady_now();
    if (begun < maintain_at || guard.remaining() > 0)
        return;
    bool more = false;
    guard.guard([&] {
        std::span<const int32> ids;
        in_transaction([&] { ids = copy_to(memory, list_subscriptions()); });
        for (int32 id : ids)
            in_transaction([&] { more = move_idle_positions(id) || more; });
        in_transaction([&] { more = maintain_log(false) || more; });
        return true;
    });
    const int64 ended = pg::steady_now();
    maintain_at = ended + (more ? ended - begun : maintenance_interval_us);
}

/// The worker's memory of a subscription.
struct SubscriptionState {
    int32 id; ///< the key
    BatchPace pace;
    LoopGuard guard; ///< of this one alone; others continue
};
static_assert(std::is_trivially_destructible_v<SubscriptionState>);

SubscriptionState &state_of(int32 id) {
    static constinit HTAB *table = nullptr;
    if (table == nullptr) {
        HASHCTL control{};
        control.keysize = sizeof(int32);
        control.entrysize = sizeof(SubscriptionState);
        table = hash_create("stacksaga subscriptions", 16, &control, HASH_ELEM | HASH_BLOBS);
    }
    bool is_known = false;
    auto *found = static_cast<SubscriptionState *>(hash_search(table, &id, HASH_ENTER, &is_known));
    if (!is_known)
        *found = {.id = id, .pace = {}, .guard = {}};
    return *found;
}

/// One batch of a subscription for its handler, or for its fallback.
Delivery run_once(const NodeIdentity &node, SubscriptionState &subscription, TimestampTz now,
                  bool are_fallbacks, MemoryContext memory) {
    Delivery delivery{.node = node,
                      .subscription_id = subscription.id,
                      .now = now,
                      .rotation = static_cast<int32>(pg::random_fraction() * core::partitions_max),
                      .are_fallbacks = are_fallbacks};
    run_batch(subscription.pace, memory, delivery);
    CRASH_POINT("delivery: committed");
    for (int64 i = 0; i < delivery.first_attempts; ++i)
        count_first_attempt(budget_of_subscription(subscription.id));
    return delivery;
}

/// Batch after batch of a subscription. Polling for due steps of sagas between two turns costs as
/// much as a batch of messages.
void deliver_subscription(const NodeIdentity &node, SubscriptionState &subscription,
                          TimestampTz now, MemoryContext memory, DeliveryOutcome &outcome) {
    auto add = [&](const Delivery &d) {
        outcome.items += d.items;
        outcome.failures += d.failures;
        outcome.more = outcome.more || d.more || d.items > 0 || d.failures > 0;
        if (d.gathering.contended)
            outcome.next_due =
                std::min(outcome.next_due, pg::time_plus(pg::clock_now(), contended_interval_us));
    };
    const int64 end = pg::steady_now() + subscription_time_max_us;
    bool goes_on = true;
    while (goes_on) {
        const Delivery d = run_once(node, subscription, now, false, memory);
        add(d);
        goes_on = d.more && (d.items > 0 || d.gathering.copied > 0) && d.failures == 0 &&
                  pg::steady_now() < end;
    }
    add(run_once(node, subscription, now, true, memory));
    end_turn();
}

/// Where an error happened, for the server's log.
void describe(void *subscription) {
    errcontext("messages of subscription %d (stacksaga.subscription)",
               static_cast<const SubscriptionState *>(subscription)->id);
}

/// A subscription's turn. An error that no message can be charged with pauses this subscription.
void deliver_guarded(const NodeIdentity &node, int32 id, bool has_due, MemoryContext memory,
                     DeliveryOutcome &outcome) {
    SubscriptionState &subscription = state_of(id);
    if (subscription.guard.remaining() == 0)
        subscription.guard.guard([&] {
            ErrorContextCallback context{
                .previous = error_context_stack, .callback = describe, .arg = &subscription};
            error_context_stack = &context;
            const TimestampTz now = pg::clock_now();
            if (has_due)
                outcome.deferred += defer_retries(node, id, now);
            deliver_subscription(node, subscription, now, memory, outcome);
            error_context_stack = context.previous;
            return true;
        });
    if (subscription.guard.remaining() == 0)
        return;
    const TimestampTz again = pg::time_plus(pg::clock_now(), subscription.guard.remaining());
    outcome.next_due = std::min(outcome.next_due, again);
}

} // namespace

DeliveryOutcome deliver_messages(const NodeIdentity &node, MemoryContext memory) {
    const Outlook outlook = look(node.ring_id, memory);
    maintain_log_at_times(memory);
    DeliveryOutcome outcome{
        .items = 0, .failures = 0, .deferred = 0, .more = false, .next_due = DT_NOEND};
    if (outlook.subscriptions.empty()) {
        outcome.next_due = outlook.next_look;
        return outcome;
    }
    WorkerState &state = memories.of(node);
    if (may_rest(state, outlook)) {
        outcome.next_due = std::min(outlook.next_due, outlook.next_look);
        return outcome;
    }
    for (int32 id : outlook.subscriptions)
        deliver_guarded(node, id, outlook.next_due <= pg::clock_now(), memory, outcome);
    state.tick = outlook.tick;
    state.looked_at = pg::steady_now();
    state.looked_for = hash_of(outlook.subscriptions);
    state.is_idle = !outcome.more && outcome.next_due == DT_NOEND; // none waits for its pause
    if (outlook.next_due > pg::clock_now())
        outcome.next_due = std::min(outcome.next_due, outlook.next_due);
    outcome.next_due = std::min(outcome.next_due, outlook.next_look);
    return outcome;
}

} // namespace stacksaga
