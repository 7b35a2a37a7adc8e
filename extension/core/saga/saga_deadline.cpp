#include "core/saga/saga_deadline.hpp"

#include "core/saga/saga_compensation.hpp"

namespace stacksaga::core {

bool deadline_passed(SagaState &saga) {
    if (!saga.deadline_at || *saga.deadline_at > saga.now || !saga.acts() ||
        is_at_rest(saga.row.status) || saga.is_suspended() || saga.row.compensation_requested ||
        is_past_pivot(saga))
        return false;
    request_compensation(saga, CompensationRequest::deadline,
                         {nullptr, "the deadline of the saga passed"});
    settle(saga, {});
    return true;
}

void deadline_due(SagaState &saga) {
    if (saga.stands_still()) {
        arrange_work(saga);
        return;
    }
    remove_deadline(saga);
    deadline_passed(saga);
}

bool parks_at_deadline(const SagaState &saga) {
    return saga.row.compensation_requested == CompensationRequest::deadline &&
           saga.definition->on_failure == OnFailure::park;
}

void end_deadline_park(SagaState &saga) {
    if (!saga.is_parked() || !saga.acts() || !parks_at_deadline(saga) || has_open_pivot(saga))
        return;
    saga.row.compensation_requested.reset();
    saga.row.parked_at = saga.now;
    // The end of a suspension moves it by the whole suspension.
    const std::int64_t begin = saga.row.suspended_at.value_or(saga.now);
    saga.deadline_at = time_plus(begin, saga.deadline.value_or(Length{}));
    saga.changes.moves_deadline = true;
    add_deadline(saga);
}

} // namespace stacksaga::core
