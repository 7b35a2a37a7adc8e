// The list of parked sagas, kept by the trigger that sees every change of status.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Writes that the saga of this row of stacksaga.saga is parked from now on, or is not any more.
void note_parked(HeapTuple saga, TupleDesc descriptor, bool is_parked);

} // namespace stacksaga
