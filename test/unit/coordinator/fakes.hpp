// A model of the control tables and a clock that jumps instead of waiting: a master runs for hours
// of virtual time in a moment, and a test chooses where each fault happens.
#pragma once

#include "base/log.hpp"
#include "base/time.hpp"
#include "db/store_error.hpp"
#include "roles/control_store.hpp"
#include "roles/master_role.hpp"

#include "core/ring/slots.hpp"
#include "core/ring/window.hpp"

#include <asio/co_spawn.hpp>
#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/system_error.hpp>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace stacksaga::coordinator::test {

/// Waiting advances it; when its time is up, it stops the daemon as a signal would.
class VirtualClock final : public Clock {
public:
    [[nodiscard]] SteadyTime now() const override { return now_; }

    asio::awaitable<void> wait_until(SteadyTime at) override {
        ++waits;
        const auto mine = waiting_.insert(std::min(at, end_));
        while (now_ < *mine) {
            // Time passes when all daemons wait, and for the first of them to wake.
            if (waiting_.size() == daemons && mine == waiting_.begin())
                pass_to(*mine);
            else
                co_await asio::post(asio::use_awaitable);
        }
        waiting_.erase(mine);
        if (now_ >= end_)
            throw asio::system_error(asio::error::operation_aborted);
    }

    void run_for(Duration duration) { end_ = now_ + duration; }
    void pass(Duration duration) { now_ += duration; }

    /// Runs `happen` at the first wait that ends this long after the start. In ascending order.
    void at(Duration since_start, std::function<void()> happen) {
        plans_.emplace_back(start + since_start, std::move(happen));
    }

    static constexpr SteadyTime start{std::chrono::hours(1000)};
    std::size_t daemons = 1; ///< how many share this clock
    std::size_t waits = 0;

private:
    void pass_to(SteadyTime at) {
        now_ = at;
        while (!plans_.empty() && plans_.front().first <= now_) {
            const auto happen = std::move(plans_.front().second);
            plans_.pop_front();
            happen();
        }
    }

    std::multiset<SteadyTime> waiting_;
    SteadyTime now_ = start;
    SteadyTime end_ = SteadyTime::max();
    std::deque<std::pair<SteadyTime, std::function<void()>>> plans_;
};

struct FakeRing {
    Duration window_length = std::chrono::seconds(60);
    Duration publish_lead = std::chrono::seconds(30);
    Strategy strategy = Strategy::consistent;
    std::vector<Node> nodes;
    std::vector<Slot> slots;
    std::int64_t epoch = 0;

    struct Window {
        std::string publisher;
        Proposal proposal;
        Instant published_at;
    };
    std::map<Instant, Window> windows;
    std::map<std::pair<Instant, std::string>, Window> parts; ///< by the agent whose they are
    std::map<std::string, std::int64_t> incarnations;        ///< of agents
    Duration heartbeat_interval = std::chrono::seconds(5);
    bool draining = false; ///< the state that agents get with a heartbeat

    FakeRing() {
        for (std::int32_t i = 0; i < 64; ++i) {
            const core::Range range = core::slot_range(i, 64);
            slots.push_back({i, range.first.value(), range.last.value(), std::nullopt});
        }
    }
};

/// The database that several coordinators share.
struct FakeDatabase {
    explicit FakeDatabase(VirtualClock &virtual_clock) : clock(virtual_clock) {}

    VirtualClock &clock;
    std::map<RingName, FakeRing> rings{{{"default", "default"}, {}}};
    Instant start_time = std::chrono::sys_days{std::chrono::year{2026} / 1 / 15};
    Duration jumped{};

    [[nodiscard]] Instant now() const {
        return start_time + std::chrono::floor<Duration>(clock.now() - VirtualClock::start) +
               jumped;
    }
    FakeRing &ring() { return rings.begin()->second; }
};

/// An error of a call, thrown before or after the call takes effect.
struct Fault {
    std::string call; ///< open, ring_state, nodes, slots, publish_window
    ErrorClass kind;
    bool after_effect = false;
};

/// Every call lets the other daemons run first, so that the calls of several interleave.
class FakeStore final : public AgentStore {
public:
    explicit FakeStore(FakeDatabase &database) : database_(database) {}

    std::deque<Fault> faults;             ///< each hits the next call of its name
    std::map<std::string, int> calls;     ///< by name
    Duration latency{};                   ///< of every call
    std::function<void()> before_publish; ///< runs between the reads and the publication

