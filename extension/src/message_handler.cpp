#include "src/message_handler.hpp"

#include "pg/clock.hpp"
#include "pg/query.hpp"
#include "pg/random.hpp"
#include "pg/scope.hpp"
#include "pg/settings.hpp"
#include "pg/transaction.hpp"
#include "src/fence.hpp"
#include "src/gather.hpp"
#include "src/generation.hpp"
#include "src/handler.hpp"
#include "src/item.hpp"
#include "src/message_row.hpp"
#include "src/presence.hpp"
#include "src/ring.hpp"
#include "src/tick.hpp"

namespace stacksaga {

namespace {

// A transaction ends after so long, done or not, as a turn of sagas does.
constexpr int64 batch_time_max_us = 250 * 1000;
constexpr int32 fallbacks_at_once = 16;
constexpr int64 tend_interval_us = 10 * USECS_PER_SEC;

using Wanted = std::array<bool, log_partitions>;

constinit pg::Statement find_owned{
    "SELECT slot FROM stacksaga.slot WHERE ring_id = $1 AND slot = ANY ($3)"
    " AND (owner = $2 OR owner IN (SELECT incarnation FROM stacksaga.node WHERE pid IS NULL))"
    " ORDER BY slot"};
constinit pg::Statement find_next_due{
    "SELECT due_at FROM stacksaga.message_retry ORDER BY due_at LIMIT 1"};

HandlerCaller caller_of(const Subscription &s) {
    return {.definer = s.definer,
            .search_path = s.search_path,
            .described = psprintf("Subscription \"%.*s\" was created by role",
                                  static_cast<int>(s.name.size()), s.name.data()),
            .mended_by = "create_subscription() with the same settings"};
}

/// Runs a handler on one message, or on all of them at once.
void call_with(const Subscription &s, const FunctionRef &function, HandlerKind kind,
               std::span<const Message> messages) {
    // What one call leaves behind is gone before the next one.
    MemoryContext scratch =
        AllocSetContextCreate(CurrentMemoryContext, "stacksaga message", ALLOCSET_DEFAULT_SIZES);
    pg::in_context(scratch, [&] {
        const Datum argument = kind == HandlerKind::message_batch ? message_array_datum(messages)
                                                                  : message_datum(messages[0]);
        bool isnull;
        handler_is_running = true;
        call_as_definer(caller_of(s), function, kind, argument, &isnull);
        handler_is_running = false;
    });
    MemoryContextDelete(scratch);
}

MessageFailure failure_of(const Subscription &s, const Casualty &casualty) {
    // A function that is gone may come back: its message is not dead at once.
    return {.failure_class = casualty.unusable ? core::FailureClass::retryable
                                               : core::classify(casualty.sqlstate, s.retry.retry_on,
                                                                s.retry.never_on),
            .error = casualty.error};
}

void note_handled(const Subscription &s, const Message &m, TimestampTz now) {
    if (m.is_aside)
        finish_aside(s, m, now);
}

/// Moves the positions behind the first `done` of the messages gathered.
void move_positions(const Subscription &s, Gathering &g, size_t done, TimestampTz now) {
    const bool is_whole = done == g.messages.size();
    for (GatheredPart &part : g.parts) {
        core::LogPosition to = is_whole ? part.end : part.position.at;
        if (!is_whole)
            for (const Message &m : g.messages.first(done))
                if (!m.is_aside && m.partition == part.position.partition)
                    to = m.end();
        if (to != part.position.at)
            move_position(s.id, part.position, to, now);
    }
}

// ------------------------------------------------------------------------------- the worker

/// A handler that failed on a message, known by its number.
struct Failed {
    int64 number;
    Casualty casualty;
};

/// One batch until it commits. A handler that fails rolls it back; then it is run again up to that
/// message, whose failure it writes.
struct Run {
    const NodeIdentity &node;
    int32 subscription_id;
    int32 rotation;
    int32 room;
    Failed *failed; ///< the latest one only: what comes behind it is left for the next batch
    bool fallbacks;

