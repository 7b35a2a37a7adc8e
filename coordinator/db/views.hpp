// The views of the page and the commands, as a table of queries. A view is one query that returns
// one JSON text and costs the database nothing that grows with history.
#pragma once

#include <span>
#include <string_view>
#include <vector>

/// A line of saga_timeline() without what a service said of its progress, which is of the payload's
/// kind.
#define WITHOUT_PROGRESS(LINE)                                                                     \
    "pg_catalog.regexp_replace(" LINE ", '(: claimed by .*?), progress .*$', '\\1')"

namespace stacksaga::coordinator {

struct View {
    std::string_view path;
    /// Parameters of the request, in the order of the query's. "payloads" is not the request's: it
    /// says whether the viewer sees payloads. A missing or empty one is NULL.
    std::vector<std::string_view> parameters;
    const char *sql;
    /// The message when the answer is NULL.
    std::string_view missing = {};
    /// Only for viewers who see payloads.
    bool is_for_operators = false;
};

[[nodiscard]] std::span<const View> views();

} // namespace stacksaga::coordinator
