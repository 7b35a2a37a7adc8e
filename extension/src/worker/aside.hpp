// Items whose error is not their handler's: the engine could not do what is due (results too large
// for one value, a trigger on our tables, a broken row). Such an item must not hold up the others.
#pragma once
#include "src/saga/work_item.hpp"

namespace stacksaga {

/// Makes the item due later, unless somebody else has dealt with it or holds its saga: after a
/// second, and after twice as long each time that this worker has to do so again, up to five
/// minutes, with jitter. No attempt is charged. Inside with_spi.
void set_aside(const DueItem &item);

} // namespace stacksaga