    asio::awaitable<ServerInfo> open() override {
        co_await asio::post(asio::use_awaitable);
        begin("open");
        open_ = true;
        co_return ServerInfo{"15.20", "1.0", "shop", "/run", "5432", "coordinator"};
    }

    void close() noexcept override { open_ = false; }

    asio::awaitable<RingState> ring_state(const RingName &name) override {
        co_await asio::post(asio::use_awaitable);
        const FakeRing &ring = find("ring_state", name);
        RingState state{.database_time = database_.now(),
                        .window_length = ring.window_length,
                        .publish_lead = ring.publish_lead,
                        .strategy = ring.strategy,
                        .slots = static_cast<std::int32_t>(ring.slots.size()),
                        .epoch = ring.epoch,
                        .last_window = std::nullopt};
        if (!ring.windows.empty())
            state.last_window = ring.windows.rbegin()->first;
        co_return state;
    }

    asio::awaitable<std::vector<Node>> nodes(const RingName &name) override {
        co_await asio::post(asio::use_awaitable);
        co_return find("nodes", name).nodes;
    }

    asio::awaitable<std::vector<Slot>> slots(const RingName &name) override {
        co_await asio::post(asio::use_awaitable);
        co_return find("slots", name).slots;
    }

    asio::awaitable<std::optional<std::int64_t>>
    publish_window(const RingName &name, const Proposal &proposal,
                   const std::string &publisher) override {
        co_await asio::post(asio::use_awaitable);
        if (before_publish)
            before_publish();
        const auto fault = fault_of("publish_window");
        if (fault && !fault->after_effect)
            fail(*fault);
        FakeRing &ring = find("publish_window", name);
        check(ring, proposal);
        std::optional<std::int64_t> epoch;
        FakeRing::Window window{publisher, proposal, database_.now()};
        const bool is_first =
            proposal.agent.empty()
                ? ring.windows.try_emplace(proposal.window_start, std::move(window)).second
                : ring.parts.try_emplace({proposal.window_start, proposal.agent}, std::move(window))
                      .second;
        if (is_first)
            epoch = ++ring.epoch;
        if (fault)
            fail(*fault);
        co_return epoch;
    }

    asio::awaitable<std::int64_t> register_agent(const RingName &name, const std::string &agent,
                                                 double) override {
        co_await asio::post(asio::use_awaitable);
        co_return find("register_agent", name).incarnations[agent] = ++incarnations_;
    }

    asio::awaitable<Beat> beat(const RingName &name, const AgentIdentity &agent) override {
        co_await asio::post(asio::use_awaitable);
        const FakeRing &ring = find("beat", name);
        check_incarnation(ring, agent);
        co_return Beat{ring.draining ? NodeState::draining : NodeState::active,
                       ring.heartbeat_interval};
    }

    asio::awaitable<void> leave(const AgentIdentity &agent) override {
        co_await asio::post(asio::use_awaitable);
        FakeRing &ring = find("leave", database_.rings.begin()->first);
        check_incarnation(ring, agent);
        ring.incarnations.erase(agent.name);
    }

    asio::awaitable<std::vector<Slot>> assigned_slots(const std::string &agent,
                                                      Instant window_start) override {
        co_await asio::post(asio::use_awaitable);
        const FakeRing &ring = find("assigned_slots", database_.rings.begin()->first);
        std::vector<Slot> assigned;
        for (const Slot &slot : ring.slots) {
            if (holder(ring, slot, window_start) == agent)
                assigned.push_back(slot);
        }
        co_return assigned;
    }

private:
    /// The node that the last window up to `window_start` gives a slot to.
    static std::string holder(const FakeRing &ring, const Slot &slot, Instant window_start) {
        auto window = ring.windows.upper_bound(window_start);
        if (window == ring.windows.begin())
            return {};
        for (const Grant &grant : std::prev(window)->second.proposal.grants) {
            if (grant.range_start <= slot.range_start && slot.range_end <= grant.range_end)
                return grant.node;
        }
        return {};
    }

    static void check_incarnation(const FakeRing &ring, const AgentIdentity &agent) {
        const auto found = ring.incarnations.find(agent.name);
        if (found == ring.incarnations.end())
            throw StoreError(ErrorClass::refused, "node does not exist", "SG404");
        if (found->second != agent.incarnation)
            throw StoreError(ErrorClass::refused, "node was superseded", "SG412");
    }

