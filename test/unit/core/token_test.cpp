// Tokens: their order, their place on the ring, and the two special hashes.
#include "core/ring/token.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>

namespace stacksaga::core {
namespace {

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

TEST(Token, IsItsNumber) {
    for (std::int64_t value : {lowest, lowest + 1, std::int64_t{-1}, std::int64_t{0}, highest})
        EXPECT_EQ(Token::from_int64(value).value(), value);
    EXPECT_EQ(Token::first_of_ring().value(), lowest);
    EXPECT_EQ(Token::last_of_ring().value(), highest);
    EXPECT_LT(Token::from_int64(-1), Token::from_int64(0));
    EXPECT_LT(Token::first_of_ring(), Token::last_of_ring());
}

TEST(Token, PositionsKeepTheOrder) {
    EXPECT_EQ(Token::first_of_ring().position(), 0U);
    EXPECT_EQ(Token::from_int64(-1).position(), 0x7fffffffffffffffU);
    EXPECT_EQ(Token::from_int64(0).position(), 0x8000000000000000U);
    EXPECT_EQ(Token::last_of_ring().position(), 0xffffffffffffffffU);
    std::mt19937_64 random(1);
    for (int i = 0; i < 1000; ++i) {
        const auto a = Token::from_position(random()), b = Token::from_position(random());
        EXPECT_EQ(Token::from_position(a.position()), a);
        EXPECT_EQ(a < b, a.position() < b.position());
    }
}

TEST(Token, OfTheEmptyKeyIsZero) {
    EXPECT_EQ(cassandra_token("").value(), 0);
}

/// The key of 16 bytes whose hash has these halves: the hash is one-to-one on one block.
std::string key_with_hash(std::uint64_t h1, std::uint64_t h2) {
    const auto inverse = [](std::uint64_t odd) {
        std::uint64_t result = odd; // Newton: each round doubles the bits that are right
        for (int i = 0; i < 6; ++i)
            result *= 2 - odd * result;
        return result;
    };
    const auto unmix = [&](std::uint64_t k) {
        k ^= k >> 33;
        k *= inverse(0xc4ceb9fe1a85ec53ULL);
        k ^= k >> 33;
        k *= inverse(0xff51afd7ed558ccdULL);
        return k ^ k >> 33;
    };
    h2 -= h1;
    h1 -= h2;
    h1 = unmix(h1);
    h2 = unmix(h2);
    h2 -= h1;
    h1 -= h2;
    h1 ^= 16;
    h2 ^= 16;
    const std::uint64_t c1 = 0x87c37b91114253d5ULL, c2 = 0x4cf5ad432745937fULL;
    const std::uint64_t fifth = inverse(5);
    std::uint64_t k2 = std::rotr((h2 - 0x38495ab5U) * fifth - h1, 31);
    std::uint64_t k1 = std::rotr((h1 - 0x52dce729U) * fifth, 27);
    k1 = std::rotr(k1 * inverse(c2), 31) * inverse(c1);
    k2 = std::rotr(k2 * inverse(c1), 33) * inverse(c2);
    std::string key;
    for (std::uint64_t half : {k1, k2})
        for (int i = 0; i < 8; ++i)
            key.push_back(static_cast<char>(half >> (8 * i)));
    return key;
}

TEST(Token, OfTheLowestHashIsTheHighest) {
    const std::string key = key_with_hash(std::uint64_t{1} << 63, 42);
    ASSERT_EQ(murmur3_cassandra(key), (Hash128{std::uint64_t{1} << 63, 42}));
    EXPECT_EQ(cassandra_token(key).value(), highest);
    const std::string above = key_with_hash((std::uint64_t{1} << 63) + 1, 42);
    EXPECT_EQ(cassandra_token(above).value(), lowest + 1);
}

TEST(Token, OfAUuidIsThatOfItsBytes) {
    // datastax/cpp-driver tests/src/unit/tests/test_routing_key.cpp
    const std::array<unsigned char, 16> uuid = {0xd8, 0x77, 0x5a, 0x70, 0x6e, 0xa4, 0x11, 0xe4,
                                                0x9f, 0xa7, 0x0d, 0xb2, 0x2d, 0x2a, 0x61, 0x40};
    EXPECT_EQ(token_of_uuid(uuid).value(), 6739078495667776670);
}

TEST(Token, HashesAreItsTopHalf) {
    EXPECT_EQ(top_half(Token::first_of_ring()), std::numeric_limits<std::int32_t>::min());
    EXPECT_EQ(top_half(Token::from_int64(-1)), -1);
    EXPECT_EQ(top_half(Token::from_int64(0x12345678'9abcdef0)), 0x12345678);
    EXPECT_EQ(top_half(Token::last_of_ring()), std::numeric_limits<std::int32_t>::max());
    std::mt19937_64 random(2);
    for (int i = 0; i < 1000; ++i) {
        const auto token = Token::from_position(random());
        EXPECT_EQ(static_cast<std::int32_t>(seeded_hash(token, 0)), top_half(token));
        EXPECT_NE(seeded_hash(token, 1), seeded_hash(token, 2));
    }
}

TEST(Token, IsKnownAtCompileTime) {
    static_assert(cassandra_token("0").value() == 3083240331115144064);
    static_assert(murmur3_x86_32("", 1) == 0x514E28B7);
}

} // namespace
} // namespace stacksaga::core
