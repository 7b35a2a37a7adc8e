// Drives one run of the demo: keeps the services (and coordinators) running, asks for transfers,
// breaks things meanwhile, and ends when every transfer asked for has settled. Shows how it goes.
//
// Exit status 0: all settled; 1: they did not in time, or something that must not end has ended.
#include "faults.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include <sys/ioctl.h>
#include <unistd.h>

namespace stacksaga::demo {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds look_again{50};
/// On a terminal the line is written over; elsewhere each stays.
constexpr milliseconds show_on_terminal{200}, show_in_file{5000};
constexpr int start_batch = 100;

// The same key always means the same saga: a batch whose commit is in doubt is asked for again.
constexpr const char *start_sagas =
    "SELECT count(*) FROM bank.request AS r,"
    " LATERAL stacksaga.start_saga('transfer', r.input, key => r.key) AS s"
    " WHERE r.n > $1::integer AND r.n <= $2::integer";
constexpr const char *count_sagas =
    "SELECT count(*) FILTER (WHERE status = 'completed'),"
    "       count(*) FILTER (WHERE status = 'failed'),"
    "       count(*) FILTER (WHERE status = 'parked'), count(*) FROM stacksaga.sagas";

struct Options {
    std::string title = "transfers";
    int first = 1;
    int last = 1000;
    int in_flight = 250;
    int services = 3;
    int timeout_s = 240;
    unsigned long seed = 1;
    std::string service;
    std::string coordinator; ///< empty: none is run
    std::string server;
    std::string logs = ".";
    std::map<std::string, int> faults;
};

struct Counts {
    int completed, failed, parked, started;
    [[nodiscard]] int settled() const { return completed + failed; }
};

/// One line with the progress.
class Display {
public:
    void show(const std::string &line, bool is_last);

private:
    bool on_terminal_ = isatty(STDOUT_FILENO) != 0;
    Clock::time_point next_{};
};

/// What fits in the terminal's width: a line that wraps could not be written over.
std::string_view clipped(std::string_view line) {
    winsize size{};
    const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return is_known ? line.substr(0, size.ws_col - 1U) : line;
}

void Display::show(const std::string &line, bool is_last) {
    const auto now = Clock::now();
    if (now < next_ && !is_last)
        return;
    next_ = now + (on_terminal_ ? show_on_terminal : show_in_file);
    if (on_terminal_)
        fmt::print("\r\033[K{}{}", clipped(line), is_last ? "\n" : "");
    else
        fmt::print("{}\n", line);
    std::fflush(stdout);
}

std::vector<Program> make_services(const Options &options) {
    std::vector<Program> services;
    for (int i = 1; i <= options.services; ++i) {
        const std::string name = fmt::format("credit-{}", i);
        const unsigned long seed = options.seed * 1000 + static_cast<unsigned long>(i) * 100;
        services.push_back({.name = name,
                            .log = fmt::format("{}/{}.log", options.logs, name),
                            .command = [=](int start) -> std::vector<std::string> {
                                return {options.service,
                                        "--name",
                                        name,
                                        "--seed",
                                        std::to_string(seed + static_cast<unsigned long>(start)),
                                        "--bank-a",
                                        "dbname=bank_a user=credit_service",
                                        "--bank-b",
                                        "dbname=bank_b user=credit_service",
                                        "--late",
                                        "0.03",
                                        "--stall",
                                        "0.03",
                                        "--die",
                                        "0.004",
                                        "--lose",
                                        "0.02",
                                        "--forget",
                                        "0.02"};
                            }});
    }
    return services;
}

std::vector<Program> make_coordinators(const Options &options) {
    std::vector<Program> coordinators;
    if (!options.coordinator.empty())
        coordinators.push_back({.name = "coordinator",
                                .log = options.logs + "/coordinator.log",
                                .command = [=](int) -> std::vector<std::string> {
                                    return {options.coordinator, "master", "--dbname",
                                            "dbname=bank_a user=bank_coordinator"};
                                }});
    return coordinators;
}

std::map<Fault, int> fault_counts(const std::map<std::string, int> &words) {
    std::map<Fault, int> counts;
    for (const auto &[word, count] : words) {
        const auto found = std::ranges::find(fault_names, word);
        if (found == fault_names.end())
            throw std::runtime_error("no such fault: " + word);
        counts[static_cast<Fault>(found - fault_names.begin())] = count;
    }
    return counts;
}

class Run {
public:
    explicit Run(const Options &options)
        : options_(options), services_(make_services(options)),
          coordinators_(make_coordinators(options)),
          faults_({services_, coordinators_, admin_, options.server, options.logs + "/server.log"},
                  fault_counts(options.faults), options.first - 1, options.last, options.seed) {}

