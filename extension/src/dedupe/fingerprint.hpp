// Fingerprints of requests and ids made from keys.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// The algorithms of fingerprints, stored beside those that outlive a version of the extension:
/// 1 is fingerprint_as_printed(), 2 fingerprint_of(). They differ where a number ends with zeros
/// behind its point.
inline constexpr int16 fingerprint_version_printed = 1, fingerprint_version = 2;

/// The fingerprint of jsonb, as a bytea datum: SHA-256 of its text in UTF-8, whatever the server's
/// encoding, with the shortest text of each number. What jsonb calls equal has the same one:
/// neither the order of keys nor white space matters, and 10.0 is 10.
Datum fingerprint_of(Datum jsonb);

/// The same of its numbers as they are printed.
Datum fingerprint_as_printed(Datum jsonb);

/// A version 8 UUID (RFC 9562) from the SHA-256 of a text.
pg_uuid_t uuid_of_text(std::string_view text);

/// The id of run `run` of the saga with this key, the same on a server of any encoding: a version 8
/// UUID (RFC 9562) from SHA-256, so that one identity is one row and needs no second index.
pg_uuid_t keyed_saga_id(std::string_view saga, std::string_view key, int32 run);

} // namespace stacksaga
