// The help of each command, as data.
#pragma once

#include "cli/command_line.hpp"

#include <span>

namespace stacksaga::coordinator {

struct CommandText {
    Command command;
    const char *name;
    const char *what;
    const char *examples; ///< command lines
};
[[nodiscard]] std::span<const CommandText> command_texts();

/// The end of every help: exit codes and signals.
[[nodiscard]] const char *help_footer();

} // namespace stacksaga::coordinator
