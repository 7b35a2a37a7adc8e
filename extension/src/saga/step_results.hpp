// The outputs of the steps that are done: what a step is called with.
#pragma once
#include "src/saga/store.hpp"

namespace stacksaga {

/// Outputs of the completed steps by name, as jsonb: what `step` is called with. Good until the
/// next call. Inside with_spi, under the saga's lock.
Datum step_results(const Saga &saga, const Step &step, core::Direction direction);

} // namespace stacksaga
