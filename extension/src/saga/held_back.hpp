// Steps that a paused definition has held back are due again when the pause is over: page by page,
// at the instants that they had, so that they stand where they stood.
//
// Workers bring them back in transactions of their own, claims and run_pending() in the caller's
// before they search. A page takes the lock of each saga and passes over those that others hold; a
// row that was held back since is found by a later page (definition/definition_pauses.hpp).
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// All inside with_spi, with nothing loaded of any saga.

/// Brings back steps of a queue whose pause is over. Returns how many.
int32 bring_back(int32 ring_id, std::string_view queue, int32 limit, TimestampTz now);
/// The same of all rings and queues.
int32 bring_back_all(int32 limit, TimestampTz now);

/// Holds back the steps of the next sagas of a definition that is paused, which this session has
/// not gone through since the pause began: so claims and turns of workers do not meet them. Steps
/// that it misses are held back when they are met. False: there are no more sagas. In a transaction
/// that does nothing else.
bool hold_page_back_of_pause(int32 limit, TimestampTz now);

/// Whether a pause is over and its row has not been removed.
bool is_any_pause_over(TimestampTz now);
/// Removes the rows of pauses that are over, where nothing is held back any more. In a transaction
/// that does nothing else.
void forget_pauses(TimestampTz now);

} // namespace stacksaga
