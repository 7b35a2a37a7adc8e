#include "schedule.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace stacksaga::sim {
namespace {

constexpr std::int32_t slot_count = 64;
constexpr Time windows_of_faults = 5;
/// The daemon looks at a ring at least this often, and connects again after at most as long.
constexpr Time daemon_interval = 5 * second;

coordinator::Strategy strategy_of(core::Strategy strategy) {
    return strategy == core::Strategy::consistent ? coordinator::Strategy::consistent
                                                  : coordinator::Strategy::contiguous;
}

} // namespace

core::RingSettings Schedule::draw_settings(std::mt19937_64 &random) {
    constexpr std::array<Time, 3> lengths{10 * second, 30 * second, 60 * second};
    core::RingSettings settings;
    settings.window_length = lengths[random() % lengths.size()];
    settings.publish_lead = settings.window_length * static_cast<Time>(random() % 5) / 4;
    settings.heartbeat_interval = settings.window_length / (random() % 2 == 0 ? 6 : 12);
    settings.suspect_after = 3 * settings.heartbeat_interval;
    settings.dead_after = 6 * settings.heartbeat_interval;
    constexpr std::array<Time, 6> delays{0, 0, 0, 1, 2, 6}; // half windows
    settings.rebalance_delay = delays[random() % delays.size()] * settings.window_length / 2;
    settings.strategy = random() % 4 == 0 ? core::Strategy::contiguous : core::Strategy::consistent;
    return settings;
}

Schedule::Schedule(std::uint64_t seed, Mutant mutant)
    : random_(seed), settings_(draw_settings(random_)),
      world_(random_(), settings_, slot_count, mutant), seed_(seed) {
    tell(fmt::format("window {} s, lead {} ms, heartbeat {} ms, dead after {} ms, delay {} s, {}",
                     settings_.window_length / second, settings_.publish_lead / millisecond,
                     settings_.heartbeat_interval / millisecond, settings_.dead_after / millisecond,
                     settings_.rebalance_delay / second,
                     core::strategy_names[static_cast<std::size_t>(settings_.strategy)]));
    for (std::int64_t i = world_.happens(500) ? world_.between(1, 3) : 0; i > 0; --i)
        add_agent(fmt::format("agent-{}", agents_.size()));
    for (std::int64_t i = world_.between(1, 6); i > 0; --i)
        add_node(fmt::format("node-{}", nodes_.size()));
    for (std::int64_t i = world_.happens(100) ? 0 : world_.between(1, 3); i > 0; --i)
        add_coordinator();
    plan_faults();
}

void Schedule::tell(const std::string &what) {
    story_.push_back(fmt::format(
        "{:10.3f} s  {}", static_cast<double>(world_.now()) / static_cast<double>(second), what));
}

double Schedule::draw_rate() {
    return 1 + static_cast<double>(world_.between(-50, 50)) / 1000;
}

double Schedule::draw_weight() {
    constexpr std::array<double, 4> weights{1, 1, 2, 0.5};
    return weights[static_cast<std::size_t>(world_.between(0, 3))];
}

NodeActor &Schedule::add_node(const std::string &name, const std::string &agent) {
    const double weight = draw_weight();
    tell(fmt::format("{} joins{} with weight {}", name, agent.empty() ? agent : " " + agent,
                     weight));
    nodes_.push_back(std::make_unique<NodeActor>(world_, name, weight, nodes_.size(), agent));
    nodes_.back()->process.rate = draw_rate();
    nodes_.back()->start();
    return *nodes_.back();
}

void Schedule::add_coordinator() {
    const std::string name = fmt::format("coordinator-{}", coordinators_.size());
    tell(name + " starts");
    coordinators_.push_back(std::make_unique<CoordinatorActor>(
        world_, name, strategy_of(settings_.strategy), seed_ + coordinators_.size()));
    coordinators_.back()->process.rate = draw_rate();
    coordinators_.back()->start();
    world_.poll();
}

void Schedule::add_agent(const std::string &name) {
    const double weight = draw_weight();
    tell(fmt::format("{} starts with weight {}", name, weight));
    agents_.push_back(std::make_unique<AgentActor>(
        world_, name, weight, strategy_of(settings_.strategy), seed_ + agents_.size()));
    agents_.back()->process.rate = draw_rate();
    agents_.back()->start();
    world_.poll();
}

template <class Actor>
std::vector<Actor *> Schedule::running(const std::vector<std::unique_ptr<Actor>> &actors) {
    std::vector<Actor *> found;
    for (const auto &actor : actors) {
        if (!actor->process.killed)
            found.push_back(actor.get());
    }
    return found;
}

// ---------------------------------------------------------------------------- faults

void Schedule::plan_faults() {
    const Time end = windows_of_faults * settings_.window_length;
    for (std::int64_t i = world_.between(0, 20); i > 0; --i)
        world_.at(world_.between(0, end), [this] { strike(); });
}

