// One step of a definition as define_saga() takes it: read, checked and given its stage.
#pragma once
#include "pg/pg.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"
#include "src/definition/stored_definition.hpp"
#include "src/handler/handler.hpp"

namespace stacksaga {

struct NewStep {
    int16 no;
    int16 stage;
    std::string_view name;
    StepKind kind;
    HandlerCheck action, compensation, verify;
    HandlerCheck fallback_function; ///< of a sql step
    std::optional<std::string_view> queue, signal, child_saga, topic, compensation_topic;
    std::optional<std::string_view> compensation_queue, fallback_compensation_topic;
    std::optional<std::string_view> fallback; ///< a signature (sql step) or a queue
    bool has_compensation;
    bool is_silent_on_undoing; ///< of a queue step: neither compensable nor compensation_queue is
                               ///< given
    std::optional<int32> stage_given;
    pg::Param delay;   ///< interval; null but for a timer step
    pg::Param timeout; ///< interval; null for a signal step without bound
    std::string_view effect;
    std::string_view compensate_when;
    std::string_view on_failure;
    std::optional<std::string_view> search_path;
};
static_assert(std::is_trivially_destructible_v<NewStep>);

/// A definition is refused with SG400; DETAIL names the step, or the definition when it is empty.
[[noreturn]] void refuse_definition(std::string_view step, const char *problem, const char *hint);

/// The fields of a retry_policy, unchecked.
struct GivenPolicy {
    NullableDatum max_attempts, initial_interval, multiplier, max_interval, jitter;
    NullableDatum retry_on, never_on;
};

/// From the columns that are named like its fields.
template <class Column> GivenPolicy given_policy(const pg::RowsOf<Column> &rows, uint64 row) {
    return {.max_attempts = rows.nullable(row, Column::max_attempts),
            .initial_interval = rows.nullable(row, Column::initial_interval),
            .multiplier = rows.nullable(row, Column::multiplier),
            .max_interval = rows.nullable(row, Column::max_interval),
            .jitter = rows.nullable(row, Column::jitter),
            .retry_on = rows.nullable(row, Column::retry_on),
            .never_on = rows.nullable(row, Column::never_on)};
}

void check_policy(const GivenPolicy &given, std::string_view step);

/// The hint of every refusal of on_failure.
inline constexpr const char *on_failure_hint =
    "Use compensate (undo what was done) or park (stop there, for an operator).";

/// The values of the saga that its steps take where they have none of their own, and its definer.
struct SagaDefaults {
    pg::Param policy; ///< jsonb
    std::string_view on_failure;
    Oid definer;
};

/// Reads and checks all steps of a jsonb array of step_definition, in the definer's search_path.
/// Inside with_spi.
std::span<NewStep> read_new_steps(Datum steps, const SagaDefaults &saga);

} // namespace stacksaga
