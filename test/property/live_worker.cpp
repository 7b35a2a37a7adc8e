#include "live_worker.hpp"

#include <chrono>
#include <csignal>
#include <thread>

#include <fmt/format.h>

namespace stacksaga::property {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto patience = 60s;
constexpr auto pause = 1ms;
// At one of so many times that the worker is waited for.
constexpr int waits_per_kill = 20;
constexpr uint64_t place_kills = 201;

constexpr const char *select_due = R"(
    SELECT format('%s %s %s of %s', purpose, step_no, direction, saga_id) FROM stacksaga.work
     WHERE due_at <= stacksaga.clock_now() AND (queue IS NULL OR verifying OR lease_until IS NOT NULL))";

constexpr const char *select_worker =
    "SELECT pid FROM pg_stat_activity"
    " WHERE backend_type = 'stacksaga worker' AND datname = current_database()";

} // namespace

LiveWorker::LiveWorker(support::Session &session, std::string database, uint64_t seed, int kills)
    : session_(session), database_(std::move(database)), random_(seed, {place_kills}),
      kills_(kills) {
    // What is committed is there after a kill.
    session_.run(fmt::format("ALTER DATABASE {} SET synchronous_commit = on", database_).c_str());
    session_.disconnect();
    session_.run("SELECT stacksaga.worker_ensure()");
}

void LiveWorker::move_clock(int hours) {
    session_.run(
        fmt::format("ALTER SYSTEM SET stacksaga.clock_offset = '{} hours'", hours).c_str());
    // Small ones end in the middle of a saga.
    session_.run(
        fmt::format("ALTER SYSTEM SET stacksaga.batch_size = {}", random_.one_of({2, 3, 5, 256}))
            .c_str());
    session_.run("SELECT pg_reload_conf()");
    const std::string offset = fmt::format("{} hours", hours);
    while (session_.run("SHOW stacksaga.clock_offset").text(0, 0) != offset)
        std::this_thread::sleep_for(pause);
}

void LiveWorker::await_rest() {
    if (!is_spared_ && kills_ > 0 && random_.below(waits_per_kill) == 0)
        kill();
    const auto end = Clock::now() + patience;
    for (support::Rows due = run_again(select_due); !due.empty(); due = run_again(select_due)) {
        if (Clock::now() > end)
            throw std::runtime_error("the worker does not do " + due.text(0, 0));
        std::this_thread::sleep_for(pause);
    }
}

/// Returns when the server has restarted, and the worker with it.
void LiveWorker::kill() {
    const support::Rows worker = run_again(select_worker);
    if (worker.empty())
        return;
    std::this_thread::sleep_for(std::chrono::microseconds(random_.below(8000)));
    ::kill(static_cast<pid_t>(worker.number(0, 0)), SIGKILL);
    --kills_;
    const auto end = Clock::now() + patience;
    for (bool is_back = false; !is_back;) {
        if (Clock::now() > end)
            throw std::runtime_error("the worker does not come back");
        std::this_thread::sleep_for(10 * pause);
        const support::Rows now = run_again(select_worker);
        is_back = !now.empty() && now.text(0, 0) != worker.text(0, 0);
    }
}

/// While the server restarts.
support::Rows LiveWorker::run_again(const char *sql) {
    const auto end = Clock::now() + patience;
    for (;;) {
        try {
            return session_.run(sql);
        } catch (const support::Disconnected &) {
            if (Clock::now() > end)
                throw;
            std::this_thread::sleep_for(10 * pause);
        }
    }
}

} // namespace stacksaga::property
