// The outputs of the steps that are done: an argument of each call of a step.
#pragma once
#include "src/saga/store.hpp"

namespace stacksaga {

/// Outputs of the completed steps by name, as jsonb. Good until the next call of this for the same
/// saga.
Datum step_results(Saga &saga);

} // namespace stacksaga
