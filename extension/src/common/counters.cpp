#include "src/common/counters.hpp"

#include "core/common/savepoints.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "src/common/counter_file.hpp"

namespace stacksaga {

namespace {

static_assert(std::ranges::is_sorted(counter_names, {}, &CounterName::counter));

using Counts = std::array<int64, counter_count>;
static_assert(counter_count <= std::tuple_size_v<decltype(CounterFile::counters)>);

/// The counts of one level of subtransactions.
struct Counted {
    Counts counts{};
    SagaCounts sagas{};

    void operator+=(const Counted &inner) {
        for (size_t i = 0; i < counts.size(); ++i)
            counts[i] += inner.counts[i];
        for (size_t i = 0; i < sagas.size(); ++i)
            sagas[i] += inner.sagas[i];
    }
};
using Levels = core::SavepointStack<Counted>;
constinit Levels levels{}; ///< in the memory of the transaction

// ----------------------------------------------------------------------------- transactions

void add_to_file(const Counted &counted) {
    CounterFile &file = *counter_file(); // without it nothing has been counted
    for (size_t i = 0; i < counter_count; ++i)
        if (counted.counts[i] != 0)
            pg_atomic_fetch_add_u64(&file.counters[i], counted.counts[i]);
    add_to_tallies(counted.sagas);
}

/// nullptr where nothing can be counted.
Counted *counting_level() {
    return counter_file() == nullptr ? nullptr
                                     : &levels.at(GetCurrentTransactionNestLevel(),
                                                  pg::make_in_transaction<Levels::Level>);
}

void add_all() {
    levels.each(add_to_file);
}

} // namespace

constinit const pg::TransactionUser counter_events{
    .at_commit = add_all,
    .at_prepare = add_all, // by another process or after a restart, its commit counts nothing
    .at_end = [] { levels.clear(); },
    .at_release = [](const pg::Subtransaction &ended) { levels.release(ended.level); },
    .at_rollback = [](const pg::Subtransaction &ended) { levels.roll_back(ended.level); },
};

void count_event(Counter counter, int64 amount) {
    if (Counted *level = counting_level())
        level->counts[static_cast<size_t>(counter)] += amount;
}

void count_at_once(Counter counter) {
    if (CounterFile *file = counter_file())
        pg_atomic_fetch_add_u64(&file->counters[static_cast<size_t>(counter)], 1);
}

void count_saga(core::Status status, int64 change) {
    if (Counted *level = counting_level())
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
