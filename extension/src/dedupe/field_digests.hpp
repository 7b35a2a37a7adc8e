// What is kept of a request beside its fingerprint: a short digest of each top-level field, so that
// a mismatch can say which fields differ. Bounded in size, and never what decides: the fingerprint
// does.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// The digests of a request's fields, from its canonical_text(), as a bytea datum of at most
/// field_digests_bytes_max bytes; fields that do not fit are left out. nullopt when it is no
/// object.
///
/// Format: a byte, 1 when fields were left out, else 0; then for each field a byte with the length
/// of its name, the name's first bytes in UTF-8, and four bytes of MurmurHash3 of its value.
std::optional<Datum> field_digests_of(std::string_view canonical);
inline constexpr size_t field_digests_bytes_max = 512;

/// A sentence for DETAIL: which top-level fields of the request `canonical` differ from those that
/// `digests` was made of. nullopt stands for a request that was NULL or is not an object.
const char *describe_difference(std::optional<Datum> digests,
                                std::optional<std::string_view> canonical);

} // namespace stacksaga
