// Requests in pieces, the limits of a request, accepted hosts, answers as text.
#include "http/message.hpp"

#include <gtest/gtest.h>

namespace stacksaga::coordinator {
namespace {

TEST(HttpReader, ReadsRequestsInPiecesAndInOne) {
    const std::string text = "GET /status?database=a HTTP/1.1\r\nHost: localhost\r\n\r\n"
                             "HEAD / HTTP/1.1\r\nX-Empty:\r\nhost: db\r\nConnection: close\r\n\r\n";
    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, text.size()}) {
        HttpReader reader;
        for (std::size_t at = 0; at < text.size(); at += piece)
            ASSERT_TRUE(reader.feed(std::string_view(text).substr(at, piece))) << piece;
        const auto first = reader.take();
        const auto second = reader.take();
        ASSERT_TRUE(first && second);
        EXPECT_FALSE(reader.take());
        EXPECT_EQ(first->method, "GET");
        EXPECT_EQ(first->target, "/status?database=a");
        EXPECT_EQ(first->host, "localhost");
        EXPECT_TRUE(first->keeps_alive);
        EXPECT_EQ(second->method, "HEAD");
        EXPECT_EQ(second->host, "db");
        EXPECT_FALSE(second->keeps_alive);
    }
}

TEST(HttpReader, TakesAnOlderClientWithoutHost) {
    HttpReader reader;
    ASSERT_TRUE(reader.feed("GET /livez HTTP/1.0\r\n\r\n"));
    const auto message = reader.take();
    ASSERT_TRUE(message);
    EXPECT_FALSE(message->host);
    EXPECT_FALSE(message->keeps_alive);
}

TEST(HttpReader, DoesNotTakeTwoHosts) {
    HttpReader reader;
    ASSERT_TRUE(reader.feed("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n"));
    EXPECT_EQ(reader.take()->host, "");
}

