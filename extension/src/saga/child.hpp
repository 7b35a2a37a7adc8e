// Child sagas: a step that is a saga of its own.
//
// Parent and child never wait for each other's locks. Each notifies the other by a row that it adds
// to the other's work: the child that it has settled (purpose child_settled), the parent that the
// child is to compensate (compensation_request). The worker that runs such a row reads what is
// committed.
#pragma once
#include "src/saga/saga.hpp"

namespace stacksaga {

/// All inside with_spi, with the saga locked.

/// Whether the step has a child that has not failed: it runs, is stuck, or has completed.
bool child_stands(const Saga &saga, const Step &step);

/// Runs the work row of a child step: starts the child, or requests its compensation, and waits.
void run_child_step(Saga &saga, const Step &step, const Work &work, std::string_view worker);

/// The child has not settled within the step's timeout: it is waited for again, as long as attempts
/// are left.
void child_timed_out(Saga &saga, const Step &step, const Work &work);

/// The child of this step has settled.
void child_settled(Saga &saga, int16 step_no);

/// `saga` has settled: notifies its parent.
void notify_parent(const Saga &saga);

/// Requests that the children that `saga` waits for compensate.
void request_compensation_of_children(const Saga &saga);

/// The parent of `saga` has requested its compensation.
void compensate_for_parent(Saga &saga);

} // namespace stacksaga
