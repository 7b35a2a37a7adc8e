// One saga in memory, for tests of the engine: its definition in one line, what the tables hold of
// it and how often they were read, what services and workers do to it, and its state as text.
#pragma once
#include "core/saga/saga_answers.hpp"
#include "core/saga/saga_children.hpp"
#include "core/saga/saga_compensation.hpp"
#include "core/saga/saga_deadline.hpp"
#include "core/saga/saga_operators.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace stacksaga::core {

inline constexpr std::int64_t second = 1'000'000;

/// A definition as text: stages between '|', steps between ',', each with its name, its kind and
/// what else holds of it; after ';' what holds of the whole saga:
///     "pay queue undo, hold sql once | ship queue pivot verify; continue"
/// undo: compensable, idempotent, parks: on_failure (of the saga: its deadline), pivot:
/// irreversible, started: undone too when its outcome is unknown, verify, fallback, once and twice:
/// so many attempts (else 3), eager: tried again at once, endless: without timeout. continue:
/// on_compensation_failure, child: of another saga, deadline: of 1,000 seconds. A signal step waits
/// for the first letter of its name. A compensation has 2 attempts, a timeout 60 seconds, a timer
/// 10 and a pause 5.
class Plan {
public:
    explicit Plan(std::string text);
    Plan(const Plan &) = delete;
    Plan &operator=(const Plan &) = delete;

    const Definition &definition() const { return definition_; }
    const Step &step(std::string_view name) const { return *definition_.find(name); }
    bool is_child() const { return is_child_; }

private:
    void read_step(std::string_view words, std::int16_t stage);
    void read_saga_words(std::string_view words);

    std::string text_;
    std::vector<Step> steps_;
    Definition definition_{};
    bool is_child_ = false;
};

struct StoredFailure {
    std::int16_t step_no;
    Direction direction;
    std::int32_t attempt;
    FailureClass failure_class;
    bool outcome_known;
    bool by_fallback;
    std::optional<std::int64_t> lease;
    std::int64_t started_at;
    std::int64_t failed_at;
    std::string error;
};

/// What the tables hold of one saga. Writing what they would refuse fails the test.
struct Tables {
    SagaRow saga{.status = Status::pending, .direction = Direction::act};
    std::vector<Work> work;
    std::vector<Effect> effects;
    std::vector<StoredFailure> failures;
    std::vector<Release> releases;
    std::vector<Signal> signals;
    std::vector<std::int16_t> takers; ///< for each signal: the step that has taken it, or 0

    std::vector<SagaRow> statuses;           ///< each row of the saga that was written
    std::optional<std::int64_t> deadline_at; ///< once it was moved
    int retries = 0;
    int parent_notices = 0;
    bool notices_removed = false;

    void write(const SagaState &saga);
    /// All columns, without the history.
    std::string dump() const;
};

/// Memory that is freed at the end.
class Blocks {
public:
    Memory memory();

private:
    std::vector<std::unique_ptr<std::max_align_t[]>> blocks_;
};

/// When the changes of a test's saga are written.
enum class Writes : std::uint8_t {
    each_event,     ///< and the saga is loaded anew, as by calls in transactions of their own
    each_and_holds, ///< each event, and the state in memory goes on
    at_the_end,     ///< by the test, with write()
};

class TestSaga {
public:
    explicit TestSaga(std::string plan, Writes writes = Writes::each_event);
    TestSaga(const TestSaga &) = delete;
    TestSaga &operator=(const TestSaga &) = delete;

    const Plan plan;
    Tables tables;
    std::map<std::int16_t, Child> children; ///< the latest of each step
    std::int64_t now = 1000 * second;
    int looks = 0; ///< at the end of a child, once more
    int effect_loads = 0;
    int failure_loads = 0;
    int signal_loads = 0;
    bool loads_progress_first = false;
    std::optional<std::int64_t> dedupe_retention;

    SagaState &state() { return *state_; }
    const Step &step(std::string_view name) const { return plan.step(name); }
    const Step &step_of(const Work &w) const { return plan.definition().step(w.step_no); }
    std::optional<Work> work(std::string_view name, Direction d = Direction::act) const;
    void pass(std::int64_t seconds);
    void write();
    /// The state as the tables have it, after write().
    void load();

    /// What the engine decides in `event`, then what `writes` says.
    template <class F> void decide(F &&event) {
        event(*state_);
        finish_event();
    }

    void start(std::int64_t due_in_seconds = 0);
    /// A service claims the step for 30 seconds.
    bool claim(std::string_view name, Direction d = Direction::act);
    /// An answer under the lease that the step's row holds.
    void complete(std::string_view name, Direction d = Direction::act);
    void fail(std::string_view name, FailureClass failure_class, Direction d = Direction::act);
    /// claim() and complete(), or claim() and fail().
    void serve(std::string_view name, Direction d = Direction::act);
    void refuse(std::string_view name, Direction d = Direction::act);
    /// A worker's turn at the row of the step, whose function returns; at the saga's deadline.
    void run(std::string_view name, Direction d = Direction::act);
    void run_deadline();
    /// As run(), but the function raises an error.
    void run_fails(std::string_view name, FailureClass failure_class, Direction d = Direction::act);
    /// The function ended its process while the step ran ahead; false: it is not charged.
    bool die_ahead(std::string_view name, Direction d = Direction::act);
    /// The function cannot be run.
    void run_is_unusable(std::string_view name, Direction d = Direction::act);
    /// An answer under another lease than the row's, or without a row.
    void answer(const Step &s, std::int64_t lease);
    void refuse(const Step &s, std::int64_t lease, FailureClass failure_class);
    /// As these, where it is not refused.
    void complete_late(const Step &s, std::int64_t lease);
    void fail_late(const Step &s, std::int64_t lease, FailureClass failure_class);
    /// The service gives the attempt back under the lease that the row holds, or under a lease; how
    /// that is taken.
    AnswerOutcome release(std::string_view name, std::int64_t retry_after = 0,
                          Direction d = Direction::act);
    AnswerOutcome release(const Step &s, std::int64_t lease, std::int64_t retry_after = 0);
    /// The verify function answers "done", "not_done", "never" or "unknown", or it "raises", or
    /// "raises retryable".
    void verify(std::string_view name, std::string_view answer);
    /// Time passes until the claim of the step runs out, and a worker settles it.
    void expire(std::string_view name, Direction d = Direction::act);
    void signal(std::string_view name);
    /// The child saga of the step ends, or refuses to compensate when `status` is completed.
    void child_ends(std::string_view name, Status status);

    /// An operator; why it is refused, or "".
    std::string cancel();
    std::string compensate(std::int64_t delay = 0);
    std::string suspend();
    std::string resume(std::int64_t delay = 0);
    std::string retry(std::int64_t delay = 0);
    std::string resolve(std::string_view name, ResolveOutcome outcome,
                        std::optional<Direction> direction = std::nullopt);

    /// "running: a due, b claimed"; "~" stands for the direction compensate.
    std::string text() const;
    /// The markers, in the order of the steps: "a b ~a".
    std::string markers() const;

private:
    void finish_event();
    void deliver_requests();
    void run_row(const Step &step, const Work &work);
    std::optional<Child> child_of(const Step &step) const;

    Writes writes_;
    Blocks blocks_;
    SagaState *state_ = nullptr;
    std::size_t delivered_ = 0; ///< of state_->changes.children
};

} // namespace stacksaga::core
