// Statements that a handler may not execute, since what they do outlives it.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// From now on such a statement is refused in this process while a handler is running. To be called
/// once, when the module is loaded.
void guard_against_handlers();

} // namespace stacksaga
