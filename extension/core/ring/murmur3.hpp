// MurmurHash3 by Austin Appleby (public domain): the 128-bit hash for 64-bit machines, the 32-bit
// hash, and Cassandra's variant of the first. Source of the algorithm: aappleby/smhasher,
// src/MurmurHash3.cpp (MurmurHash3_x64_128, MurmurHash3_x86_32).
//
// Bytes are read as little-endian on every machine, so a result never depends on the hardware.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace stacksaga::core {

/// The two halves of a 128-bit hash, in the order in which the reference writes them.
struct Hash128 {
    std::uint64_t h1;
    std::uint64_t h2;
    friend constexpr bool operator==(const Hash128 &, const Hash128 &) = default;
};

namespace murmur3 {

/// How the bytes behind the last whole block (the tail) become 64-bit values.
enum class Tail {
    zero_extended, ///< the reference: a byte is 0..255
    sign_extended, ///< Cassandra: a byte is Java's, -128..127, and its sign fills the bits above
};

constexpr std::uint64_t byte_at(std::string_view bytes, std::size_t at) {
    return static_cast<std::uint8_t>(bytes[at]);
}

/// The bytes from `at` on as a little-endian number, as many as Word has.
template <class Word> constexpr Word load(std::string_view bytes, std::size_t at) {
    Word value = 0;
    if (!std::is_constant_evaluated() && std::endian::native == std::endian::little) {
        std::memcpy(&value, bytes.data() + at, sizeof value); // one load, whatever the alignment
        return value;
    }
    for (std::size_t i = 0; i < sizeof value; ++i)
        value |= static_cast<Word>(byte_at(bytes, at + i) << (8 * i));
    return value;
}

/// The finaliser: every bit of `k` reaches every bit of the result; one-to-one.
constexpr std::uint64_t mix64(std::uint64_t k) {
    k ^= k >> 33;
    k *= 0xff51afd7ed558ccdULL;
    k ^= k >> 33;
    k *= 0xc4ceb9fe1a85ec53ULL;
    k ^= k >> 33;
    return k;
}

constexpr std::uint32_t mix32(std::uint32_t h) {
    h ^= h >> 16;
    h *= 0x85ebca6bU;
    h ^= h >> 13;
    h *= 0xc2b2ae35U;
    h ^= h >> 16;
    return h;
}

constexpr std::uint64_t scramble_k1(std::uint64_t k1) {
    return std::rotl(k1 * 0x87c37b91114253d5ULL, 31) * 0x4cf5ad432745937fULL;
}

constexpr std::uint64_t scramble_k2(std::uint64_t k2) {
    return std::rotl(k2 * 0x4cf5ad432745937fULL, 33) * 0x87c37b91114253d5ULL;
}

constexpr std::uint32_t scramble_k32(std::uint32_t k) {
    return std::rotl(k * 0xcc9e2d51U, 15) * 0x1b873593U;
}

/// The tail bytes [from, to), at most eight, joined by XOR: a negative byte of Cassandra's variant
/// flips all the bits above its own eight.
constexpr std::uint64_t tail64(std::string_view bytes, std::size_t from, std::size_t to,
                               Tail tail) {
    std::uint64_t k = 0;
    for (std::size_t i = from; i < to; ++i) {
        std::uint64_t value = byte_at(bytes, i);
        if (tail == Tail::sign_extended && value >= 0x80)
            value |= ~std::uint64_t{0xff};
        k ^= value << (8 * (i - from));
    }
    return k;
}

constexpr Hash128 x64_128(std::string_view bytes, std::uint32_t seed, Tail tail) {
    const std::size_t size = bytes.size();
    const std::size_t blocks_end = size - size % 16;
    std::uint64_t h1 = seed;
    std::uint64_t h2 = seed;
    for (std::size_t at = 0; at < blocks_end; at += 16) {
        h1 ^= scramble_k1(load<std::uint64_t>(bytes, at));
        h1 = (std::rotl(h1, 27) + h2) * 5 + 0x52dce729U;
        h2 ^= scramble_k2(load<std::uint64_t>(bytes, at + 8));
        h2 = (std::rotl(h2, 31) + h1) * 5 + 0x38495ab5U;
    }
    const std::size_t middle = size - blocks_end > 8 ? blocks_end + 8 : size;
    h2 ^= scramble_k2(tail64(bytes, middle, size, tail));
    h1 ^= scramble_k1(tail64(bytes, blocks_end, middle, tail));

    h1 ^= size;
    h2 ^= size;
    h1 += h2;
    h2 += h1;
    h1 = mix64(h1);
    h2 = mix64(h2);
    h1 += h2;
    h2 += h1;
    return {h1, h2};
}

} // namespace murmur3

/// MurmurHash3_x64_128 of the reference.
constexpr Hash128 murmur3_x64_128(std::string_view bytes, std::uint32_t seed = 0) {
    return murmur3::x64_128(bytes, seed, murmur3::Tail::zero_extended);
}

/// The hash of Cassandra's Murmur3Partitioner, not yet normalised to a token: as the reference's
/// with seed 0, except that tail bytes from 0x80 on are sign-extended. "Fixing" that would give
/// other tokens than Cassandra, Scylla and their drivers (their MurmurHash.hash3_x64_128,
/// dht/murmur3_partitioner.cc, internal/murmur).
constexpr Hash128 murmur3_cassandra(std::string_view bytes) {
    return murmur3::x64_128(bytes, 0, murmur3::Tail::sign_extended);
}

/// MurmurHash3_x86_32 of the reference. The size enters it modulo 2^32.
constexpr std::uint32_t murmur3_x86_32(std::string_view bytes, std::uint32_t seed = 0) {
    const std::size_t size = bytes.size();
    const std::size_t blocks_end = size - size % 4;
    std::uint32_t h = seed;
    for (std::size_t at = 0; at < blocks_end; at += 4) {
        h ^= murmur3::scramble_k32(murmur3::load<std::uint32_t>(bytes, at));
        h = std::rotl(h, 13) * 5 + 0xe6546b64U;
    }
    const std::uint64_t tail =
        murmur3::tail64(bytes, blocks_end, size, murmur3::Tail::zero_extended);
    h ^= murmur3::scramble_k32(static_cast<std::uint32_t>(tail));
    return murmur3::mix32(h ^ static_cast<std::uint32_t>(size));
}

} // namespace stacksaga::core
