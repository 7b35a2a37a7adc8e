#include "pg/table/leaf_walk.hpp"

namespace stacksaga::pg {

/// The next page that is in use; InvalidBuffer: there is none.
Buffer LeafWalk::lock_next() {
    while (next_ != P_NONE) {
        CHECK_FOR_INTERRUPTS();
        const Buffer buffer = ReadBuffer(index_, next_);
        LockBuffer(buffer, BUFFER_LOCK_SHARE);
        auto *opaque = reinterpret_cast<BTPageOpaque>(PageGetSpecialPointer(BufferGetPage(buffer)));
        if (!P_IGNORE(opaque)) {
            PredicateLockPage(index_, next_, GetActiveSnapshot());
            return buffer;
        }
        next_ = opaque->btpo_next;
        UnlockReleaseBuffer(buffer);
    }
    return InvalidBuffer;
}

LeafEntry LeafWalk::entry_of(IndexTuple tuple) {
    Assert(!IndexTupleHasNulls(tuple));
    const char *data =
        reinterpret_cast<const char *>(tuple) + IndexInfoFindDataOffset(tuple->t_info);
    Assert(!VARATT_IS_COMPRESSED(data) && !VARATT_IS_EXTERNAL(data));
    const size_t behind_text = VARSIZE_ANY(data);
    const char *time = data + att_align_nominal(behind_text, TYPALIGN_DOUBLE);
    LeafEntry entry{.text = {VARDATA_ANY(data), VARSIZE_ANY_EXHDR(data)},
                    .time = 0,
                    .id = reinterpret_cast<const pg_uuid_t *>(time + sizeof(TimestampTz)),
                    .row = {}};
    memcpy(&entry.time, time, sizeof(entry.time));
    return entry;
}

} // namespace stacksaga::pg
