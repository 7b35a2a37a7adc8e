// The holder of a row: the transaction that keeps others from locking it FOR NO KEY UPDATE.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// One that still runs, another than this one, or a subtransaction of it; InvalidTransactionId:
/// there is none, or the row is not kept as heap tables keep theirs. Of a row that an IndexReader
/// shows.
TransactionId holder_of(TupleTableSlot *row);

} // namespace stacksaga::pg
