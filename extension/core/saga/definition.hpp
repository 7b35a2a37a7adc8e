// A saga's definition as decisions need it: steps, stages and policies. One version is immutable.
#pragma once

#include "core/common/retry.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/step_kind.hpp"
#include "core/time/length.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace stacksaga::core {

/// The timeout of a signal step without bound.
inline constexpr std::int64_t no_timeout = INT64_MAX;

struct Step {
    std::int16_t no;
    std::int16_t stage; ///< from 1, without gaps
    StepKind kind;
    std::string_view name;
    std::string_view queue;              ///< of a queue step
    std::string_view signal;             ///< of a signal step
    std::string_view child_saga;         ///< of a child step
    std::string_view compensation_queue; ///< of a queue step; empty: its queue
    std::string_view topic;              ///< of a message step
    std::string_view compensation_topic; ///< of a message step
    std::string_view fallback_queue; ///< of a step that no worker calls; of a message step: a topic
    std::string_view fallback_compensation_topic; ///< of a message step; empty: compensation_topic
    Length delay;                                 ///< of a timer step
    Length timeout;
    RetryPolicy policy;
    bool has_verify;
    bool has_fallback;
    bool compensable; ///< effect = 'compensable'
    bool irreversible;
    bool idempotent;              ///< effect = 'idempotent'
    bool compensate_when_started; ///< also undo it when its outcome is not known
    OnFailure on_failure;

    const StepKindTraits &traits() const { return traits_of(kind); }
    StepWait waits_for() const { return traits().waits_for; }

    /// The queue that its work is claimed from; nothing: a worker runs it. A compensation goes to
    /// the service that acted: to the fallback's queue when the fallback did.
    std::optional<std::string_view> queue_of(Direction direction, bool falling_back) const {
        if (falling_back && traits().fallback == FallbackKind::queue)
            return fallback_queue;
        if (waits_for() != StepWait::claim)
            return std::nullopt;
        return direction == Direction::compensate && !compensation_queue.empty()
                   ? compensation_queue
                   : queue;
    }
};

struct Definition {
    std::int32_t id;
    std::int32_t version;
    std::string_view saga;
    std::optional<Length> deadline;
    RetryPolicy compensation_policy;
    bool continue_compensating;  ///< on_compensation_failure = 'continue'
    OnFailure on_failure;        ///< of the saga itself: what its deadline leads to
    std::span<const Step> steps; ///< in order of step_no, which counts from 1
    std::int16_t stages;
    bool has_children; ///< some step is a child step
    bool has_signals;  ///< some step is a signal step

    const Step &step(std::int16_t no) const { return steps[static_cast<std::size_t>(no - 1)]; }
    const Step *find(std::string_view name) const {
        for (const Step &s : steps)
            if (s.name == name)
                return &s;
        return nullptr;
    }
    /// Whether no other step shares the stage of this one.
    bool is_alone(const Step &step) const {
        return std::none_of(steps.begin(), steps.end(), [&](const Step &s) {
            return s.stage == step.stage && s.no != step.no;
        });
    }
    const RetryPolicy &policy(const Step &s, Direction d) const {
        return d == Direction::act ? s.policy : compensation_policy;
    }
};

} // namespace stacksaga::core
