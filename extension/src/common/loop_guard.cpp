#include "src/common/loop_guard.hpp"

#include "pg/clock.hpp"

namespace stacksaga {

namespace {

constexpr int64 passing_pause_us = USECS_PER_SEC / 10;
constexpr int64 first_pause_us = USECS_PER_SEC;
constexpr int64 longest_pause_us = 10 * USECS_PER_SEC;

} // namespace

bool is_passing(int sqlstate) {
    return sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE ||
           sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED || sqlstate == ERRCODE_LOCK_NOT_AVAILABLE ||
           sqlstate == ERRCODE_QUERY_CANCELED;
}

int64 LoopGuard::remaining() const {
    return sqlstate_ == 0 ? 0 : std::max<int64>(0, until_ - pg::steady_now());
}

void LoopGuard::note_error() {
    HOLD_INTERRUPTS();
    sqlstate_ = geterrcode();
    const bool passing = is_passing(sqlstate_);
    if (!passing && sqlstate_ != logged_) {
        EmitErrorReport();
        logged_ = sqlstate_;
    }
    AbortOutOfAnyTransaction(); // also out of a subtransaction
    MemoryContextSwitchTo(TopMemoryContext);
    FlushErrorState();
    pgstat_report_activity(STATE_IDLE, nullptr);
    RESUME_INTERRUPTS();
    if (passing)
        pause_us_ = passing_pause_us;
    else
        pause_us_ = std::clamp(2 * pause_us_, first_pause_us, longest_pause_us);
    until_ = pg::steady_now() + pause_us_;
}

void LoopGuard::recover() {
    if (logged_ != 0)
        ereport(LOG, (errmsg("%s has recovered", MyBgworkerEntry->bgw_name)));
    *this = LoopGuard{};
}

} // namespace stacksaga
