#include "src/common/counters.hpp"

#include "pg/function.hpp"
#include "pg/result.hpp"

namespace stacksaga {

namespace {

static_assert(std::ranges::is_sorted(counter_names, {}, &CounterName::counter));

using Counts = std::array<int64, counter_count>;

/// What the file holds; it may be longer.
using File = std::array<pg_atomic_uint64, counter_count>;
constexpr off_t file_size = 4096;
static_assert(sizeof(File) <= file_size);

/// What one level of subtransactions has counted.
struct Level {
    Level *outer;
    int32 level;
    Counts counts;
};
static_assert(std::is_trivially_destructible_v<Level>);

constinit File *file = nullptr;
constinit bool is_file_refused = false;
constinit bool is_registered = false;
constinit Level *innermost = nullptr; ///< in the memory of the transaction

// ----------------------------------------------------------------------------- the file

/// Its blocks are allocated first: touching a hole of a full disk would be SIGBUS. What another
/// process has counted already stays.
File *map_file(int descriptor) {
    errno = posix_fallocate(descriptor, 0, file_size);
    if (errno != 0)
        return nullptr;
    void *memory = mmap(nullptr, file_size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<File *>(memory);
}

/// Worker numbers, the last part of the names of other files there, begin at 1.
bool open_file() {
    if (file != nullptr || is_file_refused)
        return file != nullptr;
    std::array<char, MAXPGPATH> path{};
    snprintf(path.data(), path.size(), "%s/stacksaga.%u.0", PG_STAT_TMP_DIR, MyDatabaseId);
    const int descriptor = OpenTransientFile(path.data(), O_RDWR | O_CREAT | PG_BINARY);
    if (descriptor >= 0)
        file = map_file(descriptor);
    is_file_refused = file == nullptr;
    if (is_file_refused)
        ereport(LOG,
                (errcode_for_file_access(), errmsg("could not open file \"%s\": %m", path.data()),
                 errdetail("This process counts nothing for stacksaga.metrics().")));
    if (descriptor >= 0)
        CloseTransientFile(descriptor);
    return file != nullptr;
}

// ----------------------------------------------------------------------------- transactions

void add_to_file(const Counts &counts) {
    for (size_t i = 0; i < counter_count; ++i)
        if (counts[i] != 0)
            pg_atomic_fetch_add_u64(&(*file)[i], counts[i]);
}

/// At the end of a transaction every level but the outermost has been merged or dropped.
void at_transaction_end(XactEvent event, void *) {
    switch (event) {
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_PREPARE: // by another process or after a restart, its commit counts nothing
        if (innermost != nullptr)
            add_to_file(innermost->counts);
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

} // namespace

void count_event(Counter counter, int64 amount) {
    if (!open_file())
        return;
    register_callbacks();
    current_level().counts[static_cast<size_t>(counter)] += amount;
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
    if (!open_file())
        return result.finish();
    for (const CounterName &c : counter_names) {
        const uint64 value = pg_atomic_read_u64(&(*file)[static_cast<size_t>(c.counter)]);
        result.add(pg::of(PointerGetDatum(pg::make_text(c.name))),
                   pg::of(DirectFunctionCall1(jsonb_in, CStringGetDatum(c.labels.data()))),
                   pg::of(Float8GetDatum(static_cast<double>(value))));
    }
    return result.finish();
}

} // namespace stacksaga
