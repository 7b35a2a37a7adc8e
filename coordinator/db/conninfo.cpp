#include "db/conninfo.hpp"

#include <algorithm>
#include <cctype>

namespace stacksaga::coordinator {
namespace {

constexpr const char *hidden = "****";

/// True where dbname holds more than a name, by libpq's own rule.
bool is_conninfo(std::string_view dbname) {
    return dbname.find('=') != std::string_view::npos || dbname.starts_with("postgresql://") ||
           dbname.starts_with("postgres://");
}

/// Whether part of a string that libpq cannot parse may be a secret.
bool may_hold_secret(std::string_view conninfo) {
    std::string lower(conninfo);
    std::ranges::transform(lower, lower.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return lower.find("pass") != std::string::npos || lower.find("://") != std::string::npos ||
           lower.find('@') != std::string::npos;
}

/// libpq quotes the text that it could not parse, which may be a password or a whole URI.
std::string without_quotation(std::string message) {
    const auto from = message.find('"');
    const auto to = message.rfind('"');
    if (from != to)
        message.replace(from + 1, to - from - 1, hidden);
    return message;
}

/// The value in quotes that libpq understands.
std::string quoted(std::string_view value) {
    if (!value.empty() && value.find_first_of(" \t\r\n'\\") == std::string_view::npos)
        return std::string(value);
    std::string text = "'";
    for (const char c : value) {
        if (c == '\'' || c == '\\')
            text += '\\';
        text += c;
    }
    return text + "'";
}

} // namespace

std::optional<std::string> option_value(const ConninfoOptions &options, std::string_view keyword) {
    for (const auto *option = options.get(); option && option->keyword; ++option) {
        if (option->keyword == keyword && option->val && *option->val)
            return option->val;
    }
    return std::nullopt;
}

std::optional<std::string> conninfo_complaint(const std::string &conninfo) {
    if (!is_conninfo(conninfo)) {
        if (conninfo.find("://") == std::string::npos)
            return std::nullopt;
        return "a URI begins with postgresql:// or postgres://, in lower case";
    }
    char *complaint = nullptr;
    const ConninfoOptions parsed{PQconninfoParse(conninfo.c_str(), &complaint)};
    const std::unique_ptr<char, decltype(&PQfreemem)> text{complaint, &PQfreemem};
    if (!parsed) {
        std::string message = text ? text.get() : "out of memory";
        while (message.ends_with('\n'))
            message.pop_back();
        return may_hold_secret(conninfo) ? without_quotation(std::move(message)) : message;
    }
    if (is_conninfo(option_value(parsed, "dbname").value_or("")))
        return "dbname must be the name of a database, not another connection string";
    return std::nullopt;
}

std::string database_label(const std::string &conninfo) {
    if (!is_conninfo(conninfo))
        return conninfo;
    const ConninfoOptions parsed{PQconninfoParse(conninfo.c_str(), nullptr)};
    std::string label;
    for (const char *wanted : {"service", "host", "port", "dbname"}) {
        if (const auto value = option_value(parsed, wanted))
            label += (label.empty() ? "" : "/") + *value;
    }
    return label;
}

std::string without_secrets(const std::string &conninfo) {
    if (conninfo_complaint(conninfo))
        return hidden;
    if (!is_conninfo(conninfo))
        return conninfo;
    const ConninfoOptions parsed{PQconninfoParse(conninfo.c_str(), nullptr)};
    std::string text;
    for (const auto *option = parsed.get(); option && option->keyword; ++option) {
        if (!option->val)
            continue;
        // libpq marks the values that a dialog must not echo, but not all of them: the name decides
        // as well. A host with an @ holds the rest of a password whose own @ was not written as
        // %40.
        const std::string_view keyword{option->keyword}, value{option->val};
        const bool is_secret = std::string_view(option->dispchar) == "*" ||
                               keyword.find("password") != std::string_view::npos ||
                               (keyword == "host" && value.find('@') != std::string_view::npos);
        text += (text.empty() ? "" : " ") + std::string(keyword) + "=" +
                (is_secret ? hidden : quoted(value));
    }
    return text;
}

std::string url_without_secrets(const std::string &url) {
    const auto scheme = url.find("://");
    const auto begin = scheme == std::string::npos ? 0 : scheme + 3;
    const auto query = std::min(url.find_first_of("?#"), url.size());
    const auto at = url.rfind('@');
    // A password may hold any character that was not written as %40: where an @ comes later than
    // the query seems to begin, all may be one.
    if (at != std::string::npos && at > query)
        return url.substr(0, begin) + hidden;
    std::string text = url.substr(0, query);
    if (query < url.size())
        text += url.substr(query, 1) + hidden;
    if (at != std::string::npos && at >= begin)
        text.replace(begin, at - begin, hidden);
    return text;
}

} // namespace stacksaga::coordinator
