#include "src/common/shared_probe.hpp"

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

} // namespace stacksaga
