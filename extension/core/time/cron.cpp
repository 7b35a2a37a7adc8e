#include "core/time/cron.hpp"

#include <algorithm>
#include <bit>
#include <charconv>

namespace stacksaga::core {

namespace {

constexpr std::int64_t seconds_per_day = 86400;
// The calendar repeats after 400 years, weekdays too: what no day of them matches, no day matches.
constexpr std::int64_t days_per_era = 146097;
static_assert(days_per_era % 7 == 0);

struct Macro {
    std::string_view name;
    std::string_view fields;
};
constexpr std::array macros{
    Macro{"@yearly", "0 0 1 1 *"}, Macro{"@annually", "0 0 1 1 *"}, Macro{"@monthly", "0 0 1 * *"},
    Macro{"@weekly", "0 0 * * 0"}, Macro{"@daily", "0 0 * * *"},    Macro{"@midnight", "0 0 * * *"},
    Macro{"@hourly", "0 * * * *"},
};
constexpr std::array<std::string_view, 12> month_names{"jan", "feb", "mar", "apr", "may", "jun",
                                                       "jul", "aug", "sep", "oct", "nov", "dec"};
constexpr std::array<std::string_view, 7> weekday_names{"sun", "mon", "tue", "wed",
                                                        "thu", "fri", "sat"};

constexpr bool is_space(char c) {
    return c == ' ' || c == '\t';
}

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
    if (text.size() != lower.size())
        return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != lower[i])
            return false;
    }
    return true;
}

/// Takes the text before the first `separator` from `rest`, which keeps the text after it.
std::string_view take_until(std::string_view &rest, char separator) {
    const std::size_t end = std::min(rest.find(separator), rest.size());
    const std::string_view part{rest.data(), end};
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return part;
}

constexpr std::int64_t floor_div(std::int64_t value, std::int64_t divisor) {
    return value / divisor - (value % divisor < 0 ? 1 : 0);
}

struct Date {
    int month; ///< 1 to 12
    int day;   ///< 1 to 31
};

/// Of a day since 1970-01-01, in the Gregorian calendar. Years are taken to begin in March, so that
/// the leap day is their last.
constexpr Date date_of(std::int64_t days) {
    constexpr std::int64_t days_to_1970 = 719468; // since 0000-03-01
    const std::int64_t shifted = days + days_to_1970;
    const std::int64_t of_era = shifted - floor_div(shifted, days_per_era) * days_per_era;
    const std::int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const std::int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    const std::int64_t month = (5 * of_year + 2) / 153; // 0 is March
    return {.month = static_cast<int>(month < 10 ? month + 3 : month - 9),
            .day = static_cast<int>(of_year - (153 * month + 2) / 5 + 1)};
}
static_assert(date_of(0).month == 1 && date_of(0).day == 1);
static_assert(date_of(11016).month == 2 && date_of(11016).day == 29); // 2000-02-29
static_assert(date_of(-1).month == 12 && date_of(-1).day == 31);

/// 0 is Sunday.
constexpr int weekday_of(std::int64_t days) {
    constexpr std::int64_t thursday = 4; // 1970-01-01
    return static_cast<int>(days + thursday - floor_div(days + thursday, 7) * 7);
}
static_assert(weekday_of(0) == 4 && weekday_of(-4) == 0 && weekday_of(3) == 0);

} // namespace

/// Reads the parts of an expression into a Cron, up to the first problem.
struct CronReader {
    CronReading reading{};

    bool refuse(CronProblem problem, std::string_view culprit) {
        reading.problem = problem;
        reading.culprit = culprit;
        return false;
    }

    std::optional<int> number(std::string_view text) const {
        int value = 0;
        const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
        if (error != std::errc{} || end != text.end() || text.front() == '-')
            return std::nullopt;
        return value;
    }

    std::optional<int> name(std::string_view text) const {
        if (reading.field == CronField::month)
            for (std::size_t i = 0; i < month_names.size(); ++i)
                if (equals_ignoring_case(text, month_names[i]))
                    return static_cast<int>(i) + 1;
        if (reading.field == CronField::weekday)
            for (std::size_t i = 0; i < weekday_names.size(); ++i)
                if (equals_ignoring_case(text, weekday_names[i]))
                    return static_cast<int>(i);
        return std::nullopt;
    }

    bool value(std::string_view text, int &result) {
        const std::optional<int> named = name(text);
        const std::optional<int> given = named ? named : number(text);
        if (!given)
            return refuse(CronProblem::not_a_value, text);
        const CronFieldRule &rule = rule_of(reading.field);
        if (*given < rule.first || *given > rule.last)
            return refuse(CronProblem::out_of_range, text);
        result = *given;
        return true;
    }

    bool range(std::string_view text, int &first, int &last) {
        std::string_view rest = text;
        if (!value(take_until(rest, '-'), first) || !value(rest, last))
            return false;
        if (reading.field == CronField::weekday && last == 0 && first > 0)
            last = 7; // a week that ends on Sunday
        return first <= last || refuse(CronProblem::reversed_range, text);
    }

    bool step(std::string_view text, int &result) {
        const CronFieldRule &rule = rule_of(reading.field);
        const std::optional<int> given = number(text);
        if (!given || *given < 1 || *given > rule.last - rule.first)
            return refuse(CronProblem::bad_step, text);
        result = *given;
        return true;
    }

