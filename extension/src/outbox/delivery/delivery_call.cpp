#include "src/outbox/delivery/delivery_call.hpp"

#include "core/outbox/partition.hpp"
#include "core/outbox/snapshot_window.hpp"
#include "core/saga/classify.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/settings.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/handler/handler_timeout.hpp"
#include "src/handler/process_retry_budget.hpp"
#include "src/handler/running_handler.hpp"
#include "src/outbox/delivery/delivery_owner.hpp"
#include "src/outbox/delivery/delivery_retry.hpp"
#include "src/outbox/message_row.hpp"

namespace stacksaga {

namespace {

enum class RetryColumn : uint8_t { token, tick, number };
constinit pg::Select<RetryColumn> find_retries{
    "SELECT r.token::bigint, r.tick, r.number"
    "  FROM unnest($2::integer[]::smallint[]) AS p(partition), LATERAL ("
    "       SELECT token, tick, number, due_at FROM stacksaga.message_retry"
    "        WHERE subscription_id = $1 AND partition = p.partition AND due_at <= $3"
    "          AND state = 'waiting'"
    "        ORDER BY due_at FOR UPDATE SKIP LOCKED) AS r"
    " ORDER BY r.due_at"};
constinit pg::Statement postpone{
    "UPDATE stacksaga.message_retry SET due_at = $5"
    " WHERE subscription_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND tick = $3 AND number = $4"};

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
        if (to == part.position.at)
            continue;
        part.position.end_release(now);
        move_position(s.id, part.position, to, now);
    }
}

int64 defer_message_retries(const NodeIdentity &node, const Subscription &s, TimestampTz now) {
    const PartitionSet owned = lock_owned_partitions(node, s.partitions, due_partitions(s, now));
    std::array<int32, core::partitions_max> partitions{};
    size_t count = 0;
    for (int32 partition = 0; partition < s.partitions; ++partition)
        if (owned[static_cast<size_t>(partition)])
            partitions[count++] = partition;
    if (count == 0)
        return 0;
    const auto rows = find_retries.run(
        pg::param(s.id), pg::param_array(std::span<const int32>{partitions.data(), count}),
        pg::param_time(now));
    if (rows.empty())
        return 0;
    const double fraction = fraction_of(node);
    int64 deferred = 0;
    for (uint64 row = 0; row < rows.count(); ++row) {
        const std::optional<int64> delay = defer_retry(budget_of_subscription(s.id), fraction);
        if (!delay)
            continue;
        postpone.run(pg::param(s.id), pg::param(rows.int8(row, RetryColumn::token)),
                     pg::param(rows.int8(row, RetryColumn::tick)),
                     pg::param(rows.int8(row, RetryColumn::number)),
                     pg::param_time(pg::time_plus(now, *delay)));
        ++deferred;
    }
    return deferred;
}

} // namespace stacksaga
