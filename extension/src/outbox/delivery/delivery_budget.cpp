#include "src/outbox/delivery/delivery_budget.hpp"

#include "core/outbox/partition.hpp"

#include "pg/clock.hpp"
#include "pg/select.hpp"
#include "pg/statement/query.hpp"
#include "src/outbox/delivery/delivery_owner.hpp"
#include "src/outbox/delivery/delivery_retry.hpp"

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

} // namespace

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
