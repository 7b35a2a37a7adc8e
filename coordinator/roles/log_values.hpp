// Formats rings, instants and durations for log lines and status lines.
#pragma once

#include "base/log.hpp"
#include "base/types.hpp"

#include <fmt/format.h>

#include <string>

namespace stacksaga::coordinator {

/// REGION/CLUSTER.
inline std::string ring_text(const RingName &name) {
    return fmt::format("{}/{}", name.region, name.cluster);
}

/// UTC with milliseconds.
inline std::string time_text(Instant at) {
    return format_time(std::chrono::floor<std::chrono::milliseconds>(at));
}

inline std::int64_t milliseconds(std::chrono::steady_clock::duration duration) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

} // namespace stacksaga::coordinator
