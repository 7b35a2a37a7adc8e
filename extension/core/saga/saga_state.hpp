// The state machines of a saga and of a step, as data: the code runs these tables, the database
// enforces the first against direct UPDATEs, and sql/fsm.sql dumps both into expected/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stacksaga::core {

enum class Status : uint8_t {
    pending,
    running,
    compensating,
    completed,
    failed,
    parked,
    suspended
};
enum class Direction : uint8_t { act, compensate };

inline constexpr std::array<std::string_view, 7> status_names{
    "pending", "running", "compensating", "completed", "failed", "parked", "suspended"};
inline constexpr std::array<std::string_view, 2> direction_names{"act", "compensate"};

constexpr std::string_view name_of(Status s) {
    return status_names[static_cast<size_t>(s)];
}
constexpr std::string_view name_of(Direction d) {
    return direction_names[static_cast<size_t>(d)];
}

template <class E, size_t N>
constexpr std::optional<E> enum_of(const std::array<std::string_view, N> &names,
                                   std::string_view name) {
    for (size_t i = 0; i < N; ++i)
        if (names[i] == name)
            return static_cast<E>(i);
    return std::nullopt;
}
/// The name of an enumerator whose names are listed in order.
template <class E, size_t N>
constexpr std::string_view name_in(const std::array<std::string_view, N> &names, E value) {
    return names[static_cast<size_t>(value)];
}
constexpr std::optional<Status> status_of(std::string_view name) {
    return enum_of<Status>(status_names, name);
}
constexpr std::optional<Direction> direction_of(std::string_view name) {
    return enum_of<Direction>(direction_names, name);
}

/// Why compensation starts once no irreversible step is in flight or in doubt: a pending
/// compensation.
enum class CompensationRequest : uint8_t { cancel, deadline, failure };
inline constexpr std::array<std::string_view, 3> compensation_request_names{"cancel", "deadline",
                                                                            "failure"};
constexpr std::string_view name_of(CompensationRequest r) {
    return compensation_request_names[static_cast<size_t>(r)];
}
constexpr std::optional<CompensationRequest> compensation_request_of(std::string_view name) {
    return enum_of<CompensationRequest>(compensation_request_names, name);
}

/// The consequence of a step that has failed for good before an irreversible one is done.
enum class OnFailure : uint8_t { compensate, park };
inline constexpr std::array<std::string_view, 2> on_failure_names{"compensate", "park"};
constexpr std::string_view name_of(OnFailure f) {
    return on_failure_names[static_cast<size_t>(f)];
}
constexpr std::optional<OnFailure> on_failure_of(std::string_view name) {
    return enum_of<OnFailure>(on_failure_names, name);
}

/// The source of the statement that a step is done.
enum class SettledBy : uint8_t {
    answer,  ///< a service or a worker: nothing is stored
    verify,  ///< the verify function
    resolve, ///< an operator, of an attempt in doubt
    person,  ///< an operator while no attempt was in doubt: a person did it
};
inline constexpr std::array<std::string_view, 4> settled_by_names{"answer", "verify", "resolve",
                                                                  "person"};
constexpr std::string_view name_of(SettledBy s) {
    return settled_by_names[static_cast<size_t>(s)];
}
constexpr std::optional<SettledBy> settled_by_of(std::string_view name) {
    return enum_of<SettledBy>(settled_by_names, name);
}

/// The saga has ended.
constexpr bool is_final(Status s) {
    return s == Status::completed || s == Status::failed;
}
/// The saga has ended or waits for an operator.
constexpr bool is_at_rest(Status s) {
    return is_final(s) || s == Status::parked;
}

/// One allowed change of a saga's status. `direction` is the saga's after the change.
struct SagaTransition {
    Status from;
    Status to;
    Direction direction;
    std::string_view sentence;
    bool of_child = false; ///< only for the child of another saga
};

