// Tables of the commands: their columns line up, and no value controls a terminal.
#include "cli/output.hpp"

#include <gtest/gtest.h>

namespace stacksaga::coordinator {
namespace {

TEST(Commands, PadsTablesInCharacters) {
    EXPECT_EQ(format_table({"a", "name"}, {{"1", "é"}, {"22", ""}}), "a   name\n"
                                                                     "--  ----\n"
                                                                     "1   é\n"
                                                                     "22\n");
}

TEST(EscapeControls, LeavesNothingThatATerminalObeys) {
    EXPECT_EQ(escape_controls("plain ä €"), "plain ä €");
    EXPECT_EQ(escape_controls("a\nb\tc"), "a\\nb\\tc");
    EXPECT_EQ(escape_controls("a\u202Eb\u200Bc\u2028\U000E0041"),
              "a\\u202eb\\u200bc\\u2028\\U000e0041");
    EXPECT_EQ(escape_controls("\033[2J\r\x7f"), "\\x1b[2J\\x0d\\x7f");
    EXPECT_EQ(escape_controls("\xc2\x9b"
                              "31m"),
              "\\x9b31m");
    EXPECT_EQ(escape_controls(std::string_view("\0x", 2)), "\\x00x");
    EXPECT_EQ(format_table({"n"}, {{"a\nb"}}), "n\n----\na\\nb\n");
}

} // namespace
} // namespace stacksaga::coordinator
