// The reference: what may happen to one saga, written from the contract and not from the engine.
//
// It accepts or refuses what is seen of a saga, event by event: which function is called or which
// step is claimed, with what, and what an answer returns. What cannot be seen when it happens (a
// lease that lapses, a deadline) may have happened or not, and a pause has an earliest and a latest
// end; so the model is a set of states, all that fit with what was seen. An event that fits with
// none of them is a disagreement with the engine.
#pragma once

#include "plan.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace stacksaga::property {

/// Microseconds of the extension's clock.
using Time = int64_t;
inline constexpr Time minute = 60'000'000;
inline constexpr Time never = std::numeric_limits<Time>::max();

/// Something took place in it, both ends included.
struct Window {
    Time from;
    Time to;
};

/// By step number: the first is not used.
inline constexpr int step_places = 4 * 3 + 1;

enum class Phase : uint8_t {
    none,      ///< nothing to do
    waiting,   ///< for its first or next attempt
    claimed,   ///< by a service
    listening, ///< for a signal or an instant, from `earliest` to `latest` at the longest
    verifying, ///< its outcome is to be asked for
    kept       ///< it waits for a person's word
};

/// What there is to do for one step in one direction.
struct Task {
    Phase phase = Phase::none;
    int attempt = 0;           ///< attempts so far, with the one that is claimed
    int base = 0;              ///< of these, how many do not count against the policy
    Time earliest = 0;         ///< waiting: when the pause is over, at the earliest
    Time latest = 0;           ///< ... and at the latest
    bool falling_back = false; ///< the fallback is tried
    int verified = 0;          ///< how often verify was asked in a row without deciding
    int64_t lease = 0;         ///< under which it is claimed; 0: none
    Time lease_until = 0;
    Time timeout_at = 0;
    friend bool operator==(const Task &, const Task &) = default;

    [[nodiscard]] bool is_live() const { return phase != Phase::none; }
    [[nodiscard]] Time until() const { return lease_until < timeout_at ? lease_until : timeout_at; }
};

/// An attempt that a service was given, or whose outcome nobody knows.
struct Attempt {
    int no;
    bool by_fallback;
    int64_t lease;    ///< 0: none
    Time since;       ///< when it began
    Word word;        ///< what was said of it; unknown when its lease ran out
    bool is_doubtful; ///< it may have taken effect, or still may
    friend bool operator==(const Attempt &, const Attempt &) = default;
};

struct StepState {
    Task act{};
    Task compensate{};
    std::vector<Attempt> acts{};
    std::vector<Attempt> undos{};
    bool done = false;
    bool by_fallback = false; ///< the fallback did it
    bool by_person = false;   ///< an operator did, while no attempt was in doubt
    bool is_fillable = false; ///< verify or an operator said so: its service may give the output
    bool undone = false;
    bool undo_is_fillable = false;
    bool lost = false;       ///< the action has failed for good
    bool given_up = false;   ///< its compensation has failed for good
    bool undo_begun = false; ///< its compensation was due
    int failed_act = 0;      ///< the last attempt that failed
    int failed_compensate = 0;
    uint8_t messages = 0;  ///< signals accepted, a bit each
    uint8_t unread = 0;    ///< ... and not taken yet
    int64_t act_lease = 0; ///< under which it was completed; 0: none
    int64_t compensate_lease = 0;
    bool has_output = false;
    bool compensation_has_output = false;
    int output = 0; ///< the attempt whose output it is
    friend bool operator==(const StepState &, const StepState &) = default;

    /// The last attempt that failed or was given back.
    [[nodiscard]] int ended_compensate() const {
        const int latest = undos.empty() ? 0 : undos.back().no;
        return latest > failed_compensate ? latest : failed_compensate;
    }
    /// The latest attempt that may have happened; null: none, or the step is done.
    [[nodiscard]] const Attempt *doubt() const;
    [[nodiscard]] bool is_in_doubt() const { return doubt() != nullptr; }
};

enum class Status : uint8_t {
    pending,
    running,
    compensating,
    completed,
    failed,
    parked,
    suspended
};
inline constexpr std::string_view status_names[] = {
    "pending", "running", "compensating", "completed", "failed", "parked", "suspended"};
constexpr std::string_view name_of(Status s) {
    return status_names[static_cast<size_t>(s)];
}

/// A compensation that waits for an irreversible step.
enum class Request : uint8_t { none, cancel, deadline, failure };

/// One of the states that the saga may be in.
struct State {
    Status status = Status::pending;
    Request request = Request::none;
    bool suspended = false; ///< a park does not end it
    Time suspended_at = 0;
    Time parked_at = 0;     ///< in direction act, or resumed since
    bool has_begun = false; ///< an attempt
    Direction direction = Direction::act;
    int parked_step = 0;
    Direction parked_direction = Direction::act;
    Time deadline = 0;              ///< 0: none
    bool deadline_is_armed = false; ///< it will be checked when it comes
    std::array<StepState, step_places> steps{};
    friend bool operator==(const State &, const State &) = default;
};

/// A call of a function, or a claim: what the step is given.
struct Call {
    int step;
    Direction direction;
    int attempt;
    std::string results;
    bool falls_back = false; ///< it is the fallback's, or undoes what that did
};

struct Claim {
    Call call;
    int64_t lease;
    Time until;        ///< as claim_steps returned it
    int lease_minutes; ///< as it was asked for
};

/// What a service answers.
struct Answer {
    int step;
    Direction direction;
    int64_t lease;
    Word word;
    int output = 0; ///< done: an attempt's number, or less than 0 for another output
};

/// Its reply: a status, or the SQLSTATE of a refusal.
struct Reply {
    std::string status;
    std::string sqlstate;
};

class Model {
public:
    Model(const Definition &definition, const Plan &plan)
        : definition_(&definition), plan_(&plan) {}

    /// start_saga was called.
    void start(Window w, int start_after_minutes);

    /// Workers or services have polled for what was due at an instant.
    void was_polled(Time when) { let_time_pass({when, when}); }

    /// The events. Each returns whether it fits; if not, the states are left as they were.
    bool called(const Call &call, Window w);
    bool verified(const Call &call, Window w);
    bool claimed(const Claim &claim, Window w);
    bool answered(const Answer &answer, const Reply &reply, Window w);
    bool operated(const Operation &operation, const Reply &reply, Window w);
    bool extended(const Answer &answer, int minutes, const Reply &reply, Time until, Window w);
    /// Workers and services have found nothing more to do, at an instant not before `now`.
    bool is_dry(Time now);
    bool has_status(std::string_view status);

    /// Nothing more can happen unless somebody asks for it.
    [[nodiscard]] bool is_at_rest() const;
    [[nodiscard]] const State &any_state() const { return states_.front(); }
    /// For the report.
    [[nodiscard]] std::string describe() const;

private:
    using Rule = std::function<bool(State &)>;
    bool filter(const Rule &rule);
    void let_time_pass(Window w);

    const Definition *definition_;
    const Plan *plan_;
    std::vector<State> states_;
};

} // namespace stacksaga::property
