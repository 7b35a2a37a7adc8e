#include "src/find/waits_for.hpp"

#include "core/ring/murmur3.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/step_kind.hpp"

#include "pg/statement/function.hpp"
#include "src/common/limits.hpp"
#include "src/definition/definition_pauses.hpp"
#include "src/queue/queue_limits.hpp"
#include "src/saga/step_call.hpp"

namespace stacksaga {

namespace {

using core::StepWait;

/// As saga_timeline() writes instants.
const char *time_text(TimestampTz at) {
    return text_to_cstring(DatumGetTextPP(
        DirectFunctionCall2Coll(timestamptz_to_char, DEFAULT_COLLATION_OID, TimestampTzGetDatum(at),
                                PointerGetDatum(pg::make_text("YYYY-MM-DD HH24:MI:SS.MS")))));
}

const char *quoted(std::string_view name) {
    return pnstrdup(name.data(), name.size());
}

/// "step charge on queue payments"
const char *action_text(const Step &step, core::Direction direction, bool falling_back,
                        std::optional<std::string_view> queue) {
    return psprintf("%s%sstep %s%s%s", falling_back ? "the fallback of " : "",
                    direction == core::Direction::act ? "" : "the compensation of ",
                    quoted(step.name), queue ? " on queue " : "", queue ? quoted(*queue) : "");
}

const char *action_text(const WaitingStep &w) {
    return action_text(w.step, w.direction, w.falling_back, w.queue);
}

const char *since(const WaitingStep &w) {
    return time_text(w.started_at.value_or(w.due_at));
}

/// Another party holds it: a service, the receiver of a message, a child saga.
const char *wait_for_answer(const WaitingStep &w) {
    const char *action = action_text(w);
    if (w.step.waits_for() == StepWait::child && !w.falling_back)
        return psprintf("waits for child saga %s of %s since %s", quoted(w.step.child_saga), action,
                        since(w));
    if (w.step.waits_for() == StepWait::answer) {
        return psprintf("waits for the answer to %s, sent on topic %s since %s", action,
                        quoted(topic_of(w.step, w.direction, w.falling_back)), since(w));
    }
    return psprintf("waits for %s since %s, claimed by %s until %s", action, since(w),
                    quoted(w.worker.value_or("nobody")), time_text(*w.lease_until));
}

/// It becomes due at an instant.
const char *wait_for_instant(const WaitingStep &w) {
    const char *action = action_text(w);
    if (w.step.waits_for() == StepWait::time && w.direction == core::Direction::act &&
        !w.falling_back && w.attempt == w.attempt_base)
        return psprintf("waits for timer %s until %s", action, time_text(w.due_at));
    if (w.verifying)
        return psprintf("waits until %s to verify %s", time_text(w.due_at), action);
    if (w.attempt == w.attempt_base)
        return psprintf("waits until %s to begin %s", time_text(w.due_at), action);
    return psprintf("waits until %s for attempt %d of %s%s", time_text(w.due_at), w.attempt + 1,
                    action, w.deferred ? ", deferred by the retry budget" : "");
}

/// Counts the leased steps of a queue, or of a group in it, up to `enough`. The sagas of a page
/// wait for few queues, so each is counted once.
int32 leased_at(TimestampTz now, const WaitingStep &w, std::string_view group, int32 enough) {
    struct Count {
        uint64 key;
        TimestampTz at;
        int32 enough;
        int32 leased;
    };
    static constinit std::array<Count, 16> counts{};
    const uint64 key = core::murmur3_x64_128(group, static_cast<uint32>(w.ring_id)).h1 ^
                       core::murmur3_x64_128(*w.queue, 0).h2;
    Count &count = counts[key % counts.size()];
    if (count.key != key || count.at != now || count.enough != enough)
        count = {.key = key,
                 .at = now,
                 .enough = enough,
                 .leased = group.empty() ? count_leased(w.ring_id, *w.queue, enough)
                                         : count_leased(w.ring_id, *w.queue, group, enough)};
    return count.leased;
}

/// The reason why a due step cannot be claimed; nullptr when it can.
const char *hold_of_queue(const WaitingStep &w, TimestampTz now) {
    QueueLimits limits = limits_of(w.ring_id, *w.queue);
    if (limits.is_paused(now) && w.direction == core::Direction::act)
        return limits.paused_until == DT_NOEND
                   ? "the queue is paused"
                   : psprintf("the queue is paused until %s", time_text(limits.paused_until));
    if (const auto max = limits.max_running; max && leased_at(now, w, "", *max) >= *max)
        return psprintf("max_running %d is reached", *max);
    if (const auto max = limits.max_running_per_group;
        max && w.group && leased_at(now, w, *w.group, *max) >= *max)
        return psprintf("max_running_per_group %d is reached by group \"%s\"", *max,
                        quoted(*w.group));
    limits.max_running.reset();
    const QueueRoom room = room_of(w.ring_id, *w.queue, limits, 1, now);
    return room.steps > 0
               ? nullptr
               : psprintf("the rate lets the next one through at %s", time_text(room.more_at));
}

const char *wait_in_queue(const WaitingStep &w, TimestampTz now) {
    const char *hold = hold_of_queue(w, now);
    return psprintf("waits for %s since %s, not claimed%s%s", action_text(w), time_text(w.due_at),
                    hold != nullptr ? ": " : "", hold != nullptr ? hold : "");
}

/// The pause that keeps the step from beginning; nullptr where none does.
const DefinitionPause *pause_of(const WaitingSaga &saga, const WaitingStep &w, TimestampTz now) {
    const bool waits_for_time = w.step.waits_for() == StepWait::time && !w.falling_back;
    if (w.direction != core::Direction::act || w.verifying || waits_for_time)
        return nullptr;
    return find_pause(saga.definition.saga, now);
}

const char *wait_for_end(const DefinitionPause &pause, const WaitingStep &w) {
    const bool has_end = pause.until != DT_NOEND;
    return psprintf("waits to begin %s: the definition is paused%s%s", action_text(w),
                    has_end ? " until " : "", has_end ? time_text(pause.until) : "");
}

const char *wait_of_step(const WaitingSaga &saga, const WaitingStep &w, TimestampTz now) {
    if (w.lease_until)
        return wait_for_answer(w);
    if (w.step.waits_for() == StepWait::signal && w.started_at && !w.falling_back)
        return psprintf("waits for signal %s of %s since %s%s%s", quoted(w.step.signal),
                        action_text(w), since(w),
                        w.due_at == DT_NOEND ? "" : ", at the latest until ",
                        w.due_at == DT_NOEND ? "" : time_text(w.due_at));
    if (const DefinitionPause *pause = pause_of(saga, w, now))
        return wait_for_end(*pause, w);
    if (w.due_at == DT_NOEND)
        return psprintf("waits for its turn to run %s", action_text(w));
    if (w.due_at > now)
        return wait_for_instant(w);
    if (w.verifying)
        return psprintf("waits for a worker to verify %s since %s", action_text(w),
                        time_text(w.due_at));
    if (w.queue)
        return wait_in_queue(w, now);
    return psprintf("waits for a worker to run %s since %s", action_text(w), time_text(w.due_at));
}

const char *wait_for_operator(const WaitingSaga &saga) {
    if (!saga.parked_step || !saga.parked_direction)
        return psprintf("waits for an operator since %s", time_text(saga.updated_at));
    return psprintf("waits for an operator to retry or resolve %s since %s",
                    action_text(saga.definition.step(*saga.parked_step), *saga.parked_direction,
                                false, std::nullopt),
                    time_text(saga.updated_at));
}

} // namespace

const char *waits_for(const WaitingSaga &saga, const std::optional<WaitingStep> &step,
                      TimestampTz now) {
    if (core::is_final(saga.status))
        return nullptr;
    if (saga.status == core::Status::parked)
        return wait_for_operator(saga);
    if (saga.status == core::Status::suspended)
        return psprintf("waits for an operator to resume it since %s", time_text(saga.updated_at));
    return step ? wait_of_step(saga, *step, now) : nullptr;
}

} // namespace stacksaga
