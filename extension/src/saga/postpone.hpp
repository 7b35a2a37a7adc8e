// Items that become due later. Some fail and cannot be charged: the error is the server's (its disk
// is full), the item is no attempt of a step's (a deadline), or the failure itself cannot be
// written. Such an item must not hold up the others. Others are retries that the budget defers.
#pragma once
#include "src/saga/work_item.hpp"

namespace stacksaga {

/// Makes the item due later, unless another session has settled it or holds its saga. The first
/// delay is a second, and each one in a row is twice as long, up to a minute, with jitter. No
/// attempt is charged. Inside with_spi.
void postpone_item(const DueItem &item);

/// Settles an item that could not be read or built, so that it does not stop others. An error that
/// may pass postpones it, three times; after that, and for other errors at once, its saga is
/// parked. If parking fails, the item is postponed. False when that failed too. Inside with_spi.
bool settle_unfit(const DueItem &item, std::string_view worker, const HandlerError &error);

/// Whether the error may pass, and the item was not yet postponed three times in a row. Inside
/// with_spi.
bool is_put_off(const DueItem &item, const HandlerError &error);

/// Makes a due retry due later by this delay, unless a session has claimed it or holds its saga.
/// Returns whether it did. Inside with_spi.
bool postpone_retry(const DueItem &item, int64 delay_us);

} // namespace stacksaga
