#include "pg/random.hpp"

#include "pg/compat.hpp"

namespace stacksaga::pg {

double random_fraction() {
    return pseudo_random_fraction();
}

namespace {

/// Strong random bytes in stock, each given out once: asking for eight costs as much as asking for
/// all, some thousand instructions. A child process must not give out what its parent has.
struct Stock {
    std::array<unsigned char, 512> bytes;
    size_t left;
    int owner;
};
constinit Stock stock{};

void take_random_bytes(void *target, size_t size) {
    if (stock.left < size || stock.owner != MyProcPid) {
        if (!pg_strong_random(stock.bytes.data(), stock.bytes.size()))
            ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not get random bytes")));
        stock.left = stock.bytes.size();
        stock.owner = MyProcPid;
    }
    stock.left -= size;
    memcpy(target, stock.bytes.data() + stock.left, size);
}

} // namespace

uint64 random_bits() {
    uint64 bits;
    take_random_bytes(&bits, sizeof(bits));
    return bits;
}

pg_uuid_t make_uuid_v7(TimestampTz now) {
    pg_uuid_t uuid;
    take_random_bytes(uuid.data, UUID_LEN);
    constexpr int64 epoch_offset_ms =
        int64{POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE} * SECS_PER_DAY * 1000;
    uint64 ms = static_cast<uint64>(now / 1000 + epoch_offset_ms);
    for (int i = 0; i < 6; ++i)
        uuid.data[i] = static_cast<unsigned char>(ms >> (40 - 8 * i));
    uuid.data[6] = static_cast<unsigned char>((uuid.data[6] & 0x0f) | 0x70);
    uuid.data[8] = static_cast<unsigned char>((uuid.data[8] & 0x3f) | 0x80);
    return uuid;
}

} // namespace stacksaga::pg
