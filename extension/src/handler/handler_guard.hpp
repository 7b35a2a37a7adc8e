// Statements that a handler may not execute, since what they do outlives it.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// From now on such a statement is refused in this process while a handler is running. To be called
/// once, when the module is loaded.
void guard_against_handlers();

/// Whether a handler has executed SET CONSTRAINTS, which lasts to the end of the transaction, since
/// this was set to false.
extern bool handler_has_set_constraints;

} // namespace stacksaga
