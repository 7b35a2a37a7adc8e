// Errors in the loop of a background process: logged once, tried again after a pause.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Whether an error of this SQLSTATE is usually gone at the next try, so that the log need not name
/// it.
bool is_passing(int sqlstate);

class LoopGuard {
public:
    /// Runs one round of the loop, outside of a transaction. False when it raised an error: then
    /// its transaction is aborted, the server's log has the error if it differs from the last one,
    /// and remaining() says when to try again: after a tenth of a second for a passing error (a
    /// deadlock, a lock that was not granted, a cancel), and after up to ten seconds, ever longer,
    /// for others. A round that returns true means that the loop has recovered. The caller's memory
    /// context is current again afterwards.
    template <class F> bool guard(F &&round) {
        static_assert(std::is_trivially_destructible_v<std::remove_reference_t<F>>);
        MemoryContext memory = CurrentMemoryContext;
        volatile bool raised = false;
        PG_TRY();
        {
            if (round())
                recover();
        }
        PG_CATCH();
        {
            raised = true;
            note_error();
        }
        PG_END_TRY();
        MemoryContextSwitchTo(memory);
        return !raised;
    }

    /// Microseconds until the next try; 0: now.
    int64 remaining() const;

    /// The SQLSTATE of the last round's error; 0 when there was none.
    int sqlstate() const { return sqlstate_; }

private:
    void note_error();
    void recover();

    int sqlstate_ = 0;
    int logged_ = 0; ///< the SQLSTATE that is in the log
    int64 pause_us_ = 0;
    int64 until_ = 0; ///< of the steady clock
};
static_assert(std::is_trivially_destructible_v<LoopGuard>);

} // namespace stacksaga
