// Schedules as their tables keep them.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

enum class CatchUp : uint8_t { skip, last, all };
inline constexpr std::array<std::string_view, 3> catch_up_names{"skip", "last", "all"};

enum class Overlap : uint8_t { allow, skip };
inline constexpr std::array<std::string_view, 2> overlap_names{"allow", "skip"};

/// When this transaction commits, every worker looks anew for the schedule that is due next.
void announce_schedules();

} // namespace stacksaga
