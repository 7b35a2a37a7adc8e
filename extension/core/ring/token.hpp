// A token: the place of a key on the ring of 2^64 places, [-2^63, 2^63-1]. It is the token of
// Cassandra's Murmur3Partitioner, so that every language with a Cassandra driver can compute it.
#pragma once

#include "core/ring/murmur3.hpp"

#include <compare>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace stacksaga::core {

class Token {
public:
    /// Any 64-bit value is a place on the ring.
    static constexpr Token from_int64(std::int64_t value) { return Token{value}; }

    /// The place `position` steps behind the ring's first, 0..2^64-1.
    static constexpr Token from_position(std::uint64_t position) {
        return Token{static_cast<std::int64_t>(position ^ sign_bit)};
    }

    static constexpr Token first_of_ring() {
        return Token{std::numeric_limits<std::int64_t>::min()};
    }
    static constexpr Token last_of_ring() {
        return Token{std::numeric_limits<std::int64_t>::max()};
    }

    constexpr std::int64_t value() const { return value_; }

    /// Steps from the ring's first place: unsigned, so that sums and shifts are safe.
    constexpr std::uint64_t position() const {
        return static_cast<std::uint64_t>(value_) ^ sign_bit;
    }

    friend constexpr auto operator<=>(const Token &, const Token &) = default;

private:
    static constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63;

    constexpr explicit Token(std::int64_t value) : value_(value) {}

    std::int64_t value_;
};

/// The token of a key's bytes (of a text: its UTF-8). The hash value -2^63 becomes 2^63-1, since
/// Cassandra keeps -2^63 for "before everything"; so no key's token is the ring's first place.
/// The empty key's token is 0, as Scylla and the drivers have it (Cassandra's server: -2^63).
constexpr Token cassandra_token(std::string_view bytes) {
    const auto hash = static_cast<std::int64_t>(murmur3_cassandra(bytes).h1);
    const Token token = Token::from_int64(hash);
    return token == Token::first_of_ring() ? Token::last_of_ring() : token;
}

/// The token of a uuid: of its 16 bytes in the order in which they are written (RFC 9562).
constexpr Token token_of_uuid(std::span<const unsigned char, 16> uuid) {
    char bytes[16] = {};
    for (std::size_t i = 0; i < uuid.size(); ++i)
        bytes[i] = static_cast<char>(uuid[i]);
    return cassandra_token({bytes, sizeof bytes});
}

/// The top half of a token: the hash of type ring_token, so that hash shards are contiguous ranges
/// of the ring.
constexpr std::int32_t top_half(Token token) {
    return static_cast<std::int32_t>(token.value() >> 32);
}

/// A 64-bit hash of the token for any `seed`; with seed 0 its low half is top_half(), as
/// PostgreSQL asks of a type's two hash functions.
constexpr std::uint64_t seeded_hash(Token token, std::uint64_t seed) {
    const std::uint64_t swapped = std::rotl(static_cast<std::uint64_t>(token.value()), 32);
    return seed == 0 ? swapped : murmur3::mix64(swapped ^ seed);
}

} // namespace stacksaga::core
