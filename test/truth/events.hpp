// What the SQL functions and the workers do with the engine: each event loads one saga, lets the
// engine decide, and stores it. The world is not touched here.
#pragma once
#include "loaded.hpp"

namespace stacksaga::truth {

/// A step of the saga or of its child.
struct Place {
    int which;
    int step;
};

enum class Answered : std::uint8_t {
    accepted,
    unchanged,    ///< the same was said before
    undone,       ///< refused: what was done is being undone
    stands,       ///< refused: nothing will undo it
    lost,         ///< refused: another claim has the step
    other_output, ///< refused: it was completed with another output, or without one
};

/// What a function that a worker calls does.
enum class Ran : std::uint8_t { done, retryable, non_retryable, unknown };

enum class VerifyAnswer : std::uint8_t { done, not_done, never, unknown, no_answer };

enum class Operation : std::uint8_t { cancel, suspend, resume, retry, compensate };
inline constexpr std::uint8_t operations_count = 5;

enum class Resolution : std::uint8_t { done, not_done, never };

class Events {
public:
    explicit Events(const Plans &plans) : plans_(plans) {}
    [[nodiscard]] const Plans &plans() const { return plans_; }

    /// Whether the step can be claimed or published now, and by which service.
    [[nodiscard]] std::optional<int> claimable_by(const State &state, Place at, Direction d) const;
    /// The attempt that the lease is for; 0: the saga's deadline has passed instead.
    int claim(State &state, Place at, Direction d) const;
    struct Answer {
        Answered answered;
        bool contradicts; ///< what the step was settled as: a person is shown it
    };
    Answer complete(State &state, Place at, Direction d, int attempt) const;
    Answer release(State &state, Place at, Direction d, int attempt) const;
    Answer fail(State &state, Place at, Direction d, int attempt, FailureClass c) const;
    /// The lease or the timeout of the step's claim passes.
    bool expire(State &state, Place at, Direction d) const;

    [[nodiscard]] bool is_run_by_worker(const State &state, Place at, Direction d) const;
    /// Which service a function that the worker calls now is, and whether it was called.
    struct Run {
        bool is_called;
        int service;
    };
    Run run(State &state, Place at, Direction d, Ran result) const;
    /// The service that verify would be asked about.
    [[nodiscard]] std::optional<int> verifies(const State &state, Place at) const;
    /// False: what its parent says came first, or holds it.
    bool may_verify(State &state, Place at) const;
    void verify(State &state, Place at, VerifyAnswer answer) const;

    bool deadline(State &state, int which) const;
    bool notice_of_child(State &state) const;
    bool notice_of_parent(State &state) const;
    /// False: refused.
    bool signal(State &state, Place at) const;

    bool operate(State &state, int which, Operation operation) const;
    bool resolve(State &state, Place at, Resolution resolution, Direction d) const;

    /// Whether an attempt of the action or its fallback may have an effect that nobody knows of.
    [[nodiscard]] bool is_in_doubt(const State &state, Place at) const;

private:
    static std::optional<core::Work> begin(Loaded &saga, Place at, Direction d);
    [[nodiscard]] bool is_due(const State &state, Place at, Direction d) const;
    const Plans &plans_;
};

} // namespace stacksaga::truth
