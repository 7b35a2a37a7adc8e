// Cron expressions: what one says, and which local time it names next. Local times are seconds
// since 1970-01-01 00:00:00 on a wall clock; what instant such a time is, local_time.hpp says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stacksaga::core {

enum class CronField : std::uint8_t { second, minute, hour, day, month, weekday };
inline constexpr std::size_t cron_fields = 6;

struct CronFieldRule {
    std::string_view name;
    int first;
    int last;
};
/// Indexed by CronField. Weekday 7 is Sunday, as 0 is.
inline constexpr std::array<CronFieldRule, cron_fields> cron_field_rules{{{"second", 0, 59},
                                                                          {"minute", 0, 59},
                                                                          {"hour", 0, 23},
                                                                          {"day of month", 1, 31},
                                                                          {"month", 1, 12},
                                                                          {"day of week", 0, 7}}};
constexpr const CronFieldRule &rule_of(CronField field) {
    return cron_field_rules[static_cast<std::size_t>(field)];
}

/// An expression that was read: for each field the set of its values, a bit each.
class Cron {
public:
    /// The first local time after `local` that the expression names.
    std::optional<std::int64_t> next(std::int64_t local) const;
    /// Whether its minute or its hour begins with `*`: it names intervals rather than times of day,
    /// and keeps them where the clocks change (as in Debian's cron).
    bool names_intervals() const { return any_minute_or_hour_; }

private:
    friend struct CronReader;

    bool has(CronField field, int value) const {
        return (sets_[static_cast<std::size_t>(field)] >> value & 1) != 0;
    }
    int next_value(CronField field, int from) const;
    bool has_day(std::int64_t day) const;
    std::optional<std::int64_t> next_day(std::int64_t from) const;
    std::optional<int> next_second_of_day(int from) const;

    std::array<std::uint64_t, cron_fields> sets_{};
    /// Whether the field of the day or of the weekday begins with `*`. Where neither does, a day
    /// that either of them names is enough; else both must name it (as in Vixie cron).
    bool any_day_ = false;
    bool any_weekday_ = false;
    bool any_minute_or_hour_ = false;
};

/// The fault of an expression.
enum class CronProblem : std::uint8_t {
    none,
    field_count,    ///< neither five nor six fields
    unknown_macro,  ///< `@` and a word that is not known
    not_a_value,    ///< neither a number nor a name of the field
    out_of_range,   ///< a number that the field does not have
    reversed_range, ///< it ends before it begins
    bad_step,       ///< not a number from 1 to the length of the field
    lonely_step,    ///< a step behind a single value
    no_such_day,    ///< no day has this day of month in this month
};

struct CronReading {
    Cron cron{};
    CronProblem problem = CronProblem::none;
    CronField field{};          ///< of the problem, where it is in a field
    std::string_view culprit{}; ///< the part of the text that is wrong
};

/// Five fields, minute to weekday, or six, which begin with the second; or a macro such as @daily.
CronReading read_cron(std::string_view text);

} // namespace stacksaga::core
