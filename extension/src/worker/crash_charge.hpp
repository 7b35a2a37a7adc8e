// Charging the handler that ended a worker's process (handler/crash_record.hpp).
#pragma once
#include "src/handler/crash_record.hpp"

namespace stacksaga {

/// Charges the crash of this worker as a failure of the recorded attempt, unless another session
/// has charged or settled it since. Returns false when a lock is in the way; then the crash is
/// still to be charged. Inside with_spi, in a transaction of its own.
bool charge_crash(const CrashRecord &record, std::string_view worker);

} // namespace stacksaga
