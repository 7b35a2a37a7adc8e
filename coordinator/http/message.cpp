#include "http/message.hpp"

#include <asio/ip/address.hpp>
#include <fmt/format.h>
#include <http_parser.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace stacksaga::coordinator {
namespace {

constexpr std::size_t target_bytes_max = 2048;
constexpr std::size_t header_bytes_max = 8192;
constexpr std::size_t headers_max = 64;
constexpr std::size_t body_bytes_max = 65536;

/// The page loads nothing from other sites, and no site may frame it.
constexpr const char *content_security_policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string lower_case(std::string_view text) {
    std::string lower(text);
    std::ranges::transform(lower, lower.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return lower;
}

/// The name or address of HOST, HOST:PORT, [V6] or [V6]:PORT, in lower case and without a final
/// dot.
std::string host_name(std::string_view host) {
    if (host.starts_with('['))
        host = host.substr(1, std::min(host.find(']'), host.size()) - 1);
    else if (std::ranges::count(host, ':') == 1)
        host = host.substr(0, host.find(':'));
    if (host.ends_with('.'))
        host.remove_suffix(1);
    return lower_case(host);
}

std::optional<std::string> decoded(std::string_view text) {
    const auto digit = [](char c) {
        return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' ? (c | 0x20) - 'a' + 10 : -1;
    };
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '+') {
            out += ' ';
        } else if (text[i] != '%') {
            out += text[i];
        } else {
            if (i + 2 >= text.size() ||
                std::isxdigit(static_cast<unsigned char>(text[i + 1])) == 0 ||
                std::isxdigit(static_cast<unsigned char>(text[i + 2])) == 0)
                return std::nullopt;
            out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
            i += 2;
        }
    }
    return out;
}

std::string_view reason(int status) {
    const char *text = http_status_str(static_cast<http_status>(status));
    return std::string_view(text).starts_with('<') ? "Error" : text;
}

} // namespace

struct HttpReader::State {
    http_parser parser{};
    http_parser_settings settings{};
    HttpMessage message; ///< the one that is being read
    std::string name;    ///< of the header that is being read
    std::string value;
    bool in_value = false;
    bool in_trailer = false; ///< after the body: those headers count for nothing
    bool in_lines = true;    ///< lines come, not the bytes of a body
    char last = '\n';        ///< the byte before, of the lines
    std::size_t headers = 0;
    std::size_t header_bytes = 0;
    int refusal = 0;
    std::deque<HttpMessage> complete;

    static State &of(http_parser *parser) { return *static_cast<State *>(parser->data); }

    /// The return value of a callback that stops the parser.
    int refuse(int status) {
        refusal = status;
        return -1;
    }

    void end_header() {
        if (!name.empty() && !in_trailer) {
            const auto [header, is_new] = message.headers.emplace(lower_case(name), value);
            if (!is_new && header->second != value)
                header->second.clear();
        }
        name.clear();
        value.clear();
        in_value = false;
    }

    int add_name(std::string_view text) {
        if (in_value)
            end_header();
        if (text.find_first_of(" \t") != std::string_view::npos)
            return refuse(400); // a proxy may have read another name
        if (name.empty() && ++headers > headers_max)
            return refuse(431);
        name += text;
        return count(text);
    }

    int add_value(std::string_view text) {
        in_value = true;
        value += text;
        return count(text);
    }

    int count(std::string_view text) {
        header_bytes += text.size();
        return header_bytes > header_bytes_max ? refuse(431) : 0;
    }

    /// The bytes up to the end of the next line, or of the text. Refuses lines that a proxy may
    /// divide in another way: those that end without CR LF, and those that go on in the next one.
    std::string_view take_line(std::string_view text) {
        std::size_t at = 0;
        while (at < text.size()) {
            const char c = text[at++];
            const bool is_folded = last == '\n' && (c == ' ' || c == '\t');
            if (is_folded || (c == '\n') != (last == '\r')) {
                refusal = 400;
                return {};
            }
            last = c;
            if (c == '\n')
                break;
        }
        return text.substr(0, at);
    }

