// Saga definitions as the engine reads them: loaded once per session and version. All of a version
// but its definer and the identity of its functions is immutable.
#pragma once
#include "core/saga_state.hpp"
#include "core/step_kind.hpp"
#include "pg/pg.hpp"
#include "src/handler/definer.hpp"
#include "src/handler/function_ref.hpp"

namespace stacksaga {

using core::StepKind;

/// The timeout of a signal step without bound.
inline constexpr int64 no_timeout = INT64_MAX;

struct Step {
    int16 no;
    int16 stage; ///< from 1, without gaps
    StepKind kind;
    std::string_view name;
    std::string_view queue;              ///< of a queue step
    std::string_view signal;             ///< of a signal step
    std::string_view child_saga;         ///< of a child step
    std::string_view topic;              ///< of a message step
    std::string_view compensation_topic; ///< of a message step
    int64 delay_us;                      ///< of a timer step
    FunctionRef action;
    FunctionRef compensation;
    FunctionRef verify;
    FunctionRef fallback;            ///< of a sql step
    std::string_view fallback_queue; ///< of a step of another kind; of a message step: a topic
    const char *search_path;         ///< while its functions run; nullptr where it has none
    int64 timeout_us;
    RetryRules retry;
    bool compensable; ///< effect = 'compensable'
    bool irreversible;
    bool compensate_when_started; ///< also undo it when its outcome is not known

    const core::StepKindTraits &traits() const { return core::traits_of(kind); }
    bool has_fallback() const { return fallback || !fallback_queue.empty(); }
};

struct Definition {
    int32 id;
    int32 version;
    std::string_view saga;
    Definer definer;
    std::optional<int64> deadline_us;
    RetryRules compensation_retry;
    bool continue_compensating; ///< on_compensation_failure = 'continue'
    std::span<Step> steps;      ///< in order of step_no, which counts from 1
    int16 stages;
    bool has_children; ///< some step is a child step

    const Step &step(int16 no) const { return steps[static_cast<size_t>(no - 1)]; }
    const Step *find(std::string_view name) const {
        for (const Step &s : steps)
            if (s.name == name)
                return &s;
        return nullptr;
    }
    /// Whether no other step shares the stage of this one.
    bool is_alone(const Step &step) const {
        return std::ranges::none_of(
            steps, [&](const Step &s) { return s.stage == step.stage && s.no != step.no; });
    }
    const RetryRules &rules(const Step &s, core::Direction d) const {
        return d == core::Direction::act ? s.retry : compensation_retry;
    }
};
static_assert(std::is_trivially_destructible_v<Definition>);

/// The definition with this id. Inside with_spi. The reference is good for the transaction.
const Definition &load_definition(int32 definition_id);

/// The definition that a new saga takes: `version`, or the current one. SG404 when there is none.
const Definition &find_definition(std::string_view saga, std::optional<int32> version);

/// Every session reads definitions anew, this one at once and others when this transaction commits:
/// the definer of a version or the identity of its functions was refreshed.
void refresh_definitions();

} // namespace stacksaga
