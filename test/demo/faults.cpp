#include "faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>

#include <sys/wait.h>

namespace stacksaga::demo {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds freeze_shortest{800}, freeze_longest{2500}, bank_b_closed{1000};

constexpr const char *find_workers =
    "SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'stacksaga%'"
    " ORDER BY pid";

} // namespace

void Program::keep_running() {
    if (process) {
        const auto status = process->ended();
        if (!status)
            return;
        process.reset();
        if (!WIFSIGNALED(*status) || WTERMSIG(*status) != SIGKILL)
            throw std::runtime_error(
                fmt::format("{} ended by itself, wait status {}: see {}", name, *status, log));
    }
    process.emplace(command(starts++), log);
}

Faults::Faults(Targets targets, const std::map<Fault, int> &counts, int first, int last,
               unsigned long seed)
    : targets_(std::move(targets)), random_(seed) {
    // Not at the very end: what comes then must still find something in flight.
    std::uniform_int_distribution<int> moment(first, first + (last - first) * 9 / 10);
    for (const auto &[fault, count] : counts)
        for (int i = 0; i < count; ++i)
            plan_.push_back({moment(random_), fault});
    std::ranges::sort(plan_, std::ranges::greater{}, &Planned::settled);
}

int Faults::count(Fault fault) const {
    const auto found = done_.find(fault);
    return found == done_.end() ? 0 : found->second;
}

void Faults::work(int settled) {
    if (bank_b_closed_until_ && *bank_b_closed_until_ <= Clock::now())
        reopen_bank_b();
    while (!plan_.empty() && plan_.back().settled <= settled) {
        if (!inject(plan_.back().fault))
            return;
        ++done_[plan_.back().fault];
        plan_.pop_back();
    }
}

bool Faults::inject(Fault fault) {
    switch (fault) {
    case Fault::service_kill:
        return kill_one(targets_.services);
    case Fault::service_freeze:
        return freeze(targets_.services[pick(targets_.services.size())].pid());
    case Fault::worker_terminate:
    case Fault::worker_kill:
    case Fault::worker_freeze:
        return strike_worker(fault);
    case Fault::server_crash:
        return crash_server();
    case Fault::bank_b_close:
        return close_bank_b();
    case Fault::coordinator_kill:
        return kill_one(targets_.coordinators);
    }
    return false;
}

bool Faults::kill_one(std::vector<Program> &programs) {
    if (programs.empty())
        return false;
    const pid_t pid = programs[pick(programs.size())].pid();
    return pid > 0 && kill(pid, SIGKILL) == 0;
}

bool Faults::strike_worker(Fault fault) {
    const Rows workers = targets_.admin.run(find_workers);
    if (workers.empty())
        return false;
    const auto pid = static_cast<pid_t>(
        workers.number(static_cast<int>(pick(static_cast<std::size_t>(workers.size()))), 0));
    if (fault == Fault::worker_terminate)
        return targets_.admin.run("SELECT pg_terminate_backend($1::integer)", {std::to_string(pid)})
                   .text(0, 0) == "t";
    if (fault == Fault::worker_kill)
        return kill(pid, SIGKILL) == 0;
    return freeze(pid);
}

/// A thread of its own ends it: what is frozen may hold a lock inside the server that every session
/// waits for, those of this program too.
bool Faults::freeze(pid_t pid) {
    std::uniform_int_distribution<milliseconds::rep> length(freeze_shortest.count(),
                                                            freeze_longest.count());
    if (pid <= 0 || kill(pid, SIGSTOP) != 0)
        return false;
    thawing_.emplace_back([pid, pause = milliseconds(length(random_))] {
        std::this_thread::sleep_for(pause);
        kill(pid, SIGCONT);
    });
    return true;
}

bool Faults::crash_server() {
    const std::vector<std::string> restart{targets_.server, "restart", "-m", "immediate"};
    targets_.admin.disconnect();
    if (Process(restart, targets_.log).wait() != 0)
        throw std::runtime_error("the server does not start again: see " + targets_.log);
    return true;
}

bool Faults::close_bank_b() {
    // Reopened also if the connection breaks before this returns.
    bank_b_closed_until_ = Clock::now() + bank_b_closed;
    targets_.admin.run("ALTER DATABASE bank_b ALLOW_CONNECTIONS false");
    targets_.admin.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                       " WHERE datname = 'bank_b' AND backend_type = 'client backend'");
    return true;
}

void Faults::reopen_bank_b() {
    targets_.admin.run("ALTER DATABASE bank_b ALLOW_CONNECTIONS true");
    bank_b_closed_until_.reset();
}

} // namespace stacksaga::demo
