#include "episodes.hpp"

#include "postgres.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

namespace stacksaga::property {

namespace {

constexpr size_t reports_max = 3;

} // namespace

void EpisodeOptions::add_to(CLI::App &app) {
    app.add_option("--seed", seed, "Seed of everything that is generated");
    app.add_option("--episodes", episodes, "How many episodes")->check(CLI::Range(1, 100'000'000));
    app.add_option("--episode", episode, "Run only this one, and print what it does");
    app.add_option("--databases", databases, "How many databases")->check(CLI::Range(1, 64));
}

std::string read_file(const std::string &path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    if (!file)
        throw std::runtime_error("cannot read " + path);
    return text.str();
}

void Episodes::report(const std::string &text) {
    const std::lock_guard lock(mutex_);
    reports_.push_back(text);
}

/// Takes episodes in a database of its own until there are none, or one failed.
void Episodes::work(const std::string &database, const std::string &script,
                    const std::function<Player(const std::string &)> &open) {
    support::Session("").run(("CREATE DATABASE " + database).c_str());
    {
        support::Session session("dbname=" + database);
        session.run("CREATE EXTENSION stacksaga");
        if (!script.empty())
            session.run_script(script);
    }
    const Player play = open("dbname=" + database);
    const int end = is_one() ? options_.episode + 1 : options_.episodes;
    for (int i = is_one() ? options_.episode : next_++; i < end && !has_failed(); i = next_++) {
        const Played played = play(i);
        if (played.wrong)
            report(fmt::format("episode {}:\n{}{}", i, played.trace, *played.wrong));
        else if (is_one())
            fmt::print("{}", played.trace);
        ++done_;
        if (is_one())
            return;
    }
}

void Episodes::run(const std::string &name, const std::string &script,
                   const std::function<Player(const std::string &)> &open) {
    fmt::print("seed {}\n", options_.seed);
    std::fflush(stdout);
    std::vector<std::thread> threads;
    for (int i = 0; i < (is_one() ? 1 : options_.databases); ++i)
        threads.emplace_back([&, i] {
            try {
                work(fmt::format("{}_{}", name, i), script, open);
            } catch (const std::exception &error) {
                report(fmt::format("database {}: {}\n", i, error.what()));
            }
        });
    for (std::thread &thread : threads)
        thread.join();
}

int Episodes::summarize(const std::string &what) const {
    for (size_t i = 0; i < std::min(reports_max, reports_.size()); ++i)
        fmt::print("{}", reports_[i]);
    const auto took = std::chrono::steady_clock::now() - started_;
    fmt::print("{} {} in {} s, {} of them wrong\n", done_.load(), what,
               std::chrono::duration_cast<std::chrono::seconds>(took).count(), reports_.size());
    return has_failed() ? 1 : 0;
}

} // namespace stacksaga::property
