#include "src/common/probe.hpp"

#include "core/work/commit_horizon.hpp"

#include "src/common/counter_file.hpp"

namespace stacksaga {

namespace {

SharedProbe *place_of(uint64 key) {
    CounterFile *file = counter_file();
    return file == nullptr ? nullptr : &file->probes[key % file->probes.size()];
}

/// Of the key too, so that another one's place is not taken for it. An empty place has none.
uint64 checksum(uint64 key, const FullProbe &probe) {
    return key ^ std::rotl(static_cast<uint64>(probe.at), 1) ^
           std::rotl(static_cast<uint64>(probe.first_left), 23) ^
           std::rotl(static_cast<uint64>(probe.interval_us), 43);
}

int64 read(pg_atomic_uint64 &value) {
    return static_cast<int64>(pg_atomic_read_u64(&value));
}

void write(pg_atomic_uint64 &value, int64 written) {
    pg_atomic_write_u64(&value, static_cast<uint64>(written));
}

} // namespace

std::optional<FullProbe> shared_probe(uint64 key) {
    SharedProbe *place = place_of(key);
    if (place == nullptr)
        return std::nullopt;
    const FullProbe probe{.at = read(place->at),
                          .first_left = read(place->first_left),
                          .interval_us = read(place->interval_us)};
    if (pg_atomic_read_u64(&place->checksum) != checksum(key, probe))
        return std::nullopt;
    return probe;
}

void share_probe(uint64 key, const FullProbe &probe) {
    SharedProbe *place = place_of(key);
    if (place == nullptr)
        return;
    write(place->at, probe.at);
    write(place->first_left, probe.first_left);
    write(place->interval_us, probe.interval_us);
    pg_atomic_write_u64(&place->checksum, checksum(key, probe));
}

void forget_shared_probe(uint64 key) {
    if (SharedProbe *place = place_of(key); place != nullptr && shared_probe(key))
        pg_atomic_write_u64(&place->checksum, 0);
}

TimestampTz SessionProbe::begin(TimestampTz now) {
    is_searching_ = true;
    is_announced_ = false;
    if (std::exchange(is_full_demanded_, false))
        memory_.demand_full();
    else if (memory_.is_full_due(now))
        ask_others(now);
    const TimestampTz from = memory_.begin(now);
    is_timed_ = memory_.is_full() && memory_.may_become_slow();
    if (is_timed_)
        processor_at_ = pg::processor_now();
    return from;
}

void SessionProbe::ask_others(TimestampTz now) {
    const std::optional<FullProbe> shared = shared_probe(key_);
    if (shared && shared->is_recent(now)) {
        memory_.adopt(*shared);
    } else if (shared && shared->at <= now) { // else the clock was set back
        // One session reads it all, and the others need not wait for what it finds.
        share_probe(key_, {now, shared->first_left, shared->interval_us});
        is_announced_ = true;
        memory_.expect_slow();
    }
}

void SessionProbe::note_row(TimestampTz now) {
    if (!is_searching_)
        return;
    is_searching_ = false;
    // By the clock it may be slow because others had the processor. That is no reason for all.
    is_slow_ = is_timed_ && pg::processor_now() - processor_at_ >= memory_.cheap_us();
    memory_.end(now);
}

void SessionProbe::end(TimestampTz now, TimestampTz first_left, core::SeenTransactions seen) {
    note_row(now);
    memory_.settle_at(now, first_left, seen);
    if (is_slow_ && memory_.is_slow())
        share_probe(key_, memory_.last_full());
    else if (is_announced_)
        forget_shared_probe(key_);
}

} // namespace stacksaga
