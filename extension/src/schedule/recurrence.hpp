// When a schedule runs: a cron expression in a time zone.
#pragma once
#include "core/time/cron.hpp"

#include "src/schedule/time_zone.hpp"

namespace stacksaga {

struct Recurrence {
    core::Cron cron;
    TimeZone zone;

    /// The first instant after `time`; DT_NOEND: there is none.
    TimestampTz next(TimestampTz time) const;
};
static_assert(std::is_trivially_destructible_v<Recurrence>);

/// SG400 when the expression is not valid or there is no such zone.
Recurrence read_recurrence(std::string_view cron, std::string_view zone);

/// The name of a zone as PostgreSQL's list of them has it, whatever the case of `zone`; SG400 when
/// the list does not have it. Reads the files of all zones. Inside with_spi.
const char *listed_zone(std::string_view zone);

/// Of the instants of `recurrence` from `first`, which is one of them, to `last`, the earliest of
/// the latest `count`.
TimestampTz earliest_of_latest(const Recurrence &recurrence, TimestampTz first, TimestampTz last,
                               int32 count);

} // namespace stacksaga