void Schedule::strike() {
    ++faults_;
    if (!agents_.empty() && world_.happens(300)) {
        strike_agent();
        return;
    }
    const std::int64_t kind = world_.between(1, 100);
    if (kind <= 60) {
        strike_node();
    } else if (kind <= 92) {
        strike_coordinator();
    } else {
        const Time most = 2 * settings_.window_length;
        const Time by = world_.between(-most, most);
        jumped_back_ += std::max<Time>(-by, 0);
        tell(fmt::format("the database clock jumps by {} ms", by / millisecond));
        world_.jump(by);
    }
}

/// It stands still, or loses messages.
void Schedule::impede(Process &process, const std::string &who) {
    const Time some_windows = world_.between(0, 3 * settings_.window_length);
    const bool stands_still = world_.happens(500);
    (stands_still ? process.paused_until : process.lossy_until) = world_.now() + some_windows;
    tell(fmt::format("{} {} for {} ms", who, stands_still ? "stands still" : "loses messages",
                     some_windows / millisecond));
}

void Schedule::strike_node() {
    const auto nodes = running(nodes_);
    const std::int64_t kind = world_.between(1, agents_.empty() ? 8 : 9);
    if (nodes.empty() || kind == 1) {
        add_node(fmt::format("node-{}", nodes_.size()));
        return;
    }
    NodeActor &node = *world_.one_of(nodes);
    switch (kind) {
    case 2:
        tell(node.name() + " dies");
        node.kill(world_.happens(500) ? 0 : world_.between(0, 4 * second));
        break;
    case 3:
        tell(node.name() + " dies and comes back");
        node.kill(world_.happens(500) ? 0 : world_.between(0, 4 * second));
        add_node(node.name());
        break;
    case 4:
        tell(node.name() + " is started twice");
        add_node(node.name());
        break;
    case 5:
        tell(node.name() + " drains");
        node.drain();
        break;
    case 6:
        tell(node.name() + " leaves");
        node.leave();
        break;
    case 9: {
        const auto to = world_.between(0, static_cast<std::int64_t>(agents_.size()) - 1);
        tell(node.name() + " is moved to another agent");
        node.kill(0);
        add_node(node.name(), agents_[static_cast<std::size_t>(to)]->name());
        break;
    }
    default:
        impede(node.process, node.name());
    }
}

void Schedule::strike_coordinator() {
    const auto coordinators = running(coordinators_);
    const std::int64_t kind = world_.between(1, 5);
    if (coordinators.empty() || kind == 1) {
        add_coordinator();
        return;
    }
    CoordinatorActor &coordinator = *world_.one_of(coordinators);
    switch (kind) {
    case 2:
        tell(coordinator.name() + " dies");
        coordinator.process.killed = true;
        break;
    case 3:
        tell(coordinator.name() + " dies and comes back");
        coordinator.process.killed = true;
        add_coordinator();
        break;
    default:
        impede(coordinator.process, coordinator.name());
    }
}

void Schedule::strike_agent() {
    const auto agents = running(agents_);
    const std::int64_t kind = world_.between(1, 8);
    if (agents.empty() || kind == 1) {
        add_agent(fmt::format("agent-{}", agents_.size()));
        return;
    }
    AgentActor &agent = *world_.one_of(agents);
    switch (kind) {
    case 2:
        tell(agent.name() + " dies");
        agent.process.killed = true;
        break;
    case 3:
        tell(agent.name() + " dies and comes back");
        agent.process.killed = true;
        add_agent(agent.name());
        break;
    case 4:
        tell(agent.name() + " is started twice");
        add_agent(agent.name());
        break;
    case 5:
        tell(agent.name() + " drains");
        world_.database().drain(agent.name());
        break;
    case 6:
        tell(agent.name() + " is stopped");
        agent.stop();
        break;
    default:
        impede(agent.process, agent.name());
    }
}

/// No more faults: who stands still goes on, messages arrive, and somebody is there to work. Some
/// daemons die now, so that nobody but the others can notice.
void Schedule::calm() {
    world_.is_calm = true;
    bool has_worker = false;
    // What was put off by standing still happens when that would have ended.
    const auto wake = [this](Process &process) {
        still_ = std::max(still_, process.paused_until - world_.now());
        process.paused_until = process.lossy_until = 0;
    };
    for (NodeActor *node : running(nodes_)) {
        wake(node->process);
        has_worker = has_worker || (!node->is_draining() && !node->is_superseded());
    }
    for (CoordinatorActor *coordinator : running(coordinators_)) {
        wake(coordinator->process);
        if (world_.happens(100))
            coordinator->process.killed = true;
    }
    for (AgentActor *agent : running(agents_)) {
        wake(agent->process);
        if (world_.happens(200))
            agent->process.killed = true;
    }
    if (!has_worker)
        add_node(fmt::format("node-{}", nodes_.size()));
    tell(is_coordinated() ? "calm" : "calm, without a coordinator");
}

