// The ends of transactions and of subtransactions: one registration with PostgreSQL, and a table of
// users that run at each event in the order of the table.
//
// A user is a constant beside what it watches. The module hands the table over when it is loaded,
// for the order depends on files that this folder does not know. The extension registers at the
// first call of a function of the extension, so that the sessions of a server which only preloads
// the library pay nothing.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// The one that ends.
struct Subtransaction {
    int32 level; ///< its nesting; the transaction itself has 1
    SubTransactionId id;
};

/// The functions of one user at each event; nullptr: none.
struct TransactionUser {
    // They may read, write and raise, which rolls back the transaction.
    void (*before_commit)() = nullptr;
    void (*before_prepare)() = nullptr;

    // The end is recorded, and others see it. Nothing may allocate or raise: PostgreSQL answers an
    // error here with a panic. In the tests' builds an allocation ends the process.
    void (*at_commit)() = nullptr;
    void (*at_prepare)() = nullptr;

    void (*at_abort)() = nullptr;
    /// After any of the three, under the rule of the first two.
    void (*at_end)() = nullptr;

    /// The subtransaction becomes part of the one around it.
    void (*at_release)(const Subtransaction &) = nullptr;
    void (*at_rollback)(const Subtransaction &) = nullptr;
};

/// To be called once, when the module is loaded. The list is kept, not copied.
void set_transaction_users(std::span<const TransactionUser *const> users);

namespace detail {
extern bool watches_transactions;
void begin_watching_transactions();
} // namespace detail

/// Every way into the extension that can use the table passes here first: its SQL functions, by
/// STACKSAGA_FUNCTION, and its background workers, by in_transaction().
inline void watch_transactions() {
    if (!detail::watches_transactions) [[unlikely]]
        detail::begin_watching_transactions();
}

/// An empty one in the memory of the transaction.
template <class T> T *make_in_transaction() {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (MemoryContextAlloc(TopTransactionContext, sizeof(T))) T{};
}

} // namespace stacksaga::pg
