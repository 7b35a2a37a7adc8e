// Sagas whose rows another transaction holds: a worker passes over their items until it has ended.
//
// An item whose saga is locked is left where it is, in front of what fell due later. Where
// thousands of them are, each search would find them again, and each turn try them in vain. So once
// a turn has met such a lock, the next search looks whose sagas are locked, and remembers by whom.
#pragma once
#include "pg/table/lookup.hpp"

namespace stacksaga {

/// What a worker remembers from search to search.
class LockedSagas {
public:
    /// An item could not run, since its saga was locked.
    void note_skipped() { is_expected_ = true; }
    /// Whether that happened since the last search that looked.
    bool is_expected() const { return is_expected_; }

    /// Forgets those whose transactions have ended.
    void begin_search();
    /// Whether it was locked when a search looked, by a transaction that runs still.
    bool has(const pg_uuid_t &saga_id) const;
    /// Looks whether it is locked, and remembers it.
    bool look(pg::IndexReader &sagas, const pg_uuid_t &saga_id);
    void end_search(bool has_looked) { is_expected_ = is_expected_ && !has_looked; }

private:
    static constexpr size_t holders_max = 64;
    static constexpr long sagas_max = 100000;

    bool runs(TransactionId holder) const;
    bool remember(const pg_uuid_t &saga_id, TransactionId holder);

    HTAB *sagas_ = nullptr;
    std::array<TransactionId, holders_max> holders_{}; ///< that ran when the search began
    size_t holder_count_ = 0;
    bool is_expected_ = false;
};
static_assert(std::is_trivially_destructible_v<LockedSagas>);

} // namespace stacksaga