    int64 items = 0;
    int64 failures = 0;
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

const Casualty *casualty_of(const Run &run, const Message &m) {
    return run.failures > 0 && run.failed->number == m.number ? &run.failed->casualty : nullptr;
}

/// Hands the messages over one by one; returns how many of them are done with.
size_t run_singly(Run &run, const Subscription &s, std::span<const Message> messages,
                  TimestampTz now) {
    const int64 end = pg::steady_now() + batch_time_max_us;
    for (size_t i = 0; i < messages.size(); ++i) {
        CHECK_FOR_INTERRUPTS();
        const Message &m = messages[i];
        if (const Casualty *casualty = casualty_of(run, m)) {
            if (run.fallbacks)
                fail_fallback(s, m, failure_of(s, *casualty), now);
            else
                fail_message(s, m, failure_of(s, *casualty), now);
            return i + 1;
        }
        run.running = m.number;
        run.running_count = 1;
        call_with(s, run.fallbacks ? s.fallback : s.handler, HandlerKind::message, {&m, 1});
        note_handled(s, m, now);
        ++run.items;
        if (run.failures == 0 && pg::steady_now() > end)
            return i + 1;
    }
    return messages.size();
}

/// Hands all of them over at once.
void run_together(Run &run, const Subscription &s, std::span<const Message> messages,
                  TimestampTz now) {
    if (messages.empty())
        return;
    if (messages.size() == 1 && casualty_of(run, messages[0])) {
        fail_message(s, messages[0], failure_of(s, run.failed->casualty), now);
        return;
    }
    run.running = messages[0].number;
    run.running_count = static_cast<int64>(messages.size());
    call_with(s, s.handler, HandlerKind::message_batch, messages);
    for (const Message &m : messages)
        note_handled(s, m, now);
    run.items += static_cast<int64>(messages.size());
}

void run_batch(Run &run) {
    run.items = 0;
    const Subscription *s = find_subscription(run.subscription_id);
    if (s == nullptr)
        return;
    const TimestampTz now = pg::clock_now();
    const Wanted wanted = lock_owned_partitions(run.node);
    if (run.fallbacks) {
        run_singly(run, *s, gather_fallbacks(*s, wanted, fallbacks_at_once, now), now);
        return;
    }
    Gathering g = gather(*s, wanted, run.room, run.rotation, now);
    size_t done = g.messages.size();
    if (s->takes_batch)
        run_together(run, *s, g.messages, now);
    else
        done = run_singly(run, *s, g.messages, now);
    move_positions(*s, g, done, now);
    run.more = g.more || done < g.messages.size() || run.room < pg::settings.batch_size;
}

template <class F> void in_transaction(F &&body) {
    pg::in_transaction([&] {
        require_extension();
        pg::with_spi(body);
    });
}

void run_until_committed(Run &run, MemoryContext memory) {
    volatile bool committed = false;
    while (!committed) {
        PG_TRY();
        {
            in_transaction([&] { run_batch(run); });
            committed = true;
        }
        PG_CATCH();
        {
            if (!handler_is_running)
                PG_RE_THROW();
            MemoryContextSwitchTo(memory);
            Casualty casualty = read_casualty();
            if (casualty.is_cancelled)
                PG_RE_THROW();
            AbortCurrentTransaction();
            FlushErrorState();
            if (run.running_count > 1) {
                run.room = static_cast<int32>(run.running_count / 2); // it is one of them
            } else {
                *run.failed = {run.running, casualty};
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
        // Whatever depends on the tick is committed after it, so that it need not be waited for.
        set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
                          true, 0, false);
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

/// The generations of the log, from time to time.
void tend() {
    if (pg::steady_now() < state.tend_at)
        return;
    bool more = false;
    in_transaction([&] { more = tend_log(false); });
    state.tend_at = more ? 0 : pg::steady_now() + tend_interval_us;
}

} // namespace

DeliveryOutcome deliver_messages(const NodeIdentity &node, MemoryContext memory) {
    handlers_run_at_top_level = true;
    const Outlook outlook = look(node.ring_id, memory);
    tend();
    DeliveryOutcome outcome{.items = 0, .failures = 0, .more = false, .next_due = DT_NOEND};
    if (outlook.subscriptions.empty())
        return outcome;
    if (may_rest(node, outlook)) {
        outcome.next_due = outlook.next_due;
        return outcome;
    }
    Failed failed{};
    for (int32 id : outlook.subscriptions)
        for (bool fallbacks : {false, true}) {
            Run run{.node = node,
                    .subscription_id = id,
                    .rotation = static_cast<int32>(pg::random_fraction() * log_partitions),
                    .room = pg::settings.batch_size,
                    .failed = &failed,
                    .fallbacks = fallbacks};
            run_until_committed(run, memory);
            outcome.items += run.items;
            outcome.failures += run.failures;
            outcome.more = outcome.more || run.more || run.items > 0 || run.failures > 0;
        }
    state.node = node;
    state.tick = outlook.tick;
    state.looked_at = pg::steady_now();
    state.is_idle = !outcome.more;
    outcome.next_due = outlook.next_due > pg::clock_now() ? outlook.next_due : DT_NOEND;
    return outcome;
}

// ------------------------------------------------------------------------------- run_pending

namespace {

/// Calls the handler in a subtransaction. What it raised, when it failed.
std::optional<Casualty> call_guarded(const Subscription &s, const FunctionRef &function,
                                     HandlerKind kind, std::span<const Message> messages) {
    MemoryContext memory = CurrentMemoryContext;
    ResourceOwner owner = CurrentResourceOwner;
    volatile bool failed = false;
    Casualty casualty{};
    BeginInternalSubTransaction(nullptr);
    MemoryContextSwitchTo(memory);
    PG_TRY();
    {
        call_with(s, function, kind, messages);
        ReleaseCurrentSubTransaction();
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(memory);
        ErrorData *error = CopyErrorData();
        failed = handler_is_running;
        casualty = read_casualty();
        if (casualty.is_cancelled) // which is meant for the caller, not for the message
            failed = false;
        FlushErrorState();
        RollbackAndReleaseCurrentSubTransaction();
        if (!failed)
            ReThrowError(error);
    }
    PG_END_TRY();
    MemoryContextSwitchTo(memory);
    CurrentResourceOwner = owner;
    if (failed)
        return casualty;
    return std::nullopt;
}

/// Whether a message of its key failed a moment ago, so that it has to wait; then it does.
bool hold_behind(const Subscription &s, const Message &m, std::span<const int64> failed_tokens,
                 TimestampTz now) {
    if (!s.stop_on_first_failure || m.key == 0 ||
        std::find(failed_tokens.begin(), failed_tokens.end(), m.token.value()) ==
            failed_tokens.end())
        return false;
    if (!m.is_aside) // what was aside has been put back already
        move_aside(s, m, LogFate::hold, now);
    return true;
}

int64 deliver_batch(const Subscription &s, int32 room, TimestampTz now) {
    Wanted all{};
    all.fill(true);
    Gathering g = gather(s, all, room, 0, now);
    const HandlerKind kind = s.takes_batch ? HandlerKind::message_batch : HandlerKind::message;
    auto *failed = static_cast<int64 *>(palloc(sizeof(int64) * (g.messages.size() + 1)));
    size_t failed_count = 0;
    const bool are_done = s.takes_batch && g.messages.size() > 1 &&
                          !call_guarded(s, s.handler, kind, g.messages).has_value();
    for (const Message &m : g.messages) {
        CHECK_FOR_INTERRUPTS();
        if (hold_behind(s, m, {failed, failed_count}, now))
            continue;
        std::optional<Casualty> casualty;
        if (!are_done)
            casualty = call_guarded(s, s.handler, kind, {&m, 1});
        if (!casualty) {
            note_handled(s, m, now);
            continue;
        }
        fail_message(s, m, failure_of(s, *casualty), now);
        failed[failed_count++] = m.token.value();
    }
    move_positions(s, g, g.messages.size(), now);
    return static_cast<int64>(g.messages.size());
}

int64 deliver_fallbacks(const Subscription &s, int32 room, TimestampTz now) {
    Wanted all{};
    all.fill(true);
    std::span<Message> messages = gather_fallbacks(s, all, room, now);
    for (const Message &m : messages) {
        std::optional<Casualty> casualty =
            call_guarded(s, s.fallback, HandlerKind::message, {&m, 1});
        if (casualty)
            fail_fallback(s, m, failure_of(s, *casualty), now);
        else
            note_handled(s, m, now);
    }
    return static_cast<int64>(messages.size());
}

} // namespace

int64 deliver_pending(int32 ring_id, int32 limit) {
    constexpr int32 room_max = 256;
    const TimestampTz now = pg::clock_now();
    int64 count = 0;
    for (int32 id : subscriptions_with_handlers(ring_id)) {
        const Subscription *s = find_subscription(id);
        for (int64 done = 1; s != nullptr && done > 0 && count < limit; count += done) {
            const auto room = static_cast<int32>(std::min<int64>(limit - count, room_max));
            done = s->handler ? deliver_batch(*s, room, now) : 0;
            if (done == 0 && s->fallback)
                done = deliver_fallbacks(*s, room, now);
        }
    }
    return count;
}

} // namespace stacksaga
