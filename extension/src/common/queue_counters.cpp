#include "src/common/queue_counters.hpp"

#include "pg/function.hpp"
#include "pg/result.hpp"
#include "src/common/counter_file.hpp"
#include "src/common/counters.hpp"

namespace stacksaga {

namespace {

constexpr size_t queues_max = 150;
constexpr size_t place_size = 3; ///< the hash, completed, failed
constexpr size_t first_place =
    std::tuple_size_v<decltype(CounterFile::counters)> - queues_max * place_size;
static_assert(counter_count <= first_place);

/// What one level of subtransactions has counted of one queue.
struct Count {
    Count *next;
    int32 level;
    uint64 queue; ///< its hash
    uint64 completed, failed;
};
static_assert(std::is_trivially_destructible_v<Count>);

constinit bool is_registered = false;
constinit Count *newest = nullptr; ///< the innermost level first; in memory of the transaction

uint64 hash_of(int32 ring_id, std::string_view queue) {
    constexpr uint64 no_queue = 0;
    const uint64 hash =
        hash_bytes_extended(reinterpret_cast<const unsigned char *>(queue.data()),
                            static_cast<int>(queue.size()), static_cast<uint64>(ring_id));
    return hash == no_queue ? 1 : hash;
}

struct Place {
    pg_atomic_uint64 *counters; ///< nullptr: the queue has none
    bool may_be_taken;          ///< there was room for it
};

/// The place of a queue, which `takes` one if it has none.
Place place_of(CounterFile &file, uint64 queue, bool takes) {
    for (size_t i = 0; i < queues_max; ++i) {
        const size_t number = (queue + i) % queues_max;
        pg_atomic_uint64 *place = &file.counters[first_place + place_size * number];
        uint64 owner = pg_atomic_read_u64(place);
        if (owner == 0 && !takes)
            return {nullptr, true};
        // Another process may take it first: then its queue is the owner.
        if (owner == 0 && pg_atomic_compare_exchange_u64(place, &owner, queue))
            owner = queue;
        if (owner == queue)
            return {place, true};
    }
    return {nullptr, false};
}

// ----------------------------------------------------------------------------- transactions

void add_to_file() {
    for (const Count *c = newest; c != nullptr; c = c->next) {
        const Place place = place_of(*counter_file(), c->queue, true);
        if (place.counters == nullptr)
            continue;
        pg_atomic_fetch_add_u64(&place.counters[1], static_cast<int64>(c->completed));
        pg_atomic_fetch_add_u64(&place.counters[2], static_cast<int64>(c->failed));
    }
}

void at_transaction_end(XactEvent event, void *) {
    switch (event) {
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_PREPARE:
        add_to_file();
        newest = nullptr;
        break;
    case XACT_EVENT_ABORT:
        newest = nullptr;
        break;
    default:
        break;
    }
}

/// What this level has counted of a queue.
Count *find_count(int32 level, uint64 queue) {
    for (Count *c = newest; c != nullptr && c->level >= level; c = c->next)
        if (c->queue == queue && c->level == level)
            return c;
    return nullptr;
}

/// Counts of a subtransaction become those of the level around it.
void merge_into(int32 level) {
    Count *inner = newest;
    Count **end = &inner;
    while (*end != nullptr && (*end)->level > level)
        end = &(*end)->next;
    newest = *end;
    *end = nullptr;
    while (inner != nullptr) {
        Count *c = inner;
        inner = c->next;
        if (Count *outer = find_count(level, c->queue)) {
            outer->completed += c->completed;
            outer->failed += c->failed;
        } else {
            c->level = level;
            c->next = newest;
            newest = c;
        }
    }
}

void at_subtransaction_end(SubXactEvent event, SubTransactionId, SubTransactionId, void *) {
    const int32 level = GetCurrentTransactionNestLevel();
    if (event == SUBXACT_EVENT_ABORT_SUB)
        while (newest != nullptr && newest->level >= level)
            newest = newest->next;
    else if (event == SUBXACT_EVENT_COMMIT_SUB)
        merge_into(level - 1);
}

void register_callbacks() {
    if (is_registered)
        return;
    RegisterXactCallback(at_transaction_end, nullptr);
    RegisterSubXactCallback(at_subtransaction_end, nullptr);
    is_registered = true;
}

} // namespace

void count_answer(int32 ring_id, std::string_view queue, bool is_completed) {
    if (counter_file() == nullptr)
        return;
    register_callbacks();
    const uint64 hash = hash_of(ring_id, queue);
    const int32 level = GetCurrentTransactionNestLevel();
    Count *count = find_count(level, hash);
    if (count == nullptr) {
        count = static_cast<Count *>(MemoryContextAllocZero(TopTransactionContext, sizeof(Count)));
        count->next = newest;
        count->level = level;
        count->queue = hash;
        newest = count;
    }
    ++(is_completed ? count->completed : count->failed);
}

// queue_counts(ring_id, queue) -> TABLE(completed bigint, failed bigint)
STACKSAGA_FUNCTION(queue_counts) {
    pg::Arguments arguments(fcinfo);
    const int32 ring_id = arguments.required_int4(0, "ring_id");
    const std::string_view queue = arguments.required_text(1, "queue");
    pg::ResultSet result(fcinfo);
    CounterFile *file = counter_file();
    const Place place = file == nullptr ? Place{} : place_of(*file, hash_of(ring_id, queue), false);
    const auto counted = [&place](size_t which) {
        if (place.counters != nullptr)
            return pg::of(UInt64GetDatum(pg_atomic_read_u64(&place.counters[which])));
        return place.may_be_taken ? pg::of(Int64GetDatum(0)) : pg::null();
    };
    result.add(counted(1), counted(2));
    return result.finish();
}

} // namespace stacksaga
