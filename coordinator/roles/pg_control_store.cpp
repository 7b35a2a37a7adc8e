#include "roles/pg_control_store.hpp"

#include "db/shared_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace stacksaga::coordinator {
namespace {

/// The longest time for one statement in the daemon; SQL_SESSION limits it on the server.
constexpr Duration statement_deadline = std::chrono::seconds(5);
constexpr std::array<std::string_view, 1> role_kinds{"coordinator"};

/// A longer window is a mistake, and its arithmetic could overflow.
constexpr Duration longest_interval = std::chrono::hours(24 * 366);

constexpr const char *SQL_SESSION =
    "SELECT pg_catalog.set_config('statement_timeout', '6s', false),"
    "       pg_catalog.set_config('idle_in_transaction_session_timeout', '6s', false)";

struct RingColumns {
    enum {
        database_time,
        window_length,
        publish_lead,
        strategy,
        slots,
        epoch,
        last_window,
        virtual_nodes
    };
};
constexpr const char *SQL_RING_STATE =
    "SELECT (extract(epoch FROM database_time) * 1000000)::bigint,"
    "       (extract(epoch FROM window_length) * 1000000)::bigint,"
    "       (extract(epoch FROM publish_lead) * 1000000)::bigint,"
    "       strategy, slots, epoch,"
    "       (extract(epoch FROM last_window) * 1000000)::bigint, virtual_nodes"
    "  FROM stacksaga.ring_state(region => $1::text, cluster => $2::text)";

struct NodeColumns {
    enum { node, kind, state, weight, agent, frozen };
};
constexpr const char *SQL_NODES =
    "SELECT node, kind, state, weight, agent, frozen"
    "  FROM stacksaga.ring_nodes(region => $1::text, cluster => $2::text)";

/// Also those of SQL_AGENT_SLOTS.
struct SlotColumns {
    enum { slot, range_start, range_end, node, next_node };
};
constexpr const char *SQL_SLOTS =
    "SELECT slot, range_start, range_end, node, next_node"
    "  FROM stacksaga.ring_slots(region => $1::text, cluster => $2::text)"
    " ORDER BY slot";

// A product of an interval of one microsecond is exact for every instant up to the year 2255.
constexpr const char *SQL_PUBLISH =
    "SELECT stacksaga.publish_window("
    "         region       => $1::text,"
    "         cluster      => $2::text,"
    "         window_start => timestamptz 'epoch' + $3::bigint * interval '1 microsecond',"
    "         nodes        => $4::text[],"
    "         range_starts => $5::bigint[],"
    "         range_ends   => $6::bigint[],"
    "         publisher    => $7::text,"
    "         agent        => nullif($8::text, ''))";

// A service may register a node too, but not publish: the ring would give workers to an agent that
// cannot serve them.
constexpr const char *SQL_REGISTER =
    "SELECT stacksaga.register_node(node => $3::text, region => $1::text, cluster => $2::text,"
    "                               kind => 'agent', weight => $4::double precision)"
    " WHERE pg_catalog.has_function_privilege('stacksaga.publish_window(text,text,timestamptz,"
    "text[],bigint[],bigint[],text,text)', 'EXECUTE')";

struct BeatColumns {
    enum { state, interval, checkpoint };
};
// The heartbeat answers a checkpoint request at once.
constexpr const char *SQL_BEAT =
    "SELECT b.state, (extract(epoch FROM s.value::interval) * 1000000)::bigint,"
    "       CASE WHEN b.checkpoint_requested THEN stacksaga.acknowledge_checkpoint($3::text,"
    "            $4::bigint, pg_catalog.jsonb_build_object('windows', $5::bigint)) END"
    "  FROM stacksaga.heartbeat_node(node => $3::text, incarnation => $4::bigint) AS b"
    " CROSS JOIN stacksaga.ring_settings s"
    " WHERE s.region = $1::text AND s.cluster = $2::text AND s.setting = 'heartbeat_interval'";

constexpr const char *SQL_LEAVE =
    "SELECT stacksaga.leave_ring(node => $1::text, incarnation => $2::bigint)";

// `node` is the owner or the next owner, that of the two that the agent assigns to.
constexpr const char *SQL_AGENT_SLOTS =
    "SELECT slot, range_start, range_end, node, NULL::text AS next_node"
    "  FROM stacksaga.agent_slots("
    "         agent        => $1::text,"
    "         window_start => timestamptz 'epoch' + $2::bigint * interval '1 microsecond')"
    " ORDER BY slot";

StoreError unusable_answer(const RingName &ring, std::string_view what) {
    return {ErrorClass::refused, fmt::format("ring {}/{} has {}", ring.region, ring.cluster, what)};
}

Duration interval_of(const RingName &ring, const Rows &rows, int column, Duration at_least) {
    const Duration value{rows.int64(0, column)};
    if (value < at_least || value > longest_interval)
        throw unusable_answer(ring, "a window length or publish lead that is out of range");
    return value;
}

std::vector<Slot> slots_of(const Rows &rows) {
    std::vector<Slot> slots;
    slots.reserve(static_cast<std::size_t>(rows.size()));
    for (int row = 0; row < rows.size(); ++row) {
        Slot &slot =
            slots.emplace_back(Slot{static_cast<std::int32_t>(rows.int64(row, SlotColumns::slot)),
                                    rows.int64(row, SlotColumns::range_start),
                                    rows.int64(row, SlotColumns::range_end), std::nullopt});
        if (!rows.is_null(row, SlotColumns::node))
            slot.owner = rows.text(row, SlotColumns::node);
        if (!rows.is_null(row, SlotColumns::next_node))
            slot.next_owner = rows.text(row, SlotColumns::next_node);
    }
    return slots;
}

/// A missing ring shows as no row or as SG404.
[[noreturn]] void throw_ring_missing(const RingName &ring) {
    throw StoreError(
        ErrorClass::ring_missing,
        fmt::format("there is no ring with region \"{}\" and cluster \"{}\"", ring.region,
                    ring.cluster),
        "SG404", {},
        "Create it with stacksaga.create_ring, or name another with --region and --cluster.");
}

} // namespace

