#include "roles/agent_role.hpp"

#include "roles/proposal.hpp"
#include "roles/window_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace stacksaga::coordinator {
namespace {

/// The agent reads this many times in a window whether a master has published.
constexpr int polls_in_a_window = 20;
constexpr Duration poll_least = std::chrono::milliseconds(20);
constexpr Duration poll_most = std::chrono::seconds(1);

/// The agent sends heartbeats this many times as often as the ring asks, so that one may be lost.
constexpr int beats_in_an_interval = 2;

constexpr Duration reconnect_initial = std::chrono::milliseconds(100);
constexpr Duration reconnect_cap = std::chrono::seconds(5);
constexpr Duration put_off_initial = std::chrono::milliseconds(20);
constexpr Duration put_off_cap = std::chrono::seconds(1);

bool is_transient(const StoreError &error) {
    return error.sqlstate != "SG412" &&
           (error.kind == ErrorClass::retry_now || error.kind == ErrorClass::refused ||
            error.kind == ErrorClass::ring_missing);
}

} // namespace

Agent::Agent(AgentStore &store, Clock &clock, Log &log, AgentSettings settings)
    : store_(store), clock_(clock), log_(log), settings_(std::move(settings)),
      reconnect_(reconnect_initial, reconnect_cap, settings_.seed),
      put_off_(put_off_initial, put_off_cap, settings_.seed + 1), next_beat_(clock.now()),
      next_turn_(clock.now()) {}

asio::awaitable<void> Agent::run() {
    for (;;) {
        SteadyTime wake;
        try {
            if (!connected_)
                co_await connect();
            if (!identity_)
                co_await enroll();
            if (next_beat_ <= clock_.now())
                co_await beat();
            if (next_turn_ <= clock_.now())
                co_await turn();
            reconnect_.reset();
            put_off_.reset();
            wake = std::min(next_beat_, next_turn_);
        } catch (const StoreError &error) {
            wake = put_off(error);
        }
        co_await clock_.wait_until(wake);
    }
}

asio::awaitable<void> Agent::connect() {
    const ServerInfo server = co_await store_.open();
    connected_ = true;
    log_.info("coordinating", {{"version", STACKSAGA_VERSION},
                               {"role", "agent"},
                               {"agent", settings_.name},
                               {"ring", settings_.ring.text()},
                               {"server_version", server.server_version},
                               {"extension_version", server.extension_version},
                               {"host", server.host},
                               {"port", server.port},
                               {"database", server.database},
                               {"user", server.role}});
    notify_assignment();
}

asio::awaitable<void> Agent::enroll() {
    const std::int64_t incarnation =
        co_await store_.register_agent(settings_.ring, settings_.name, settings_.weight);
    identity_ = AgentIdentity{settings_.name, incarnation};
    settled_.reset();
    next_beat_ = clock_.now();
    log_.info(
        "registered",
        {{"ring", settings_.ring.text()}, {"agent", settings_.name}, {"incarnation", incarnation}});
}

asio::awaitable<void> Agent::beat() {
    const SteadyTime sent = clock_.now();
    const Beat answer = co_await store_.beat(settings_.ring, *identity_);
    const bool draining = answer.state == NodeState::draining;
    if (draining && !draining_)
        log_.info("draining, so no part is published", {{"agent", settings_.name}});
    draining_ = draining;
    next_beat_ = sent + answer.interval / beats_in_an_interval;
}

asio::awaitable<void> Agent::turn() {
    const RingState state = co_await store_.ring_state(settings_.ring);
    const Instant open =
        window_after(state.database_time, state.window_length) - state.window_length;
    // After the clock was set back, the tables hold windows that are too far ahead to be believed.
    const Instant furthest = open + state.window_length + state.publish_lead;
    const Instant latest =
        state.last_window && *state.last_window <= furthest ? *state.last_window : open;
    if (settled_ && *settled_ > furthest)
        settled_.reset();
    // Each window from the first that is not settled to the latest published one. The present one
    // counts even if no master published it: workers may have come or gone.
    Instant window_start = settled_ ? std::max(open, *settled_ + state.window_length) : open;
    for (; !draining_ && window_start <= std::max(open, latest);
         window_start += state.window_length)
        co_await publish(state, window_start);
    next_turn_ =
        clock_.now() + std::clamp(state.window_length / polls_in_a_window, poll_least, poll_most);
}

