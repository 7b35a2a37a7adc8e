#include "pg/table/row_holder.hpp"

namespace stacksaga::pg {

namespace {

/// As it is under the lock of its page.
HeapTupleHeaderData header_of(TupleTableSlot *row) {
    const HeapTupleHeader header = ExecFetchSlotHeapTuple(row, false, nullptr)->t_data;
    const Buffer buffer = reinterpret_cast<BufferHeapTupleTableSlot *>(row)->buffer;
    LockBuffer(buffer, BUFFER_LOCK_SHARE);
    const HeapTupleHeaderData copy = *header;
    LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
    return copy;
}

TransactionId if_it_runs(TransactionId xid) {
    const bool is_other =
        !TransactionIdIsCurrentTransactionId(xid) && TransactionIdIsInProgress(xid);
    return is_other ? xid : InvalidTransactionId;
}

TransactionId holder_among(MultiXactId members_id) {
    MultiXactMember *members = nullptr;
    const int count = GetMultiXactIdMembers(members_id, &members, false, false);
    TransactionId holder = InvalidTransactionId;
    for (int i = 0; i < count && !TransactionIdIsValid(holder); ++i)
        if (members[i].status != MultiXactStatusForKeyShare)
            holder = if_it_runs(members[i].xid);
    if (count > 0)
        pfree(members);
    return holder;
}

} // namespace

TransactionId holder_of(TupleTableSlot *row) {
    if (!TTS_IS_BUFFERTUPLE(row))
        return InvalidTransactionId;
    const HeapTupleHeaderData header = header_of(row);
    const uint16 mask = header.t_infomask;
    if ((mask & HEAP_XMAX_INVALID) != 0 || HEAP_LOCKED_UPGRADED(mask))
        return InvalidTransactionId;
    const TransactionId xmax = HeapTupleHeaderGetRawXmax(&header);
    if ((mask & HEAP_XMAX_IS_MULTI) != 0)
        return holder_among(xmax);
    return HEAP_XMAX_IS_KEYSHR_LOCKED(mask) ? InvalidTransactionId : if_it_runs(xmax);
}

} // namespace stacksaga::pg
