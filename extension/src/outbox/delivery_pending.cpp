// Messages as run_pending() delivers them: in the caller's transaction, each handler in a
// subtransaction.
#include "pg/clock.hpp"
#include "src/outbox/delivery_call.hpp"
#include "src/outbox/delivery_worker.hpp"

namespace stacksaga {

namespace {

using Wanted = std::array<bool, log_partitions>;

std::optional<HandlerError> call_guarded(const Subscription &s, const FunctionRef &function,
                                         HandlerKind kind, std::span<const Message> messages) {
    return attempt_handler([&] { call_with(s, function, kind, messages); });
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
    while (g.messages.empty() && g.more)
        g = gather(s, all, room, 0, now);
    const HandlerKind kind = s.takes_batch ? HandlerKind::message_batch : HandlerKind::message;
    auto *failed = static_cast<int64 *>(palloc(sizeof(int64) * (g.messages.size() + 1)));
    size_t failed_count = 0;
    const bool are_done = s.takes_batch && g.messages.size() > 1 &&
                          !call_guarded(s, s.handler, kind, g.messages).has_value();
    for (const Message &m : g.messages) {
        CHECK_FOR_INTERRUPTS();
        if (hold_behind(s, m, {failed, failed_count}, now))
            continue;
        std::optional<HandlerError> error;
        if (!are_done)
            error = call_guarded(s, s.handler, kind, {&m, 1});
        if (!error) {
            note_handled(s, m, now);
            continue;
        }
        fail_message(s, m, failure_of(s, *error), now);
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
        std::optional<HandlerError> error =
            call_guarded(s, s.fallback, HandlerKind::message, {&m, 1});
        if (error)
            fail_fallback(s, m, failure_of(s, *error), now);
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
        const Subscription *s = hold_subscription(id, false);
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
