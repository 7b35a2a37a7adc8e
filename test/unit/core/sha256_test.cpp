// SHA-256 against the examples that NIST has published with FIPS 180-4 and for its validation
// program.
#include "core/sha256.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace stacksaga::core {
namespace {

std::string hex_of(const Sha256Digest &digest) {
    std::string hex;
    for (std::uint8_t byte : digest) {
        hex.push_back("0123456789abcdef"[byte >> 4]);
        hex.push_back("0123456789abcdef"[byte & 15]);
    }
    return hex;
}

std::string sha256_hex(std::string_view bytes) {
    return hex_of(sha256(std::array{bytes}));
}

TEST(Sha256, GivesThePublishedDigests) {
    EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sha256_hex("abc"),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(sha256_hex("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
                         "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
              "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    EXPECT_EQ(sha256_hex("\xbd"),
              "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b");
}

TEST(Sha256, IsComputedByTheCompilerToo) {
    constexpr std::array<std::string_view, 1> abc{"abc"};
    static_assert(sha256(abc)[0] == 0xba && sha256(abc)[31] == 0xad);
}

TEST(Sha256, DoesNotDependOnThePieces) {
    std::string text;
    for (int i = 0; i < 200; ++i)
        text.push_back(static_cast<char>(i * 7));
    const std::string_view whole = text;
    for (std::size_t first = 0; first <= whole.size(); ++first)
        for (std::size_t second : {first, std::min(first + 63, whole.size()), whole.size()})
            ASSERT_EQ(hex_of(sha256(std::array{whole.substr(0, first),
                                               whole.substr(first, second - first),
                                               whole.substr(second)})),
                      sha256_hex(whole));
}

} // namespace
} // namespace stacksaga::core
