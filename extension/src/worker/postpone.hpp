// Items that fail and cannot be charged: the error is the server's (its disk is full), the item is
// no attempt of a step's (a deadline), or the failure itself cannot be written. Such an item must
// not hold up the others.
#pragma once
#include "src/saga/work_item.hpp"

namespace stacksaga {

/// Makes the item due later, unless another session has settled it or holds its saga: after a
/// second, and after twice as long each time that this worker has to do so again, up to five
/// minutes, with jitter. No attempt is charged. Inside with_spi.
void postpone_item(const DueItem &item);

} // namespace stacksaga
