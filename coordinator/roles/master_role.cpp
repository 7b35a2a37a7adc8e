#include "roles/master_role.hpp"

#include "roles/proposal.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace stacksaga::coordinator {
namespace {

/// Settings may change and clocks may jump while nothing is due: the master reads a ring this
/// often.
constexpr Duration poll_interval = std::chrono::seconds(5);

/// The master reads a ring without nodes more often, to give the first node the next window.
constexpr Duration deserted_interval = std::chrono::seconds(1);

constexpr Duration reconnect_initial = std::chrono::milliseconds(100);
constexpr Duration reconnect_cap = std::chrono::seconds(5);
constexpr Duration put_off_initial = std::chrono::milliseconds(20);
constexpr Duration put_off_cap = std::chrono::seconds(5);

/// The database clock and the steady clock may drift apart this much between two readings before
/// the log calls it a jump.
constexpr Duration clock_tolerance = std::chrono::milliseconds(500);

/// The log line of a new connection names this many rings.
constexpr std::size_t introduced_rings_max = 10;

bool concerns_ring(ErrorClass kind) {
    return kind == ErrorClass::retry_now || kind == ErrorClass::refused ||
           kind == ErrorClass::ring_missing;
}

} // namespace

Master::Master(ControlStore &store, Clock &clock, Log &log, MasterSettings settings)
    : store_(store), clock_(clock), log_(log), settings_(std::move(settings)),
      reconnect_(reconnect_initial, reconnect_cap, settings_.seed) {
    std::uint64_t seed = settings_.seed;
    for (const RingName &name : settings_.rings)
        rings_.push_back({.name = name,
                          .next_turn = clock_.now(),
                          .backoff = Backoff(put_off_initial, put_off_cap, ++seed),
                          .database_clock = {},
                          .settled = std::nullopt,
                          .deserted = false});
}

asio::awaitable<void> Master::run() {
    for (;;) {
        SteadyTime wake;
        try {
            if (!connected_)
                co_await connect();
            co_await serve_due_rings();
            if (settings_.once)
                co_return;
            reconnect_.reset();
            wake = next_turn();
        } catch (const StoreError &error) {
            if (settings_.once || !ends_connection(error.kind))
                throw;
            wake = clock_.now() + lost_connection(error);
        }
        co_await clock_.wait_until(wake);
    }
}

asio::awaitable<void> Master::connect() {
    const ServerInfo server = co_await store_.open();
    connected_ = true;
    for (ServedRing &ring : rings_)
        ring.next_turn = clock_.now();
    co_await introduce(server);
    notify_status(fmt::format("serving {} ring(s) of database {}", rings_.size(), server.database));
}

void Master::notify_status(const std::string &status) const {
    if (settings_.on_status)
        settings_.on_status(status);
}

void Master::log_state() const {
    const std::vector<LogField> connection{{"role", "master"},
                                           {"publisher", settings_.publisher},
                                           {"connected", connected_ ? "yes" : "no"},
                                           {"rings", rings_.size()}};
    log_.answer("state", connection);
    for (const ServedRing &ring : rings_) {
        const std::vector<LogField> fields{
            {"ring", ring.name.text()},
            {"settled_window", ring.settled ? format_time(*ring.settled) : "none"},
            {"has_nodes", ring.deserted ? "no" : "yes"},
            {"next_turn_in_ms", milliseconds(ring.next_turn - clock_.now())}};
        log_.answer("state of ring", fields);
    }
}

asio::awaitable<void> Master::introduce(const ServerInfo &server) {
    std::string rings;
    for (std::size_t i = 0; i < std::min(rings_.size(), introduced_rings_max); ++i) {
        rings += (i > 0 ? ", " : "") + rings_[i].name.text();
        try {
            const RingState state = co_await read_state(rings_[i]);
            rings += fmt::format(" (window {}, lead {})", format_duration(state.window_length),
                                 format_duration(state.publish_lead));
        } catch (const StoreError &error) {
            // The ring's own turn comes next and handles the error.
            if (!concerns_ring(error.kind))
                throw;
            rings += fmt::format(" ({})", error.kind == ErrorClass::ring_missing ? "missing"
                                                                                 : "not readable");
        }
    }
    if (rings_.size() > introduced_rings_max)
        rings += fmt::format(" and {} more", rings_.size() - introduced_rings_max);
    log_.info("coordinating", {{"version", STACKSAGA_VERSION},
                               {"role", "master"},
                               {"publisher", settings_.publisher},
                               {"server_version", server.server_version},
                               {"extension_version", server.extension_version},
                               {"host", server.host},
                               {"port", server.port},
                               {"database", server.database},
                               {"user", server.role},
                               {"rings", rings},
                               {"poll_interval", format_duration(poll_interval)}});
}

asio::awaitable<void> Master::serve_due_rings() {
    std::optional<StoreError> first_refusal;
    for (ServedRing &ring : rings_) {
        if (ring.next_turn > clock_.now())
            continue;
        try {
            co_await serve(ring);
        } catch (const StoreError &error) {
            if (!concerns_ring(error.kind))
                throw;
            if (!first_refusal)
                first_refusal = error;
            put_off(ring, error);
        }
    }
    if (settings_.once && first_refusal)
        throw StoreError(*first_refusal);
}