bool Schedule::is_coordinated() const {
    return !running(coordinators_).empty();
}

// ---------------------------------------------------------------------------- checks

/// How long it may take from the last fault until every token is owned as it should be.
///
/// First, messages that were late when the calm began arrive, and statements that stood still end.
/// With a coordinator: until the silent are left out, and then two windows, for the next one may
/// just have been published; the slots of silent agents wait for `rebalance_delay` before. Without
/// one: until the windows that were published are over and two more were missed, and the silent are
/// dead; then nodes sweep, some slots with each beat. A window that was published before the clock
/// went back is not published again.
Time Schedule::time_to_recover() const {
    const Time beats = 12 * settings_.heartbeat_interval;
    const Time late =
        std::max({latest_message, settings_.window_length, still_}) + jumped_back_ + beats;
    if (!is_coordinated())
        return late + settings_.dead_after + settings_.rebalance_delay +
               5 * settings_.window_length;
    const Time frozen = agents_.empty() ? 0 : settings_.rebalance_delay;
    return late + settings_.suspect_after + frozen + 2 * settings_.window_length +
           2 * daemon_interval;
}

void Schedule::check_ownership() {
    ControlTables &tables = world_.database();
    for (std::size_t i = 0; i < tables.slots().size(); ++i) {
        const SlotRow &slot = tables.slots()[i];
        const NodeRow *owner = tables.find(slot.owner);
        if (owner == nullptr || owner->is_agent ||
            tables.state_of(*owner) == core::NodeState::dead) {
            const NodeRow *next = tables.find(slot.next_owner);
            throw Violation(
                fmt::format("a token is not owned again: slot {} is {}; {} may take it in {} ms", i,
                            slot.owner == nobody ? "nobody's"
                            : owner == nullptr   ? "of one that is gone"
                            : owner->is_agent    ? owner->name + "'s, an agent"
                                                 : owner->name + "'s, who is dead",
                            slot.next_owner == nobody ? "nobody"
                            : next == nullptr         ? "one that is gone"
                                                      : next->name,
                            (slot.next_from - tables.now) / millisecond));
        }
        const auto hold = tables.begin_work(~std::uint64_t{0}, slot.owner,
                                            static_cast<std::int32_t>(i), slot.epoch);
        if (!hold)
            throw Violation(fmt::format("slot {} is closed to its owner", i));
        tables.end_work(~std::uint64_t{0}, *hold);
    }
}

/// The agent that deals to a worker; empty: a coordinator does.
std::string Schedule::agent_of(const NodeRow &node) const {
    const NodeRow *agent = node.agent.empty() ? nullptr : world_.tables.find(node.agent);
    const bool deals =
        agent != nullptr && world_.tables.state_of(*agent) == core::NodeState::active;
    return deals ? agent->name : std::string();
}

/// With a coordinator, everybody who is active holds its weight's share within one slot; within two
/// where what is dealt to agents is dealt on. Under `contiguous` the shares of agents are by their
/// own weight.
void Schedule::check_balance() const {
    const ControlTables &tables = world_.tables;
    const bool is_nested = settings_.strategy == core::Strategy::contiguous;
    std::map<std::string, double> workers; // their weight, by agent
    for (const auto &[name, node] : tables.nodes()) {
        if (!node.is_agent && tables.state_of(node) == core::NodeState::active)
            workers[agent_of(node)] += node.weight;
    }
    const auto weight_of = [&](const std::string &agent) {
        return tables.find(agent)->weight * (is_nested ? 1 : workers[agent]);
    };
    double total = 0;
    for (const auto &[agent, weight] : workers)
        total += agent.empty() ? weight : weight_of(agent);
    for (const auto &[name, node] : tables.nodes()) {
        const std::string agent = agent_of(node);
        const bool takes = !node.is_agent && tables.state_of(node) == core::NodeState::active;
        const double share = !takes ? 0
                                    : slot_count * node.weight / total *
                                          (agent.empty() ? 1 : weight_of(agent) / workers[agent]);
        const auto held = std::ranges::count(tables.slots(), node.incarnation, &SlotRow::owner);
        const double most = !takes ? 0 : agent.empty() ? 1 : 2;
        if (std::abs(static_cast<double>(held) - share) >= most + 1e-6)
            throw Violation(fmt::format(
                "the ring is not balanced: {} holds {} slots, its share is {}", name, held, share));
    }
}

void Schedule::run() {
    world_.run_until(windows_of_faults * settings_.window_length);
    calm();
    world_.run_until(world_.now() + time_to_recover());
    check_ownership();
    if (is_coordinated())
        check_balance();
}

} // namespace stacksaga::sim
