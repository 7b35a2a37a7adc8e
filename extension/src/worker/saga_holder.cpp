// Which transaction holds a saga's row: for doctor().
#include "pg/statement/function.hpp"
#include "pg/table/lookup.hpp"
#include "pg/table/row_holder.hpp"
#include "src/saga/saga_tables.hpp"

namespace stacksaga {

// holder_of_saga(saga_id uuid) -> xid
STACKSAGA_FUNCTION(holder_of_saga) {
    const Datum id = PG_GETARG_DATUM(0);
    TransactionId holder = InvalidTransactionId;
    (void)pg::try_index(saga_table, SagaIndex::primary_key, [&](pg::IndexReader &sagas) {
        const std::array key{pg::KeyColumn{F_UUID_EQ, InvalidOid, id}};
        sagas.seek(key);
        if (TupleTableSlot *row = sagas.next(); row != nullptr)
            holder = pg::holder_of(row);
    });
    if (!TransactionIdIsValid(holder))
        PG_RETURN_NULL();
    // The caller's snapshot was taken earlier, so a transaction that still runs is not before its
    // xmin.
    if (TransactionIdFollowsOrEquals(holder, TransactionXmin))
        holder = SubTransGetTopmostTransaction(holder);
    PG_RETURN_TRANSACTIONID(holder);
}

} // namespace stacksaga
