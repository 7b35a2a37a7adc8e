// wait_for_steps: a service waits until a queue may have something for it (common/waiting.hpp).
#include "pg/errors.hpp"
#include "pg/statement/attempt.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/common/waiting.hpp"
#include "src/queue/queue_waiters.hpp"
#include "src/ring/rings.hpp"
#include "src/work/claim_search.hpp"

namespace stacksaga {

namespace {

/// When the first in line looks again: at steps that another transaction is changing, for it may
/// roll back, for leases that a look has not reached, and for steps that a look from a remembered
/// instant (probe.hpp) may have missed.
constexpr int64 look_again_us = USECS_PER_SEC;

Claimable look(int32 ring_id, std::string_view queue, size_t enough) {
    Claimable found{};
    pg::peek([&] { found = count_claimable(ring_id, queue, pg::clock_now(), enough); });
    return found;
}

/// How long nothing will be due unless another session wakes this one. `has_watched`: those before
/// it may not have looked since.
int64 rest(const Claimable &found, TimestampTz woken_at, bool has_watched) {
    const int64 until_due = found.next == DT_NOEND ? wait_max_us : found.next - pg::clock_now();
    const bool is_unsure =
        found.is_being_changed || found.has_leases_ahead || found.whole_at < woken_at;
    if (!is_unsure)
        return until_due;
    if (place_in_line() == 0)
        return std::min(until_due, look_again_us);
    if (has_watched)
        wake_first_in_line();
    return until_due;
}

void wait_for_steps(int32 ring_id, std::string_view queue, int64 wait_us) {
    PromisedClaims promises(claims_of_queue(ring_id, queue));
    wait_in_line(
        line_of_queue(ring_id, queue), promises, wait_us,
        [&](size_t enough) { return look(ring_id, queue, enough); }, rest);
}

} // namespace

// wait_for_steps(queue, wait), a procedure
STACKSAGA_FUNCTION(wait_for_steps) {
    PreventCommandDuringRecovery("wait_for_steps()");
    require_no_transaction(fcinfo, "wait_for_steps()");
    pg::Arguments arguments(fcinfo);
    const std::string_view name = arguments.required_text(0, "queue");
    check_name(name, "queue", queue_bytes_max);
    const int64 wait_us = wait_argument(arguments, 1);
    std::array<char, queue_bytes_max> copy; // the argument may be gone after a commit
    std::copy(name.begin(), name.end(), copy.begin());
    const std::string_view queue{copy.data(), name.size()};
    const int32 ring_id = pg::with_pinned_path([] {
        return pg::as_owner([] { return pg::with_spi([] { return current_ring().ring_id; }); });
    });
    if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
        elog(ERROR, "SPI_connect_ext failed");
    begin_anew();
    wait_for_steps(ring_id, queue, wait_us);
    SPI_finish();
    PG_RETURN_NULL();
}

} // namespace stacksaga
