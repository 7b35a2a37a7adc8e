// stacksaga-sim: runs schedules, or shows one.
#include "scale.hpp"
#include "schedule.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include <unistd.h>

namespace {

using namespace stacksaga::sim;

struct Options {
    std::uint64_t first_seed = 1;
    std::uint64_t schedules = 1000;
    double seconds = 0; ///< 0: no limit
    unsigned jobs = 1;
    Mutant mutant = Mutant::none;
    bool trace = false;
    std::optional<ScaleSettings> scale;
    bool progress = isatty(STDERR_FILENO) != 0;
};

struct Totals {
    std::uint64_t schedules = 0;
    std::uint64_t faults = 0;
    ControlTables::Counts counts;
    std::optional<std::uint64_t> failed_seed; ///< the lowest
    std::string failure;
    std::vector<std::string> trace;
};

void add(Totals &totals, const Schedule &schedule) {
    const ControlTables::Counts &counts = schedule.counts();
    ++totals.schedules;
    totals.faults += schedule.faults();
    totals.counts.commits += counts.commits;
    totals.counts.take_overs += counts.take_overs;
    totals.counts.sweeps += counts.sweeps;
    totals.counts.windows += counts.windows;
    totals.counts.parts += counts.parts;
    totals.counts.lost_races += counts.lost_races;
    totals.counts.fenced += counts.fenced;
}

/// A line on the terminal, overwritten with the progress and the speed.
class Progress {
public:
    explicit Progress(const Options &options) : options_(options) {}

    void show(const Totals &totals) {
        const auto now = std::chrono::steady_clock::now();
        if (!options_.progress || now < next_)
            return;
        next_ = now + std::chrono::milliseconds(500);
        const double passed = std::chrono::duration<double>(now - begun_).count();
        const auto done = static_cast<double>(totals.schedules);
        double left = (static_cast<double>(options_.schedules) - done) * passed / done;
        if (options_.seconds > 0)
            left = std::min(left, std::max(options_.seconds - passed, 0.0));
        fmt::print(stderr, "\r{} of {} schedules, {:.0f}/s, {:.0f} s left \x1b[K", totals.schedules,
                   options_.schedules, done / passed, left);
    }

    void end() const {
        if (options_.progress)
            fmt::print(stderr, "\r\x1b[K");
    }

private:
    const Options &options_;
    std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point next_ = begun_ + std::chrono::milliseconds(500);
};

/// Runs seeds first_seed, first_seed + 1, ... until one fails or enough were run.
Totals run_all(const Options &options) {
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::microseconds(static_cast<std::int64_t>(options.seconds * 1e6));
    std::atomic<std::uint64_t> next = 0;
    std::atomic<bool> failed = false;
    std::mutex mutex;
    Totals totals;
    Progress progress(options);
    const auto run_some = [&] {
        while (!failed && (options.seconds <= 0 || std::chrono::steady_clock::now() < end)) {
            const std::uint64_t number = next++;
            if (number >= options.schedules)
                return;
            const std::uint64_t seed = options.first_seed + number;
            Schedule schedule(seed, options.mutant);
            std::string failure;
            try {
                schedule.run();
            } catch (const std::exception &violation) {
                failure = violation.what();
            }
            const std::lock_guard lock(mutex);
            add(totals, schedule);
            progress.show(totals);
            if (options.trace || (!failure.empty() && seed < totals.failed_seed.value_or(seed + 1)))
                totals.trace = schedule.trace();
            if (!failure.empty() && seed < totals.failed_seed.value_or(seed + 1)) {
                failed = true;
                totals.failed_seed = seed;
                totals.failure = failure;
            }
        }
    };
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < options.jobs; ++i)
        threads.emplace_back(run_some);
    threads.clear();
    progress.end();
    return totals;
}

Options parse(int argc, char **argv) {
    Options options;
    std::optional<std::uint64_t> seed;
    std::string mutant = "none";
    std::string scale;
    CLI::App app("Runs the coordination of a ring under simulated faults.", "stacksaga-sim");
    app.add_option("--seed", seed, "Run only this schedule and print its trace.");
    app.add_option("--first-seed", options.first_seed, "The seed of the first schedule.");
    app.add_option("--schedules", options.schedules, "The number of schedules.");
    app.add_option("--seconds", options.seconds, "Start no schedule after this time; 0: no limit.");
    app.add_option("--jobs", options.jobs, "Threads.")->check(CLI::Range(1, 64));
    app.add_option("--break", mutant, "Break a rule, which the simulator must notice.")
        ->check(CLI::IsMember(std::vector<std::string>(mutant_names.begin(), mutant_names.end())));
    app.add_option("--scale", scale,
                   "Count statements and recovery instead: servers=, workers=, agents=, masters=, "
                   "slots=, windows=, separated by commas.");
    app.add_flag_callback(
        "--list-mutants",
        [] {
            for (const std::string_view name : mutant_names) {
                if (name != mutant_names[0])
                    fmt::print("{}\n", name);
            }
            throw CLI::Success();
        },
        "Names the rules that --break knows.");
    try {
        app.parse(argc, argv);
        if (!scale.empty())
            options.scale = parse_scale(scale);
    } catch (const CLI::ParseError &error) {
        std::exit(app.exit(error));
    } catch (const std::invalid_argument &error) {
        fmt::print(stderr, "{}\n", error.what());
        std::exit(64);
    }
    options.mutant =
        static_cast<Mutant>(std::ranges::find(mutant_names, mutant) - mutant_names.begin());
    if (seed) {
        options.first_seed = *seed;
        options.schedules = 1;
        options.trace = true;
    }
    return options;
}

} // namespace

int main(int argc, char **argv) {
    const Options options = parse(argc, argv);
    if (options.scale) {
        fmt::print("{}", measure_scale(*options.scale));
        return 0;
    }
    const Totals totals = run_all(options);
    for (const std::string &line : totals.trace)
        fmt::print("{}\n", line);
    fmt::print("{} schedules, {} faults: {} windows, {} parts of agents ({} lost races), "
               "{} take-overs ({} swept), {} commits, {} refused by the fence\n",
               totals.schedules, totals.faults, totals.counts.windows, totals.counts.parts,
               totals.counts.lost_races, totals.counts.take_overs, totals.counts.sweeps,
               totals.counts.commits, totals.counts.fenced);
    if (!totals.failed_seed)
        return 0;
    const auto name = mutant_names[static_cast<std::size_t>(options.mutant)];
    fmt::print("FAILED: {}\nrun it again: {} --seed {}{}\n", totals.failure, argv[0],
               *totals.failed_seed,
               options.mutant == Mutant::none ? "" : fmt::format(" --break {}", name));
    return 1;
}