TEST(HttpReader, RefusesMalformedAndLargeRequests) {
    const std::string many(9000, 'x');
    std::string fields;
    for (int i = 0; i < 65; ++i)
        fields += "X: y\r\n";
    for (const auto &[text, status] : std::vector<std::pair<std::string, int>>{
             {"nonsense\r\n\r\n", 400},
             {"GET / HTTP/1.1\r\n\r\n", 400},
             {"GET /" + many + " HTTP/1.1\r\nHost: h\r\n\r\n", 414},
             {"GET / HTTP/1.1\r\nHost: " + many + "\r\n\r\n", 431},
             {"GET / HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n", 431},
             {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody", 413},
             {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 70000\r\n\r\n" +
                  std::string(66000, 'x'),
              413}}) {
        HttpReader reader;
        EXPECT_FALSE(reader.feed(text)) << text.substr(0, 60);
        EXPECT_EQ(reader.refusal(), status) << text.substr(0, 60);
        EXPECT_FALSE(reader.take());
        EXPECT_FALSE(reader.feed("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    }
}

TEST(HttpReader, ReadsAFormInPiecesAndItsHeaders) {
    const std::string text = "POST /api/login HTTP/1.1\r\nHost: h\r\nX-One: 1\r\nx-one: 2\r\n"
                             "Origin: http://h\r\nContent-Length: 9\r\n\r\na=b&c=%20d"
                             "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for (const std::size_t piece : {std::size_t{1}, text.size()}) {
        HttpReader reader;
        for (std::size_t at = 0; at < text.size(); at += piece)
            reader.feed(std::string_view(text).substr(at, piece));
        const auto form = reader.take();
        ASSERT_TRUE(form);
        EXPECT_EQ(form->body, "a=b&c=%20");
        EXPECT_EQ(form->headers.at("origin"), "http://h");
        EXPECT_EQ(form->headers.at("x-one"), "") << "two values are none";
        EXPECT_EQ(reader.refusal(), 400) << "what follows the body is the next request";
    }
}

TEST(HttpReader, IgnoresHeadersBehindABody) {
    HttpReader reader;
    ASSERT_TRUE(reader.feed("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                            "4\r\nbody\r\n0\r\nX-Remote-User: admin\r\nX-More: 1\r\n\r\n"));
    const auto message = reader.take();
    ASSERT_TRUE(message);
    EXPECT_EQ(message->body, "body");
    EXPECT_FALSE(message->headers.contains("x-remote-user"));
    EXPECT_FALSE(message->headers.contains("x-more"));
}

// A proxy in front may find other requests or headers in such bytes than this daemon does.
TEST(HttpReader, RefusesLinesThatAProxyMayReadInAnotherWay) {
    const std::string start = "POST / HTTP/1.1\r\n";
    const std::string chunked = start + "Host: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (const std::string &text : {std::string("GET / HTTP/1.1\nHost: h\n\n"),
                                    start + "Host: h\n\r\n",
                                    start + "Host: h\r\nX: 1\n\r\n",
                                    start + "Host: h\r\nX: 1\r\n\n",
                                    start + "Host : h\r\n\r\n",
                                    start + "Host: h\r\nX-Remote-User : admin\r\n\r\n",
                                    start + "Host: h\r\nX\t: 1\r\n\r\n",
                                    start + "Host: h\r\nX Y: 1\r\n\r\n",
                                    start + "Host: h\r\nX: 1\r\n folded\r\n\r\n",
                                    start + "Host: h\r\nX: 1\r\n\tfolded\r\n\r\n",
                                    start + "Host: h\r\nX:\r\n X-Remote-User: admin\r\n\r\n",
                                    start + " Host: h\r\n\r\n",
                                    start + "Host: h\r\nX: a\rb\r\n\r\n",
                                    "\n" + start + "Host: h\r\n\r\n",
                                    chunked + "4\nbody\r\n0\r\n\r\n",
                                    chunked + "4\r\nbody\r\n0\n\r\n",
                                    chunked + "4;a\nb\r\nbody\r\n0\r\n\r\n",
                                    chunked + "4\r\nbody\n0\r\n\r\n",
                                    chunked + "0\r\nX : 1\r\n\r\n",
                                    chunked + "0\r\nX: 1\r\n y\r\n\r\n"})
        for (const std::size_t piece : {std::size_t{1}, text.size()}) {
            HttpReader reader;
            for (std::size_t at = 0; at < text.size(); at += piece)
                reader.feed(std::string_view(text).substr(at, piece));
            EXPECT_EQ(reader.refusal(), 400) << text;
            EXPECT_FALSE(reader.take()) << text;
        }
}

TEST(HttpReader, LeavesTheBytesOfABodyAlone) {
    const std::string body = "a=\n b :\r c\n\n";
    const std::string form =
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body;
    const std::string parts =
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\n" +
        body.substr(0, 2) + "\r\n" + "a\r\n" + body.substr(2) + "\r\n0\r\n\r\n";
    for (const std::string &text : {form + form + parts + form, parts + parts + form})
        for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, text.size()}) {
            HttpReader reader;
            for (std::size_t at = 0; at < text.size(); at += piece)
                ASSERT_TRUE(reader.feed(std::string_view(text).substr(at, piece)));
            int count = 0;
            for (; const auto message = reader.take(); ++count)
                EXPECT_EQ(message->body, body);
            EXPECT_EQ(count, text.starts_with(form) ? 4 : 3);
        }
}

TEST(OwnOrigin, IsThatOfTheHostOrANameThatWasGiven) {
    const std::vector<std::string> names{"ops.example", "other.example:8443"};
    for (const char *origin :
         {"http://127.0.0.1:9187", "https://127.0.0.1:9187", "https://ops.example",
          "HTTPS://OPS.example", "https://other.example:8443"})
        EXPECT_TRUE(is_own_origin(origin, "127.0.0.1:9187", names)) << origin;
    for (const char *origin :
         {"", "null", "http://", "http://127.0.0.1", "http://127.0.0.1:9188", "http://6.6.6.6",
          "http://localhost:9187", "https://ops.example:444", "https://other.example",
          "https://ops.example.evil", "https://evil@ops.example", "ops.example",
          "file://ops.example", "https://evil/ops.example"})
        EXPECT_FALSE(is_own_origin(origin, "127.0.0.1:9187", names)) << origin;
}

TEST(Cookie, IsFoundByItsWholeName) {
    EXPECT_EQ(cookie("a=1; session=x; b=2", "session"), "x");
    EXPECT_EQ(cookie("session=", "session"), "");
    EXPECT_EQ(cookie("my_session=y; sessions=z", "session"), std::nullopt);
    EXPECT_EQ(cookie("", "session"), std::nullopt);
}

TEST(OwnHost, IsAnAddressLocalhostOrANameThatWasGiven) {
    const std::vector<std::string> names{"db.example", "Metrics"};
    for (const char *host :
         {"127.0.0.1", "127.0.0.1:9187", "[::1]:9187", "[fe80::1]", "10.1.2.3", "localhost",
          "LOCALHOST:80", "localhost.", "db.example", "DB.example:1", "db.example.:1", "metrics"})
        EXPECT_TRUE(is_own_host(host, names)) << host;
    for (const char *host : {"", "evil.example", "evil.example:9187", "localhost.evil.example",
                             "127.0.0.1.evil.example", "127.1", "db.example.evil", "[", "]", ":80",
                             "[evil.example]", "a:b:c"})
        EXPECT_FALSE(is_own_host(host, names)) << host;
}

TEST(ParseTarget, DecodesTheQuery) {
    const auto parse = [](std::string target) {
        return parse_target({.method = "GET", .target = std::move(target), .host = {}});
    };
    const auto request = parse("/status?database=a%2Fb+c&x&database=second&=&y=1=2#part");
    ASSERT_TRUE(request);
    EXPECT_EQ(request->path, "/status");
    EXPECT_EQ(request->parameters.at("database"), "a/b c");
    EXPECT_EQ(request->parameters.at("x"), "");
    EXPECT_EQ(request->parameters.at("y"), "1=2");
    EXPECT_EQ(parse("/")->parameters.size(), 0U);
    for (const char *wrong : {"/?a=%", "/?a=%4", "/?a=%zz", "/?%g0=b"})
        EXPECT_FALSE(parse(wrong)) << wrong;
}

TEST(FormatResponse, SendsNoBodyForHead) {
    const HttpResponse response{200, "text/plain", "ok\n", {}};
    const std::string get = format_response(response, "GET", true);
    EXPECT_TRUE(
        get.starts_with("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n"));
    EXPECT_TRUE(get.ends_with("\r\n\r\nok\n"));
    EXPECT_EQ(format_response(response, "HEAD", true) + "ok\n", get);
    const HttpResponse refused{405, "text/plain", "", {{"Allow", "GET, HEAD"}}};
    EXPECT_NE(format_response(refused, "POST", false).find("\r\nAllow: GET, HEAD\r\n"),
              std::string::npos);
    EXPECT_TRUE(format_response({421, "text/plain", "", {}}, "GET", false)
                    .starts_with("HTTP/1.1 421 Misdirected Request\r\n"));
}

} // namespace
} // namespace stacksaga::coordinator