    std::optional<Fault> fault_of(const std::string &call) {
        const auto found = std::ranges::find(faults, call, &Fault::call);
        if (found == faults.end())
            return std::nullopt;
        const Fault fault = *found;
        faults.erase(found);
        return fault;
    }

    [[noreturn]] void fail(const Fault &fault) {
        if (fault.kind == ErrorClass::reconnect || fault.kind == ErrorClass::in_doubt)
            open_ = false;
        throw StoreError(fault.kind, "injected", "", fault.call);
    }

    void begin(const std::string &call) {
        ++calls[call];
        if (++all_calls_ > calls_max)
            throw std::runtime_error("the master spins: too many calls for the time that passed");
        database_.clock.pass(latency);
        if (const auto fault = fault_of(call))
            fail(*fault);
    }

    FakeRing &find(const std::string &call, const RingName &name) {
        if (!open_)
            throw StoreError(ErrorClass::reconnect, "not connected");
        begin(call);
        const auto found = database_.rings.find(name);
        if (found == database_.rings.end())
            throw StoreError(ErrorClass::ring_missing, "no ring");
        return found->second;
    }

    /// Throws the refusals of the database.
    void check(const FakeRing &ring, const Proposal &proposal) const {
        // An agent's part may come when the window is open, as long as it is not over.
        const Duration grace = proposal.agent.empty() ? Duration::zero() : ring.window_length;
        if (proposal.window_start + grace <= database_.now())
            throw StoreError(ErrorClass::refused, "the window lies in the past", "SG400");
        const auto core_start =
            proposal.window_start.time_since_epoch().count() + core::unix_epoch_us;
        if (!core::window::is_aligned(core_start, ring.window_length.count()))
            throw StoreError(ErrorClass::refused, "the window is not aligned", "SG400");
        std::vector<core::Range> ranges;
        for (const Grant &grant : proposal.grants) {
            if (std::ranges::find(ring.nodes, grant.node, &Node::name) == ring.nodes.end())
                throw StoreError(ErrorClass::refused, "unknown node", "SG404");
            ranges.push_back({core::Token::from_int64(grant.range_start),
                              core::Token::from_int64(grant.range_end)});
        }
        std::vector<std::int32_t> table(ring.slots.size(), core::slot_is_free);
        for (std::size_t i = 0; i < table.size(); ++i) {
            if (!proposal.agent.empty() &&
                holder(ring, ring.slots[i], proposal.window_start) != proposal.agent)
                table[i] = core::slot_not_ours;
        }
        if (core::cut_at_slots(ranges, table).rule != core::TilingRule::ok)
            throw StoreError(ErrorClass::refused, "the ranges do not tile", "SG416");
    }

    static constexpr int calls_max = 100'000;

    FakeDatabase &database_;
    bool open_ = false;
    int all_calls_ = 0;
    std::int64_t incarnations_ = 0;
};

/// A master, its store and its log.
struct FakeDaemon {
    FakeDaemon(FakeDatabase &database, VirtualClock &clock, const MasterSettings &settings)
        : store(database), log(LogFormat::logfmt, LogLevel::debug,
                               [this](std::string_view line) { lines.emplace_back(line); }),
          master(store, clock, log, settings) {}

    [[nodiscard]] std::size_t count_lines(std::string_view text) const {
        return static_cast<std::size_t>(std::ranges::count_if(
            lines, [&](const std::string &line) { return line.find(text) != std::string::npos; }));
    }

    /// Runs until the clock's time is up or the master ends; returns the exception that ended it,
    /// unless it was stopped.
    std::optional<StoreError> run() {
        asio::io_context io(1);
        std::exception_ptr failure;
        asio::co_spawn(io, master.run(),
                       [&](std::exception_ptr thrown) { failure = std::move(thrown); });
        io.run();
        try {
            if (failure)
                std::rethrow_exception(failure);
        } catch (const StoreError &error) {
            return error;
        } catch (const asio::system_error &error) {
            if (error.code() != asio::error::operation_aborted)
                throw;
        }
        return std::nullopt;
    }

    std::vector<std::string> lines;
    FakeStore store;
    Log log;
    Master master;
};

} // namespace stacksaga::coordinator::test
