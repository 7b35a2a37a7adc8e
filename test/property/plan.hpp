// What is generated: definitions of sagas, and the outcome of each attempt at one of their steps.
// All of it is a pure function of the seed and of numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stacksaga::property {

inline constexpr int sagas_per_definition = 20;

enum class Direction : uint8_t { act, compensate };
constexpr std::string_view name_of(Direction d) {
    return d == Direction::act ? "act" : "compensate";
}

/// Times in minutes of the extension's clock.
struct Policy {
    int max_attempts;
    double initial;
    double multiplier;
    double longest;
    double jitter;
};
/// What retry_policy() makes of no arguments.
inline constexpr Policy default_policy{10, 1.0 / 60, 2, 5, 0.2};

enum class Kind : uint8_t { sql, queue, signal, timer };
/// Nobody sees what a step of this kind does.
constexpr bool is_unseen(Kind k) {
    return k == Kind::signal || k == Kind::timer;
}

struct StepPlan {
    int no; ///< its place in the array, from 1
    std::string name;
    Kind kind;
    std::string queue;
    int stage;     ///< from 1, without gaps
    int timeout;   ///< of a signal_step: 0 for none
    int delay;     ///< of a timer_step
    Policy policy; ///< the one that holds: the step's, the saga's or the default
    bool has_policy;
    std::string effect;
    bool compensable;
    bool irreversible;
    bool undo_when_started;
    bool verify;
    std::string fallback; ///< a queue, of a sql step a function; empty: none
};

struct Definition {
    int number;
    std::string name;
    std::vector<StepPlan> steps;
    int stages;
    bool numbers_stages; ///< else every step is a stage of its own
    std::optional<int> deadline;
    std::optional<Policy> policy;
    std::optional<Policy> own_compensation_policy;
    Policy compensation_policy; ///< the one that holds
    bool continue_compensating;

    [[nodiscard]] const StepPlan &step(int no) const { return steps[static_cast<size_t>(no) - 1]; }
    [[nodiscard]] const Policy &policy_of(const StepPlan &s, Direction d) const {
        return d == Direction::act ? s.policy : compensation_policy;
    }
};

Definition make_definition(uint64_t seed, int number);
/// The statement that defines it.
std::string define_statement(const Definition &definition);

/// What a service or a function says about an attempt.
enum class Word : uint8_t { done, retryable, non_retryable, unknown, silence, released };
inline constexpr std::string_view word_names[] = {"done",    "retryable", "non_retryable",
                                                  "unknown", "silence",   "released"};
constexpr std::string_view name_of(Word w) {
    return word_names[static_cast<size_t>(w)];
}

struct Outcome {
    Word word = Word::done;
    std::string sqlstate{};     ///< what a function raises; empty where it succeeds
    bool happens = false;       ///< the effect outside comes about, whatever is answered and when
    int answer_after = 0;       ///< ticks from the claim to the answer
    int repeat_after = -1;      ///< ticks from the answer to the same answer again; -1: never
    bool repeats_other = false; ///< the second completion has another output
    bool forges = false;        ///< somebody answers under a lease that was never given
    int extend_by = 0; ///< minutes that the lease is extended by after a tick; 0: it is not
};

/// What verify answers; `breaks` raises, `away` raises what is retryable, `nonsense` is another
/// word.
enum class Finding : uint8_t { done, not_done, never_done, unknown, breaks, away, nonsense };
inline constexpr std::string_view finding_names[] = {"done",  "not_done", "never",  "unknown",
                                                     "SG424", "SR503",    "perhaps"};
constexpr std::string_view name_of(Finding f) {
    return finding_names[static_cast<size_t>(f)];
}

/// What is done to a saga from outside. `done`, `not_done` and `never` resolve a step.
enum class Action : uint8_t { cancel, suspend, resume, retry, done, not_done, never, signal };
inline constexpr std::string_view action_names[] = {"cancel", "suspend",  "resume", "retry",
                                                    "done",   "not_done", "never",  "signal"};
constexpr std::string_view name_of(Action a) {
    return action_names[static_cast<size_t>(a)];
}

struct Operation {
    int tick;
    Action action;
    int step = 0;    ///< of resolve_step and signal_saga
    int message = 0; ///< of signal_saga: its message_id, and its payload
};

/// One generated saga.
class Plan {
public:
    Plan(uint64_t seed, int number);

    [[nodiscard]] int number() const { return number_; }
    [[nodiscard]] Outcome outcome(const StepPlan &step, Direction direction, int attempt) const;
    /// What verify says about an attempt; true to the effects outside, where it knows.
    [[nodiscard]] Finding finding(const StepPlan &step, int attempt) const;
    /// What happens to it at certain ticks; who suspends also resumes.
    [[nodiscard]] std::vector<Operation> operations(const Definition &definition) const;
    /// What an operator does when it is parked for the nth time (from 0), if anything. The step is
    /// the one that it is parked for.
    [[nodiscard]] std::optional<Action> rescue(int n) const;
    /// Ticks between start_saga and run_at; 0: none given.
    [[nodiscard]] int start_after() const { return start_after_; }
    /// Given to start_saga instead of the definition's, in minutes.
    [[nodiscard]] std::optional<int> deadline() const { return deadline_; }
    [[nodiscard]] std::string saga_id() const;
    /// The input: what the functions of the steps find their outcomes in.
    [[nodiscard]] std::string input(const Definition &definition) const;

private:
    [[nodiscard]] Outcome raw_outcome(const StepPlan &step, Direction direction, int attempt) const;
    [[nodiscard]] bool happened_before(const StepPlan &step, int attempt) const;

    uint64_t seed_;
    int number_;
    int trouble_; ///< percent of the attempts that do not just succeed
    int compensation_trouble_;
    int start_after_ = 0;
    std::optional<int> deadline_;
};

/// The lease that services ask for, in minutes, when they claim from a queue at a tick.
int lease_of(std::string_view queue, int tick);
inline constexpr std::string_view queues[] = {"short", "long", "mixed"};
/// Nothing but fallbacks is claimed from it.
inline constexpr std::string_view spare_queue = "spare";

} // namespace stacksaga::property
