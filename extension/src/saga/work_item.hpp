// One due item of work, as workers and run_pending() do it.
#pragma once
#include "src/handler/handler_error.hpp"
#include "src/saga/store.hpp"

namespace stacksaga {

/// Where a due work row was seen; a hint until its saga is locked.
struct DueItem {
    pg_uuid_t saga_id;
    int32 slot;
    core::WorkPurpose purpose;
    int16 step_no;
    core::Direction direction;
    int32 attempt = 0; ///< attempts so far
};

/// The outcome of an item.
struct ItemOutcome {
    bool is_done = false; ///< there was something to do, and it was done
    /// The budget (ring/retry_budget.hpp) that counts this as a first attempt, after the commit.
    std::optional<uint64> first_attempt{};
};

/// Locks the item's saga and does what is due: runs a sql step or a verify function, settles a
/// lease that ran out, handles a deadline. Not done: the item is no longer due, or another session
/// holds the saga. Inside with_spi.
ItemOutcome run_item(const DueItem &item, std::string_view worker);

/// Records that the item's attempt failed, by an error of its handler or of the engine, unless
/// another session has settled it since. Not done: the item is no attempt of a step (a deadline, a
/// lease that ran out), so there is none to charge.
ItemOutcome fail_item(const DueItem &item, std::string_view worker, const HandlerError &error);

} // namespace stacksaga
