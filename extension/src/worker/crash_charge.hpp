// Messages whose handler ended the worker's process (handler/crash_record.hpp).
#pragma once
#include "src/handler/crash_record.hpp"

namespace stacksaga {

/// Charges the death to the message: a failure of that attempt, the third one for good. Nothing
/// when somebody else has dealt with it since. False: its partition is locked. Inside with_spi.
bool charge_message(const NamedMessage &message, std::string_view worker);

/// One of the batch's messages did it: all of them are moved aside, to be handed over one by one.
/// Nothing in partitions that have been read on since. False: a partition is locked. Inside
/// with_spi.
bool charge_batch(const NamedBatch &batch, std::string_view worker);

} // namespace stacksaga
