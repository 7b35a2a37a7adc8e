// What an SQLSTATE means, by the order of the rules: raised class, never_on, retry_on, default.
#include "core/saga/classify.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

using Class = FailureClass;

TEST(Classify, RaisedClassesDecideWhateverThePolicySays) {
    constexpr std::array<std::string_view, 1> sr{"SR"}, sg{"SG"};
    EXPECT_EQ(classify("SR503", {}, sr), Class::retryable);
    EXPECT_EQ(classify("SR429", {}, sr), Class::retryable);
    EXPECT_EQ(classify("SR504", {}, {}), Class::unknown);
    EXPECT_EQ(classify("SG424", sg, {}), Class::non_retryable);
    EXPECT_EQ(classify("SG400", sg, {}), Class::non_retryable);
}

TEST(Classify, DefaultsAreTheFailuresOfTheSurroundings) {
    for (std::string_view code :
         {"08006", "08000", "40001", "40P01", "53100", "53300", "55P03", "57P01", "57P02", "57P03"})
        EXPECT_EQ(classify(code, {}, {}), Class::retryable) << code;
    for (std::string_view code :
         {"22012", "23505", "42883", "55000", "57014", "57P04", "P0001", "XX000"})
        EXPECT_EQ(classify(code, {}, {}), Class::non_retryable) << code;
}

TEST(Classify, NeverOnComesBeforeRetryOn) {
    constexpr std::array<std::string_view, 2> retry_on{"23", "P0001"};
    constexpr std::array<std::string_view, 2> never_on{"23505", "40"};
    EXPECT_EQ(classify("23514", retry_on, never_on), Class::retryable);
    EXPECT_EQ(classify("P0001", retry_on, never_on), Class::retryable);
    EXPECT_EQ(classify("23505", retry_on, never_on), Class::non_retryable);
    EXPECT_EQ(classify("40001", retry_on, never_on), Class::non_retryable);
}

TEST(Classify, StatesAndClassesAreDigitsAndUpperCaseLetters) {
    for (std::string_view text : {"40001", "40", "P0001", "SR504", "HV00L", "0A", "ZZ"})
        EXPECT_TRUE(is_state_or_class(text)) << text;
    for (std::string_view text : {"", "4", "400", "4000", "400010", "p0001", "sr", "4o001 ",
                                  "40 01", "4%", "40.", "\xC3\x9F",
                                  "40\xC3\x9F"
                                  "1"})
        EXPECT_FALSE(is_state_or_class(text)) << text;
}

TEST(Classify, AFiveCharacterEntryIsNoClass) {
    constexpr std::array<std::string_view, 1> list{"23505"};
    EXPECT_TRUE(is_listed("23505", list));
    EXPECT_FALSE(is_listed("23503", list));
}

} // namespace
} // namespace stacksaga::core
