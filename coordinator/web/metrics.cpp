#include "web/metrics.hpp"

#include "base/log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

namespace stacksaga::coordinator {
namespace {

/// Escapes a label's value or a HELP; only a label's value has its quotes escaped.
std::string escape(const std::string &text, bool quotes) {
    std::string out;
    for (const char c : text) {
        if (c == '\\')
            out += "\\\\";
        else if (c == '"' && quotes)
            out += "\\\"";
        else if (c == '\n')
            out += "\\n";
        else
            out += c;
    }
    return out;
}

std::string format_labels(const std::map<std::string, std::string> &labels) {
    std::string out;
    for (const auto &[name, value] : labels)
        out += fmt::format("{}{}=\"{}\"", out.empty() ? "{" : ",", name, escape(value, true));
    return out.empty() ? out : out + "}";
}

std::string format_head(const std::string &name, const MetricDescriptions &descriptions) {
    const auto described = descriptions.find(name);
    if (described == descriptions.end())
        return fmt::format("# TYPE {} {}\n", name, name.ends_with("_total") ? "counter" : "gauge");
    return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escape(described->second.help, false),
                       name, described->second.type);
}

} // namespace

std::string format_value(double value) {
    if (std::isnan(value))
        return "NaN";
    if (std::isinf(value))
        return value > 0 ? "+Inf" : "-Inf";
    return fmt::format("{}", value);
}

std::string format_exposition(std::vector<Sample> samples, const MetricDescriptions &descriptions) {
    std::ranges::stable_sort(samples, {}, &Sample::name);
    std::string out;
    const std::string *name = nullptr;
    for (const Sample &sample : samples) {
        if (name == nullptr || *name != sample.name)
            out += format_head(sample.name, descriptions);
        name = &sample.name;
        out += fmt::format("{}{} {}\n", sample.name, format_labels(sample.labels),
                           format_value(sample.value));
    }
    return out;
}

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

/// The difference between two readings of a counter. It is unknown when the counter fell, as on
/// another server.
std::optional<double> change(std::optional<double> before, std::optional<double> after) {
    return before && after && *after >= *before ? std::optional(*after - *before) : std::nullopt;
}

template <class Map> auto find(const Map &map, const std::string &name) {
    const auto found = map.find(name);
    return found == map.end() ? std::nullopt : std::optional(found->second);
}

/// A JSON list of `value(i)` for each point but the first, which only begins the first rate.
template <class Value> std::string list(std::size_t points, Value value) {
    std::string text;
    for (std::size_t i = 1; i < points; ++i)
        text += (text.empty() ? "" : ", ") + value(i);
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

std::string History::rates_json() const {
    std::string text;
    for (const Rate &rate : rates) {
        const std::string name(rate.name);
        const auto changes = list(points_.size(), [&](std::size_t i) {
            return number(
                change(find(points_[i - 1].counters, name), find(points_[i].counters, name)));
        });
        text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", name, changes);
    }
    return text;
}

std::string History::queue_json(const std::string &name) const {
    const auto depth = [&](std::size_t i) { return find(points_[i].depths, name); };
    const auto depths = [&](double Depth::*what) {
        return list(points_.size(), [&](std::size_t i) {
            const auto known = depth(i);
            return number(known ? std::optional((*known).*what) : std::nullopt);
        });
    };
    const auto changes = [&](std::optional<double> Depth::*what) {
        return list(points_.size(), [&](std::size_t i) {
            const auto before = depth(i - 1);
            const auto after = depth(i);
            return number(before && after ? change((*before).*what, (*after).*what) : std::nullopt);
        });
    };
    return fmt::format("{{\"waiting\": {}, \"running\": {}, \"completed\": {}, \"failed\": {}}}",
                       depths(&Depth::waiting), depths(&Depth::running), changes(&Depth::completed),
                       changes(&Depth::failed));
}

std::string History::json() const {
    std::set<std::string> names;
    for (std::size_t i = 1; i < points_.size(); ++i)
        for (const auto &[queue, depth] : points_[i].depths)
            names.insert(queue);
    std::string of_queues;
    for (const std::string &name : names)
        of_queues += fmt::format("{}{}: {}", of_queues.empty() ? "" : ", ", quoted_json(name),
                                 queue_json(name));
    const std::string times = list(points_.size(), [this](std::size_t i) {
        const auto since = points_[i].at.time_since_epoch();
        return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(since).count());
    });
    return fmt::format("{{\"period_seconds\": {}, \"at\": {}, \"rates\": {{{}}}, \"queues\": "
                       "{{{}}}}}",
                       std::chrono::duration_cast<std::chrono::seconds>(period).count(), times,
                       rates_json(), of_queues);
}

} // namespace stacksaga::coordinator
