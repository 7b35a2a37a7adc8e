// The service of bank B: claims steps from the queue `bank_b` of bank A, credits accounts of bank
// B, and answers under the lease. Any number of it may run, and any of them may be killed at any
// time.
//
// It has faults on purpose (--late, --stall, --die, --lose, --forget); what makes them harmless is
// the idempotency key in bank B (bank_b.cpp) and the lease in bank A. It writes one line for each
// answer that was not accepted and for each failure, beginning with a word to count them by.
#include "bank_b.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <thread>

namespace stacksaga::demo {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds idle_pause{20}, reconnect_pause{50};

constexpr const char *claim = "SELECT saga_id, step, direction, idempotency_key, lease,"
                              "       input ->> 'to', input ->> 'amount'"
                              "  FROM stacksaga.claim_steps('bank_b', $1, $2, $3::interval)";
constexpr const char *complete =
    "SELECT stacksaga.complete_step($1::uuid, $2, $3::bigint, $4::jsonb)";
constexpr const char *fail = "SELECT stacksaga.fail_step($1::uuid, $2, $3::bigint, $4, $5)";

struct Options {
    std::string name = "credit";
    std::string bank_a = "dbname=bank_a";
    std::string bank_b = "dbname=bank_b";
    int batch = 8;
    int lease_ms = 700;
    unsigned long seed = 1;
    double late = 0;   ///< share of steps that are done in time and answered after the lease
    double stall = 0;  ///< share of steps that are done only after the lease
    double die = 0;    ///< share of steps after which the service kills itself before it answers
    double lose = 0;   ///< share of transfers whose credits are made and never answered
    double forget = 0; ///< share of transfers whose credits are always done after the lease
};

struct Step {
    std::string saga_id;
    std::string name;
    std::string direction;
    std::string key;
    std::string lease;
    Credit credit;

    [[nodiscard]] bool is_act() const { return direction == "act"; }
    /// The compensation's key contains the key of the action that it undoes.
    [[nodiscard]] std::string act_key() const { return key.substr(0, key.rfind(':')) + ":act"; }
};

/// What the service has to say to bank A.
struct Answer {
    bool completed;
    std::string text;             ///< the output as JSON, or the error
    std::string error_class = ""; ///< of a failure
};

/// Something to do later: a step to take up, or an answer to give.
struct Deferred {
    Clock::time_point at;
    Step step;
    std::optional<Answer> answer;
};

void note(std::string_view what, const Step &step, std::string_view detail) {
    fmt::print(stderr, "{} {} {}: {}\n", what, step.key, step.direction, detail);
}

/// What is bound to be refused is not worth a retry; these are.
bool is_transient(const std::string &sqlstate) {
    static constexpr std::string_view classes[] = {"08", "40", "53", "55", "57", "SR"};
    return std::ranges::any_of(classes,
                               [&](std::string_view c) { return sqlstate.starts_with(c); });
}

class Service {
public:
    explicit Service(const Options &options)
        : options_(options), bank_a_(options.bank_a), bank_b_(options.bank_b),
          random_(options.seed) {}

    /// Works until `stopped` says so.
    void run(const std::function<bool()> &stopped);

private:
    enum class Fault { none, late, stall, die, lose };

    bool take_up_deferred();
    int claim_and_handle();
    Fault choose_fault(const Step &step);
    void handle(const Step &step);
    Answer do_step(const Step &step);
    void give(const Step &step, const Answer &answer);
    bool chance(double share) { return std::uniform_real_distribution<>(0, 1)(random_) < share; }
    Clock::time_point after_the_lease();

