// Completion scripts for shells, made of the commands and options that there are.
#pragma once

#include <string>

namespace stacksaga::coordinator {

/// A script for "bash" or "zsh"; empty for another shell.
[[nodiscard]] std::string completion_script(const std::string &shell);

} // namespace stacksaga::coordinator
