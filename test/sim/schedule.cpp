#include "schedule.hpp"

#include <fmt/format.h>

#include <array>

namespace stacksaga::sim {

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
    settings.on_missing_window =
        random() % 4 == 0 ? core::MissingWindow::pause : core::MissingWindow::keep;
    settings.strategy = random() % 4 == 0 ? core::Strategy::contiguous : core::Strategy::consistent;
    return settings;
}

Schedule::Schedule(std::uint64_t seed, Mutant mutant)
    : random_(seed), settings_(draw_settings(random_)),
      world_(random_(), settings_, slot_count, mutant), seed_(seed) {
    record(fmt::format(
        "window {} s, lead {} ms, heartbeat {} ms, dead after {} ms, delay {} s, {}, {}",
        settings_.window_length / second, settings_.publish_lead / millisecond,
        settings_.heartbeat_interval / millisecond, settings_.dead_after / millisecond,
        settings_.rebalance_delay / second,
        core::strategy_names[static_cast<std::size_t>(settings_.strategy)],
        core::missing_window_names[static_cast<std::size_t>(settings_.on_missing_window)]));
    for (std::int64_t i = world_.happens(500) ? world_.between(1, 3) : 0; i > 0; --i)
        add_agent(fmt::format("agent-{}", agents_.size()));
    for (std::int64_t i = world_.between(1, 6); i > 0; --i)
        add_node(fmt::format("node-{}", nodes_.size()));
    for (std::int64_t i = world_.happens(100) ? 0 : world_.between(1, 3); i > 0; --i)
        add_coordinator();
    plan_faults();
}

void Schedule::record(const std::string &what) {
    trace_.push_back(fmt::format(
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
    record(fmt::format("{} joins{} with weight {}", name, agent.empty() ? agent : " " + agent,
                       weight));
    nodes_.push_back(std::make_unique<NodeActor>(world_, name, weight, nodes_.size(), agent));
    nodes_.back()->process.rate = draw_rate();
    nodes_.back()->start();
    return *nodes_.back();
}

void Schedule::add_coordinator() {
    const std::string name = fmt::format("coordinator-{}", coordinators_.size());
    record(name + " starts");
    coordinators_.push_back(std::make_unique<CoordinatorActor>(world_, name, settings_.strategy,
                                                               seed_ + coordinators_.size()));
    coordinators_.back()->process.rate = draw_rate();
    coordinators_.back()->start();
    world_.poll();
}

void Schedule::add_agent(const std::string &name) {
    const double weight = draw_weight();
    record(fmt::format("{} starts with weight {}", name, weight));
    agents_.push_back(std::make_unique<AgentActor>(world_, name, weight, settings_.strategy,
                                                   seed_ + agents_.size()));
    agents_.back()->process.rate = draw_rate();
    agents_.back()->start();
    world_.poll();
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
        record(fmt::format("the database clock jumps by {} ms", by / millisecond));
        world_.jump(by);
    }
}

/// Pauses a process, or makes it lose messages.
void Schedule::impede(Process &process, const std::string &who) {
    // Some faults last so long that the ring removes the node.
    const int most = world_.happens(100) ? 9 : 3;
    const Time some_windows = world_.between(0, most * settings_.window_length);
    const bool is_paused = world_.happens(500);
    Time &until = is_paused ? process.paused_until : process.lossy_until;
    until = std::max(until, world_.now() + some_windows);
    record(fmt::format("{} {} for {} ms", who, is_paused ? "is paused" : "loses messages",
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
        record(node.name() + " dies");
        node.kill(world_.happens(500) ? 0 : world_.between(0, 4 * second));
        break;
    case 3:
        record(node.name() + " dies and comes back");
        node.kill(world_.happens(500) ? 0 : world_.between(0, 4 * second));
        add_node(node.name());
        break;
    case 4:
        record(node.name() + " is started twice");
        add_node(node.name());
        break;
    case 5:
        record(node.name() + " drains");
        node.drain();
        break;
    case 6:
        record(node.name() + " leaves");
        node.leave();
        break;
    case 9: {
        const auto to = world_.between(0, static_cast<std::int64_t>(agents_.size()) - 1);
        record(node.name() + " is moved to another agent");
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
        record(coordinator.name() + " dies");
        coordinator.process.killed = true;
        break;
    case 3:
        record(coordinator.name() + " dies and comes back");
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
        record(agent.name() + " dies");
        agent.process.killed = true;
        break;
    case 3:
        record(agent.name() + " dies and comes back");
        agent.process.killed = true;
        add_agent(agent.name());
        break;
    case 4:
        record(agent.name() + " is started twice");
        add_agent(agent.name());
        break;
    case 5:
        record(agent.name() + " drains");
        world_.database().drain(agent.name());
        break;
    case 6:
        record(agent.name() + " is stopped");
        agent.stop();
        break;
    default:
        impede(agent.process, agent.name());
    }
}

/// Ends the faults: paused processes go on, messages arrive, and at least one node works. Some
/// daemons die now, so that only the others can notice.
void Schedule::calm() {
    world_.is_calm = true;
    bool has_worker = false;
    // The work of a paused process goes on when its pause would have ended.
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
    record(is_coordinated() ? "calm" : "calm, without a coordinator");
}

bool Schedule::is_coordinated() const {
    return !running(coordinators_).empty();
}

} // namespace stacksaga::sim
