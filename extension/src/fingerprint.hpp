// Fingerprints of requests and ids made from keys.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// SHA-256 of jsonb in its canonical text, in UTF-8 whatever the server's encoding, as a bytea
/// datum. Neither the order of keys nor white space matters.
Datum fingerprint_of(Datum jsonb);

/// The id of run `run` of the saga with this key, the same on a server of any encoding: a version 8
/// UUID (RFC 9562) from SHA-256, so that one identity is one row and needs no second index.
pg_uuid_t keyed_saga_id(std::string_view saga, std::string_view key, int32 run);

} // namespace stacksaga