inline constexpr std::array saga_transitions{
    SagaTransition{Status::pending, Status::running, Direction::act,
                   "the first attempt of a step begins"},
    SagaTransition{Status::pending, Status::completed, Direction::act,
                   "all its steps ran in one transaction"},
    SagaTransition{Status::pending, Status::compensating, Direction::compensate,
                   "a step failed for good in its first attempt"},
    SagaTransition{Status::pending, Status::failed, Direction::compensate,
                   "it was cancelled or passed its deadline before anything was done"},
    SagaTransition{Status::pending, Status::parked, Direction::act,
                   "its first step cannot be run, or failed for good, or its deadline passed, and "
                   "it stops there"},
    SagaTransition{Status::pending, Status::suspended, Direction::act, "an operator suspends it"},
    SagaTransition{Status::running, Status::completed, Direction::act,
                   "the last stage has completed"},
    SagaTransition{Status::running, Status::compensating, Direction::compensate,
                   "a step failed for good and completed steps are to be compensated"},
    SagaTransition{Status::running, Status::failed, Direction::compensate,
                   "a step failed for good and nothing is to be compensated"},
    SagaTransition{
        Status::running, Status::parked, Direction::act,
        "a step failed past an irreversible one, or its outcome is unknown, or it stops at "
        "a failure or its deadline"},
    SagaTransition{Status::running, Status::suspended, Direction::act, "an operator suspends it"},
    SagaTransition{Status::compensating, Status::failed, Direction::compensate,
                   "everything that was done has been compensated"},
    SagaTransition{Status::compensating, Status::parked, Direction::compensate,
                   "a compensation failed for good"},
    SagaTransition{Status::compensating, Status::suspended, Direction::compensate,
                   "an operator suspends it"},
    SagaTransition{Status::completed, Status::compensating, Direction::compensate,
                   "its parent saga requests its compensation", true},
    SagaTransition{
        Status::parked, Status::running, Direction::act,
        "the step that it waits for is answered late, or an operator resolves or retries it"},
    SagaTransition{Status::parked, Status::compensating, Direction::compensate,
                   "an operator compensates or cancels it, or retries its compensation, or a step "
                   "failed for good that says compensate"},
    SagaTransition{
        Status::parked, Status::failed, Direction::compensate,
        "an operator resolves its last compensation as done, or compensates or cancels it "
        "before anything was done"},
    SagaTransition{Status::parked, Status::suspended, Direction::act,
                   "what parked it is settled, and it is suspended as before"},
    SagaTransition{Status::parked, Status::suspended, Direction::compensate,
                   "what parked it is settled, and it compensates when it is resumed"},
    SagaTransition{Status::suspended, Status::pending, Direction::act,
                   "an operator resumes it before its first attempt"},
    SagaTransition{Status::suspended, Status::running, Direction::act, "an operator resumes it"},
    SagaTransition{Status::suspended, Status::compensating, Direction::compensate,
                   "an operator resumes, compensates or cancels it"},
    SagaTransition{Status::suspended, Status::suspended, Direction::compensate,
                   "a step in flight failed for good: it compensates when it is resumed"},
    SagaTransition{Status::suspended, Status::failed, Direction::compensate,
                   "an operator compensates or cancels it before anything was done"},
    SagaTransition{
        Status::suspended, Status::parked, Direction::act,
        "a step in flight failed past an irreversible one, or its outcome is unknown, or "
        "it stops at a failure"},
    SagaTransition{Status::suspended, Status::parked, Direction::compensate,
                   "a compensation in flight failed for good"},
};

/// Whether a saga may change from (`from`, `from_direction`) to (`to`, `to_direction`); `is_child`:
/// another saga started it as a step. No change is always allowed.
constexpr bool may_change(Status from, Direction from_direction, Status to, Direction to_direction,
                          bool is_child = false) {
    if (from_direction == Direction::compensate && to_direction == Direction::act)
        return false;
    if (from == to && from_direction == to_direction)
        return true;
    for (const SagaTransition &t : saga_transitions)
        if (t.from == from && t.to == to && t.direction == to_direction &&
            (is_child || !t.of_child))
            return true;
    return false;
}

static_assert(!may_change(Status::compensating, Direction::compensate, Status::running,
                          Direction::act));
static_assert(!may_change(Status::suspended, Direction::compensate, Status::running,
                          Direction::act));
static_assert(!may_change(Status::completed, Direction::act, Status::running, Direction::act));

/// The class of a failed attempt.
enum class FailureClass : uint8_t { retryable, non_retryable, unknown };
inline constexpr std::array<std::string_view, 3> failure_class_names{"retryable", "non_retryable",
                                                                     "unknown"};
constexpr std::string_view name_of(FailureClass c) {
    return failure_class_names[static_cast<size_t>(c)];
}
constexpr std::optional<FailureClass> failure_class_of(std::string_view name) {
    return enum_of<FailureClass>(failure_class_names, name);
}

/// The engine's reaction to a failed attempt.
enum class Outcome : uint8_t {
    retry,   ///< pause, then try again under the same idempotency key
    verify,  ///< ask the step's verify function
    give_up, ///< the step has failed for good
    park,    ///< an operator is needed
};
inline constexpr std::array<std::string_view, 4> outcome_names{"retry", "verify", "give_up",
                                                               "park"};
