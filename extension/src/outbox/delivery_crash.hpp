// Charges the messages that a process was delivering when a handler ended it.
#pragma once
#include "src/handler/crash_record.hpp"

namespace stacksaga {

/// Charges the recorded attempt as a failure, from the third one on for good. Does nothing when
/// another session has settled the message since. False: its partition is locked. Inside with_spi.
bool charge_crashed_message(const CrashRecord &record, std::string_view worker);

/// One message of the batch ended the process: all of them become retries, which are delivered one
/// by one. Does nothing in partitions whose position has moved since. False: a partition is locked.
/// Inside with_spi.
bool charge_crashed_batch(const RecordedBatch &batch, std::string_view worker);

} // namespace stacksaga
