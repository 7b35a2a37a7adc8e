#include "scale.hpp"

#include "coordinator_actor.hpp"
#include "node_actor.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <memory>
#include <stdexcept>
#include <vector>

namespace stacksaga::sim {
namespace {

struct ScaleOption {
    std::string_view name;
    std::int64_t ScaleSettings::*value;
    std::int64_t least, most;
};
constexpr std::array options{
    ScaleOption{"servers", &ScaleSettings::servers, 1, 10'000},
    ScaleOption{"workers", &ScaleSettings::workers, 2, 1'000'000},
    ScaleOption{"agents", &ScaleSettings::agents, 0, 100},
    ScaleOption{"masters", &ScaleSettings::masters, 1, 10},
    ScaleOption{"slots", &ScaleSettings::slots, 64, 4096},
    ScaleOption{"windows", &ScaleSettings::windows, 1, 1000},
};

/// Until workers are registered and the first windows have moved the slots to them.
constexpr Time settling_windows = 3;
/// A slot without a live owner is looked for so often.
constexpr Time glance = 100 * millisecond;
/// By then what died has been replaced, or never will be.
constexpr Time longest_recovery_windows = 10;
/// Between the moments of a window at which the workers of two servers die.
constexpr Time odd_seconds = 7 * second;

/// What the control tables were asked since the start.
struct Totals {
    std::uint64_t beats = 0, reads = 0, writes = 0, windows = 0, parts = 0, slot_rows = 0,
                  take_overs = 0;

    void add(const Totals &more, const Totals &less) {
        beats += more.beats - less.beats;
        reads += more.reads - less.reads;
        writes += more.writes - less.writes;
        windows += more.windows - less.windows;
        parts += more.parts - less.parts;
        slot_rows += more.slot_rows - less.slot_rows;
        take_overs += more.take_overs - less.take_overs;
    }
};

/// How often slots changed hands after a failure, and for how long one had no live owner.
struct Recovery {
    std::uint64_t take_overs = 0;
    Time total = 0;
    Time longest = 0;

    void add(std::uint64_t taken, Time time) {
        take_overs += taken;
        total += time;
        longest = std::max(longest, time);
    }
};

/// One server: a ring with its daemons and workers.
class Server {
public:
    Server(const ScaleSettings &settings, std::int64_t workers, std::uint64_t seed)
        : world_(seed, {}, static_cast<std::int32_t>(settings.slots), Mutant::none),
          moment_(static_cast<Time>(seed) * odd_seconds % world_.tables.settings().window_length) {
        world_.is_calm = true;
        const core::Strategy strategy = world_.tables.settings().strategy;
        for (std::int64_t i = 0; i < settings.agents; ++i) {
            agents_.push_back(std::make_unique<AgentActor>(world_, fmt::format("agent-{}", i), 1,
                                                           strategy, seed + 100));
            agents_.back()->start();
        }
        for (std::int64_t i = 0; i < settings.masters; ++i) {
            masters_.push_back(
                std::make_unique<CoordinatorActor>(world_, fmt::format("master-{}", i), strategy,
                                                   seed + static_cast<std::uint64_t>(i)));
            masters_.back()->start();
        }
        world_.poll();
        world_.run_until(second); // agents register first, so that workers belong to them
        for (std::int64_t i = 0; i < workers; ++i) {
            workers_.push_back(std::make_unique<NodeActor>(world_, fmt::format("worker-{}", i), 1,
                                                           static_cast<std::uint64_t>(i), ""));
            workers_.back()->start();
        }
        run_windows(settling_windows);
    }

    void run_windows(Time windows) {
        world_.run_until(world_.now() + windows * world_.tables.settings().window_length);
    }

    [[nodiscard]] Totals totals() const {
        const ControlTables::Counts &counts = world_.tables.counts;
        return {world_.statements.beats,
                world_.statements.reads,
                world_.statements.writes,
                counts.windows,
                counts.parts,
                world_.tables.proposed_moves + counts.take_overs,
                counts.take_overs};
    }

    /// A worker that owns slots dies; when all of them have live owners again.
    void lose_worker(Recovery &recovery) {
        world_.run_until(world_.now() + moment_);
        for (const auto &worker : workers_) {
            const NodeRow *row = world_.tables.find(worker->name());
            if (!worker->is_running() || row == nullptr ||
                world_.tables.slots_of(row->incarnation).empty())
                continue;
            worker->kill(0);
            measure(row->incarnation, recovery);
            return;
        }
    }

    void lose_agent(Recovery &recovery) {
        agents_.front()->process.killed = true;
        const std::uint64_t before = world_.tables.counts.take_overs;
        run_windows(settling_windows);
        recovery.add(world_.tables.counts.take_overs - before, 0);
    }

    void lose_masters(Recovery &recovery) {
        for (const auto &master : masters_)
            master->process.killed = true;
        const std::uint64_t before = world_.tables.counts.take_overs;
        run_windows(settling_windows);
        recovery.add(world_.tables.counts.take_overs - before, 0);
    }

private:
    void measure(Incarnation lost, Recovery &recovery) {
        const std::uint64_t before = world_.tables.counts.take_overs;
        const Time died = world_.now();
        const Time end = died + longest_recovery_windows * world_.tables.settings().window_length;
        while (world_.now() < end && !world_.tables.slots_of(lost).empty())
            world_.run_until(world_.now() + glance);
        const Time taken = world_.now() - died;
        run_windows(settling_windows);
        recovery.add(world_.tables.counts.take_overs - before, taken);
    }

    World world_;
    Time moment_; ///< of a window, at which a worker dies: another one on each server
    std::vector<std::unique_ptr<NodeActor>> workers_;
    std::vector<std::unique_ptr<CoordinatorActor>> masters_;
    std::vector<std::unique_ptr<AgentActor>> agents_;
};

std::string line(std::string_view what, double each, double all) {
    return fmt::format("{:<44} {:>12.2f} {:>12.1f}\n", what, each, all);
}

std::string recovery_line(std::string_view what, const Recovery &recovery, double servers) {
    const auto seconds = [](Time time) {
        return static_cast<double>(time) / static_cast<double>(second);
    };
    return fmt::format("{:<44} {:>12.2f} {:>12.1f} {:>12.1f}\n", what,
                       static_cast<double>(recovery.take_overs) / servers,
                       seconds(recovery.total) / servers, seconds(recovery.longest));
}

} // namespace

ScaleSettings parse_scale(const std::string &text) {
    ScaleSettings settings;
    for (std::string_view rest = text; !rest.empty();) {
        const std::string_view word = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(rest.size(), word.size() + 1));
        const auto equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        const auto option = std::ranges::find(options, name, &ScaleOption::name);
        if (option == options.end() || equals == std::string_view::npos)
            throw std::invalid_argument(fmt::format("\"{}\" is no setting of --scale", word));
        const std::string_view number = word.substr(equals + 1);
        std::int64_t value = 0;
        const auto [end, error] =
            std::from_chars(number.data(), number.data() + number.size(), value);
        if (error != std::errc{} || end != number.data() + number.size() || value < option->least ||
            value > option->most)
            throw std::invalid_argument(
                fmt::format("{} is from {} to {}", name, option->least, option->most));
        settings.*(option->value) = value;
    }
    return settings;
}

std::string measure_scale(const ScaleSettings &settings) {
    Totals steady;
    Recovery worker, agent, masters, swept;
    for (std::int64_t i = 0; i < settings.servers; ++i) {
        const std::int64_t workers =
            settings.workers / settings.servers + (i < settings.workers % settings.servers ? 1 : 0);
        Server server(settings, workers, static_cast<std::uint64_t>(i) + 1);
        const Totals before = server.totals();
        server.run_windows(settings.windows);
        steady.add(server.totals(), before);
        server.lose_worker(worker);
        if (settings.agents > 0)
            server.lose_agent(agent);
        server.lose_masters(masters);
        server.lose_worker(swept);
    }
    const core::RingSettings ring;
    const auto servers = static_cast<double>(settings.servers);
    const double seconds = static_cast<double>(settings.windows) *
                           static_cast<double>(ring.window_length) / static_cast<double>(second);
    const auto rate = [&](std::string_view what, std::uint64_t count) {
        const double all = static_cast<double>(count) / seconds;
        return line(what, all / servers, all);
    };
    std::string table = fmt::format(
        "{} servers, {} workers; on each server {} agents, {} masters, {} slots; {} windows of {} "
        "s\n\n{:<44} {:>12} {:>12}\n",
        settings.servers, settings.workers, settings.agents, settings.masters, settings.slots,
        settings.windows, ring.window_length / second, "a second, while nothing fails", "a server",
        "all");
    table += rate("heartbeats of workers", steady.beats);
    table += rate("statements of daemons that read", steady.reads);
    table += rate("statements of daemons that write", steady.writes);
    table += rate("windows published", steady.windows);
    table += rate("parts of windows published by agents", steady.parts);
    table += rate("rows of slots written", steady.slot_rows);
    table += rate("take-overs", steady.take_overs);
    table += fmt::format("\n{:<44} {:>12} {:>12} {:>12}\n", "when it dies on each server",
                         "take-overs", "s, mean", "s, longest");
    table += recovery_line("a worker that owns slots", worker, servers);
    if (settings.agents > 0)
        table += recovery_line("an agent", agent, servers);
    table += recovery_line("all masters", masters, servers);
    table += recovery_line("then a worker that owns slots", swept, servers);
    return table;
}

} // namespace stacksaga::sim
