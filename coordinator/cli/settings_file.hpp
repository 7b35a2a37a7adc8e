// Mistakes in a settings file, with the line where they are: the library that reads it names
// neither.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stacksaga::coordinator {

/// "FILE:LINE: ..." of the first line that is no section of a known command, setting or comment.
[[nodiscard]] std::optional<std::string>
complaint_of_file(const std::string &file, const std::vector<std::string_view> &commands);

/// "FILE:LINE" where a complaint is about a setting of the file: it begins with "--NAME:" or ends
/// with the name, perhaps after its section. Settings whose value is not the file's are left out.
[[nodiscard]] std::optional<std::string> place_in_file(const std::string &file,
                                                       const std::string &complaint,
                                                       const std::vector<std::string> &overridden);

} // namespace stacksaga::coordinator
