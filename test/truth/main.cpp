// stacksaga-truth: explores sagas, or shows what is wrong with one.
#include "small.hpp"
#include "suites.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace {

using namespace stacksaga::truth;
using Clock = std::chrono::steady_clock;

/// However short the time is.
constexpr std::size_t walks_min = 1000;

struct Options {
    double seconds = 0; ///< 0: until everything is explored
    bool at_length = false;
    bool stops = false; ///< at the first saga in which something is wrong
    std::string suite;
    std::string shape;
    std::string child;
    std::uint64_t first_seed = 1;
    long walks = 20'000;
    std::optional<int> losses;
    std::optional<int> releases;
    std::optional<int> operations;
    std::optional<std::size_t> states_max;
    std::string report;
    unsigned threads = std::max(1U, std::thread::hardware_concurrency());
};

Settings settings_for(const Options &options, Settings settings) {
    settings.bounds.losses = options.losses.value_or(settings.bounds.losses);
    settings.bounds.releases = options.releases.value_or(settings.bounds.releases);
    settings.bounds.operations = options.operations.value_or(settings.bounds.operations);
    settings.states_max = options.states_max.value_or(settings.states_max);
    return settings;
}

bool is_wanted(const Options &options, std::string_view suite) {
    return options.suite.empty() || options.suite == suite;
}

void print(const Violations &found) {
    for (const auto &[what, violation] : found) {
        fmt::print("FAILED: {} (in {} sagas)\n    {}\n", what, violation.shapes, violation.shape);
        for (const std::string &move : violation.history)
            fmt::print("        {}\n", move);
    }
}

std::string text_of(const Counts &counts) {
    return fmt::format(
        "{} sagas, {} states, {} parks with a way out searched, {} answers swapped{}",
        counts.shapes, counts.states, counts.ways, counts.swaps,
        counts.cut > 0 ? fmt::format(", {} cut", counts.cut) : "");
}

/// One line for what was explored, with what is wrong, and one of the report.
class Results {
public:
    explicit Results(const std::string &report) {
        if (report.empty())
            return;
        report_ = std::fopen(report.c_str(), "w");
        if (report_ == nullptr)
            throw std::runtime_error("cannot write " + report);
        fmt::print(report_, "suite\tsagas\tstates\tcut\tparks\tswapped\tviolations\n");
    }
    Results(const Results &) = delete;
    Results &operator=(const Results &) = delete;
    ~Results() {
        if (report_ != nullptr)
            std::fclose(report_);
    }

    void add(std::string_view name, const Counts &counts, const Violations &found,
             std::size_t left) {
        fmt::print("{} {}: {}{}\n", found.empty() ? "ok    " : "not ok", name, text_of(counts),
                   left > 0 ? fmt::format(", {} left out for lack of time", left) : "");
        print(found);
        std::fflush(stdout);
        are_right_ &= found.empty();
        if (report_ != nullptr)
            fmt::print(report_, "{}\t{}\t{}\t{}\t{}\t{}\t{}\n", name, counts.shapes, counts.states,
                       counts.cut, counts.ways, counts.swaps, found.size());
    }
    [[nodiscard]] bool are_right() const { return are_right_; }

private:
    std::FILE *report_ = nullptr;
    bool are_right_ = true;
};

/// What one thread, or all of them, found.
struct Part {
    Counts counts;
    Violations found;
};

/// Explores the things 0 to `count` - 1 side by side, in this order. A thread ends before the first
/// for which `is_enough(i, part)`.
template <class Explore, class IsEnough>
Part in_threads(const Options &options, std::size_t count, Explore &&explores,
                IsEnough &&is_enough) {
    std::vector<Part> parts(options.threads);
    std::atomic<std::size_t> next = 0;
    std::vector<std::thread> threads;
    for (Part &part : parts)
        threads.emplace_back([&] {
            for (std::size_t i = next++; i < count && !is_enough(i, part); i = next++)
                part.counts += explores(i, part.found);
        });
    for (std::thread &thread : threads)
        thread.join();
    Part whole;
    for (Part &part : parts) {
        whole.counts += part.counts;
        for (auto &[what, violation] : part.found)
            add(whole.found, what, std::move(violation));
    }
    return whole;
}

