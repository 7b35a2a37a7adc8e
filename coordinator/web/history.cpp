#include "web/history.hpp"

#include "log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

namespace stacksaga::coordinator {
namespace {

/// A rate of the charts: the sum of the samples of a metric, whatever their other labels.
struct Rate {
    std::string_view name;
    std::string_view metric;
    std::string_view label = {}; ///< counted are samples with this label of this value
    std::string_view value = {};
};
constexpr std::array rates{
    Rate{"started", "stacksaga_sagas_started_total"},
    Rate{"completed", "stacksaga_sagas_finished_total", "status", "completed"},
    Rate{"failed", "stacksaga_sagas_finished_total", "status", "failed"},
    Rate{"parked", "stacksaga_sagas_parked_total"},
    Rate{"steps", "stacksaga_steps_completed_total"},
    Rate{"failures", "stacksaga_attempts_failed_total"},
    Rate{"retries", "stacksaga_retries_total"},
};

bool is_counted(const Rate &rate, const Sample &sample) {
    if (sample.name != rate.metric)
        return false;
    const auto label = sample.labels.find(std::string(rate.label));
    return rate.label.empty() || (label != sample.labels.end() && label->second == rate.value);
}

std::string number(std::optional<double> value) {
    return value ? fmt::format("{:.6g}", *value) : "null";
}

/// A JSON list of one value for each point.
template <class Points, class Value> std::string list(const Points &points, Value value) {
    std::string text;
    for (const auto &point : points)
        text += (text.empty() ? "" : ", ") + value(point);
    return "[" + text + "]";
}

} // namespace

void History::add(const std::vector<Sample> &samples, const Depths &depths, Instant now) {
    Point point{now, {}, {}};
    for (const Rate &rate : rates)
        for (const Sample &sample : samples)
            if (is_counted(rate, sample))
                point.counters[std::string(rate.name)] += sample.value;
    for (const auto &[queue, depth] : depths)
        if (point.depths.size() < queues_max)
            point.depths.emplace(queue, depth);
    points_.push_back(std::move(point));
    if (points_.size() > points_max + 1)
        points_.pop_front();
}

std::string History::json() const {
    // The first point is only the beginning of the first rate.
    const std::vector<Point> shown(points_.begin() + (points_.empty() ? 0 : 1), points_.end());
    std::string of_rates;
    for (const Rate &rate : rates) {
        std::string text;
        for (std::size_t i = 1; i < points_.size(); ++i) {
            const auto before = points_[i - 1].counters.find(std::string(rate.name));
            const auto after = points_[i].counters.find(std::string(rate.name));
            std::optional<double> change;
            // A counter that fell began anew, on another server: unknown.
            if (before != points_[i - 1].counters.end() && after != points_[i].counters.end() &&
                after->second >= before->second)
                change = after->second - before->second;
            text += (text.empty() ? "" : ", ") + number(change);
        }
        of_rates += fmt::format("{}\"{}\": [{}]", of_rates.empty() ? "" : ", ", rate.name, text);
    }
    std::set<std::string> names;
    for (const Point &point : shown)
        for (const auto &[queue, depth] : point.depths)
            names.insert(queue);
    std::string of_queues;
    for (const std::string &name : names) {
        const auto depth = [&name](double Depth::*what) {
            return [&name, what](const Point &point) {
                const auto found = point.depths.find(name);
                return number(found == point.depths.end() ? std::optional<double>()
                                                          : found->second.*what);
            };
        };
        of_queues +=
            fmt::format("{}{}: {{\"waiting\": {}, \"running\": {}}}", of_queues.empty() ? "" : ", ",
                        quoted_json(name), list(shown, depth(&Depth::waiting)),
                        list(shown, depth(&Depth::running)));
    }
    const std::string times = list(shown, [](const Point &point) {
        return std::to_string(
            std::chrono::duration_cast<std::chrono::seconds>(point.at.time_since_epoch()).count());
    });
    return fmt::format("{{\"period_seconds\": {}, \"at\": {}, \"rates\": {{{}}}, \"queues\": "
                       "{{{}}}}}",
                       std::chrono::duration_cast<std::chrono::seconds>(period).count(), times,
                       of_rates, of_queues);
}

} // namespace stacksaga::coordinator
