// Ticks: how they are made, and how they are read back.
//
// Any session may make the next one: the worker at its turn, and receive_messages() where there is
// no worker. A lock and the unique number keep it to one session at a time. A tick is seen by all
// as soon as it is written, and stays when its session rolls back, so the lock is released at once.
// Nothing is lost by that: a tick says which transactions had ended when it was made, and counts
// its own as running, so it names no message of the transaction that is rolled back, and sequences
// give its two numbers, which do not go back. What others read up to it, and write into positions,
// is behind it in WAL: a crash that loses the tick loses that as well. Where somebody has changed
// the table it is seen after the commit, and the next one waits for that: so a session in the
// middle of a transaction makes it just before the commit.
#pragma once
#include "core/outbox/snapshot_window.hpp"

#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser tick_events;

enum class Ticking : uint8_t {
    not_due, ///< no messages were published since the last tick
    done,
    elsewhere, ///< another session is making a tick, which may see them or not
};

/// Makes a tick if messages were published since the last one and no other session is making one.
/// Inside with_spi, as the owner.
Ticking tick_if_due();

/// For a session's call: the same at once where the transaction is the statement's own, else just
/// before the transaction commits.
Ticking tick_soon();

inline constexpr size_t ticks_at_once = 66;

/// The tick with this number (0: the beginning of the log) and those that follow it, ticks_at_once
/// of them or one more where there are so many, in the current memory context. Inside with_spi, and
/// only where it cannot be deleted: it is the tick of a locked position, say.
std::span<const core::Tick> load_ticks(int64 from);

/// The same for callers that have locked nothing; empty when the tick was deleted.
std::span<const core::Tick> find_ticks(int64 from);

/// The ticks for reads of one transaction. Positions mostly lie close together: the ticks loaded
/// for the first of them serve the others.
class LoadedTicks {
public:
    /// As find_ticks(), without those made since the first call.
    std::span<const core::Tick> from(int64 tick);

private:
    std::span<const core::Tick> ticks_{};
};

/// The number of the last tick; 0: there is none. Inside with_spi.
int64 last_tick();

/// The last number that a message had when the last tick was made. Read without a statement.
int64 last_number_of_ticks();

/// Notifies of the last tick unless this process has done so: the session that made it may have
/// been rolled back. For a worker, after tick_if_due().
void notify_again();

/// The number of the tick before that one; 0: it is the first that is kept. Inside with_spi.
int64 tick_before(int64 tick);

/// A snapshot of what is committed now, which counts this transaction and all others with an id
/// that have not ended as running; in the current memory context. Inside with_spi.
core::Snapshot current_snapshot();

/// As pg_snapshot reads it.
const char *snapshot_text(const core::Snapshot &snapshot);

/// The other way round, in the current memory context.
core::Snapshot snapshot_of_text(std::string_view text);

/// The last number given to a message, as of now.
int64 last_message_number();

} // namespace stacksaga