constexpr std::string_view name_of(Outcome o) {
    return outcome_names[static_cast<size_t>(o)];
}

/// The facts that decide about a failed attempt.
struct FailedAttempt {
    Direction direction;
    FailureClass failure_class;
    bool attempts_left;
    bool has_verify;
    bool irreversible;
    bool in_doubt; ///< this attempt or an earlier one may have taken effect
    OnFailure on_failure;
};

enum class When : uint8_t { any, yes, no };
inline constexpr std::array<std::string_view, 3> when_names{"any", "yes", "no"};
constexpr std::string_view name_of(When w) {
    return when_names[static_cast<size_t>(w)];
}

/// For which on_failure a rule holds.
enum class WhenFailed : uint8_t { any, compensate, park };
inline constexpr std::array<std::string_view, 3> when_failed_names{"any", "compensate", "park"};
constexpr std::string_view name_of(WhenFailed w) {
    return when_failed_names[static_cast<size_t>(w)];
}

struct OutcomeRule {
    Direction direction;
    FailureClass failure_class;
    When attempts_left;
    When has_verify;
    When irreversible;
    When in_doubt;
    WhenFailed on_failure;
    Outcome outcome;
    std::string_view sentence;
};

/// The first rule that matches holds. Of a step that has failed for good the fallback is tried
/// first, unless the step is in doubt.
inline constexpr std::array outcome_rules{
    OutcomeRule{Direction::act, FailureClass::retryable, When::yes, When::any, When::any, When::no,
                WhenFailed::any, Outcome::retry, "a retryable failure pauses the step"},
    OutcomeRule{Direction::act, FailureClass::retryable, When::yes, When::any, When::no, When::yes,
                WhenFailed::any, Outcome::retry,
                "a step in doubt is tried again under the same key"},
    OutcomeRule{Direction::act, FailureClass::retryable, When::any, When::yes, When::any, When::yes,
                WhenFailed::any, Outcome::verify, "verify is asked about an earlier attempt"},
    OutcomeRule{Direction::act, FailureClass::retryable, When::any, When::no, When::yes, When::yes,
                WhenFailed::any, Outcome::park, "an irreversible step in doubt is not tried again"},
    OutcomeRule{Direction::act, FailureClass::retryable, When::no, When::any, When::any, When::any,
                WhenFailed::compensate, Outcome::give_up, "the attempts are used up"},
    OutcomeRule{Direction::act, FailureClass::retryable, When::no, When::any, When::any, When::any,
                WhenFailed::park, Outcome::park,
                "the attempts are used up, and the saga stops there"},
    OutcomeRule{Direction::act, FailureClass::non_retryable, When::any, When::yes, When::any,
                When::yes, WhenFailed::any, Outcome::verify,
                "verify is asked about an earlier attempt"},
    OutcomeRule{Direction::act, FailureClass::non_retryable, When::any, When::no, When::yes,
                When::yes, WhenFailed::any, Outcome::park,
                "an irreversible step in doubt is not tried again"},
    OutcomeRule{Direction::act, FailureClass::non_retryable, When::any, When::any, When::any,
                When::any, WhenFailed::compensate, Outcome::give_up,
                "a non-retryable failure is final; a step in doubt is compensated as well"},
    OutcomeRule{Direction::act, FailureClass::non_retryable, When::any, When::any, When::any,
                When::any, WhenFailed::park, Outcome::park,
                "a non-retryable failure is final, and the saga stops there"},
    OutcomeRule{Direction::act, FailureClass::unknown, When::any, When::yes, When::any, When::any,
                WhenFailed::any, Outcome::verify, "verify is asked about an unknown outcome"},
    OutcomeRule{Direction::act, FailureClass::unknown, When::any, When::no, When::yes, When::any,
                WhenFailed::any, Outcome::park,
                "an irreversible step of unknown outcome is not tried again"},
    OutcomeRule{Direction::act, FailureClass::unknown, When::yes, When::no, When::no, When::any,
                WhenFailed::any, Outcome::retry,
                "an unknown outcome is tried again under the same key"},
    OutcomeRule{Direction::act, FailureClass::unknown, When::no, When::no, When::no, When::any,
                WhenFailed::compensate, Outcome::give_up,
                "the attempts are used up; the step itself is compensated as well"},
    OutcomeRule{Direction::act, FailureClass::unknown, When::no, When::no, When::no, When::any,
                WhenFailed::park, Outcome::park,
                "the attempts are used up, and the saga stops there"},
    OutcomeRule{Direction::compensate, FailureClass::retryable, When::yes, When::any, When::any,
                When::any, WhenFailed::any, Outcome::retry,
                "a retryable failure pauses the compensation"},
    OutcomeRule{Direction::compensate, FailureClass::unknown, When::yes, When::any, When::any,
                When::any, WhenFailed::any, Outcome::retry,
                "a compensation is tried again under the same key"},
    OutcomeRule{Direction::compensate, FailureClass::retryable, When::no, When::any, When::any,
                When::any, WhenFailed::any, Outcome::park,
                "the attempts of the compensation are used up"},
    OutcomeRule{Direction::compensate, FailureClass::unknown, When::no, When::any, When::any,
                When::any, WhenFailed::any, Outcome::park,
                "the attempts of the compensation are used up"},
    OutcomeRule{Direction::compensate, FailureClass::non_retryable, When::any, When::any, When::any,
                When::any, WhenFailed::any, Outcome::park, "a compensation failed for good"},
};

