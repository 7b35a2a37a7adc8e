// The control tables over libpq. pg_control_store.cpp has all SQL of the daemon's roles.
#pragma once

#include "db/connection.hpp"
#include "db/store_error.hpp"
#include "roles/control_store.hpp"

#include <string>

namespace stacksaga::coordinator {

/// Lifecycle: as ControlStore's. Calls only functions and views of schema stacksaga that
/// `stacksaga.grant_usage(role, 'coordinator')` grants. Every statement is its own transaction. It
/// has a deadline in the daemon and a slightly later one on the server, so that no statement goes
/// on without its client.
class PgControlStore final : public AgentStore {
public:
    PgControlStore(const asio::any_io_executor &executor, std::string conninfo,
                   Connection::NoticeHandler on_notice);

    asio::awaitable<ServerInfo> open() override;
    void close() noexcept override { connection_.close(); }
    asio::awaitable<RingState> ring_state(const RingName &ring) override;
    asio::awaitable<std::vector<Node>> nodes(const RingName &ring) override;
    asio::awaitable<std::vector<Slot>> slots(const RingName &ring) override;
    asio::awaitable<std::optional<std::int64_t>>
    publish_window(const RingName &ring, const Proposal &proposal,
                   const std::string &publisher) override;
    asio::awaitable<std::int64_t> register_agent(const RingName &ring, const std::string &name,
                                                 double weight) override;
    asio::awaitable<Beat> beat(const RingName &ring, const AgentIdentity &agent) override;
    asio::awaitable<void> leave(const AgentIdentity &agent) override;
    asio::awaitable<std::vector<Slot>> assigned_slots(const std::string &agent,
                                                      Instant window_start) override;

private:
    asio::awaitable<Rows> ask(const char *sql, const Parameters &parameters);

    Connection connection_;
    std::string conninfo_;
};

/// Words of the control tables; one that this version does not know becomes `unknown`.
[[nodiscard]] NodeKind parse_node_kind(std::string_view word) noexcept;
[[nodiscard]] NodeState parse_node_state(std::string_view word) noexcept;
[[nodiscard]] std::optional<Strategy> parse_strategy(std::string_view word) noexcept;

} // namespace stacksaga::coordinator