NodeKind parse_node_kind(std::string_view word) noexcept {
    if (word == "worker")
        return NodeKind::worker;
    if (word == "standard")
        return NodeKind::standard;
    return word == "agent" ? NodeKind::agent : NodeKind::unknown;
}

NodeState parse_node_state(std::string_view word) noexcept {
    if (word == "active")
        return NodeState::active;
    if (word == "suspected")
        return NodeState::suspected;
    if (word == "dead")
        return NodeState::dead;
    return word == "draining" ? NodeState::draining : NodeState::unknown;
}

std::optional<Strategy> parse_strategy(std::string_view word) noexcept {
    if (word == "consistent")
        return Strategy::consistent;
    if (word == "contiguous")
        return Strategy::contiguous;
    return std::nullopt;
}

PgControlStore::PgControlStore(const asio::any_io_executor &executor, std::string conninfo,
                               Connection::NoticeHandler on_notice)
    : connection_(executor, std::move(on_notice)), conninfo_(std::move(conninfo)) {}

asio::awaitable<Rows> PgControlStore::ask(const char *sql, const Parameters &parameters) {
    return query_as(role_kinds, connection_, sql, parameters, statement_deadline);
}

asio::awaitable<ServerInfo> PgControlStore::open() {
    co_await connection_.open(conninfo_);
    co_await ask(SQL_SESSION, no_parameters);
    std::string extension_version = co_await require_extension(connection_, statement_deadline);

    const PGconn *raw = connection_.raw();
    const auto text = [](const char *value) { return std::string(value ? value : ""); };
    ServerInfo info{.server_version = text(PQparameterStatus(raw, "server_version")),
                    .extension_version = std::move(extension_version),
                    .database = text(PQdb(raw)),
                    .host = text(PQhost(raw)),
                    .port = text(PQport(raw)),
                    .role = text(PQuser(raw))};
    co_return info;
}

asio::awaitable<RingState> PgControlStore::ring_state(const RingName &ring) {
    const Parameters parameters{ring.region, ring.cluster};
    std::optional<Rows> rows;
    try {
        rows = co_await ask(SQL_RING_STATE, parameters);
    } catch (const StoreError &error) {
        if (error.sqlstate == "SG404")
            throw_ring_missing(ring);
        throw;
    }
    if (rows->size() == 0)
        throw_ring_missing(ring);

    const auto strategy = parse_strategy(rows->text(0, RingColumns::strategy));
    if (!strategy)
        throw unusable_answer(ring, fmt::format("strategy \"{}\", which this version does not know",
                                                rows->text(0, RingColumns::strategy)));
    RingState state{
        .database_time = Instant{Duration{rows->int64(0, RingColumns::database_time)}},
        .window_length = interval_of(ring, *rows, RingColumns::window_length, Duration{1}),
        .publish_lead = interval_of(ring, *rows, RingColumns::publish_lead, Duration::zero()),
        .strategy = *strategy,
        .slots = static_cast<std::int32_t>(rows->int64(0, RingColumns::slots)),
        .epoch = rows->int64(0, RingColumns::epoch),
        .last_window = std::nullopt};
    if (!rows->is_null(0, RingColumns::last_window))
        state.last_window = Instant{Duration{rows->int64(0, RingColumns::last_window)}};
    state.virtual_nodes = static_cast<std::int32_t>(std::clamp<std::int64_t>(
        rows->int64(0, RingColumns::virtual_nodes), 1, core::virtual_nodes_max));
    co_return state;
}