    void begin() {
        message = {};
        name.clear();
        value.clear();
        in_value = in_trailer = false;
        headers = header_bytes = 0;
    }

    void end() {
        message.method = http_method_str(static_cast<http_method>(parser.method));
        message.keeps_alive = http_should_keep_alive(&parser) != 0 && parser.upgrade == 0;
        complete.push_back(std::move(message));
        begin_lines();
    }

    /// Ends a body, or a part of one: the parser stops, so that the lines are looked at first.
    void begin_lines() {
        in_lines = true;
        last = '\n';
        http_parser_pause(&parser, 1);
    }
};

HttpReader::HttpReader() : state_(std::make_unique<State>()) {
    http_parser_settings &on = state_->settings;
    on.on_message_begin = [](http_parser *parser) {
        State::of(parser).begin();
        return 0;
    };
    on.on_url = [](http_parser *parser, const char *at, std::size_t length) {
        State &state = State::of(parser);
        state.message.target.append(at, length);
        return state.message.target.size() > target_bytes_max ? state.refuse(414) : 0;
    };
    on.on_header_field = [](http_parser *parser, const char *at, std::size_t length) {
        return State::of(parser).add_name({at, length});
    };
    on.on_header_value = [](http_parser *parser, const char *at, std::size_t length) {
        return State::of(parser).add_value({at, length});
    };
    on.on_headers_complete = [](http_parser *parser) {
        State &state = State::of(parser);
        state.end_header();
        state.in_trailer = true;
        state.in_lines = (parser->flags & F_CHUNKED) != 0;
        if (const auto host = state.message.headers.find("host");
            host != state.message.headers.end())
            state.message.host = host->second;
        else if (parser->http_minor > 0)
            return state.refuse(400); // as HTTP/1.1 demands
        return 0;
    };
    on.on_body = [](http_parser *parser, const char *at, std::size_t length) {
        State &state = State::of(parser);
        if (parser->method != HTTP_POST || state.message.body.size() + length > body_bytes_max)
            return state.refuse(413);
        state.message.body.append(at, length);
        return 0;
    };
    on.on_chunk_header = [](http_parser *parser) {
        State::of(parser).in_lines = parser->content_length == 0;
        return 0;
    };
    on.on_chunk_complete = [](http_parser *parser) {
        if ((parser->flags & F_TRAILING) == 0) // the last one ends with the message
            State::of(parser).begin_lines();
        return 0;
    };
    on.on_message_complete = [](http_parser *parser) {
        State::of(parser).end();
        return 0;
    };
    http_parser_init(&state_->parser, HTTP_REQUEST);
    state_->parser.data = state_.get();
}

HttpReader::~HttpReader() = default;

bool HttpReader::feed(std::string_view bytes) {
    http_parser *parser = &state_->parser;
    while (state_->refusal == 0 && !bytes.empty()) {
        const std::string_view part = state_->in_lines ? state_->take_line(bytes) : bytes;
        if (state_->refusal != 0)
            break;
        const std::size_t parsed =
            http_parser_execute(parser, &state_->settings, part.data(), part.size());
        if (HTTP_PARSER_ERRNO(parser) == HPE_PAUSED)
            http_parser_pause(parser, 0);
        else if (HTTP_PARSER_ERRNO(parser) == HPE_HEADER_OVERFLOW)
            state_->refusal = 431;
        else if ((HTTP_PARSER_ERRNO(parser) != HPE_OK || parsed == 0) && state_->refusal == 0)
            state_->refusal = 400;
        bytes.remove_prefix(parsed);
    }
    return state_->refusal == 0;
}

std::optional<HttpMessage> HttpReader::take() {
    if (state_->complete.empty())
        return std::nullopt;
    HttpMessage message = std::move(state_->complete.front());
    state_->complete.pop_front();
    return message;
}

