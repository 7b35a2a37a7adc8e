#include "pg/random.hpp"

namespace stacksaga::pg {

double random_fraction() {
#if PG_VERSION_NUM >= 150000 // 15 replaced random()
    return pg_prng_double(&pg_global_prng_state);
#else
    return static_cast<double>(random()) / (static_cast<double>(MAX_RANDOM_VALUE) + 1);
#endif
}

uint64 random_bits() {
    uint64 bits;
    if (!pg_strong_random(&bits, sizeof(bits)))
        ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not get random bytes")));
    return bits;
}

pg_uuid_t make_uuid_v7(TimestampTz now) {
    pg_uuid_t uuid;
    if (!pg_strong_random(uuid.data, UUID_LEN))
        ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not get random bytes")));
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
