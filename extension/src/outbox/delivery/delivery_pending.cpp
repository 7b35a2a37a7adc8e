// Messages as run_pending() delivers them: in the caller's transaction, each handler in a
// subtransaction.
#include "pg/clock.hpp"
#include "src/common/limits.hpp"
#include "src/outbox/delivery/delivery_call.hpp"
#include "src/outbox/delivery/delivery_worker.hpp"

namespace stacksaga {

namespace {

std::optional<HandlerError> call_guarded(const Subscription &s, const FunctionRef &function,
                                         HandlerKind kind, std::span<const Message> messages) {
    return attempt_handler([&] { call_with(s, function, kind, messages); });
}

/// Whether an earlier message of its key has just failed; then the message is held.
bool hold_if_key_failed(const Subscription &s, const Message &m,
                        std::span<const int64> failed_tokens) {
    if (!s.stop_on_first_failure || m.key == 0 ||
        std::find(failed_tokens.begin(), failed_tokens.end(), m.token.value()) ==
            failed_tokens.end())
        return false;
    if (!m.is_retry()) // the failure has held the retries behind it
        copy_out(s, m, Disposition::hold);
    return true;
}

/// How many messages a call delivered, and whether the rest is left to a worker.
struct Delivered {
    int64 count;
    bool is_left;
};

bool is_left(const Subscription &s, const std::optional<HandlerError> &error) {
    if (!error || !error->is_for_worker)
        return false;
    ereport(WARNING, (errmsg("messages of subscription \"%s\" are left to a worker", clip(s.name)),
                      errdetail("%s.", error->message.data()),
                      errhint("worker_ensure() starts workers, where none run.")));
    return true;
}

Delivered deliver_batch(const Subscription &s, int32 room, TimestampTz now) {
    PartitionSet all{};
    all.fill(true);
    Gathering g = gather(s, all, nullptr, room, 0, now);
    while (g.messages.empty() && g.more)
        g = gather(s, all, nullptr, room, 0, now);
    const HandlerKind kind = s.takes_batch ? HandlerKind::message_batch : HandlerKind::message;
    auto *failed = static_cast<int64 *>(palloc(sizeof(int64) * (g.messages.size() + 1)));
    size_t failed_count = 0;
    bool are_done = false;
    if (s.takes_batch && g.messages.size() > 1) {
        const std::optional<HandlerError> error = call_guarded(s, s.handler, kind, g.messages);
        if (is_left(s, error))
            return {.count = 0, .is_left = true};
        are_done = !error;
    }
    for (size_t done = 0; done < g.messages.size(); ++done) {
        const Message &m = g.messages[done];
        CHECK_FOR_INTERRUPTS();
        if (hold_if_key_failed(s, m, {failed, failed_count}))
            continue;
        std::optional<HandlerError> error;
        if (!are_done)
            error = call_guarded(s, s.handler, kind, {&m, 1});
        if (is_left(s, error)) {
            move_positions(s, g, done, now);
            return {.count = static_cast<int64>(done), .is_left = true};
        }
        if (!error) {
            note_handled(s, m, now);
            continue;
        }
        fail_message(s, m, failure_of(s, *error), now);
        failed[failed_count++] = m.token.value();
    }
    move_positions(s, g, g.messages.size(), now);
    return {.count = static_cast<int64>(g.messages.size()), .is_left = false};
}

Delivered deliver_fallbacks(const Subscription &s, int32 room, TimestampTz now) {
    PartitionSet all{};
    all.fill(true);
    Delivered result{.count = 0, .is_left = false};
    for (const Message &m : gather_fallbacks(s, all, nullptr, room, now)) {
        std::optional<HandlerError> error =
            call_guarded(s, s.fallback, HandlerKind::message, {&m, 1});
        if (is_left(s, error)) {
            result.is_left = true;
            continue;
        }
        if (error)
            fail_fallback(s, m, failure_of(s, *error), now);
        else
            note_handled(s, m, now);
        ++result.count;
    }
    return result;
}

} // namespace

int64 deliver_pending(int32 ring_id, int32 limit) {
    constexpr int32 room_max = 256;
    const TimestampTz now = pg::clock_now();
    int64 count = 0;
    for (int32 id : subscriptions_with_handlers(ring_id, now).ids) {
        const Subscription *s = hold_subscription(id, false);
        Delivered done{.count = 1, .is_left = false};
        while (s != nullptr && done.count > 0 && !done.is_left && count < limit) {
            const auto room = static_cast<int32>(std::min<int64>(limit - count, room_max));
            done = s->handler ? deliver_batch(*s, room, now) : Delivered{};
            if (done.count == 0 && !done.is_left && s->fallback)
                done = deliver_fallbacks(*s, room, now);
            count += done.count;
        }
    }
    return count;
}

} // namespace stacksaga