std::string_view HttpRequest::header(const std::string &name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::string HttpRequest::parameter(const std::string &name) const {
    const auto found = parameters.find(name);
    return found == parameters.end() ? std::string() : found->second;
}

int HttpReader::refusal() const noexcept {
    return state_->refusal;
}

bool is_own_host(std::string_view host, const std::vector<std::string> &names) {
    const std::string name = host_name(host);
    asio::error_code not_an_address;
    asio::ip::make_address(name, not_an_address);
    return !not_an_address || name == "localhost" ||
           std::ranges::any_of(names,
                               [&](const std::string &own) { return host_name(own) == name; });
}

bool is_own_origin(std::string_view origin, std::string_view host,
                   const std::vector<std::string> &names) {
    const std::string text = lower_case(origin);
    std::string_view authority = text;
    if (authority.starts_with("https://"))
        authority.remove_prefix(8);
    else if (authority.starts_with("http://"))
        authority.remove_prefix(7);
    else
        return false; // "null" as well, the origin of pages without one
    if (authority.empty() || authority.find_first_of("/?#@ ") != std::string_view::npos)
        return false;
    return authority == lower_case(host) || std::ranges::any_of(names, [&](const auto &name) {
               return lower_case(name) == authority;
           });
}

std::optional<HttpParameters> parse_form(std::string_view text) {
    HttpParameters parameters;
    while (!text.empty()) {
        const std::string_view pair = text.substr(0, text.find('&'));
        text.remove_prefix(std::min(pair.size() + 1, text.size()));
        const auto equals = std::min(pair.find('='), pair.size());
        const auto name = decoded(pair.substr(0, equals));
        const auto value = decoded(pair.substr(std::min(equals + 1, pair.size())));
        if (!name || !value)
            return std::nullopt;
        parameters.emplace(*name, *value);
    }
    return parameters;
}

std::optional<HttpRequest> parse_target(const HttpMessage &message) {
    std::string_view target = message.target;
    target = target.substr(0, target.find('#'));
    const auto question = target.find('?');
    auto parameters =
        parse_form(question == std::string_view::npos ? "" : target.substr(question + 1));
    if (!parameters)
        return std::nullopt;
    return HttpRequest{.method = message.method,
                       .path = std::string(target.substr(0, question)),
                       .parameters = std::move(*parameters),
                       .headers = message.headers,
                       .body = message.body};
}

std::optional<std::string> cookie(std::string_view header, std::string_view name) {
    while (!header.empty()) {
        std::string_view pair = header.substr(0, header.find(';'));
        header.remove_prefix(std::min(pair.size() + 1, header.size()));
        pair.remove_prefix(std::min(pair.find_first_not_of(' '), pair.size()));
        if (pair.size() > name.size() && pair.starts_with(name) && pair[name.size()] == '=')
            return std::string(pair.substr(name.size() + 1));
    }
    return std::nullopt;
}

std::string format_response(const HttpResponse &response, std::string_view method,
                            bool keeps_alive) {
    std::string more;
    for (const auto &[name, value] : response.headers)
        more += name + ": " + value + "\r\n";
    return fmt::format("HTTP/1.1 {} {}\r\n"
                       "Connection: {}\r\n"
                       "Content-Length: {}\r\n"
                       "Content-Type: {}\r\n"
                       "Cache-Control: no-store\r\n"
                       "X-Content-Type-Options: nosniff\r\n"
                       "Referrer-Policy: no-referrer\r\n"
                       "Content-Security-Policy: {}\r\n"
                       "{}\r\n{}",
                       response.status, reason(response.status),
                       keeps_alive ? "keep-alive" : "close", response.body.size(),
                       response.content_type, content_security_policy, more,
                       method == "HEAD" ? "" : response.body);
}

} // namespace stacksaga::coordinator
