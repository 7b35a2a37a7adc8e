#include "src/handler/process_retry_budget.hpp"

#include "core/common/retry_budget.hpp"
#include "core/ring/murmur3.hpp"

#include "pg/clock.hpp"
#include "pg/random.hpp"
#include "pg/settings.hpp"
#include "pg/statement/query.hpp"

namespace stacksaga {

namespace {

constinit std::array<core::RetryBudget, 128> budgets{};

constinit pg::Statement read_fraction{
    "SELECT count(*) FILTER (WHERE owner = $2)::float8 / greatest(count(*), 1)"
    "  FROM stacksaga.slot WHERE ring_id = $1"};

core::RetryBudget &at(uint64 budget) {
    return budgets[budget % budgets.size()];
}

} // namespace

uint64 budget_of_queue(int32 ring_id, std::string_view queue) {
    return core::murmur3_x64_128(queue, static_cast<uint32>(ring_id)).h1;
}

uint64 budget_of_definition(int32 definition_id) {
    return static_cast<uint64>(definition_id);
}

uint64 budget_of_subscription(int32 subscription_id) {
    return ~static_cast<uint64>(subscription_id); // from the other end than definitions
}

void count_first_attempt(uint64 budget) {
    at(budget).count_first_attempt(pg::clock_now(), std::max(0.0, pg::settings.retry_budget));
}

std::optional<int64> defer_retry(uint64 budget, double fraction) {
    const TimestampTz now = pg::clock_now();
    if (pg::settings.retry_budget < 0 || at(budget).admit(now, fraction))
        return std::nullopt;
    return at(budget).defer(now, fraction, pg::random_fraction());
}

double fraction_of(const NodeIdentity &node) {
    return read_fraction.run(pg::param(node.ring_id), pg::param(node.incarnation)).float8(0);
}

} // namespace stacksaga
