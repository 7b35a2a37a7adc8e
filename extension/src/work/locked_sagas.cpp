#include "src/work/locked_sagas.hpp"

#include "pg/table/lookup.hpp"

namespace stacksaga {

namespace {

struct LockedSaga {
    pg_uuid_t id; ///< the key
    TransactionId holder;
};

HTAB *make_table() {
    HASHCTL control{};
    control.keysize = sizeof(pg_uuid_t);
    control.entrysize = sizeof(LockedSaga);
    control.hcxt = TopMemoryContext;
    return hash_create("stacksaga locked sagas", 1024, &control,
                       HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

} // namespace

void LockedSagas::begin_search() {
    size_t running = 0;
    for (size_t i = 0; i < holder_count_; ++i)
        if (TransactionIdIsInProgress(holders_[i]))
            holders_[running++] = holders_[i];
    holder_count_ = running;
    if (running == 0 && sagas_ != nullptr) {
        hash_destroy(sagas_);
        sagas_ = nullptr;
    }
}

bool LockedSagas::runs(TransactionId holder) const {
    const auto end = holders_.begin() + holder_count_;
    return std::find(holders_.begin(), end, holder) != end;
}

bool LockedSagas::has(const pg_uuid_t &saga_id) const {
    if (sagas_ == nullptr)
        return false;
    const auto *found =
        static_cast<const LockedSaga *>(hash_search(sagas_, &saga_id, HASH_FIND, nullptr));
    return found != nullptr && runs(found->holder);
}

/// False where there is no room: such a saga is tried as others are.
bool LockedSagas::remember(const pg_uuid_t &saga_id, TransactionId holder) {
    if (!runs(holder)) {
        if (holder_count_ == holders_.size())
            return false;
        holders_[holder_count_++] = holder;
    }
    if (sagas_ == nullptr)
        sagas_ = make_table();
    if (hash_get_num_entries(sagas_) >= sagas_max)
        return false;
    static_cast<LockedSaga *>(hash_search(sagas_, &saga_id, HASH_ENTER, nullptr))->holder = holder;
    return true;
}

bool LockedSagas::look(pg::IndexReader &sagas, const pg_uuid_t &saga_id) {
    const std::array key{pg::KeyColumn{F_UUID_EQ, InvalidOid, UUIDPGetDatum(&saga_id)}};
    sagas.seek(key);
    TupleTableSlot *row = sagas.next();
    const TransactionId holder = row == nullptr ? InvalidTransactionId : pg::holder_of(row);
    return TransactionIdIsValid(holder) && remember(saga_id, holder);
}

} // namespace stacksaga