asio::awaitable<RingState> Master::read_state(ServedRing &ring) {
    const SteadyTime sent = clock_.now();
    const RingState state = co_await store_.ring_state(ring.name);
    const SteadyTime received = clock_.now();
    // The reading is as old as the round trip at most, so a smaller distance is not a jump.
    const auto moved = ring.database_clock.observe(sent, received, state.database_time);
    if (moved && std::chrono::abs(*moved) > clock_tolerance + (received - sent))
        log_.warn("the database clock moved", {{"ring", ring.name.text()},
                                               {"by", format_duration(*moved)},
                                               {"now", format_time(state.database_time)}});
    co_return state;
}

asio::awaitable<void> Master::serve(ServedRing &ring) {
    const RingState state = co_await read_state(ring);
    const WindowPlan planned = plan_window(state.database_time, state, ring.settled);
    const bool is_next =
        planned.window_start == window_after(state.database_time, state.window_length);
    if (planned.due || (settings_.once && is_next) || settings_.dry_run)
        co_await publish(ring, state, planned.window_start);
    else if (settings_.once)
        log_.info("the next window is already published",
                  {{"ring", ring.name.text()}, {"epoch", state.epoch}});
    ring.backoff.reset();

    const SteadyTime now = clock_.now();
    if (ring.deserted) {
        ring.next_turn = now + std::min(deserted_interval, state.window_length);
    } else {
        const WindowPlan next = plan_window(ring.database_clock.now(now), state, ring.settled);
        ring.next_turn =
            std::min<SteadyTime>(ring.database_clock.when(next.due_at), now + poll_interval);
    }
}

asio::awaitable<void> Master::publish(ServedRing &ring, const RingState &state,
                                      Instant window_start) {
    const SteadyTime begun = clock_.now();
    // Two statements see two snapshots, which is harmless: an owner that came after the first one
    // loses its slots at this window and gets slots at the next; a node that left after it gets
    // slots that it never takes over.
    const std::vector<Node> nodes = co_await store_.nodes(ring.name);
    const std::vector<Slot> slots = co_await store_.slots(ring.name);
    if (slots.size() != static_cast<std::size_t>(state.slots))
        throw StoreError(ErrorClass::refused,
                         fmt::format("ring {} has {} slots, but {} are listed", ring.name.text(),
                                     state.slots, slots.size()));
    const auto proposal = propose(window_start, state.rule(), nodes, slots);
    if (!proposal) {
        if (!ring.deserted)
            log_.warn("no active node can be assigned slots, so no window is published",
                      {{"ring", ring.name.text()}, {"nodes", nodes.size()}});
        ring.deserted = true;
        co_return;
    }
    ring.deserted = false;
    if (settings_.dry_run) {
        settings_.dry_run(ring.name, slots, *proposal);
        co_return;
    }

    // Without an epoch the window exists already: either way this turn has settled it. An error
    // leaves it open, so the next turn reads whether the publication was committed.
    const auto epoch = co_await store_.publish_window(ring.name, *proposal, settings_.publisher);
    ring.settled = window_start;
    const SteadyTime done = clock_.now();
    if (!epoch) {
        log_.debug("another coordinator published the window first",
                   {{"ring", ring.name.text()}, {"window", format_time(window_start)}});
        co_return;
    }
    const Duration margin = window_start - ring.database_clock.now(done);
    log_.info("published window", {{"ring", ring.name.text()},
                                   {"window", format_time(window_start)},
                                   {"epoch", *epoch},
                                   {"nodes", proposal->nodes},
                                   {"grants", proposal->grants.size()},
                                   {"moved", proposal->moved},
                                   {"margin_ms", milliseconds(margin)},
                                   {"ms", milliseconds(done - begun)}});
}

void Master::put_off(ServedRing &ring, const StoreError &error) {
    std::vector<LogField> fields = fields_of(error);
    fields.emplace_back("ring", ring.name.text());
    if (settings_.once) {
        log_.event(LogLevel::warn, "ring not served", fields);
        return;
    }
    const Duration wait = ring.backoff.next();
    ring.next_turn = clock_.now() + wait;
    fields.emplace_back("retry_in_ms", milliseconds(wait));
    log_.event(LogLevel::warn, "ring not served", fields);
}

Duration Master::lost_connection(const StoreError &error) {
    connected_ = false;
    store_.close();
    notify_status(fmt::format("database unavailable: {}", error.what()));
    const Duration wait = reconnect_.next();
    std::vector<LogField> fields = fields_of(error);
    fields.emplace_back("version", STACKSAGA_VERSION);
    fields.emplace_back("retry_in_ms", milliseconds(wait));
    log_.event(LogLevel::warn, "database unavailable", fields);
    return wait;
}

SteadyTime Master::next_turn() const {
    return std::ranges::min(rings_, {}, &ServedRing::next_turn).next_turn;
}

} // namespace stacksaga::coordinator