    /// A value, a range or `*`, the latter two also with a step.
    bool element(std::string_view text, std::uint64_t &set) {
        const CronFieldRule &rule = rule_of(reading.field);
        std::string_view rest = text;
        const std::string_view values = take_until(rest, '/');
        const bool has_step = values.size() < text.size();
        int first = rule.first, last = rule.last, stride = 1;
        if (values.find('-') != std::string_view::npos) {
            if (!range(values, first, last))
                return false;
        } else if (values != "*") {
            if (!value(values, first))
                return false;
            if (has_step)
                return refuse(CronProblem::lonely_step, text);
            last = first;
        }
        if (has_step && !step(rest, stride))
            return false;
        for (int i = first; i <= last; i += stride)
            set |= std::uint64_t{1} << i;
        return true;
    }

    bool field(CronField field, std::string_view text) {
        reading.field = field;
        std::uint64_t &set = reading.cron.sets_[static_cast<std::size_t>(field)];
        std::string_view rest = text;
        for (bool more = true; more;) {
            const std::size_t before = rest.size();
            const std::string_view part = take_until(rest, ',');
            more = part.size() < before;
            if (!element(part, set))
                return false;
        }
        const bool is_any = text.starts_with('*');
        if (field == CronField::minute || field == CronField::hour)
            reading.cron.any_minute_or_hour_ |= is_any;
        if (field == CronField::day)
            reading.cron.any_day_ = is_any;
        if (field == CronField::weekday) {
            reading.cron.any_weekday_ = is_any;
            set = (set | set >> 7) & 0x7f;
        }
        return true;
    }

    bool expression(std::string_view text) {
        std::array<std::string_view, cron_fields> parts{};
        std::size_t count = 0;
        for (std::size_t at = 0; at < text.size();) {
            if (is_space(text[at])) {
                ++at;
                continue;
            }
            std::size_t end = at;
            while (end < text.size() && !is_space(text[end]))
                ++end;
            if (count < parts.size())
                parts[count] = {text.data() + at, end - at};
            ++count;
            at = end;
        }
        if (count == 1 && parts[0].starts_with('@'))
            return macro(parts[0]);
        if (count != cron_fields && count != cron_fields - 1)
            return refuse(CronProblem::field_count, text);
        const std::size_t skipped = cron_fields - count;
        if (skipped > 0)
            reading.cron.sets_[0] = 1; // at second 0
        for (std::size_t i = 0; i < count; ++i)
            if (!field(static_cast<CronField>(i + skipped), parts[i]))
                return false;
        return reading.cron.next(0).has_value() || refuse(CronProblem::no_such_day, text);
    }

    bool macro(std::string_view text) {
        for (const Macro &m : macros)
            if (equals_ignoring_case(text, m.name))
                return expression(m.fields);
        return refuse(CronProblem::unknown_macro, text);
    }
};

CronReading read_cron(std::string_view text) {
    CronReader reader{};
    reader.expression(text);
    return reader.reading;
}

/// The first value of the field from `from` on; -1: there is none.
int Cron::next_value(CronField field, int from) const {
    const std::uint64_t later = sets_[static_cast<std::size_t>(field)] >> from << from;
    return later == 0 ? -1 : std::countr_zero(later);
}

bool Cron::has_day(std::int64_t day) const {
    const Date date = date_of(day);
    if (!has(CronField::month, date.month))
        return false;
    const bool in_month = has(CronField::day, date.day);
    const bool in_week = has(CronField::weekday, weekday_of(day));
    return any_day_ || any_weekday_ ? in_month && in_week : in_month || in_week;
}

std::optional<std::int64_t> Cron::next_day(std::int64_t from) const {
    constexpr int last_of_each_month = 28;
    std::int64_t day = from;
    while (day < from + days_per_era) {
        if (has_day(day))
            return day;
        const Date date = date_of(day);
        const bool is_left_out = !has(CronField::month, date.month);
        day += is_left_out && date.day < last_of_each_month ? last_of_each_month - date.day : 1;
    }
    return std::nullopt;
}

std::optional<int> Cron::next_second_of_day(int from) const {
    const auto of_day = [](int h, int m, int s) { return (h * 60 + m) * 60 + s; };
    const int hour = from / 3600, minute = from / 60 % 60, second = from % 60;
    if (has(CronField::hour, hour)) {
        if (const int later = next_value(CronField::second, second);
            later >= 0 && has(CronField::minute, minute))
            return of_day(hour, minute, later);
        if (const int later = next_value(CronField::minute, minute + 1); later >= 0)
            return of_day(hour, later, next_value(CronField::second, 0));
    }
    const int later = next_value(CronField::hour, hour + 1);
    if (later < 0)
        return std::nullopt;
    return of_day(later, next_value(CronField::minute, 0), next_value(CronField::second, 0));
}

std::optional<std::int64_t> Cron::next(std::int64_t local) const {
    const std::int64_t from = local + 1;
    const std::int64_t today = floor_div(from, seconds_per_day);
    if (has_day(today))
        if (const auto second =
                next_second_of_day(static_cast<int>(from - today * seconds_per_day)))
            return today * seconds_per_day + *second;
    const std::optional<std::int64_t> day = next_day(today + 1);
    if (!day)
        return std::nullopt;
    return *day * seconds_per_day + *next_second_of_day(0);
}

} // namespace stacksaga::core
