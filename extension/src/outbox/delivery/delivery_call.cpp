#include "src/outbox/delivery/delivery_call.hpp"

#include "core/outbox/snapshot_window.hpp"
#include "core/saga/classify.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/settings.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/handler/handler_timeout.hpp"
#include "src/handler/running_handler.hpp"
#include "src/outbox/message_row.hpp"

namespace stacksaga {

namespace {

const char *describe(const void *owner) {
    return psprintf("Subscription \"%s\" was created by role",
                    printable(static_cast<const Subscription *>(owner)->name));
}

HandlerCaller caller_of(const Subscription &s) {
    return {.definer = s.definer,
            .search_path = s.search_path,
            .describe = describe,
            .owner = &s,
            .remedy = "create_subscription() with the same settings"};
}

} // namespace

void call_with(const Subscription &s, const FunctionRef &function, HandlerKind kind,
               std::span<const Message> messages) {
    // The memory of one call is free before the next one.
    MemoryContext scratch =
        AllocSetContextCreate(CurrentMemoryContext, "stacksaga message", ALLOCSET_DEFAULT_SIZES);
    pg::in_context(scratch, [&] {
        bool isnull;
        running_handler.begin_message(s.id, s.name);
        // A batch that is too large for an array fails as the handler does, and is halved.
        const Datum argument = kind == HandlerKind::message_batch ? message_array_datum(messages)
                                                                  : message_datum(messages[0]);
        if (pg::settings.message_timeout > 0)
            start_handler_timeout(static_cast<int64>(pg::settings.message_timeout) * 1000);
        call_as_definer(caller_of(s), function, kind, argument, &isnull);
        finish_handler_timeout();
        running_handler.end();
    });
    MemoryContextDelete(scratch);
}

MessageFailure failure_of(const Subscription &s, const HandlerError &error) {
    if (error.timed_out)
        return {.failure_class = core::FailureClass::retryable,
                .error = "the handler took longer than stacksaga.message_timeout",
                .detail = error.detail};
    // A function that does not exist may be created again, and a cancel says nothing about the
    // message: it is not dead at once.
    return {.failure_class =
                error.is_unusable || error.is_cancelled
                    ? core::FailureClass::retryable
                    : core::classify(error.sqlstate, s.retry.retry_on, s.retry.never_on),
            .error = error.message,
            .detail = error.detail};
}

void note_handled(const Subscription &s, const Message &m, TimestampTz now) {
    if (m.is_retry())
        finish_retry(s, m, now);
}

void move_positions(const Subscription &s, Gathering &g, size_t done, TimestampTz now) {
    const bool is_whole = done == g.messages.size();
    for (GatheredPart &part : g.parts) {
        core::LogPosition to = is_whole ? part.end : part.position.at;
        if (!is_whole)
            for (const Message &m : g.messages.first(done))
                if (m.partition == part.position.partition)
                    to = position_behind(m, to);
        if (to != part.position.at)
            move_position(s.id, part.position, to, now);
    }
}

} // namespace stacksaga
