// Metrics as samples: Prometheus' text format, version 0.0.4, and the last hour of a database for
// the page's charts, in the daemon's memory. Pure: readings and instants are arguments.
#pragma once

#include "base/time.hpp"

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// One sample. `name` is a metric's name, labels are in UTF-8.
struct Sample {
    std::string name;
    std::map<std::string, std::string> labels;
    double value = 0;
};

/// The description of a metric: `type` is counter or gauge, `help` a sentence.
struct MetricDescription {
    std::string type;
    std::string help;
};

/// By the metric's name.
using MetricDescriptions = std::map<std::string, MetricDescription>;

inline constexpr const char *exposition_content_type = "text/plain; version=0.0.4; charset=utf-8";

/// The samples by name, each name with its HELP and TYPE. A name without a description has no HELP;
/// it is a counter if it ends in _total, else a gauge.
[[nodiscard]] std::string format_exposition(std::vector<Sample> samples,
                                            const MetricDescriptions &descriptions);

/// A number that Prometheus parses: 17 digits at most, NaN, +Inf, -Inf.
[[nodiscard]] std::string format_value(double value);

/// Points half a minute apart. Counters become rates: the difference between two points.
class History {
public:
    static constexpr Duration period = std::chrono::seconds(30);
    static constexpr std::size_t points_max = 120;
    static constexpr std::size_t queues_max = 200;

    /// Of one queue at one point.
    struct Depth {
        double waiting = 0;
        double running = 0;
        std::optional<double> completed{}; ///< a counter; so is the next
        std::optional<double> failed{};
    };
    using Depths = std::map<std::string, Depth>;

    /// Adds a point: the samples of metrics(), and how many steps of each queue wait, run, were
    /// completed and failed.
    void add(const std::vector<Sample> &samples, const Depths &depths, Instant now);

    /// {"period_seconds", "at": [...], "rates": {NAME: [...]}, "queues": {NAME: {"waiting": [...],
    /// "running": [...], "completed": [...], "failed": [...]}}}; null stands where nothing is
    /// known.
    [[nodiscard]] std::string json() const;

private:
    struct Point {
        Instant at;
        std::map<std::string, double> counters;
        Depths depths;
    };

    [[nodiscard]] std::string rates_json() const;
    [[nodiscard]] std::string queue_json(const std::string &name) const;

    std::deque<Point> points_; ///< the oldest first; one more than there are rates
};

} // namespace stacksaga::coordinator
