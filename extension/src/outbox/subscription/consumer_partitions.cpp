#include "src/outbox/subscription/consumer_partitions.hpp"

#include "core/outbox/consumer_share.hpp"
#include "core/outbox/partition.hpp"

#include "src/common/counter_file.hpp"

namespace stacksaga {

namespace {

constexpr int64 counted_us = 30 * USECS_PER_SEC; ///< how long a consumer counts
constexpr int64 asking_us = USECS_PER_SEC;       ///< how long others leave room for it

uint64 key_of(int32 subscription_id, std::string_view consumer) {
    return uint64{static_cast<uint32>(subscription_id)} << 32 | consumer_hash(consumer);
}

int32 subscription_of(uint64 key) {
    return static_cast<int32>(key >> 32);
}

TimestampTz read_time(pg_atomic_uint64 &time) {
    return static_cast<TimestampTz>(pg_atomic_read_u64(&time));
}
void write_time(pg_atomic_uint64 &time, TimestampTz value) {
    pg_atomic_write_u64(&time, static_cast<uint64>(value));
}

bool is_counted(SharedConsumer &place, TimestampTz now) {
    return read_time(place.until) > now - counted_us;
}

/// The place of the consumer, which takes one that no consumer counts for where it has none; all
/// sessions look for it in the same order. nullptr: all are taken.
SharedConsumer *place_of(uint64 key, TimestampTz now, bool takes) {
    CounterFile *file = counter_file();
    if (file == nullptr)
        return nullptr;
    SharedConsumer *free = nullptr;
    for (size_t i = 0; i < file->consumers.size(); ++i) {
        SharedConsumer &place = file->consumers[(key + i) % file->consumers.size()];
        const uint64 owner = pg_atomic_read_u64(&place.key);
        if (owner == key)
            return &place;
        if (free == nullptr && (owner == 0 || !is_counted(place, now)))
            free = &place;
        if (owner == 0)
            break;
    }
    if (free == nullptr || !takes)
        return nullptr;
    uint64 owner = pg_atomic_read_u64(&free->key);
    if (owner != key && (owner != 0 && is_counted(*free, now)))
        return nullptr; // another one was faster: it is looked for again at the next call
    write_time(free->until, now);
    write_time(free->asked, 0);
    if (!pg_atomic_compare_exchange_u64(&free->key, &owner, key) && owner != key)
        return nullptr;
    return free;
}

} // namespace

ConsumerShare ask_for_share(const Subscription &s, std::string_view consumer, TimestampTz now) {
    const uint64 key = key_of(s.id, consumer);
    const ConsumerShare all{.consumer = consumer_hash(consumer),
                            .partitions = core::partitions_max};
    SharedConsumer *own = place_of(key, now, true);
    if (own == nullptr)
        return all;
    write_time(own->asked, now);
    write_time(own->until, std::max(read_time(own->until), now));
    int32 consumers = 1, rank = 0;
    bool has_others = false;
    for (SharedConsumer &place : counter_file()->consumers) {
        const uint64 other = pg_atomic_read_u64(&place.key);
        if (other == key || subscription_of(other) != s.id || !is_counted(place, now))
            continue;
        ++consumers;
        rank += &place < own ? 1 : 0;
        const TimestampTz asked = read_time(place.asked);
        has_others = has_others || (asked > now - asking_us && asked <= now + asking_us);
    }
    if (!has_others)
        return all;
    return {.consumer = all.consumer,
            .partitions = core::share_of_consumer(s.partitions, consumers, rank)};
}

void note_held(int32 subscription_id, std::string_view consumer, TimestampTz until) {
    SharedConsumer *own = place_of(key_of(subscription_id, consumer), until, false);
    if (own != nullptr)
        write_time(own->until, std::max(read_time(own->until), until));
}

void note_answered(int32 subscription_id, std::string_view consumer, TimestampTz lease_until,
                   TimestampTz now) {
    SharedConsumer *own = place_of(key_of(subscription_id, consumer), now, false);
    // Another batch may be held for longer.
    if (own != nullptr && read_time(own->until) == lease_until)
        write_time(own->until, std::min(lease_until, now));
}

} // namespace stacksaga
