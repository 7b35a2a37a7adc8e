// The call of a step: what its function, or the service that claims it, is called with.
#pragma once
#include "src/handler/handler.hpp"
#include "src/saga/definition.hpp"

namespace stacksaga {

/// What a step is called with, as a stacksaga.step_call datum.
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
};

/// saga_id:step_no:direction: names the intent, the same for every attempt.
const char *idempotency_key_of(const pg_uuid_t &saga_id, int16 step_no, core::Direction direction);

/// Number of columns of stacksaga.step_call.
inline constexpr int step_call_columns = 10;

/// Fills the columns of a step_call (or the first ones of a claimed_step).
void fill_step_call(const StepCall &call, Datum *values, bool *nulls);

/// Runs `function` as the definer, with the step's search_path and timeout, as
/// call_as_definer().
Datum call_handler(const Definition &definition, const FunctionRef &function, HandlerKind kind,
                   const StepCall &call, bool *isnull);

} // namespace stacksaga
