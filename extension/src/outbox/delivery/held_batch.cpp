#include "src/outbox/delivery/held_batch.hpp"

#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"

namespace stacksaga {

namespace {

enum class BatchColumn : uint8_t { subscription_id, partitions, consumer };
constinit pg::Select<BatchColumn> find_batch{
    "SELECT subscription_id, partitions::integer[], consumer FROM stacksaga.message_batch"
    " WHERE batch_id = $1"};

[[noreturn]] void raise_unknown_batch(int64 batch_id) {
    ereport(ERROR,
            (errcode(pg::sg404), errmsg("batch " INT64_FORMAT " does not exist", batch_id),
             errdetail("No batch with this id is kept."),
             errhint("receive_messages() returns the id of the batch with each of its messages.")));
}

[[noreturn]] void raise_lost(int64 batch_id, const Position &p) {
    const bool is_given_back = p.released_batch == batch_id;
    ereport(ERROR,
            (errcode(pg::sg412), errmsg("lease on batch " INT64_FORMAT " is lost", batch_id),
             is_given_back ? errdetail("It was given back by release_batch().")
             : p.batch_id == 0
                 ? errdetail("It has been acknowledged, or other consumers got its messages and "
                             "acknowledged them.")
                 : errdetail("Its lease is over, and batch " INT64_FORMAT " has its messages now.",
                             p.batch_id),
             errhint("Roll back what was done for this batch and receive again.")));
}

} // namespace

HeldBatch hold_batch(int64 batch_id, Released released) {
    const auto rows = find_batch.run(pg::param(batch_id));
    if (rows.empty())
        raise_unknown_batch(batch_id);
    HeldBatch batch{.batch_id = batch_id,
                    .subscription =
                        hold_subscription(rows.int4(0, BatchColumn::subscription_id), true),
                    .consumer = rows.text(0, BatchColumn::consumer),
                    .parts = {}};
    if (batch.subscription == nullptr)
        raise_unknown_batch(batch_id);
    ArrayType *array = DatumGetArrayTypeP(rows.value(0, BatchColumn::partitions));
    const auto *partitions = reinterpret_cast<const int32 *>(ARR_DATA_PTR(array));
    const auto count = static_cast<size_t>(ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)));
    auto *sorted = static_cast<int32 *>(palloc(sizeof(int32) * (count + 1)));
    std::copy(partitions, partitions + count, sorted);
    std::sort(sorted, sorted + count); // every session locks several in this order
    auto *parts = static_cast<Position *>(palloc(sizeof(Position) * (count + 1)));
    for (size_t i = 0; i < count; ++i) {
        std::optional<Position> p =
            lock_position(batch.subscription->id, static_cast<int16>(sorted[i]), true);
        if (!p)
            raise_unknown_batch(batch_id); // the subscription was dropped while we waited
        const bool is_given_back = released == Released::taken && p->released_batch == batch_id;
        if (p->batch_id != batch_id && !is_given_back)
            raise_lost(batch_id, *p);
        parts[i] = *p;
    }
    batch.parts = {parts, count};
    return batch;
}

} // namespace stacksaga
