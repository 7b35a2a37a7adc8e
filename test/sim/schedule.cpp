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
    settings.rebalance_delay = random() % 4 == 0 ? settings.window_length : 0;
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

NodeActor &Schedule::add_node(const std::string &name) {
    constexpr std::array<double, 4> weights{1, 1, 2, 0.5};
    const double weight = weights[static_cast<std::size_t>(world_.between(0, 3))];
    tell(fmt::format("{} joins with weight {}", name, weight));
    nodes_.push_back(std::make_unique<NodeActor>(world_, name, weight, nodes_.size()));
    nodes_.back()->process.rate = 1 + static_cast<double>(world_.between(-50, 50)) / 1000;
    nodes_.back()->start();
    return *nodes_.back();
}

CoordinatorActor &Schedule::add_coordinator() {
    const std::string name = fmt::format("coordinator-{}", coordinators_.size());
    tell(name + " starts");
    coordinators_.push_back(std::make_unique<CoordinatorActor>(
        world_, name, strategy_of(settings_.strategy), seed_ + coordinators_.size()));
    coordinators_.back()->process.rate = 1 + static_cast<double>(world_.between(-50, 50)) / 1000;
    coordinators_.back()->start();
    world_.poll();
    return *coordinators_.back();
}

std::vector<NodeActor *> Schedule::running_nodes() const {
    std::vector<NodeActor *> running;
    for (const auto &node : nodes_) {
        if (node->is_running())
            running.push_back(node.get());
    }
    return running;
}

std::vector<CoordinatorActor *> Schedule::running_coordinators() const {
    std::vector<CoordinatorActor *> running;
    for (const auto &coordinator : coordinators_) {
        if (!coordinator->process.killed)
            running.push_back(coordinator.get());
    }
    return running;
}

// ---------------------------------------------------------------------------- faults

void Schedule::plan_faults() {
    const Time end = windows_of_faults * settings_.window_length;
    for (std::int64_t i = world_.between(0, 20); i > 0; --i)
        world_.at(world_.between(0, end), [this] { strike(); });
}

void Schedule::strike() {
    ++faults_;
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

void Schedule::strike_node() {
    const auto running = running_nodes();
    const std::int64_t kind = world_.between(1, 8);
    if (running.empty() || kind == 1) {
        add_node(fmt::format("node-{}", nodes_.size()));
        return;
    }
    NodeActor &node = *world_.one_of(running);
    const Time some_windows = world_.between(0, 3 * settings_.window_length);
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
        tell(fmt::format("{} stands still for {} ms", node.name(), some_windows / millisecond));
        node.process.paused_until = world_.now() + some_windows;
        break;
    case 6:
        tell(fmt::format("{} loses messages for {} ms", node.name(), some_windows / millisecond));
        node.process.lossy_until = world_.now() + some_windows;
        break;
    case 7:
        tell(node.name() + " drains");
        node.drain();
        break;
    default:
        tell(node.name() + " leaves");
        node.leave();
    }
}

void Schedule::strike_coordinator() {
    const auto running = running_coordinators();
    const std::int64_t kind = world_.between(1, 5);
    if (running.empty() || kind == 1) {
        add_coordinator();
        return;
    }
    CoordinatorActor &coordinator = *world_.one_of(running);
    const Time some_windows = world_.between(0, 3 * settings_.window_length);
    switch (kind) {
    case 2:
        tell("a coordinator dies");
        coordinator.process.killed = true;
        break;
    case 3:
        tell("a coordinator dies and comes back");
        coordinator.process.killed = true;
        add_coordinator();
        break;
    case 4:
        tell(fmt::format("a coordinator stands still for {} ms", some_windows / millisecond));
        coordinator.process.paused_until = world_.now() + some_windows;
        break;
    default:
        tell(fmt::format("a coordinator loses messages for {} ms", some_windows / millisecond));
        coordinator.process.lossy_until = world_.now() + some_windows;
    }
}

/// No more faults: who stands still goes on, messages arrive, and somebody is there to work.
void Schedule::calm() {
    world_.is_calm = true;
    bool has_worker = false;
    // What was put off by standing still happens when that would have ended.
    const auto wake = [this](Process &process) {
        still_ = std::max(still_, process.paused_until - world_.now());
        process.paused_until = process.lossy_until = 0;
    };
    for (NodeActor *node : running_nodes()) {
        wake(node->process);
        has_worker = has_worker || (!node->is_draining() && !node->is_superseded());
    }
    for (CoordinatorActor *coordinator : running_coordinators()) {
        wake(coordinator->process);
        if (world_.happens(100))
            coordinator->process.killed = true;
    }
    if (!has_worker)
        add_node(fmt::format("node-{}", nodes_.size()));
    tell(is_coordinated() ? "calm" : "calm, without a coordinator");
}

bool Schedule::is_coordinated() const {
    return !running_coordinators().empty();
}

// ---------------------------------------------------------------------------- checks

/// How long it may take from the last fault until every token is owned as it should be.
///
/// First, messages that were late when the calm began arrive, and statements that stood still end.
/// With a coordinator: until the silent are left out, and then two windows, for the next one may
/// just have been published. Without one: until the windows that were published are over and two
/// more were missed, and the silent are dead; then nodes sweep, some slots with each beat. A window
/// that was published before the clock went back is not published again.
Time Schedule::time_to_recover() const {
    const Time beats = 12 * settings_.heartbeat_interval;
    const Time late =
        std::max({latest_message, settings_.window_length, still_}) + jumped_back_ + beats;
    if (is_coordinated())
        return late + settings_.suspect_after + 2 * settings_.window_length + 2 * daemon_interval;
    return late + settings_.dead_after + settings_.rebalance_delay + 5 * settings_.window_length;
}

void Schedule::check_ownership() {
    ControlTables &tables = world_.database();
    for (std::size_t i = 0; i < tables.slots().size(); ++i) {
        const SlotRow &slot = tables.slots()[i];
        const NodeRow *owner = tables.find(slot.owner);
        if (owner == nullptr || tables.state_of(*owner) == core::NodeState::dead) {
            const NodeRow *next = tables.find(slot.next_owner);
            throw Violation(
                fmt::format("a token is not owned again: slot {} is {}; {} may take it in {} ms", i,
                            slot.owner == nobody ? "nobody's"
                            : owner == nullptr   ? "of one that is gone"
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

/// With a coordinator, everybody who is active holds its weight's share within one slot.
void Schedule::check_balance() const {
    const ControlTables &tables = world_.tables;
    double total = 0;
    for (const auto &[name, node] : tables.nodes()) {
        if (tables.state_of(node) == core::NodeState::active)
            total += node.weight;
    }
    for (const auto &[name, node] : tables.nodes()) {
        const bool active = tables.state_of(node) == core::NodeState::active;
        const double share = active ? slot_count * node.weight / total : 0;
        const auto held = std::ranges::count(tables.slots(), node.incarnation, &SlotRow::owner);
        if (std::abs(static_cast<double>(held) - share) >= (active ? 1 + 1e-6 : 1e-6))
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
