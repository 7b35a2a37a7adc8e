#include "src/outbox/log/message_waiters.hpp"

#include "core/ring/murmur3.hpp"

#include "pg/clock.hpp"
#include "src/common/counter_file.hpp"
#include "src/common/waiting.hpp"

namespace stacksaga {

namespace {

/// Stands for all wildcards, whatever they begin with.
constexpr size_t any_topic = message_waits;
constexpr uint32 place_bits = 16;
static_assert(any_topic < 1U << place_bits);

/// The places of the topics of this transaction's messages.
constexpr size_t word_bits = 64;
constinit std::array<uint64, message_waits / word_bits> topics{};
constinit bool has_topics = false;

size_t place_of(int32 ring_id, std::string_view topic) {
    return hash_bytes_extended(reinterpret_cast<const unsigned char *>(topic.data()),
                               static_cast<int>(topic.size()), static_cast<uint64>(ring_id)) %
           message_waits;
}

size_t place_of(const Subscription &s) {
    return s.filter.is_prefix ? any_topic : place_of(s.ring_id, s.filter.topic);
}

/// The partition of the lock table with the lines of a place.
int partition_of_place(size_t place) {
    return static_cast<int>(place % NUM_LOCK_PARTITIONS);
}

bool is_waited_for(size_t place) {
    CounterFile *file = counter_file();
    if (file == nullptr)
        return true;
    // The clock begins again when the machine does; the file stays.
    const int64 now = pg::steady_now();
    const auto until = static_cast<int64>(pg_atomic_read_u64(&file->messages_waited_for[place]));
    return until > now && until <= now + wait_max_us;
}

void wake_place(size_t place) {
    if (is_waited_for(place))
        wake_lines(
            pg::LockClass::messages, partition_of_place(place),
            [](uint32 first, uint32 of) { return (first & ((1U << place_bits) - 1)) == of; },
            static_cast<uint32>(place));
}

/// The messages are visible, and the waiters' instants are read after that. A waiter writes its
/// instant and takes its place, and then looks: one of the two sees the other.
void wake_for_topics() {
    if (!has_topics)
        return;
    pg_memory_barrier();
    for (size_t i = 0; i < topics.size(); ++i)
        for (uint64 left = topics[i]; left != 0; left &= left - 1)
            wake_place(i * word_bits + static_cast<size_t>(std::countr_zero(left)));
    wake_place(any_topic);
}

} // namespace

/// A waiter that looks after PREPARE sees that a transaction is prepared, and looks again until it
/// has ended.
constinit const pg::TransactionUser message_waiter_events{
    .at_commit = wake_for_topics,
    .at_prepare = wake_for_topics,
    .at_end =
        [] {
            if (has_topics)
                topics = {};
            has_topics = false;
        },
};

void wake_receivers_of_topic(int32 ring_id, std::string_view topic) {
    (void)counter_file(); // maps it, which cannot be done after the commit
    const size_t place = place_of(ring_id, topic);
    topics[place / word_bits] |= uint64{1} << place % word_bits;
    has_topics = true;
}

void wake_receivers_at_commit(const Subscription &s) {
    if (!s.handler)
        wake_waiters_at_commit(line_of(s));
}

/// A number beside the place leads into the partition of the place.
WaitingLine line_of(const Subscription &s) {
    const size_t place = place_of(s);
    WaitingLine line{.lock_class = pg::LockClass::messages,
                     .first = static_cast<uint32>(place),
                     .second = static_cast<uint32>(s.id)};
    while (partition_of(line) != partition_of_place(place))
        line.first += 1U << place_bits;
    return line;
}

ClaimPlace claims_of(const Subscription &s) {
    constexpr uint32 seed = 0x4d455353; // not that of a queue
    const std::string_view id{reinterpret_cast<const char *>(&s.id), sizeof s.id};
    return {.hash = core::murmur3_x64_128(id, seed).h1, .watch_us = 2000, .hurry = 8};
}

void announce_waiting(const Subscription &s, int64 until) {
    CounterFile *file = counter_file();
    if (file == nullptr)
        return;
    pg_atomic_uint64 &instant = file->messages_waited_for[place_of(s)];
    uint64 known = pg_atomic_read_u64(&instant);
    const auto wanted = static_cast<uint64>(until);
    // What lies farther away than anybody waits was written before the machine began again.
    const auto latest = static_cast<uint64>(pg::steady_now() + wait_max_us);
    while ((known < wanted || known > latest) &&
           !pg_atomic_compare_exchange_u64(&instant, &known, wanted))
        ;
    pg_memory_barrier();
}

bool is_waited_for(const Subscription &s) {
    return is_waited_for(place_of(s));
}

} // namespace stacksaga
