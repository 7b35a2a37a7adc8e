// Operators' actions on a saga: cancel, compensate, suspend, resume, retry, resolve.
#pragma once

#include "core/saga/saga_engine.hpp"

namespace stacksaga::core {

/// Why an action is refused: what the saga is besides its status, and what to do instead.
struct Refusal {
    std::string_view because; ///< follows "It is <status>"; may be empty
    std::string_view hint;
    bool is_misuse = false; ///< whatever the saga is
};

/// Each changes the saga, or nothing when it is refused. `error`: what the saga says of the cancel.
/// While an irreversible step is in flight or in doubt a cancel is a pending compensation.
std::optional<Refusal> cancel_saga(SagaState &saga, std::string_view error);
/// As cancel_saga(), of a saga that is parked or suspended; one that compensates already stays as
/// it is. The compensations that it makes due are due `delay` microseconds from now.
std::optional<Refusal> compensate_saga(SagaState &saga, std::string_view error,
                                       std::int64_t delay = 0);
std::optional<Refusal> suspend_saga(SagaState &saga);
/// Every attempt under a lease has lost it, as `error` says, so that its step is in doubt. A child
/// is in the same database and goes on.
void lose_claims(SagaState &saga, std::string_view error, double random);
/// The attempts that these two make due are due `delay` microseconds from now at the earliest;
/// leases stay. A parked saga that is suspended as well stays parked when it is resumed.
std::optional<Refusal> resume_saga(SagaState &saga, std::int64_t delay = 0);
std::optional<Refusal> retry_saga(SagaState &saga, std::int64_t delay);

/// An operator's statement about a step.
struct Resolution {
    ResolveOutcome outcome;
    std::optional<Direction> direction; ///< nothing: the one that is open
    Value output{};
    std::string_view error{}; ///< who said that it was not done, and why
    std::string_view role{};
    bool child_stands = false; ///< the latest saga of a child step has not ended
};

struct Resolved {
    std::optional<Refusal> refusal{};
    Direction direction = Direction::act; ///< of the resolution
};

Resolved resolve_step(SagaState &saga, const Step &step, const Resolution &resolution,
                      double random);

} // namespace stacksaga::core
