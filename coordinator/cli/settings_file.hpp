// Reads settings files, in TOML or INI: sections of commands with lines NAME = VALUE. Values are
// texts, in quotes or not, or lists of them in brackets.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// A setting, or, without a name, the head of a section.
struct Setting {
    std::string section; ///< empty before the first one
    std::string name;
    std::vector<std::string> values;
    std::string place; ///< FILE:LINE, for complaints
};

/// A mistake in a file; what() begins with its name, and the line where there is one.
struct SettingsError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Reads the whole file. Throws SettingsError.
[[nodiscard]] std::vector<Setting> read_settings(const std::string &file);

} // namespace stacksaga::coordinator
