// Texts that nobody can guess, and their comparison.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stacksaga::coordinator {

/// That many random bytes of the kernel, as hexadecimal digits. Throws std::system_error.
[[nodiscard]] std::string random_text(std::size_t bytes);

/// Compares in a time that does not depend on where the texts differ.
[[nodiscard]] bool equal_secrets(std::string_view left, std::string_view right) noexcept;

} // namespace stacksaga::coordinator
