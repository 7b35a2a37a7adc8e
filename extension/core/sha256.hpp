// SHA-256 (FIPS 180-4, section 6.2).
//
// PostgreSQL has it too, by OpenSSL: to set that up takes more instructions than to hash the short
// texts that we have.
#pragma once
#ifdef POSTGRES_H
#error "core comes before PostgreSQL headers"
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace stacksaga::core {

using Sha256Digest = std::array<std::uint8_t, 32>;

/// Takes bytes in any number of pieces; digest() ends it.
class Sha256 {
public:
    constexpr void update(std::string_view bytes) {
        size_ += bytes.size();
        while (!bytes.empty()) {
            const std::size_t taken = std::min(bytes.size(), block_.size() - filled_);
            for (std::size_t i = 0; i < taken; ++i)
                block_[filled_ + i] = static_cast<std::uint8_t>(bytes[i]);
            filled_ += taken;
            bytes.remove_prefix(taken);
            if (filled_ == block_.size())
                compress();
        }
    }

    constexpr Sha256Digest digest() {
        const std::uint64_t bits = size_ * 8;
        block_[filled_++] = 0x80;
        if (filled_ > length_at) {
            std::fill(block_.begin() + filled_, block_.end(), std::uint8_t{0});
            compress();
        }
        std::fill(block_.begin() + filled_, block_.begin() + length_at, std::uint8_t{0});
        for (std::size_t i = 0; i < 8; ++i)
            block_[length_at + i] = static_cast<std::uint8_t>(bits >> (56 - 8 * i));
        compress();
        Sha256Digest result{};
        for (std::size_t i = 0; i < result.size(); ++i)
            result[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
        return result;
    }

private:
    /// Where the last block holds the number of bits.
    static constexpr std::size_t length_at = 56;

    /// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
    static constexpr std::array<std::uint32_t, 64> round_constants{
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};

    using Word = std::uint32_t;

    static constexpr void round(Word a, Word b, Word c, Word &d, Word e, Word f, Word g, Word &h,
                                Word addend) {
        h += (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + (g ^ (e & (f ^ g))) + addend;
        d += h;
        h += (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) | (c & (a | b)));
    }

    /// Adds the block, which is full, to the state.
    constexpr void compress() {
        std::array<Word, 64> w{};
        for (std::size_t i = 0; i < 16; ++i)
            w[i] = std::uint32_t{block_[4 * i]} << 24 | std::uint32_t{block_[4 * i + 1]} << 16 |
                   std::uint32_t{block_[4 * i + 2]} << 8 | block_[4 * i + 3];
        for (std::size_t i = 16; i < 64; ++i) {
            const Word x = w[i - 15], y = w[i - 2];
            w[i] = w[i - 16] + (std::rotr(x, 7) ^ std::rotr(x, 18) ^ x >> 3) + w[i - 7] +
                   (std::rotr(y, 17) ^ std::rotr(y, 19) ^ y >> 10);
        }
        auto [a, b, c, d, e, f, g, h] = state_;
        // The eight words change places each round; so every eighth round they are where they were.
        for (std::size_t i = 0; i < 64; i += 8) {
            round(a, b, c, d, e, f, g, h, round_constants[i] + w[i]);
            round(h, a, b, c, d, e, f, g, round_constants[i + 1] + w[i + 1]);
            round(g, h, a, b, c, d, e, f, round_constants[i + 2] + w[i + 2]);
            round(f, g, h, a, b, c, d, e, round_constants[i + 3] + w[i + 3]);
            round(e, f, g, h, a, b, c, d, round_constants[i + 4] + w[i + 4]);
            round(d, e, f, g, h, a, b, c, round_constants[i + 5] + w[i + 5]);
            round(c, d, e, f, g, h, a, b, round_constants[i + 6] + w[i + 6]);
            round(b, c, d, e, f, g, h, a, round_constants[i + 7] + w[i + 7]);
        }
        const std::array<Word, 8> added{a, b, c, d, e, f, g, h};
        for (std::size_t i = 0; i < state_.size(); ++i)
            state_[i] += added[i];
        filled_ = 0;
    }

    /// The first 32 bits of the fractional parts of the square roots of the first 8 primes.
    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::uint8_t, 64> block_{};
    std::size_t filled_ = 0;
    std::uint64_t size_ = 0;
};

/// SHA-256 of the parts, one behind the other.
constexpr Sha256Digest sha256(std::span<const std::string_view> parts) {
    Sha256 hash;
    for (std::string_view part : parts)
        hash.update(part);
    return hash.digest();
}

} // namespace stacksaga::core
