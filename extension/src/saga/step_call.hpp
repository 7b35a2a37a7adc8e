// The call of a step: the arguments of its function, or the columns that the service that claims it
// gets.
#pragma once
#include "core/saga/saga_state.hpp"

#include "src/definition/stored_definition.hpp"
#include "src/handler/handler.hpp"

namespace stacksaga {

/// The call of a step, before it becomes a stacksaga.step_call datum.
struct StepCall {
    pg_uuid_t saga_id;
    std::string_view saga;
    const Step *step;
    core::Direction direction;
    int32 attempt;
    Datum input;   ///< jsonb
    Datum results; ///< jsonb
    Datum headers; ///< jsonb
    std::optional<TimestampTz> deadline;
    bool by_fallback;                      ///< the fallback acts, or undoes what it did
    std::optional<TimestampTz> claimed_at; ///< of the latest attempt in doubt
};

/// saga_id:step_no:direction, followed by :fallback for the fallback's: names the intent, the same
/// for every attempt.
const char *idempotency_key_of(const pg_uuid_t &saga_id, int16 step_no, core::Direction direction,
                               bool by_fallback);

/// Numbers of columns of stacksaga.step_call, and of those that precede a claim's own.
inline constexpr int step_call_columns = 12;
inline constexpr int columns_before_claim = 10;

/// Fills the columns of a step_call, or of a claimed_step, which has `claim_columns` in between.
void fill_step_call(const StepCall &call, Datum *values, bool *nulls, int claim_columns = 0);

/// As a stacksaga.step_call, which holds copies of all its parts.
Datum step_call_datum(const StepCall &call);

/// Runs `function` of the step as the definer with a step_call_datum(), with the step's
/// search_path, as call_as_definer().
Datum call_handler(const Definition &definition, const Step &step, const FunctionRef &function,
                   HandlerKind kind, Datum call, bool *isnull);

} // namespace stacksaga
