// The versions of the extension that a daemon works with.
#include "db/shared_connection.hpp"

#include <gtest/gtest.h>

namespace stacksaga::coordinator {
namespace {

TEST(Version, FitsWhenItIsNotOlderAndOfTheSameMajor) {
    EXPECT_TRUE(version_fits("1.0", "1.0"));
    EXPECT_TRUE(version_fits("1.10", "1.9"));
    EXPECT_TRUE(version_fits("1.2.3", "1.2"));
    EXPECT_FALSE(version_fits("1.9", "1.10"));
    EXPECT_FALSE(version_fits("0.9", "1.0"));
    EXPECT_FALSE(version_fits("2.0", "1.0"));
}

TEST(Version, FitsNothingThatIsNone) {
    for (const char *text : {"", "1", "1.", "x.y", ".1", "99999999999.0", "1.x"}) {
        EXPECT_FALSE(version_fits(text, "1.0")) << text;
        EXPECT_FALSE(version_fits("1.0", text)) << text;
    }
}

} // namespace
} // namespace stacksaga::coordinator
