// Answers that contradict how their step was settled: refused, and kept all the same until an
// operator acknowledges them.
//
// The error that refuses an answer rolls back what its transaction writes. So the answer is kept in
// a small file first, which every process of the server maps and which survives restarts; workers
// move its entries to table saga_contradiction. doctor() shows both.
#pragma once
#include "core/saga/saga_state.hpp"

#include "pg/pg.hpp"

namespace stacksaga {

struct Contradiction {
    pg_uuid_t saga_id;
    int16 step_no;
    core::Direction direction;
    int64 lease;
    /// The answer: the class of a failure, or nothing for a completion.
    std::optional<core::FailureClass> failed;
    TimestampTz answered_at;
};

/// Logs, counts and keeps it, even if the transaction rolls back. An answer that is kept already
/// changes nothing. Where no place is left it is only logged and counted. Never raises.
void note_contradiction(const Contradiction &contradiction, std::string_view step);

/// Moves the kept answers to the table, in a transaction of its own. Called outside of a
/// transaction.
void store_contradictions();

} // namespace stacksaga