    void until_settled();

private:
    Counts count();
    void ask_for_more(const Counts &counts);
    [[nodiscard]] bool is_settled() const {
        return counts_.settled() == options_.last && faults_.is_done();
    }
    [[nodiscard]] std::string progress() const;
    [[noreturn]] void give_up() const;

    Options options_;
    Session bank_a_{"dbname=bank_a user=bank"};
    Session admin_{"dbname=postgres"};
    std::vector<Program> services_;
    std::vector<Program> coordinators_;
    Faults faults_;
    Display display_;
    Counts counts_{};
    int asked_ = 0;
};

Counts Run::count() {
    const Rows rows = bank_a_.run(count_sagas);
    const auto number = [&](int column) { return static_cast<int>(rows.number(0, column)); };
    return {number(0), number(1), number(2), number(3)};
}

void Run::ask_for_more(const Counts &counts) {
    asked_ = std::max(asked_, counts.started);
    const int upto =
        std::min({options_.last, counts.settled() + options_.in_flight, asked_ + start_batch});
    if (upto <= asked_)
        return;
    bank_a_.run(start_sagas, {std::to_string(asked_), std::to_string(upto)});
    asked_ = upto;
}

std::string Run::progress() const {
    const auto count = [&](Fault fault) { return faults_.count(fault); };
    const std::pair<const char *, int> kinds[] = {
        {"service", count(Fault::service_kill)},
        {"worker", count(Fault::worker_terminate) + count(Fault::worker_kill)},
        {"coordinator", count(Fault::coordinator_kill)},
        {"server", count(Fault::server_crash)}};
    int sum = 0;
    std::string kills;
    for (const auto &[name, killed] : kinds) {
        if (killed > 0)
            kills += fmt::format("{}{} {}", kills.empty() ? ": " : ", ", name, killed);
        sum += killed;
    }
    return fmt::format("{}: {} of {} settled, {} completed, {} failed, {} in flight; {} kills{}",
                       options_.title, counts_.settled(), options_.last, counts_.completed,
                       counts_.failed, asked_ - counts_.settled(), sum, kills);
}

void Run::give_up() const {
    throw std::runtime_error(fmt::format("{} of {} transfers settled within {} s, {} are parked",
                                         counts_.settled(), options_.last, options_.timeout_s,
                                         counts_.parked));
}

void Run::until_settled() {
    const auto until = Clock::now() + std::chrono::seconds(options_.timeout_s);
    while (!is_settled()) {
        for (std::vector<Program> *programs : {&services_, &coordinators_})
            for (Program &program : *programs)
                program.keep_running();
        try {
            counts_ = count();
            ask_for_more(counts_);
            faults_.work(counts_.settled());
        } catch (const Disconnected &) {
            // The server is down, which is part of it; the next statement connects again.
        }
        display_.show(progress(), is_settled());
        if (counts_.parked > 0 || Clock::now() > until)
            give_up();
        if (!is_settled())
            std::this_thread::sleep_for(look_again);
    }
    for (std::size_t i = 0; i < fault_names.size(); ++i)
        if (const int count = faults_.count(static_cast<Fault>(i)); count > 0)
            fmt::print("    {} x {}\n", count, fault_names[i]);
}

} // namespace
} // namespace stacksaga::demo

int main(int argc, char **argv) {
    using namespace stacksaga::demo;
    Options options;
    CLI::App app("Asks for transfers from bank A to bank B and breaks things meanwhile.",
                 "transfers");
    app.add_option("--title", options.title, "What progress is shown under");
    app.add_option("--first", options.first, "First request of this run (bank.request.n)");
    app.add_option("--last", options.last, "Last request of this run");
    app.add_option("--in-flight", options.in_flight, "How many to have under way");
    app.add_option("--services", options.services, "How many services to run");
    app.add_option("--timeout", options.timeout_s, "Seconds after which to give up");
    app.add_option("--seed", options.seed, "Seed of the faults");
    app.add_option("--service", options.service, "The program credit_service")->required();
    app.add_option("--coordinator", options.coordinator, "The daemon, to run and kill as well");
    app.add_option("--server", options.server, "test/tools/server")->required();
    app.add_option("--logs", options.logs, "Folder for the programs' output");
    for (const std::string_view fault : fault_names)
        app.add_option(fmt::format("--{}", fault), options.faults[std::string(fault)],
                       "How often to do this")
            ->group("Faults");
    CLI11_PARSE(app, argc, argv);

    try {
        Run(options).until_settled();
    } catch (const std::exception &error) {
        fmt::print("\n");
        fmt::print(stderr, "transfers: {}\n", error.what());
        return 1;
    }
    return 0;
}
