// Which relations a statement writes, known before it does.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// From now on `note` is called with each relation that a statement of this process is about to
/// write, or whose rows it locks. To be called once, when the module is loaded.
void watch_written(void (*note)(Oid relation));

} // namespace stacksaga::pg
