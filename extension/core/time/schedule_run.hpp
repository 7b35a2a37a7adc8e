// Whether a run of a schedule starts its saga.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace stacksaga::core {

/// Handling of missed runs: none, the last one or all are caught up.
enum class CatchUp : std::uint8_t { skip, last, all };
inline constexpr std::array<std::string_view, 3> catch_up_names{"skip", "last", "all"};

/// Handling of a run while the saga of the last one runs.
enum class Overlap : std::uint8_t { allow, skip };
inline constexpr std::array<std::string_view, 2> overlap_names{"allow", "skip"};

enum class RunDecision : std::uint8_t {
    start,
    skip,  ///< for good, and counted
    waits, ///< until the last one has ended
};

/// Decides about a run that is due. `is_running`: the latest saga of the last run has not ended.
/// Runs that were missed and are all to be caught up wait for one another.
constexpr RunDecision decide_run(CatchUp catch_up, Overlap overlap, bool is_running,
                                 bool is_missed) {
    if (overlap == Overlap::allow || !is_running)
        return RunDecision::start;
    return catch_up == CatchUp::all && is_missed ? RunDecision::waits : RunDecision::skip;
}

} // namespace stacksaga::core
