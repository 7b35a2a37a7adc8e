// Episodes of a property test: each is generated from a seed and its number, some run at a time,
// each in a database of its own, and the first that fails ends the run.
#pragma once

#include <CLI/CLI.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace stacksaga::property {

struct EpisodeOptions {
    uint64_t seed = std::random_device{}() % 1'000'000'000;
    int episodes = 300;
    int episode = -1; ///< only this one; -1: all
    int databases = 2;

    void add_to(CLI::App &app);
};

std::string read_file(const std::string &path);

/// What an episode did, and what went wrong in it; nothing when all went well.
struct Played {
    std::string trace;
    std::optional<std::string> wrong;
};
/// Runs the episode of this number.
using Player = std::function<Played(int)>;

class Episodes {
public:
    explicit Episodes(const EpisodeOptions &options) : options_(options) {}

    /// Makes the databases `name`_0, ... with the extension and the script in them, and runs all
    /// episodes: `open` takes a database's conninfo.
    void run(const std::string &name, const std::string &script,
             const std::function<Player(const std::string &)> &open);
    void report(const std::string &text);

    [[nodiscard]] bool is_one() const { return options_.episode >= 0; }
    [[nodiscard]] bool has_failed() const { return !reports_.empty(); }
    /// Prints the first reports and the counts. Returns the exit status.
    [[nodiscard]] int summarize(const std::string &what) const;

private:
    void work(const std::string &database, const std::string &script,
              const std::function<Player(const std::string &)> &open);

    const EpisodeOptions &options_;
    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
    std::atomic<int> next_ = 0;
    std::atomic<int> done_ = 0;
    std::mutex mutex_;
    std::vector<std::string> reports_;
};

} // namespace stacksaga::property
