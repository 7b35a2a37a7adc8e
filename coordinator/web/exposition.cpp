#include "web/exposition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

} // namespace stacksaga::coordinator
