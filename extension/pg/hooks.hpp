// All hooks that the module sets, in every session that loads the library: of a server that
// preloads it, also in databases without the extension.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// The module's functions in PostgreSQL's hooks, besides its own plans (plan.hpp). Each is there.
struct HookUsers {
    /// Before each statement that is not a query, in this order.
    std::span<void (*const)(const Node *statement)> before_utility;
    /// Before the execution of each query, and of each statement inside a function.
    void (*before_query)();
    /// A function is about to be called: once for an expression that is made ready.
    void (*before_function)(Oid function);
    /// A statement is about to write the relation, or to lock its rows.
    void (*before_write)(Oid relation);
};

/// To be called once, when the module is loaded. What `users` points to is kept, not copied.
void install_hooks(const HookUsers &users);

} // namespace stacksaga::pg
