// The hashes against what others have published.
#include "core/ring/murmur3.hpp"
#include "core/ring/token.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace stacksaga::core {
namespace {

struct Vector {
    std::string function;
    std::string input;
    std::string expected;
};

std::string bytes_of_hex(const std::string &hex) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return bytes;
}

std::vector<Vector> published_vectors() {
    std::ifstream file(STACKSAGA_VECTORS "/murmur3.tsv");
    std::vector<Vector> vectors;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with('#'))
            continue;
        std::istringstream fields(line);
        std::string function, hex, expected;
        std::getline(fields, function, '\t');
        std::getline(fields, hex, '\t');
        std::getline(fields, expected, '\t');
        vectors.push_back({function, bytes_of_hex(hex), expected});
    }
    return vectors;
}

std::string signed_text(std::uint64_t value) {
    return std::to_string(static_cast<std::int64_t>(value));
}

std::string actual(const Vector &vector) {
    if (vector.function == "token")
        return std::to_string(cassandra_token(vector.input).value());
    if (vector.function == "x64_128") {
        const Hash128 hash = murmur3_x64_128(vector.input);
        return signed_text(hash.h1) + "," + signed_text(hash.h2);
    }
    if (vector.function == "x86_32")
        return std::to_string(static_cast<std::int32_t>(murmur3_x86_32(vector.input)));
    return "no function " + vector.function;
}

TEST(Murmur3, AgreesWithEveryPublishedVector) {
    std::map<std::string, int> count;
    for (const Vector &vector : published_vectors()) {
        EXPECT_EQ(actual(vector), vector.expected)
            << vector.function << " of " << vector.input.size() << " bytes";
        ++count[vector.function];
    }
    EXPECT_EQ(count["token"], 38);
    EXPECT_EQ(count["x64_128"], 32);
    EXPECT_EQ(count["x86_32"], 32);
}

void append_little_endian(std::string &out, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i)
        out.push_back(static_cast<char>(value >> (8 * i)));
}

/// SMHasher's VerificationTest (aappleby/smhasher, src/KeysetTest.cpp): the keys {}, {0}, {0,1},
/// ... {0..254}, each with the seed 256 - size, all results hashed again, the first 32 bits of
/// that.
template <class Hash> std::uint32_t smhasher_verification(Hash hash) {
    std::string key, results;
    for (std::uint32_t size = 0; size < 256; ++size) {
        results += hash(key, 256 - size);
        key.push_back(static_cast<char>(size));
    }
    const std::string final = hash(results, 0);
    return murmur3::load<std::uint32_t>(final, 0);
}

TEST(Murmur3, PassesSmhasherVerificationWithSeeds) {
    EXPECT_EQ(smhasher_verification([](const std::string &key, std::uint32_t seed) {
                  std::string out;
                  append_little_endian(out, murmur3_x86_32(key, seed), 4);
                  return out;
              }),
              0xB0F57EE3U);
    EXPECT_EQ(smhasher_verification([](const std::string &key, std::uint32_t seed) {
                  const Hash128 hash = murmur3_x64_128(key, seed);
                  std::string out;
                  append_little_endian(out, hash.h1, 8);
                  append_little_endian(out, hash.h2, 8);
                  return out;
              }),
              0x6384BA69U);
}

TEST(Murmur3, CassandraDiffersOnlyByHighBytesInTheTail) {
    std::mt19937_64 random(7);
    for (std::size_t size = 0; size <= 64; ++size) {
        std::string key(size, '\0');
        for (char &c : key)
            c = static_cast<char>(random() & 0x7f);
        EXPECT_EQ(murmur3_cassandra(key), murmur3_x64_128(key)) << size;
        if (size == 0)
            continue;
        // The eighth byte of a half has no bits above it that its sign could fill.
        key.back() = '\x80';
        EXPECT_EQ(murmur3_cassandra(key) == murmur3_x64_128(key), size % 8 == 0) << size;
        if (size > 16) {
            key.back() = '\x7f';
            key.front() = '\xff'; // in a block, not in the tail
            EXPECT_EQ(murmur3_cassandra(key), murmur3_x64_128(key)) << size;
        }
    }
}

TEST(Murmur3, IsTheSameAtCompileTime) {
    constexpr std::string_view key = "\x80\xff, a key of more than two blocks and a tail \xfe";
    constexpr Hash128 known = murmur3_x64_128(key, 5), cassandra = murmur3_cassandra(key);
    constexpr std::uint32_t known32 = murmur3_x86_32(key, 5);
    const std::string copy(key);
    EXPECT_EQ(murmur3_x64_128(copy, 5), known);
    EXPECT_EQ(murmur3_cassandra(copy), cassandra);
    EXPECT_EQ(murmur3_x86_32(copy, 5), known32);
}

TEST(Murmur3, DoesNotDependOnAlignment) {
    std::string buffer(96, '\0');
    for (std::size_t i = 0; i < buffer.size(); ++i)
        buffer[i] = static_cast<char>(i * 37 % 251);
    const std::string key = buffer.substr(3, 61);
    for (std::size_t shift = 0; shift < 16; ++shift) {
        std::string moved(shift, 'x');
        moved += key;
        const std::string_view view = std::string_view(moved).substr(shift);
        EXPECT_EQ(murmur3_x64_128(view, 9), murmur3_x64_128(key, 9));
        EXPECT_EQ(murmur3_x86_32(view, 9), murmur3_x86_32(key, 9));
        EXPECT_EQ(cassandra_token(view), cassandra_token(key));
    }
}

} // namespace
} // namespace stacksaga::core
