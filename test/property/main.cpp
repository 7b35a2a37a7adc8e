// Generates sagas, runs them, and compares what happens with what may: see README.md.
#include "database.hpp"
#include "saga_tree.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>

namespace stacksaga::property {
namespace {

// Of one transaction; whole definitions, so that each is made once.
constexpr int batch_size = 25 * sagas_per_definition;
constexpr size_t reports_max = 3;
// Saga trees take longer; their sagas count as well.
constexpr int tree_batch_size = 10 * trees_per_definition;
constexpr int sagas_per_tree = 20;
// So many that something rare happens in them.
constexpr int sagas_of_every_kind = 5000;

struct Options {
    uint64_t seed = std::random_device{}() % 1'000'000'000;
    int sagas = 10'000;
    int saga = -1;
    int tree = -1;
    int databases = 2;
    int live = 2 * rounds * trees_per_round;
    int kills = 4;
    std::string scripts = PROPERTY_SCRIPTS;
};

/// The batches that are still to be run, and what was found.
class Batches {
public:
    explicit Batches(const Options &options) : options_(options) {}

    /// Takes batches until there are none, or enough is known.
    void work(int database_number, const std::string &sagas, const std::string &trees) {
        const std::string name = fmt::format("property_{}", database_number);
        Database database(name, sagas, options_.seed);
        SagaTreeDatabase tree_database(name, trees, options_.seed);
        const bool one = options_.saga >= 0, one_tree = options_.tree >= 0;
        if (!one_tree)
            work(database, next_,
                 one ? Range{options_.saga, options_.saga + 1, batch_size, true}
                     : Range{0, options_.sagas, batch_size, false});
        add(database.lost_leases());
        if (!one)
            work(tree_database, next_tree_,
                 one_tree ? Range{options_.tree, options_.tree + 1, tree_batch_size, true}
                          : Range{0, (options_.sagas + sagas_per_tree - 1) / sagas_per_tree,
                                  tree_batch_size, false});
    }
    /// Saga trees of a background worker, after all others: it has the clock of the server.
    void work_live(const std::string &sagas, const std::string &trees) {
        const std::string name = "property_live";
        Database database(name, sagas, options_.seed);
        SagaTreeDatabase tree_database(name, trees, options_.seed, options_.kills);
        std::atomic<int> next = 0;
        work(tree_database, next, Range{0, options_.live, trees_per_round, false});
    }
    void failed(const std::string &why) {
        const std::lock_guard lock(mutex_);
        reports_.push_back(why + "\n");
        ++failures_;
    }
    [[nodiscard]] bool enough() {
        const std::lock_guard lock(mutex_);
        return failures_ > 0;
    }
    [[nodiscard]] int failures() const { return failures_; }
    [[nodiscard]] int done() const { return done_; }
    [[nodiscard]] const LostLeases &lost_leases() const { return lost_leases_; }
    [[nodiscard]] const std::vector<std::string> &reports() const { return reports_; }

private:
    struct Range {
        int begin;
        int end;
        int batch;
        bool report_all;
    };
    void add(const LostLeases &lost) {
        const std::lock_guard lock(mutex_);
        lost_leases_.all += lost.all;
        lost_leases_.with_verify += lost.with_verify;
        lost_leases_.with_fallback += lost.with_fallback;
        lost_leases_.irreversible += lost.irreversible;
    }
    template <class AnyDatabase>
    void work(AnyDatabase &database, std::atomic<int> &next, const Range &range) {
        for (;;) {
            const int first = range.begin + range.batch * next++;
            if (first >= range.end || enough())
                return;
            const int last = std::min(range.end, first + range.batch);
            std::vector<std::string> reports;
            const int failures = database.run(first, last, range.report_all, reports);
            const std::lock_guard lock(mutex_);
            done_ += last - first;
            failures_ += failures;
            reports_.insert(reports_.end(), reports.begin(), reports.end());
        }
    }

    const Options &options_;
    std::atomic<int> next_ = 0;
    std::atomic<int> next_tree_ = 0;
    std::mutex mutex_;
    int done_ = 0;
    int failures_ = 0;
    LostLeases lost_leases_{};
    std::vector<std::string> reports_;
};

std::string read_file(const std::string &path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    if (!file)
        throw std::runtime_error("cannot read " + path);
    return text.str();
}

int run(const Options &options) {
    const std::string sagas = read_file(options.scripts + "/property.sql");
    const std::string trees = read_file(options.scripts + "/saga_tree.sql");
    const auto started = std::chrono::steady_clock::now();
    fmt::print("seed {}\n", options.seed);
    std::fflush(stdout);
    Batches batches(options);
    std::vector<std::thread> threads;
    const bool one = options.saga >= 0 || options.tree >= 0;
    for (int i = 0; i < (one ? 1 : options.databases); ++i)
        threads.emplace_back([&, i] {
            try {
                batches.work(i, sagas, trees);
            } catch (const std::exception &error) {
                batches.failed(fmt::format("database {}: {}", i, error.what()));
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    if (!one && options.live > 0 && !batches.enough()) {
        try {
            batches.work_live(sagas, trees);
        } catch (const std::exception &error) {
            batches.failed(fmt::format("with a worker: {}", error.what()));
        }
    }
    const LostLeases &lost = batches.lost_leases();
    if (options.sagas >= sagas_of_every_kind && !one && !batches.enough() &&
        !lost.is_of_every_kind())
        batches.failed("no lease was lost of a step with verify, with a fallback or irreversible");
    for (size_t i = 0; i < std::min(reports_max, batches.reports().size()); ++i)
        fmt::print("{}", batches.reports()[i]);
    const auto took = std::chrono::steady_clock::now() - started;
    fmt::print("{} leases lost, {} with verify, {} with a fallback, {} irreversible\n", lost.all,
               lost.with_verify, lost.with_fallback, lost.irreversible);
    fmt::print("{} sagas and saga trees in {} s, {} of them wrong\n", batches.done(),
               std::chrono::duration_cast<std::chrono::seconds>(took).count(), batches.failures());
    return batches.failures() > 0 ? 1 : 0;
}

} // namespace
} // namespace stacksaga::property

int main(int argc, char **argv) {
    stacksaga::property::Options options;
    CLI::App app("Runs generated sagas against what may happen to them. The server is the one of "
                 "libpq's environment; databases property_0, ... are made in it.",
                 "property");
    app.add_option("--seed", options.seed, "Seed of everything that is generated");
    app.add_option("--sagas", options.sagas, "How many sagas")->check(CLI::Range(1, 100'000'000));
    app.add_option("--saga", options.saga, "Run only this one, and print its trace");
    app.add_option("--tree", options.tree, "Run only this saga tree, and print its trace");
    app.add_option("--databases", options.databases, "How many databases, each with a session")
        ->check(CLI::Range(1, 64));
    app.add_option("--live", options.live, "How many saga trees with a background worker besides")
        ->check(CLI::Range(0, 1'000'000));
    app.add_option("--kills", options.kills, "How often that worker is killed")
        ->check(CLI::Range(0, 1000));
    app.add_option("--scripts", options.scripts, "The directory of property.sql and saga_tree.sql");
    CLI11_PARSE(app, argc, argv);
    try {
        return stacksaga::property::run(options);
    } catch (const std::exception &error) {
        fmt::print(stderr, "unexpected: {}\n", error.what());
        return 70;
    }
}
