// Local times of a zone as instants, also where its clocks change; and the instants of a schedule.
// Instants are seconds since 1970-01-01 00:00:00 UTC.
//
// A zone is a function: change_after(instant) says which offset is in force at an instant, and when
// it changes next.
#pragma once

#include "core/time/cron.hpp"

#include <cstdint>
#include <optional>

namespace stacksaga::core {

struct OffsetChange {
    std::int64_t offset;            ///< local time less UTC before the change
    std::optional<std::int64_t> at; ///< the instant of the change; none: the offset stays
};

/// When the zone's clocks show `local`: at its first time where they show it twice, and when the
/// gap ends where they skip it. A later local time never gets an earlier instant.
template <class Zone> std::int64_t instant_of_local(std::int64_t local, const Zone &zone) {
    constexpr std::int64_t more_than_an_offset = 2 * 86400;
    std::int64_t from = local - more_than_an_offset;
    for (bool is_first = true;; is_first = false) {
        const OffsetChange change = zone.change_after(from);
        const std::int64_t instant = local - change.offset;
        if (!is_first && instant < from)
            return from;
        if (!change.at || instant < *change.at)
            return instant;
        from = *change.at;
    }
}

/// The first instant after `after` at which the zone's clocks show a local time that the expression
/// names: never for one that they skip, and each time for one that they repeat.
template <class Zone>
std::optional<std::int64_t> next_shown_instant(const Cron &cron, const Zone &zone,
                                               std::int64_t after) {
    std::optional<std::int64_t> local;
    std::int64_t asked = 0;
    for (std::int64_t from = after + 1;;) {
        const OffsetChange change = zone.change_after(from);
        const std::int64_t before = from + change.offset - 1;
        // A run that is decades away is searched for once, not again after each change until then.
        if (!local || before < asked || before >= *local)
            local = cron.next(asked = before);
        if (!local)
            return std::nullopt;
        if (!change.at || *local - change.offset < *change.at)
            return *local - change.offset;
        from = *change.at;
    }
}

/// The first instant after `after` at which the expression runs in the zone. A fixed time of day
/// runs once, also where the clocks skip or repeat it.
template <class Zone>
std::optional<std::int64_t> next_instant(const Cron &cron, const Zone &zone, std::int64_t after) {
    if (cron.names_intervals())
        return next_shown_instant(cron, zone, after);
    std::optional<std::int64_t> local = cron.next(after + zone.change_after(after).offset);
    while (local) {
        const std::int64_t instant = instant_of_local(*local, zone);
        if (instant > after)
            return instant;
        local = cron.next(*local); // clocks were set back: this time was shown before
    }
    return std::nullopt;
}

} // namespace stacksaga::core
