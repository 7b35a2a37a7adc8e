// The call of a step: the arguments of its function, or the columns that the service that claims it
// gets.
#pragma once
#include "core/saga/saga_state.hpp"

#include "src/definition/stored_definition.hpp"
#include "src/handler/handler.hpp"
#include "src/saga/store.hpp"

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
    bool by_fallback;                      ///< the fallback acts, or compensates its own effect
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

/// Outputs of the completed steps by name, as jsonb. Good until the next call of this for the same
/// saga.
Datum step_results(Saga &saga);

// A message step is called by a message: published as a command, and answered with complete_step()
// or fail_step() under the lease that the message carries.

/// As jsonb writes a timestamptz where the time zone is UTC, whatever the session's time zone is.
std::string_view utc_text(TimestampTz time);

/// The topic that its call is published to.
std::string_view topic_of(const Step &step, core::Direction direction, bool falling_back);

/// Publishes the call of a due step, or of its compensation or fallback, in the transaction that
/// claims it, and waits for the answer until the step's timeout. Every attempt is a message of its
/// own with the same idempotency key. Inside with_spi, with the saga locked.
void run_message_step(Saga &saga, const Step &step, const Work &work, std::string_view worker);

} // namespace stacksaga
