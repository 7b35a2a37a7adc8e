// Text forms of values for libpq, and connections to servers that do not answer.
#include "db/connection.hpp"
#include "db/store_error.hpp"
#include "roles/pg_control_store.hpp"

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/post.hpp>
#include <asio/system_error.hpp>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <unistd.h>

namespace stacksaga::coordinator {
namespace {

TEST(ArrayLiteral, QuotesEveryElement) {
    const std::vector<std::string> none;
    EXPECT_EQ(array_literal(none), "{}");
    const std::vector<std::string> names{"a", "", "NULL", "x,y", "{z}", "q\"\\", "Zürich"};
    EXPECT_EQ(array_literal(names), R"({"a","","NULL","x,y","{z}","q\"\\","Zürich"})");
    const std::vector<std::int64_t> numbers{std::numeric_limits<std::int64_t>::min(), 0, 7};
    EXPECT_EQ(array_literal(numbers), "{-9223372036854775808,0,7}");
}

TEST(SqlstateIn, FindsTheCodeOfAVerboseMessage) {
    EXPECT_EQ(sqlstate_in("connection to server on socket \"/tmp/.s.PGSQL.5432\" failed: "
                          "FATAL:  28P01: password authentication failed for user \"u\""),
              "28P01");
    EXPECT_EQ(sqlstate_in("connection to server at \"a\" failed: FATAL:  57P03: starting up\n"
                          "connection to server at \"b\" failed: FATAL:  3D000: no database"),
              "3D000");
    EXPECT_EQ(sqlstate_in("... failed: Connection refused\n\tIs the server running?"), "");
    EXPECT_EQ(sqlstate_in("FATAL:  password authentication failed"), "");
    EXPECT_EQ(sqlstate_in(""), "");
    EXPECT_EQ(sqlstate_in(":  "), "");
}

TEST(Words, OfTheControlTables) {
    EXPECT_EQ(parse_node_kind("worker"), NodeKind::worker);
    EXPECT_EQ(parse_node_kind("standard"), NodeKind::standard);
    EXPECT_EQ(parse_node_kind("agent"), NodeKind::agent);
    EXPECT_EQ(parse_node_kind("observer"), NodeKind::unknown);
    EXPECT_EQ(parse_node_state("active"), NodeState::active);
    EXPECT_EQ(parse_node_state("suspected"), NodeState::suspected);
    EXPECT_EQ(parse_node_state("dead"), NodeState::dead);
    EXPECT_EQ(parse_node_state("draining"), NodeState::draining);
    EXPECT_EQ(parse_node_state("Active"), NodeState::unknown);
    EXPECT_EQ(parse_strategy("consistent"), Strategy::consistent);
    EXPECT_EQ(parse_strategy("contiguous"), Strategy::contiguous);
    EXPECT_FALSE(parse_strategy("random"));
}

/// Runs open() to its end, or until `stop` is emitted, and gives the error.
std::exception_ptr open_error(asio::io_context &io, const std::string &conninfo,
                              asio::cancellation_signal &stop) {
    PgControlStore store(io.get_executor(), conninfo, {});
    std::exception_ptr failure;
    asio::co_spawn(io, store.open(),
                   asio::bind_cancellation_slot(stop.slot(),
                                                [&](std::exception_ptr thrown, const ServerInfo &) {
                                                    failure = std::move(thrown);
                                                }));
    io.run();
    return failure;
}

void expect_reconnect(const std::exception_ptr &failure, std::string_view message) {
    ASSERT_TRUE(failure);
    try {
        std::rethrow_exception(failure);
    } catch (const StoreError &error) {
        EXPECT_EQ(error.kind, ErrorClass::reconnect);
        const std::string_view what = error.what();
        EXPECT_NE(what.find(message), std::string_view::npos) << what;
        EXPECT_FALSE(what.ends_with('\n'));
    }
}

TEST(Store, ReportsAnUnreachableServerAsReconnect) {
    asio::io_context io(1);
    asio::cancellation_signal stop;
    expect_reconnect(open_error(io, "host=/nonexistent dbname=shop", stop), "/nonexistent");
}

/// A server that accepts connections and never answers.
class SilentServer {
public:
    explicit SilentServer(asio::io_context &io) : acceptor_(io) {
        folder_ = ::testing::TempDir() + "unresponsive." + std::to_string(::getpid());
        std::filesystem::create_directory(folder_);
        const asio::local::stream_protocol::endpoint endpoint(folder_ + "/.s.PGSQL.5432");
        acceptor_.open(endpoint.protocol());
        acceptor_.bind(endpoint);
        acceptor_.listen();
    }
    SilentServer(const SilentServer &) = delete;
    SilentServer &operator=(const SilentServer &) = delete;
    ~SilentServer() { std::filesystem::remove_all(folder_); }

    [[nodiscard]] const std::string &host() const { return folder_; }
    [[nodiscard]] std::string conninfo() const {
        return "host=" + folder_ + " port=5432 dbname=shop connect_timeout=2";
    }

private:
    asio::local::stream_protocol::acceptor acceptor_;
    std::string folder_;
};

TEST(Store, GivesUpOnAnUnresponsiveServer) {
    asio::io_context io(1);
    const SilentServer server(io);
    asio::cancellation_signal stop;
    expect_reconnect(open_error(io, server.conninfo(), stop), "no answer within 2 s");
}

/// libpq itself tries the next host only after an error, and a frozen server makes none.
TEST(Store, TriesTheHostsBehindAnUnresponsiveOne) {
    asio::io_context io(1);
    const SilentServer server(io);
    asio::cancellation_signal stop;
    const std::string hosts = server.host() + "," + server.host() + ",/nonexistent";
    for (const char *ports : {"5432", "5432,5432,5433"}) {
        io.restart();
        const auto failure = open_error(
            io, "host=" + hosts + " port=" + ports + " dbname=shop connect_timeout=2", stop);
        expect_reconnect(failure, "/nonexistent");
        try {
            std::rethrow_exception(failure);
        } catch (const StoreError &error) {
            EXPECT_NE(error.detail.find(server.host() + ", port 5432: no answer within 2 s"),
                      std::string::npos)
                << error.detail;
        }
    }
}

TEST(Store, StopsAtOnceWhileItConnects) {
    asio::io_context io(1);
    const SilentServer server(io);
    asio::cancellation_signal stop;
    asio::post(io, [&] { stop.emit(asio::cancellation_type::terminal); });
    const auto failure = open_error(io, server.conninfo(), stop);
    ASSERT_TRUE(failure);
    try {
        std::rethrow_exception(failure);
    } catch (const asio::system_error &error) {
        EXPECT_EQ(error.code(), asio::error::operation_aborted);
    }
}

} // namespace
} // namespace stacksaga::coordinator
