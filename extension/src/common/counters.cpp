#include "src/common/counters.hpp"

#include "core/saga_state.hpp"

#include "pg/function.hpp"
#include "pg/result.hpp"
#include "src/common/counter_file.hpp"

namespace stacksaga {

namespace {

static_assert(std::ranges::is_sorted(counter_names, {}, &CounterName::counter));

using Counts = std::array<int64, counter_count>;
static_assert(counter_count <= std::tuple_size_v<decltype(CounterFile::counters)>);

/// What one level of subtransactions has counted.
struct Level {
    Level *outer;
    int32 level;
    Counts counts;
    SagaCounts sagas;
};
static_assert(std::is_trivially_destructible_v<Level>);

constinit bool is_registered = false;
constinit Level *innermost = nullptr; ///< in the memory of the transaction

// ----------------------------------------------------------------------------- transactions

void add_to_file(const Level &level) {
    CounterFile &file = *counter_file(); // without it nothing has been counted
    for (size_t i = 0; i < counter_count; ++i)
        if (level.counts[i] != 0)
            pg_atomic_fetch_add_u64(&file.counters[i], level.counts[i]);
    add_to_tallies(level.sagas);
}

/// At the end of a transaction every level but the outermost has been merged or dropped.
void at_transaction_end(XactEvent event, void *) {
    switch (event) {
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_PREPARE: // by another process or after a restart, its commit counts nothing
        if (innermost != nullptr)
            add_to_file(*innermost);
        innermost = nullptr;
        break;
    case XACT_EVENT_ABORT:
        innermost = nullptr;
        break;
    default:
        break;
    }
}

void at_subtransaction_end(SubXactEvent event, SubTransactionId, SubTransactionId, void *) {
    const int32 level = GetCurrentTransactionNestLevel();
    if (innermost == nullptr || innermost->level < level)
        return;
    if (event == SUBXACT_EVENT_ABORT_SUB) {
        innermost = innermost->outer;
    } else if (event == SUBXACT_EVENT_COMMIT_SUB) {
        Level *outer = innermost->outer;
        if (outer == nullptr || outer->level < level - 1) {
            innermost->level = level - 1;
            return;
        }
        for (size_t i = 0; i < counter_count; ++i)
            outer->counts[i] += innermost->counts[i];
        for (size_t i = 0; i < outer->sagas.size(); ++i)
            outer->sagas[i] += innermost->sagas[i];
        innermost = outer;
    }
}

Level &current_level() {
    const int32 level = GetCurrentTransactionNestLevel();
    if (innermost == nullptr || innermost->level < level) {
        auto *added =
            static_cast<Level *>(MemoryContextAllocZero(TopTransactionContext, sizeof(Level)));
        added->outer = innermost;
        added->level = level;
        innermost = added;
    }
    return *innermost;
}

void register_callbacks() {
    if (is_registered)
        return;
    RegisterXactCallback(at_transaction_end, nullptr);
    RegisterSubXactCallback(at_subtransaction_end, nullptr);
    is_registered = true;
}

/// nullptr where nothing can be counted.
Level *counting_level() {
    if (counter_file() == nullptr)
        return nullptr;
    register_callbacks();
    return &current_level();
}

} // namespace

void count_event(Counter counter, int64 amount) {
    if (Level *level = counting_level())
        level->counts[static_cast<size_t>(counter)] += amount;
}

void count_at_once(Counter counter) {
    if (CounterFile *file = counter_file())
        pg_atomic_fetch_add_u64(&file->counters[static_cast<size_t>(counter)], 1);
}

void count_saga(core::Status status, int64 change) {
    if (Level *level = counting_level())
        level->sagas[static_cast<size_t>(status)] += change;
}

void count_completed(core::Direction direction) {
    count_event(direction == core::Direction::act ? Counter::acts_completed
                                                  : Counter::compensations_completed);
}

void count_failed(core::Direction direction, core::FailureClass failure_class) {
    const Counter first = direction == core::Direction::act
                              ? Counter::acts_failed_retryable
                              : Counter::compensations_failed_retryable;
    static_assert(core::failure_class_names[0] == "retryable" &&
                  core::failure_class_names[1] == "non_retryable" &&
                  core::failure_class_names[2] == "unknown");
    count_event(
        static_cast<Counter>(static_cast<size_t>(first) + static_cast<size_t>(failure_class)));
}

// counters() -> TABLE(name text, labels jsonb, value double precision)
STACKSAGA_FUNCTION(counters) {
    pg::ResultSet result(fcinfo);
    CounterFile *file = counter_file();
    if (file == nullptr)
        return result.finish();
    for (const CounterName &c : counter_names) {
        const uint64 value = pg_atomic_read_u64(&file->counters[static_cast<size_t>(c.counter)]);
        result.add(pg::of(PointerGetDatum(pg::make_text(c.name))),
                   pg::of(DirectFunctionCall1(jsonb_in, CStringGetDatum(c.labels.data()))),
                   pg::of(Float8GetDatum(static_cast<double>(value))));
    }
    return result.finish();
}

} // namespace stacksaga
