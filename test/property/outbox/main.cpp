// Runs generated episodes of the outbox against the model, and then the part in which workers are
// killed: see ../README.md.
#include "episode.hpp"
#include "live.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>

namespace stacksaga::property::outbox {
namespace {

constexpr size_t reports_max = 3;

struct Options {
    uint64_t seed = std::random_device{}() % 1'000'000'000;
    int episodes = 300;
    int episode = -1;
    int databases = 2;
    int kills = 4;
    std::string scripts = PROPERTY_SCRIPTS;
};

std::string read_file(const std::string &path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    if (!file)
        throw std::runtime_error("cannot read " + path);
    return text.str();
}

/// The episodes that are still to run, and what they found.
class Episodes {
public:
    explicit Episodes(const Options &options) : options_(options) {}

    /// Takes episodes in a database of its own until there are none, or one failed.
    void work(int database, const std::string &script) {
        const std::string name = fmt::format("property_outbox_{}", database);
        support::Session("").run(("CREATE DATABASE " + name).c_str());
        Sessions sessions("dbname=" + name);
        sessions.main.run("CREATE EXTENSION stacksaga");
        sessions.main.run_script(script);
        const bool one = options_.episode >= 0;
        const int end = one ? options_.episode + 1 : options_.episodes;
        for (int i = next_++; i < end && reports_.empty(); i = next_++) {
            Episode episode(sessions, options_.seed, one ? options_.episode : i);
            const std::optional<std::string> wrong = episode.run();
            if (wrong)
                report(fmt::format("episode {}: {}{}", one ? options_.episode : i, episode.trace(),
                                   *wrong));
            else if (one)
                fmt::print("{}", episode.trace());
            ++done_;
            if (one)
                return;
        }
    }
    void report(const std::string &text) {
        const std::lock_guard lock(mutex_);
        reports_.push_back(text);
    }
    [[nodiscard]] const std::vector<std::string> &reports() const { return reports_; }
    [[nodiscard]] int done() const { return done_; }

private:
    const Options &options_;
    std::atomic<int> next_ = 0;
    std::atomic<int> done_ = 0;
    std::mutex mutex_;
    std::vector<std::string> reports_;
};

int run(const Options &options) {
    const std::string script = read_file(options.scripts + "/outbox.sql");
    const auto started = std::chrono::steady_clock::now();
    fmt::print("seed {}\n", options.seed);
    std::fflush(stdout);
    Episodes episodes(options);
    std::vector<std::thread> threads;
    for (int i = 0; i < (options.episode >= 0 ? 1 : options.databases); ++i)
        threads.emplace_back([&, i] {
            try {
                episodes.work(i, script);
            } catch (const std::exception &error) {
                episodes.report(fmt::format("database {}: {}\n", i, error.what()));
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    // After them: a worker that is killed takes the server along.
    if (options.episode < 0 && options.kills > 0 && episodes.reports().empty())
        if (const std::string wrong = run_live(options.seed, script, options.kills); !wrong.empty())
            episodes.report("with workers: " + wrong);
    for (size_t i = 0; i < std::min(reports_max, episodes.reports().size()); ++i)
        fmt::print("{}", episodes.reports()[i]);
    const auto took = std::chrono::steady_clock::now() - started;
    fmt::print("{} episodes and a part with workers in {} s, {} of them wrong\n", episodes.done(),
               std::chrono::duration_cast<std::chrono::seconds>(took).count(),
               episodes.reports().size());
    return episodes.reports().empty() ? 0 : 1;
}

} // namespace
} // namespace stacksaga::property::outbox

int main(int argc, char **argv) {
    stacksaga::property::outbox::Options options;
    CLI::App app("Runs generated episodes of the outbox against a model. The server is the one of "
                 "libpq's environment; databases property_outbox_0, ... are made in it.",
                 "property_outbox");
    app.add_option("--seed", options.seed, "Seed of everything that is generated");
    app.add_option("--episodes", options.episodes, "How many episodes")
        ->check(CLI::Range(1, 100'000'000));
    app.add_option("--episode", options.episode, "Run only this one, and print what it does");
    app.add_option("--databases", options.databases, "How many databases")
        ->check(CLI::Range(1, 64));
    app.add_option("--kills", options.kills, "How often the worker is killed")
        ->check(CLI::Range(0, 1000));
    app.add_option("--scripts", options.scripts, "The directory of outbox.sql");
    CLI11_PARSE(app, argc, argv);
    try {
        return stacksaga::property::outbox::run(options);
    } catch (const std::exception &error) {
        fmt::print(stderr, "unexpected: {}\n", error.what());
        return 70;
    }
}
