// What the demo breaks on purpose, and when.
#pragma once

#include "postgres.hpp"
#include "process.hpp"

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace stacksaga::demo {

using namespace support;

/// A program that is started again whenever it is killed.
struct Program {
    std::string name;
    std::string log;
    std::function<std::vector<std::string>(int start)> command; ///< of its n-th start, from 0
    std::optional<Process> process{};                           ///< one, or none yet
    int starts = 0;

    /// Starts it unless it runs. Throws std::runtime_error if it ended other than by SIGKILL.
    void keep_running();
    [[nodiscard]] pid_t pid() const { return process ? process->pid() : 0; }
};

enum class Fault {
    service_kill,     ///< SIGKILL
    service_freeze,   ///< SIGSTOP, and SIGCONT after its leases ran out
    worker_terminate, ///< pg_terminate_backend on a worker of stacksaga
    worker_kill,      ///< SIGKILL of such a worker: all sessions end, the server recovers
    worker_freeze,    ///< SIGSTOP, and SIGCONT after a while
    server_crash,     ///< stopped in immediate mode, which saves nothing, and started again
    bank_b_close,     ///< bank B takes no connection for a while
    coordinator_kill  ///< SIGKILL
};
inline constexpr std::array<std::string_view, 8> fault_names{
    "service-kill",  "service-freeze", "worker-terminate", "worker-kill",
    "worker-freeze", "server-crash",   "bank-b-close",     "coordinator-kill"};

/// Breaks things whenever enough transfers have settled, so that faults come as fast as the work.
class Faults {
public:
    struct Targets {
        std::vector<Program> &services;
        std::vector<Program> &coordinators;
        Session &admin;     ///< a superuser's session, not in bank B
        std::string server; ///< the program that stops and starts the server: test/tools/server
        std::string log;    ///< what that program prints
    };

    /// `counts` faults of each kind, while settled transfers go from `first` to `last`, at moments
    /// that `seed` decides.
    Faults(Targets targets, const std::map<Fault, int> &counts, int first, int last,
           unsigned long seed);

    /// Reopens bank B when it is time to, then injects what is due. A fault that finds nothing to
    /// break (no worker is up, say) is tried again next time. Throws Disconnected.
    void work(int settled);

    /// Everything planned has been injected, and has ended.
    [[nodiscard]] bool is_done() const { return plan_.empty() && !bank_b_closed_until_; }
    [[nodiscard]] int count(Fault fault) const;

private:
    using Clock = std::chrono::steady_clock;
    struct Planned {
        int settled;
        Fault fault;
    };
    bool inject(Fault fault);
    bool kill_one(std::vector<Program> &programs);
    bool strike_worker(Fault fault);
    bool crash_server();
    bool close_bank_b();
    bool freeze(pid_t pid);
    void reopen_bank_b();
    std::size_t pick(std::size_t count) { return random_() % count; }

    Targets targets_;
    std::mt19937_64 random_;
    std::vector<Planned> plan_; ///< the next one last
    std::optional<Clock::time_point> bank_b_closed_until_;
    std::vector<std::jthread> thawing_;
    std::map<Fault, int> done_;
};

} // namespace stacksaga::demo
