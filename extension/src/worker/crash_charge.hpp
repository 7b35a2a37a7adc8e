// Charging the handler that ended a worker's process (handler/crash_record.hpp).
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Whether this worker's predecessor left a crash that is not charged yet.
bool has_crash_to_charge();

/// Charges it once as a failure of that attempt, unless another session has settled it since. Where
/// a lock is in the way it returns false and leaves the crash to the next call. Inside with_spi, in
/// a transaction of its own; `forget_crash` follows its commit when it returned true.
bool charge_crash(std::string_view worker);

} // namespace stacksaga
