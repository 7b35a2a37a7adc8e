// What a saga waits for, in words: the same in find_sagas() and at the end of saga_timeline().
#pragma once
#include "core/saga/saga_state.hpp"

#include "pg/statement/query.hpp"
#include "src/definition/stored_definition.hpp"

namespace stacksaga {

/// A saga that may wait.
struct WaitingSaga {
    const Definition &definition;
    core::Status status;
    TimestampTz updated_at;
    std::optional<int16> parked_step;
    std::optional<core::Direction> parked_direction;
};

/// A row of work of one of its steps.
struct WaitingStep {
    const Step &step;
    int32 ring_id;
    core::Direction direction;
    TimestampTz due_at;
    int32 attempt;
    int32 attempt_base;
    std::optional<TimestampTz> lease_until;
    std::optional<TimestampTz> started_at;
    bool verifying;
    bool falling_back;
    bool deferred;
    std::optional<std::string_view> queue;
    std::optional<std::string_view> group; ///< whose turns and limit it shares
    std::optional<std::string_view> worker;
};

/// `step`: the one that is due first; nullopt: none. Returns nullptr when the saga waits for
/// nothing. Inside with_spi.
const char *waits_for(const WaitingSaga &saga, const std::optional<WaitingStep> &step,
                      TimestampTz now);

} // namespace stacksaga