void explore_suite(const Suite &suite, const Options &options, Clock::time_point end,
                   Results &results) {
    const Settings settings = settings_for(options, suite.settings);
    const Part all = in_threads(
        options, suite.families.size(),
        [&](std::size_t i, Violations &found) {
            return explore(suite.families[i], settings, found);
        },
        [&](std::size_t i, const Part &part) {
            return (i > 0 && options.seconds > 0 && Clock::now() > end) ||
                   (options.stops && !part.found.empty());
        });
    results.add(suite.name, all.counts, all.found,
                suite.families.size() - static_cast<std::size_t>(all.counts.shapes));
}

void walk_random(const Options &options, Clock::time_point end, Results &results) {
    const Settings settings =
        settings_for(options, {.bounds = {.operations = 4, .losses = 5, .releases = 2},
                               .looks_for_ways = false});
    const auto count = static_cast<std::size_t>(options.walks);
    const Part all = in_threads(
        options, count,
        [&](std::size_t i, Violations &found) {
            const std::uint64_t seed = options.first_seed + i;
            return walk(random_family(seed), settings, seed, 60, found);
        },
        [&](std::size_t i, const Part &) {
            return i >= walks_min && options.seconds > 0 && Clock::now() > end;
        });
    results.add("random", all.counts, all.found,
                count - static_cast<std::size_t>(all.counts.shapes));
}

Options parse(int argc, char **argv) {
    Options options;
    CLI::App app("Holds the engine of sagas against what is true.", "stacksaga-truth");
    app.add_option("--seconds", options.seconds, "Begin no saga after this time; 0: no limit.");
    app.add_flag("--at-length", options.at_length, "All kinds of steps, more losses.");
    app.add_flag("--first", options.stops, "Stop at the first saga in which something is wrong.");
    app.add_option("--suite", options.suite, "Only this suite, such as two-steps or client.");
    app.add_option("--shape", options.shape, "Only this saga, such as \"queue pivot looks; 2\".");
    app.add_option("--child", options.child, "The saga of its child step.");
    app.add_option("--first-seed", options.first_seed, "The seed of the first random history.");
    app.add_option("--walks", options.walks, "The number of random histories.");
    app.add_option("--losses", options.losses, "Lost leases and unknown answers in a history.");
    app.add_option("--releases", options.releases, "Attempts given back in a history.");
    app.add_option("--operations", options.operations, "What operators do in a history.");
    app.add_option("--states", options.states_max, "States of one saga at most.");
    app.add_option("--report", options.report, "A table of what was explored.");
    app.add_option("--threads", options.threads, "How many sagas are explored side by side.")
        ->check(CLI::PositiveNumber);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        std::exit(app.exit(error));
    }
    return options;
}

void explore_one(const Options &options, Results &results) {
    Family family{.saga = shape_of_text(options.shape), .child = std::nullopt};
    if (!options.child.empty())
        family.child = shape_of_text(options.child);
    Violations found;
    const Counts counts = explore(family, settings_for(options, {}), found);
    results.add(family.text(), counts, found, 0);
}

void explore_smaller_ones(const Options &options, Results &results) {
    const auto run = [&](std::string_view name, Counts (*explores)(Violations &)) {
        if (!is_wanted(options, name))
            return;
        Violations found;
        const Counts counts = explores(found);
        results.add(name, counts, found, 0);
    };
    run("client", explore_client);
    run("consumer", explore_consumer);
    run("schedule", explore_schedule);
}

void explore_all(const Options &options, Results &results) {
    std::vector<Suite> all = suites(options.at_length);
    std::erase_if(all, [&](const Suite &suite) { return !is_wanted(options, suite.name); });
    // What a suite leaves of its time the later ones have.
    double left = options.seconds;
    const bool walks = is_wanted(options, "random");
    auto parts = static_cast<double>(all.size() + (walks ? 1 : 0));
    const auto in_time = [&](auto &&explores) {
        const Clock::time_point begun = Clock::now();
        const auto share = std::chrono::duration<double>(left / parts);
        explores(begun + std::chrono::duration_cast<Clock::duration>(share));
        left -= std::chrono::duration<double>(Clock::now() - begun).count();
        parts -= 1;
    };
    explore_smaller_ones(options, results);
    for (const Suite &suite : all)
        in_time([&](Clock::time_point end) { explore_suite(suite, options, end, results); });
    if (walks)
        in_time([&](Clock::time_point end) { walk_random(options, end, results); });
}

} // namespace

int main(int argc, char **argv) {
    try {
        const Options options = parse(argc, argv);
        Results results(options.report);
        if (options.shape.empty())
            explore_all(options, results);
        else
            explore_one(options, results);
        return results.are_right() ? 0 : 1;
    } catch (const std::exception &error) {
        fmt::print(stderr, "{}\n", error.what());
        return 64;
    }
}
