// Fingerprints of requests and ids made from keys.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// What a fingerprint is the hash of: jsonb as text, in UTF-8 whatever the server's encoding.
/// Neither the order of keys nor white space matters.
std::string_view canonical_text(Datum jsonb);

/// The algorithm of fingerprints, stored beside those that outlive a version of the extension:
/// 1 is SHA-256 of canonical_text().
inline constexpr int16 fingerprint_version = 1;

/// The fingerprint of a canonical text, as a bytea datum.
Datum fingerprint_of_text(std::string_view canonical);

/// The fingerprint of jsonb, as a bytea datum.
Datum fingerprint_of(Datum jsonb);

/// The id of run `run` of the saga with this key, the same on a server of any encoding: a version 8
/// UUID (RFC 9562) from SHA-256, so that one identity is one row and needs no second index.
pg_uuid_t keyed_saga_id(std::string_view saga, std::string_view key, int32 run);

} // namespace stacksaga
