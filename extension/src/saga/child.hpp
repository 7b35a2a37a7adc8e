// Child sagas: a step that is a saga of its own.
//
// Parent and child never wait for each other's locks. Each tells the other by a work row of its
// own, inserted into the other's work: the child that it has settled (purpose child_settled), the
// parent that the child shall go back (compensation_request). Whoever works for the other then
// reads what is committed.
#pragma once
#include "src/saga/saga.hpp"

namespace stacksaga {

/// All inside with_spi, with the saga locked.

/// Whether the step has a child that has not failed: it runs, is stuck, or has completed.
bool child_stands(const Saga &saga, const Step &step);

/// Runs the work row of a child step: starts the child, or asks it to go back, and waits for it.
void run_child_step(Saga &saga, const Step &step, const Work &work, std::string_view worker);

/// The child has not settled within the step's timeout: it is waited for again, as long as attempts
/// are left.
void child_timed_out(Saga &saga, const Step &step, const Work &work);

/// The child of this step says that it has settled.
void child_settled(Saga &saga, int16 step_no);

/// `saga` has settled: tells the saga that it is a step of.
void tell_parent(const Saga &saga);

/// Asks the children that `saga` waits for to go back.
void ask_children_to_go_back(const Saga &saga);

/// The saga that `saga` is a step of wants it to go back.
void go_back_for_parent(Saga &saga);

} // namespace stacksaga
