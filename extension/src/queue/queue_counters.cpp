#include "src/queue/queue_counters.hpp"

#include "core/common/savepoints.hpp"

#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "src/common/counter_file.hpp"
#include "src/common/counters.hpp"

namespace stacksaga {

namespace {

constexpr size_t queues_max = 150;
constexpr size_t place_size = 3; ///< the hash, completed, failed
constexpr size_t first_place =
    std::tuple_size_v<decltype(CounterFile::counters)> - queues_max * place_size;
static_assert(counter_count <= first_place);

/// The counts of one queue in one level of subtransactions.
struct Count {
    Count *next = nullptr;
    uint64 queue = 0; ///< its hash
    uint64 completed = 0, failed = 0;
};

/// Of all queues.
struct Counted {
    Count *first = nullptr;

    Count *find(uint64 queue) const {
        Count *c = first;
        while (c != nullptr && c->queue != queue)
            c = c->next;
        return c;
    }
    void add(Count *added) {
        added->next = first;
        first = added;
    }
    void operator+=(const Counted &inner) {
        for (Count *c = inner.first, *next = nullptr; c != nullptr; c = next) {
            next = c->next;
            if (Count *known = find(c->queue)) {
                known->completed += c->completed;
                known->failed += c->failed;
            } else {
                add(c);
            }
        }
    }
};
using Levels = core::SavepointStack<Counted>;
constinit Levels levels{}; ///< in the memory of the transaction

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

/// The place of a queue; with `takes`, takes one if it has none.
Place place_of(CounterFile &file, uint64 queue, bool takes) {
    for (size_t i = 0; i < queues_max; ++i) {
        const size_t number = (queue + i) % queues_max;
        pg_atomic_uint64 *place = &file.counters[first_place + place_size * number];
        uint64 owner = pg_atomic_read_u64(place);
        if (owner == 0 && !takes)
            return {nullptr, true};
        // Another process may take it first: then the place belongs to that process's queue.
        if (owner == 0 && pg_atomic_compare_exchange_u64(place, &owner, queue))
            owner = queue;
        if (owner == queue)
            return {place, true};
    }
    return {nullptr, false};
}

// ----------------------------------------------------------------------------- transactions

void add_to_file(const Counted &counted) {
    for (const Count *c = counted.first; c != nullptr; c = c->next) {
        const Place place = place_of(*counter_file(), c->queue, true);
        if (place.counters == nullptr)
            continue;
        pg_atomic_fetch_add_u64(&place.counters[1], static_cast<int64>(c->completed));
        pg_atomic_fetch_add_u64(&place.counters[2], static_cast<int64>(c->failed));
    }
}

void add_all() {
    levels.each(add_to_file);
}

} // namespace

constinit const pg::TransactionUser queue_counter_events{
    .at_commit = add_all,
    .at_prepare = add_all,
    .at_end = [] { levels.clear(); },
    .at_release = [](const pg::Subtransaction &ended) { levels.release(ended.level); },
    .at_rollback = [](const pg::Subtransaction &ended) { levels.roll_back(ended.level); },
};

void count_answer(int32 ring_id, std::string_view queue, bool is_completed) {
    if (counter_file() == nullptr)
        return;
    const uint64 hash = hash_of(ring_id, queue);
    Counted &level =
        levels.at(GetCurrentTransactionNestLevel(), pg::make_in_transaction<Levels::Level>);
    Count *count = level.find(hash);
    if (count == nullptr) {
        count = pg::make_in_transaction<Count>();
        count->queue = hash;
        level.add(count);
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
