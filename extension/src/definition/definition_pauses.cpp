#include "src/definition/definition_pauses.hpp"

#include "core/ring/murmur3.hpp"

#include "pg/citus/citus.hpp"
#include "pg/compat.hpp"
#include "pg/lock.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "pg/table/relation_change.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

namespace {

enum class PauseColumn : uint8_t { saga, paused_at, paused_until };
constinit pg::Select<PauseColumn> select_pauses{
    "SELECT saga, paused_at, coalesce(paused_until, 'infinity') AS paused_until"
    "  FROM stacksaga.definition_pause",
    pg::Plans::by_statistics};

struct KnownPauses {
    uint64 state = 0; ///< of the relations, when they were read
    LocalTransactionId read_in = InvalidLocalTransactionId;
    MemoryContext memory = nullptr;
    std::span<const DefinitionPause> list{};
};
constinit KnownPauses known{};

/// On Citus a change on another node announces nothing here.
bool is_outdated(uint64 state) {
    return known.state != state ||
           (pg::is_citus_loaded() && known.read_in != pg::local_transaction_id());
}

std::span<const DefinitionPause> read_pauses() {
    const auto rows = select_pauses.run();
    const auto count = static_cast<size_t>(rows.count());
    auto *list = static_cast<DefinitionPause *>(
        palloc(sizeof(DefinitionPause) * std::max<size_t>(1, count)));
    for (size_t i = 0; i < count; ++i) {
        const std::string_view saga = rows.text(i, PauseColumn::saga);
        list[i] = {.saga = {pnstrdup(saga.data(), saga.size()), saga.size()},
                   .since = rows.time(i, PauseColumn::paused_at),
                   .until = rows.time(i, PauseColumn::paused_until)};
    }
    return {list, count};
}

uint64 lock_number(std::string_view saga) {
    return core::murmur3_x64_128(saga, 0).h1;
}

bool lock(std::string_view saga, LOCKMODE mode, bool wait) {
    const uint64 number = lock_number(saga);
    return pg::lock(pg::LockClass::saga_pause, static_cast<uint32>(number >> 32),
                    static_cast<uint32>(number), mode, wait);
}

} // namespace

std::span<const DefinitionPause> definition_pauses() {
    const uint64 state = pg::relations_state();
    if (!is_outdated(state))
        return known.list;
    known.state = 0;
    MemoryContext memory =
        AllocSetContextCreate(CurrentMemoryContext, "stacksaga pauses", ALLOCSET_SMALL_SIZES);
    const std::span<const DefinitionPause> list = pg::in_context(memory, read_pauses);
    MemoryContextSetParent(memory, CacheMemoryContext);
    if (known.memory != nullptr)
        MemoryContextDelete(known.memory);
    known = {.state = state, .read_in = pg::local_transaction_id(), .memory = memory, .list = list};
    return list;
}

const DefinitionPause *find_pause(std::string_view saga, TimestampTz now) {
    for (const DefinitionPause &pause : definition_pauses())
        if (pause.saga == saga)
            return pause.is_over(now) ? nullptr : &pause;
    return nullptr;
}

bool may_hold_back(std::string_view saga, TimestampTz now) {
    if (find_pause(saga, now) == nullptr)
        return false;
    // The lock is refused only while its holder removes the row of an earlier pause.
    if (!lock(saga, ShareLock, false))
        (void)lock(saga, ShareLock, true);
    return find_pause(saga, now) != nullptr;
}

TimestampTz next_end_of_pause(TimestampTz now) {
    TimestampTz next = DT_NOEND;
    for (const DefinitionPause &pause : definition_pauses())
        if (!pause.is_over(now))
            next = std::min(next, pause.until);
    return next;
}

void announce_pauses() {
    pg::announce_change("definition_pause");
}

bool lock_end_of_pause(std::string_view saga) {
    return lock(saga, ExclusiveLock, false);
}

} // namespace stacksaga
