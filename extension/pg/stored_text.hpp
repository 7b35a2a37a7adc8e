// Text that is stored or compared does not depend on how a session has values printed.
#pragma once
#include "pg/statement/scope.hpp"

namespace stacksaga::pg {

inline constexpr std::array stored_text_settings{Setting{"extra_float_digits", "1"},
                                                 Setting{"intervalstyle", "postgres"}};

/// Runs `body`, which prints such text, with PostgreSQL's own defaults.
template <class F> auto with_stored_text(F &&body) -> decltype(body()) {
    return with_settings(stored_text_settings, static_cast<F &&>(body));
}

} // namespace stacksaga::pg
