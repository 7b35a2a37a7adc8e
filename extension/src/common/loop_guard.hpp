// Errors in the loop of a background process: told once, waited out, and over.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Whether an error of this SQLSTATE is gone at the next try, as a rule: nobody has to know.
bool is_passing(int sqlstate);

class Trouble {
public:
    /// Runs one round of the loop, outside of a transaction. False when it raised an error: then
    /// its transaction is aborted, the error is in the server's log if it is another one than the
    /// last time, and remaining() says when to try again: after a tenth of a second for what passes
    /// by itself (a deadlock, a lock not to be had, a cancel), and after a growing while, up to ten
    /// seconds, for all else. A round that returns true ends the trouble.
    template <class F> bool guard(F &&round) {
        static_assert(std::is_trivially_destructible_v<std::remove_reference_t<F>>);
        volatile bool raised = false;
        PG_TRY();
        {
            if (round())
                end();
        }
        PG_CATCH();
        {
            raised = true;
            meet();
        }
        PG_END_TRY();
        return !raised;
    }

    /// Microseconds until the next try; 0: now.
    int64 remaining() const;

    /// The SQLSTATE of the last round's error; 0 when there was none.
    int sqlstate() const { return sqlstate_; }

private:
    void meet();
    void end();

    int sqlstate_ = 0;
    int told_ = 0; ///< the SQLSTATE that is in the log
    int64 pause_us_ = 0;
    int64 until_ = 0; ///< of the steady clock
};
static_assert(std::is_trivially_destructible_v<Trouble>);

} // namespace stacksaga
