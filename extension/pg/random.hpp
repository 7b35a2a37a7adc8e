// Random numbers: fast ones for jitter, strong ones for what must not be guessed.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// At least 0 and less than 1; not for secrets.
double random_fraction();

/// Cryptographically strong.
uint64 random_bits();

/// A version 7 UUID: milliseconds since the Unix epoch, then strong random bits (RFC 9562).
pg_uuid_t make_uuid_v7(TimestampTz now);

} // namespace stacksaga::pg
