// Functions that only background workers call, and no SQL function: the module of the tests
// (test/module) finds them here, since the library exports no symbol of its own but those that
// PostgreSQL looks up.
#pragma once
#include "pg/transaction_events.hpp"
#include "src/ring/fence.hpp"
#include "src/ring/ownership.hpp"

namespace stacksaga {

struct WorkerCalls {
    decltype(pg::watch_transactions) *watch_transactions; ///< before any other
    decltype(stacksaga::lock_slots) *lock_slots;
    decltype(stacksaga::lock_slot_exclusively) *lock_slot_exclusively;
    decltype(stacksaga::register_worker_node) *register_worker_node;
    decltype(stacksaga::beat) *beat;
    decltype(stacksaga::settle_ownership) *settle_ownership;
};

} // namespace stacksaga

extern "C" PGDLLEXPORT const stacksaga::WorkerCalls stacksaga_worker_calls;
