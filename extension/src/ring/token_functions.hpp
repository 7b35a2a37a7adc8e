// Tokens of texts, for every function that touches a ring table.
#pragma once
#include "core/ring/token.hpp"

#include "pg/pg.hpp"

namespace stacksaga {

/// `text`, which is in the server's encoding, in UTF-8: itself, or a copy in the current memory
/// context. 22021 when a SQL_ASCII server holds something else than UTF-8 in it.
std::string_view utf8_of_text(std::string_view text);

/// The token of a text key, the same on a server of any encoding.
inline core::Token token_of_text(std::string_view text) {
    return core::cassandra_token(utf8_of_text(text));
}

inline core::Token token_of_uuid(const pg_uuid_t &uuid) {
    return core::token_of_uuid(std::span<const unsigned char, UUID_LEN>(uuid.data));
}

} // namespace stacksaga