asio::awaitable<std::vector<Node>> PgControlStore::nodes(const RingName &ring) {
    const Parameters parameters{ring.region, ring.cluster};
    const Rows rows = co_await ask(SQL_NODES, parameters);
    std::vector<Node> nodes;
    nodes.reserve(static_cast<std::size_t>(rows.size()));
    for (int row = 0; row < rows.size(); ++row)
        nodes.push_back(
            {.name = std::string(rows.text(row, NodeColumns::node)),
             .kind = parse_node_kind(rows.text(row, NodeColumns::kind)),
             .state = parse_node_state(rows.text(row, NodeColumns::state)),
             .weight = rows.float8(row, NodeColumns::weight),
             .agent = rows.is_null(row, NodeColumns::agent)
                          ? std::nullopt
                          : std::optional<std::string>(rows.text(row, NodeColumns::agent)),
             .frozen = rows.boolean(row, NodeColumns::frozen)});
    co_return nodes;
}

asio::awaitable<std::vector<Slot>> PgControlStore::slots(const RingName &ring) {
    const Parameters parameters{ring.region, ring.cluster};
    std::vector<Slot> slots = slots_of(co_await ask(SQL_SLOTS, parameters));
    for (std::size_t i = 0; i < slots.size(); ++i)
        if (slots[i].number != static_cast<std::int32_t>(i))
            throw unusable_answer(ring, fmt::format("no slot {}", i));
    if (slots.empty())
        throw unusable_answer(ring, "no slots");
    co_return slots;
}

asio::awaitable<std::optional<std::int64_t>>
PgControlStore::publish_window(const RingName &ring, const Proposal &proposal,
                               const std::string &publisher) {
    std::vector<std::string> nodes;
    std::vector<std::int64_t> starts;
    std::vector<std::int64_t> ends;
    for (const Grant &grant : proposal.grants) {
        nodes.push_back(grant.node);
        starts.push_back(grant.range_start);
        ends.push_back(grant.range_end);
    }
    const Parameters parameters{ring.region,
                                ring.cluster,
                                std::to_string(proposal.window_start.time_since_epoch().count()),
                                array_literal(nodes),
                                array_literal(starts),
                                array_literal(ends),
                                publisher,
                                proposal.agent};
    try {
        const Rows rows = co_await ask(SQL_PUBLISH, parameters);
        if (rows.is_null(0, only_column))
            co_return std::nullopt;
        co_return rows.int64(0, only_column);
    } catch (const StoreError &error) {
        // The outcome is unknown: the server may have committed.
        if (error.kind == ErrorClass::reconnect && error.sqlstate.empty())
            throw StoreError(ErrorClass::in_doubt, error.what());
        throw;
    }
}

asio::awaitable<std::int64_t>
PgControlStore::register_agent(const RingName &ring, const std::string &name, double weight) {
    const Parameters parameters{ring.region, ring.cluster, name, fmt::format("{}", weight)};
    const Rows rows = co_await ask(SQL_REGISTER, parameters);
    if (rows.size() == 0)
        throw StoreError(ErrorClass::permission, "permission denied for function publish_window",
                         "42501", {}, grant_advice(connection_, role_kinds));
    co_return rows.int64(0, only_column);
}

asio::awaitable<Beat> PgControlStore::beat(const RingName &ring, const AgentIdentity &agent) {
    const Parameters parameters{ring.region, ring.cluster, agent.name,
                                std::to_string(agent.incarnation), std::to_string(agent.windows)};
    const Rows rows = co_await ask(SQL_BEAT, parameters);
    co_return Beat{parse_node_state(rows.text(0, BeatColumns::state)),
                   interval_of(ring, rows, BeatColumns::interval, Duration{1})};
}

asio::awaitable<void> PgControlStore::leave(const AgentIdentity &agent) {
    const Parameters parameters{agent.name, std::to_string(agent.incarnation)};
    co_await ask(SQL_LEAVE, parameters);
}

asio::awaitable<std::vector<Slot>> PgControlStore::assigned_slots(const std::string &agent,
                                                                  Instant window_start) {
    const Parameters parameters{agent, std::to_string(window_start.time_since_epoch().count())};
    std::vector<Slot> slots = slots_of(co_await ask(SQL_AGENT_SLOTS, parameters));
    co_return slots;
}

} // namespace stacksaga::coordinator