    Options options_;
    Session bank_a_;
    BankB bank_b_;
    std::mt19937_64 random_;
    std::deque<Deferred> deferred_;
};

void Service::run(const std::function<bool()> &stopped) {
    while (!stopped()) {
        try {
            const bool caught_up = take_up_deferred();
            if (claim_and_handle() == 0 && caught_up)
                std::this_thread::sleep_for(idle_pause);
        } catch (const Disconnected &) {
            std::this_thread::sleep_for(reconnect_pause); // and the next statement connects again
        } catch (const Refused &refused) {
            if (!is_transient(refused.sqlstate()))
                throw;
        }
    }
}

/// True if there was nothing to take up.
bool Service::take_up_deferred() {
    const auto now = Clock::now(); // what is deferred again is later than this
    const auto is_due = [&](const Deferred &d) { return d.at <= now; };
    bool caught_up = true;
    for (auto next = std::ranges::find_if(deferred_, is_due); next != deferred_.end();
         next = std::ranges::find_if(deferred_, is_due)) {
        const Deferred due = *next;
        deferred_.erase(next);
        give(due.step, due.answer ? *due.answer : do_step(due.step));
        caught_up = false;
    }
    return caught_up;
}

int Service::claim_and_handle() {
    const Rows rows = bank_a_.run(claim, {options_.name, std::to_string(options_.batch),
                                          fmt::format("{} milliseconds", options_.lease_ms)});
    for (int i = 0; i < rows.size(); ++i)
        handle({.saga_id = rows.text(i, 0),
                .name = rows.text(i, 1),
                .direction = rows.text(i, 2),
                .key = rows.text(i, 3),
                .lease = rows.text(i, 4),
                .credit = {rows.text(i, 0), rows.text(i, 5), rows.text(i, 6)}});
    return rows.size();
}

Service::Fault Service::choose_fault(const Step &step) {
    if (step.is_act()) {
        // The same for every attempt, whichever service makes it.
        const double place =
            static_cast<double>(std::hash<std::string>{}(step.saga_id) % 10000) / 1e4;
        if (place < options_.lose)
            return Fault::lose;
        if (place < options_.lose + options_.forget)
            return Fault::stall;
    }
    if (chance(options_.late))
        return Fault::late;
    if (chance(options_.stall))
        return Fault::stall;
    return chance(options_.die) ? Fault::die : Fault::none;
}

Clock::time_point Service::after_the_lease() {
    const double leases = std::uniform_real_distribution<>(1.1, 2.5)(random_);
    return Clock::now() + milliseconds(static_cast<int>(leases * options_.lease_ms));
}

void Service::handle(const Step &step) {
    const Fault fault = choose_fault(step);
    if (fault == Fault::stall) {
        deferred_.push_back({after_the_lease(), step, std::nullopt});
        return;
    }
    const Answer answer = do_step(step);
    switch (fault) {
    case Fault::die:
        note("died", step, "between the change and its answer");
        std::raise(SIGKILL);
        break;
    case Fault::lose:
        note("lost", step, "the answer");
        break;
    case Fault::late:
        deferred_.push_back({after_the_lease(), step, answer});
        break;
    default:
        give(step, answer);
    }
}

Answer Service::do_step(const Step &step) {
    try {
        const Decision decision = step.is_act()
                                      ? bank_b_.credit(step.key, step.credit)
                                      : bank_b_.undo(step.key, step.act_key(), step.credit);
        if (decision.kind == Decision::Kind::done)
            return {.completed = true, .text = decision.text};
        note("refused", step, decision.text);
        return {.completed = false, .text = decision.text, .error_class = "non_retryable"};
    } catch (const InDoubt &lost) {
        note("in-doubt", step, lost.what());
        return {.completed = false, .text = lost.what(), .error_class = "unknown"};
    } catch (const Disconnected &lost) {
        note("unreachable", step, lost.what());
        return {.completed = false, .text = lost.what(), .error_class = "retryable"};
    } catch (const Refused &refused) {
        if (!is_transient(refused.sqlstate()))
            throw;
        note("busy", step, refused.what());
        return {.completed = false, .text = refused.what(), .error_class = "retryable"};
    }
}

void Service::give(const Step &step, const Answer &answer) {
    try {
        if (answer.completed)
            bank_a_.run(complete, {step.saga_id, step.name, step.lease, answer.text});
        else
            bank_a_.run(fail,
                        {step.saga_id, step.name, step.lease, answer.text, answer.error_class});
    } catch (const Disconnected &) {
        // Whether it was taken is not known: the same answer again is harmless either way.
        deferred_.push_back({Clock::now(), step, answer});
        throw;
    } catch (const Refused &refused) {
        if (is_transient(refused.sqlstate()))
            deferred_.push_back({Clock::now(), step, answer});
        else if (refused.sqlstate() != "SG412" && refused.sqlstate() != "SG409")
            throw;
        note(refused.sqlstate(), step, refused.what());
    }
}

volatile std::sig_atomic_t stop_requested = 0;
extern "C" void request_stop(int) {
    stop_requested = 1;
}

} // namespace
} // namespace stacksaga::demo

int main(int argc, char **argv) {
    using namespace stacksaga::demo;
    Options options;
    CLI::App app("Credits accounts of bank B for the sagas of bank A.", "credit_service");
    app.add_option("--name", options.name, "Name that steps are claimed under");
    app.add_option("--bank-a", options.bank_a, "Connection to bank A");
    app.add_option("--bank-b", options.bank_b, "Connection to bank B");
    app.add_option("--batch", options.batch, "Steps to claim at once");
    app.add_option("--lease", options.lease_ms, "Milliseconds that a claim holds");
    app.add_option("--seed", options.seed, "Seed of its faults");
    app.add_option("--late", options.late, "Share of steps answered after the lease");
    app.add_option("--stall", options.stall, "Share of steps taken up after the lease");
    app.add_option("--die", options.die, "Share of steps after which it dies before answering");
    app.add_option("--lose", options.lose, "Share of transfers whose credit is never answered");
    app.add_option("--forget", options.forget,
                   "Share of transfers whose credit is always taken up after the lease");
    CLI11_PARSE(app, argc, argv);

    std::signal(SIGTERM, request_stop);
    try {
        Service(options).run([] { return stop_requested != 0; });
    } catch (const std::exception &error) {
        fmt::print(stderr, "unexpected: {}\n", error.what());
        return 70;
    }
    return 0;
}
