// One state of the model: what the tables hold of a saga and its child, and what is true in the
// world. Plain bytes, each value in one form only, so that equal states have equal bytes. Times are
// not in it: what is due may be done at any later moment, so only "due", "later" and "never" count.
#pragma once
#include "shape.hpp"

#include <cstring>

namespace stacksaga::truth {

using Byte = std::uint8_t;

/// Attempts of a step in one direction that the model follows at most.
inline constexpr int attempts_max = 9;
inline constexpr int directions = 2;

/// A row of work.
struct WorkBytes {
    Byte exists;
    Byte due;  ///< Due
    Byte held; ///< of a suspended saga: 1 + when it would be due
    Byte claimed;
    Byte verifying;
    Byte falling_back;
    Byte started;
    Byte attempt;
    Byte attempt_base;
    Byte lease; ///< the attempt that it was given to, or 0
    Byte verify_attempts;
};
enum Due : Byte { due_now, due_never };

struct EffectBytes {
    Byte exists;
    Byte lease;
    Byte has_output;
    Byte by_fallback;
    Byte settled_by;
};

/// A failed attempt: 0, or 1 + its class with what else holds of it.
enum FailureBits : Byte {
    class_bits = 7,
    outcome_known = 8,
    of_fallback = 16,
    has_lease = 32,
    is_forgotten = 64, ///< longer ago than its key is remembered
};

/// What is in the tables of one saga.
struct Stored {
    Byte exists;
    Byte run; ///< of a child
    Byte status;
    Byte direction;
    Byte failed_step;
    Byte has_error;
    Byte parked_step;
    Byte parked_direction;
    Byte requested;     ///< 1 + the pending request, or 0
    Byte is_suspended;  ///< also while it is parked
    Byte deadline;      ///< 0: none, 1: ahead, 2: passed
    Byte deadline_work; ///< 1 + Due
    Byte deadline_held;
    Byte notices; ///< bit i: the child of step i has settled; bit 7: compensation request
    Byte signals[steps_max]; ///< 0: none, 1: arrived, 2: taken
    WorkBytes work[steps_max][directions];
    EffectBytes effect[steps_max][directions];
    Byte failures[steps_max][directions][attempts_max];
    Byte released[steps_max][directions]; ///< bit i: attempt i + 1 was given back
};

/// A service that got a step, and has not answered yet.
struct Holder {
    Byte lease; ///< 0: nobody
    Byte service;
    Byte is_under_way; ///< its request may still take effect
};

/// What is true of a step. Service 0 does its action, service 1 its fallback.
struct StepTruth {
    Holder latest[directions];
    Holder older[directions]; ///< the one before, which may answer late
    Byte orphans[2];          ///< requests under way of attempts that nobody answers for
    Byte applied[2];          ///< the service knows the key of the action
    Byte stands[2];           ///< the effect is there
    Byte refuses[2];          ///< the service has seen the compensation, or was told to refuse
    Byte asked[2];            ///< it was asked to act
    Byte compensating[2];     ///< compensations under way of attempts that nobody answers for
    Byte compensated[2];      ///< it was asked to undo, and has
    Byte undo_sent;           ///< a compensation was sent
    Byte by_hand;             ///< an operator did it himself
    Byte twice;               ///< an effect happened twice at one service
    Byte told;                ///< what the last refused holder was told: Told
    Byte shown;               ///< a person is shown that an answer contradicts what was settled
    Byte forgotten[2];        ///< the service has forgotten the key of what it did
    Byte undo_forgotten[2];   ///< and of what it has undone
};
enum Told : Byte { told_nothing, told_undone, told_stands };

struct State {
    Stored saga[2]; ///< the saga and the child of its child step
    StepTruth truth[2][steps_max];
    Byte operations; ///< by operators, so far
    Byte losses;     ///< leases that ran out, and answers "unknown", so far
    Byte releases;   ///< attempts given back, so far

    friend bool operator==(const State &a, const State &b) {
        return std::memcmp(&a, &b, sizeof(State)) == 0;
    }
};
static_assert(std::has_unique_object_representations_v<State>);

} // namespace stacksaga::truth
