// Statements that a handler may not execute, since what they do outlives it.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// To be called before each utility statement: refuses such a one while a handler is running.
void check_utility_of_handler(const Node *statement);

} // namespace stacksaga
