#include "pg/transaction_events.hpp"

namespace stacksaga::pg {

namespace detail {
constinit bool watches_transactions = false;
}

namespace {

constinit std::span<const TransactionUser *const> users{};

template <class... A> void call(void (*TransactionUser::*event)(A...), A... arguments) {
    for (const TransactionUser *user : users)
        if (user->*event != nullptr)
            (user->*event)(arguments...);
}

void end(void (*TransactionUser::*event)()) {
    for (const TransactionUser *user : users) {
        if (user->*event != nullptr)
            (user->*event)();
        if (user->at_end != nullptr)
            user->at_end();
    }
}

/// In the tests' builds no context is there to allocate in: an allocation ends the process.
template <class F> void without_allocating(F &&body) {
#ifdef USE_ASSERT_CHECKING
    MemoryContext current = MemoryContextSwitchTo(nullptr);
    MemoryContext top = std::exchange(TopTransactionContext, nullptr);
    MemoryContext innermost = std::exchange(CurTransactionContext, nullptr);
    body();
    CurTransactionContext = innermost;
    TopTransactionContext = top;
    MemoryContextSwitchTo(current);
#else
    body();
#endif
}

void at_transaction_event(XactEvent event, void *) {
    switch (event) {
    case XACT_EVENT_PRE_COMMIT:
        return call(&TransactionUser::before_commit);
    case XACT_EVENT_PRE_PREPARE:
        return call(&TransactionUser::before_prepare);
    case XACT_EVENT_COMMIT:
        return without_allocating([] { end(&TransactionUser::at_commit); });
    case XACT_EVENT_PREPARE:
        return without_allocating([] { end(&TransactionUser::at_prepare); });
    case XACT_EVENT_ABORT:
        return end(&TransactionUser::at_abort);
    default: // a parallel worker's: its process ends with the query
        return;
    }
}

void at_subtransaction_event(SubXactEvent event, SubTransactionId id, SubTransactionId, void *) {
    if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
        return;
    const Subtransaction ended{.level = GetCurrentTransactionNestLevel(), .id = id};
    call<const Subtransaction &>(event == SUBXACT_EVENT_COMMIT_SUB ? &TransactionUser::at_release
                                                                   : &TransactionUser::at_rollback,
                                 ended);
}

} // namespace

void set_transaction_users(std::span<const TransactionUser *const> list) {
    users = list;
}

void detail::begin_watching_transactions() {
    RegisterXactCallback(at_transaction_event, nullptr);
    RegisterSubXactCallback(at_subtransaction_event, nullptr);
    watches_transactions = true;
}

} // namespace stacksaga::pg
