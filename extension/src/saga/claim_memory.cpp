#include "src/saga/claim_memory.hpp"

#include "core/murmur3.hpp"

#include "pg/random.hpp"

namespace stacksaga {

TimestampTz QueueProbe::begin(TimestampTz now) {
    is_searching_ = true;
    is_announced_ = false;
    if (memory_.is_full_due(now)) {
        const std::optional<FullProbe> shared = shared_probe(key_);
        if (shared && shared->is_recent(now)) {
            memory_.adopt(*shared);
        } else if (shared && shared->at <= now) { // else the clock was set back
            // One session reads it all, and the others need not wait for what it finds.
            share_probe(key_, {now, shared->first_left, shared->interval_us});
            is_announced_ = true;
            memory_.expect_dear();
        }
    }
    const TimestampTz from = memory_.begin(now);
    is_timed_ = memory_.is_full() && memory_.may_become_dear();
    if (is_timed_)
        processor_at_ = pg::processor_now();
    return from;
}

void QueueProbe::note_row(TimestampTz now) {
    if (!is_searching_)
        return;
    is_searching_ = false;
    // By the clock it may be dear because others had the processor. That is no reason for all.
    is_dear_ = is_timed_ && pg::processor_now() - processor_at_ >= cheap_probe_us;
    memory_.end(now);
}

void QueueProbe::end(TimestampTz now, TimestampTz first_left) {
    note_row(now);
    memory_.settle_at(now, first_left);
    if (is_dear_ && memory_.is_dear())
        share_probe(key_, memory_.last_full());
    else if (is_announced_)
        forget_shared_probe(key_);
}

QueueMemory &memory_of(int32 ring_id, std::string_view queue) {
    static constinit std::array<QueueMemory, 16> places{};
    const uint64 key = core::murmur3_x64_128(queue, static_cast<uint32>(ring_id)).h1;
    QueueMemory &place = places[key % places.size()];
    if (place.key != key)
        place = QueueMemory(key, core::LowerRankTurn(pg::random_fraction()));
    return place;
}

} // namespace stacksaga