constexpr bool matches(When when, bool value) {
    return when == When::any || (when == When::yes) == value;
}
constexpr bool matches(WhenFailed when, OnFailure value) {
    return when == WhenFailed::any || (when == WhenFailed::park) == (value == OnFailure::park);
}

/// Never null: the static_assert below runs every input.
constexpr const OutcomeRule *find_rule(const FailedAttempt &f) {
    for (const OutcomeRule &r : outcome_rules)
        if (r.direction == f.direction && r.failure_class == f.failure_class &&
            matches(r.attempts_left, f.attempts_left) && matches(r.has_verify, f.has_verify) &&
            matches(r.irreversible, f.irreversible) && matches(r.in_doubt, f.in_doubt) &&
            matches(r.on_failure, f.on_failure))
            return &r;
    return nullptr;
}
constexpr Outcome decide(const FailedAttempt &f) {
    return find_rule(f)->outcome;
}

constexpr bool rules_are_total() {
    for (int bits = 0; bits < 64; ++bits)
        for (int c = 0; c < 3; ++c)
            if (find_rule({(bits & 1) != 0 ? Direction::act : Direction::compensate,
                           static_cast<FailureClass>(c), (bits & 2) != 0, (bits & 4) != 0,
                           (bits & 8) != 0, (bits & 16) != 0,
                           (bits & 32) != 0 ? OnFailure::park : OnFailure::compensate}) == nullptr)
                return false;
    return true;
}
static_assert(rules_are_total());

/// A verify function's answer about the attempts in doubt.
enum class VerifyOutcome : uint8_t {
    done,
    not_done,   ///< nothing is seen yet: still in doubt
    never_done, ///< it did not happen and cannot any more
    unknown,
};
inline constexpr std::array<std::string_view, 4> verify_outcome_names{"done", "not_done", "never",
                                                                      "unknown"};
constexpr std::optional<VerifyOutcome> verify_outcome_of(std::string_view name) {
    return enum_of<VerifyOutcome>(verify_outcome_names, name);
}

/// An operator's statement about a step.
enum class ResolveOutcome : uint8_t { done, not_done, never_done };
inline constexpr std::array<std::string_view, 3> resolve_outcome_names{"done", "not_done", "never"};
constexpr std::optional<ResolveOutcome> resolve_outcome_of(std::string_view name) {
    return enum_of<ResolveOutcome>(resolve_outcome_names, name);
}

/// A lease: the attempt, the direction and 40 random bits. It rises with the attempt, so a service
/// that keeps the largest one seen can refuse older ones, and it cannot be guessed.
inline constexpr int lease_random_bits = 40;
inline constexpr int64_t lease_attempt_max = (int64_t{1} << 22) - 1;

constexpr int64_t make_lease(int32_t attempt, Direction direction, uint64_t random) {
    int64_t a = attempt < lease_attempt_max ? attempt : lease_attempt_max;
    return (a << (lease_random_bits + 1)) | (static_cast<int64_t>(direction) << lease_random_bits) |
           static_cast<int64_t>(random & ((uint64_t{1} << lease_random_bits) - 1));
}
constexpr Direction lease_direction(int64_t lease) {
    return static_cast<Direction>((lease >> lease_random_bits) & 1);
}
static_assert(lease_direction(make_lease(7, Direction::compensate, ~uint64_t{0})) ==
              Direction::compensate);
static_assert(make_lease(2, Direction::act, 0) >
              make_lease(1, Direction::compensate, ~uint64_t{0}));

} // namespace stacksaga::core
