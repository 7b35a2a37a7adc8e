// One due item of work, run by workers and run_pending().
#pragma once
#include "core/saga/saga_state.hpp"
#include "core/saga/work_purpose.hpp"

#include "src/handler/handler_error.hpp"
#include "src/saga/store.hpp"
#include "src/work/due_item.hpp"

namespace stacksaga {

/// Whether the steps of a saga that follow each other at once run in the same transaction.
enum class RunAhead : uint8_t {
    no,
    written, ///< all is written before the next step runs, so that the step can fail alone
    yes,     ///< only markers are written before the next step runs
};

/// The outcome of an item.
struct ItemOutcome {
    bool is_done = false; ///< there was something to do, and it was done
    bool is_gone = false; ///< it is no longer due: nothing is left to do
    /// The budget (handler/process_retry_budget.hpp) that counts this as a first attempt, after the
    /// commit.
    std::optional<uint64> first_attempt{};
    uint64 bytes = 0; ///< of the call that was made, in memory
    /// The next item of this saga, if one follows at once.
    bool has_next = false;
    /// Set when the caller asked to run ahead: the saga, written as RunAhead says, which the caller
    /// gives to run_next() or write_saga(). Otherwise the saga has been written.
    Saga *saga = nullptr;
    DueItem next{};
};

/// Locks the item's saga and runs its due work: a sql step or a verify function, the end of a lease
/// that ran out, a deadline. Neither done nor gone: another session holds the saga, or a service
/// has to do it. Inside with_spi.
ItemOutcome run_item(const DueItem &item, std::string_view worker, RunAhead run_ahead);
/// As run_item(), for items that call no function of a user: returns whether it was done. Writes
/// the saga.
bool run_without_handler(const DueItem &item, std::string_view worker);
/// As run_item(), for the item that follows.
ItemOutcome run_next(Saga &saga, const DueItem &item, std::string_view worker, RunAhead run_ahead);

/// Records that the item's attempt failed, by an error of its handler or of the engine, unless
/// another session has settled it since. An item that could not be read parks its saga. Not done:
/// the item is no attempt of a step (a deadline, a lease that ran out), so there is none to charge.
ItemOutcome fail_item(const DueItem &item, std::string_view worker, const HandlerError &error);
/// As above, for the item that follows.
ItemOutcome fail_next(Saga &saga, const DueItem &item, std::string_view worker,
                      const HandlerError &error);

} // namespace stacksaga
