// Items that become due later. Some fail and cannot be charged: the error is the server's (its disk
// is full), the item is no attempt of a step's (a deadline), or the failure itself cannot be
// written. Such an item must not hold up the others. Others are retries that the budget defers.
#pragma once
#include "src/saga/work_item.hpp"

namespace stacksaga {

/// Makes the item due later, unless another session has settled it or holds its saga: after a
/// second, and after twice as long each time that this worker has to do so again, up to five
/// minutes, with jitter. No attempt is charged. Inside with_spi.
void postpone_item(const DueItem &item);

/// Makes a due retry due so much later, unless somebody has claimed it or holds its saga. Whether
/// it did. Inside with_spi.
bool postpone_retry(const DueItem &item, int64 delay_us);

} // namespace stacksaga