asio::awaitable<void> Agent::publish(const RingState &state, Instant window_start) {
    const SteadyTime begun = clock_.now();
    const std::vector<Node> nodes = co_await store_.nodes(settings_.ring);
    const std::vector<Slot> slots = co_await store_.assigned_slots(settings_.name, window_start);
    const auto proposal = propose_part(window_start, state.rule(), settings_.name, nodes, slots);
    if (!proposal) {
        // The next turn tries again: the first worker or slot may come before the next window.
        co_return;
    }
    const auto epoch = co_await store_.publish_window(settings_.ring, *proposal, settings_.name);
    settled_ = window_start;
    if (!epoch) {
        log_.debug("the part of the window is already published",
                   {{"ring", settings_.ring.text()}, {"window", format_time(window_start)}});
        co_return;
    }
    ++identity_->windows;
    log_.info("published part of window", {{"ring", settings_.ring.text()},
                                           {"window", format_time(window_start)},
                                           {"agent", settings_.name},
                                           {"epoch", *epoch},
                                           {"nodes", proposal->nodes},
                                           {"slots", slots.size()},
                                           {"grants", proposal->grants.size()},
                                           {"moved", proposal->moved},
                                           {"ms", milliseconds(clock_.now() - begun)}});
    assigned_ = fmt::format("{} slots to {} nodes, window of {}", slots.size(), proposal->nodes,
                            format_time(window_start));
    notify_assignment();
}

SteadyTime Agent::put_off(const StoreError &error) {
    const bool broken = ends_connection(error.kind);
    if (!broken && !is_transient(error))
        throw StoreError(error);
    if (broken) {
        connected_ = false;
        store_.close();
        notify_status(fmt::format("database unavailable: {}", error.what()));
    }
    if (error.sqlstate == "SG404")
        identity_.reset(); // the ring removed it as dead: it registers again
    const Duration wait = broken ? reconnect_.next() : put_off_.next();
    const SteadyTime wake = clock_.now() + wait;
    std::vector<LogField> fields = fields_of(error);
    fields.emplace_back("ring", settings_.ring.text());
    fields.emplace_back("retry_in_ms", milliseconds(wait));
    log_.event(LogLevel::warn, broken ? "database unavailable" : "ring not served", fields);
    return wake;
}

void Agent::notify_status(const std::string &status) const {
    if (settings_.on_status)
        settings_.on_status(status);
}

void Agent::notify_assignment() const {
    notify_status(fmt::format("agent {} of ring {}, assigned: {}", settings_.name,
                              settings_.ring.text(), assigned_));
}

void Agent::log_state() const {
    const std::vector<LogField> fields{
        {"role", "agent"},
        {"agent", settings_.name},
        {"ring", settings_.ring.text()},
        {"connected", connected_ ? "yes" : "no"},
        {"incarnation", identity_ ? identity_->incarnation : 0},
        {"draining", draining_ ? "yes" : "no"},
        {"assigned", assigned_},
        {"next_beat_in_ms", milliseconds(next_beat_ - clock_.now())},
        {"next_turn_in_ms", milliseconds(next_turn_ - clock_.now())}};
    log_.answer("state", fields);
}

asio::awaitable<void> Agent::leave() {
    if (!identity_)
        co_return;
    std::optional<StoreError> failure;
    try {
        store_.close();
        co_await store_.open();
        co_await store_.leave(*identity_);
        log_.info("left the ring", {{"ring", settings_.ring.text()}, {"agent", settings_.name}});
    } catch (const StoreError &error) {
        failure = error;
    }
    if (failure)
        log_.event(LogLevel::warn, "could not leave the ring", fields_of(*failure));
}

} // namespace stacksaga::coordinator
