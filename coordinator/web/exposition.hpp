// Prometheus' text format, version 0.0.4.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// One sample. `name` is a metric's name, labels are in UTF-8.
struct Sample {
    std::string name;
    std::map<std::string, std::string> labels;
    double value = 0;
};

/// The description of a metric: `type` is counter or gauge, `help` a sentence for people.
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

} // namespace stacksaga::coordinator
