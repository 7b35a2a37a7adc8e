// Definitions that are paused, as all who may begin an attempt ask for them.
//
// A step of a paused definition that is met, or made, is held back: its row is due never, and bears
// the name of the saga (core/saga/saga.hpp, saga/held_back.hpp). So no later search meets it again.
// Who holds back holds the lock of the pause shared to the end of its transaction. The row of a
// pause is removed under that lock, exclusively, when the pause has ended and nothing is held back
// any more: so whatever a transaction holds back, even one that has not heard of the end, is found.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// All inside with_spi.

struct DefinitionPause {
    std::string_view saga;
    TimestampTz since;
    TimestampTz until; ///< DT_NOEND: until somebody ends it

    bool is_over(TimestampTz now) const { return now >= until; }
};
static_assert(std::is_trivially_destructible_v<DefinitionPause>);

/// Those that are in force, and those that are over while steps may be held back. Kept by the
/// session until one of them changes; on Citus a session reads them once in a transaction. The list
/// is good until the next call.
std::span<const DefinitionPause> definition_pauses();

/// The pause of this saga that is in force.
const DefinitionPause *find_pause(std::string_view saga, TimestampTz now);

/// Whether the definition is paused for an attempt that may begin now; then its steps may be held
/// back in this transaction.
bool may_hold_back(std::string_view saga, TimestampTz now);

/// When the next pause ends by itself; DT_NOEND: none does.
TimestampTz next_end_of_pause(TimestampTz now);

/// Makes every session read the pauses again, when this transaction commits.
void announce_pauses();

/// Takes the lock under which a pause that is over is removed; false where others hold back.
bool lock_end_of_pause(std::string_view saga);

} // namespace stacksaga
