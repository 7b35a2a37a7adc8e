// The state machine of an idempotency key, as data: idempotency_*.cpp follow this table, and
// sql/fsm.sql dumps it into expected/.
//
// The state is not stored: it follows from the row and the time (idempotency_state()).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stacksaga::core {

enum class IdempotencyState : std::uint8_t {
    absent,      ///< there is no row
    in_progress, ///< begun, and the lease still runs
    abandoned,   ///< begun, and the lease has run out
    completed,   ///< finished, and the response is kept
    expired,     ///< finished longer ago than its retention
    forgotten,   ///< finished, and an operator has erased the response
};
inline constexpr std::array<std::string_view, 6> idempotency_state_names{
    "absent", "in_progress", "abandoned", "completed", "expired", "forgotten"};

/// Events of a key: calls, and the passing of time.
enum class IdempotencyEvent : std::uint8_t {
    begin,
    checkpoint, ///< from here on to release_lease: under the lease of the latest begin
    finish,
    release,       ///< nothing was done, and this attempt was the first, without a recovery point
    release_lease, ///< the same of a later attempt, or behind a recovery point
    stale_answer,  ///< one of those four under an older lease
    forget,        ///< by an operator
    lease_ends,
    retention_ends,
    sweep, ///< expire_dedupe() comes by
};
inline constexpr std::array<std::string_view, 10> idempotency_event_names{
    "begin",        "checkpoint", "finish",     "release",        "release_lease",
    "stale_answer", "forget",     "lease_ends", "retention_ends", "sweep"};

/// The answer that the caller gets.
enum class IdempotencyReply : std::uint8_t {
    none,
    begun,       ///< outcome `new`
    resumed,     ///< outcome `resume`
    replayed,    ///< outcome `replay`
    done,        ///< what the caller asked for
    repeated,    ///< nothing, when it repeats the same response; SG422 otherwise
    in_progress, ///< SR409
    lost,        ///< SG412
    refused,     ///< SG409
    unknown,     ///< SG404
};
inline constexpr std::array<std::string_view, 10> idempotency_reply_names{
    "-",     "new",   "resume", "replay", "done", "repeated or SG422",
    "SR409", "SG412", "SG409",  "SG404"};

constexpr std::string_view name_of(IdempotencyState s) {
    return idempotency_state_names[static_cast<std::size_t>(s)];
}
constexpr std::string_view name_of(IdempotencyEvent e) {
    return idempotency_event_names[static_cast<std::size_t>(e)];
}
constexpr std::string_view name_of(IdempotencyReply r) {
    return idempotency_reply_names[static_cast<std::size_t>(r)];
}

struct IdempotencyTransition {
    IdempotencyState from;
    IdempotencyEvent event;
    IdempotencyState to;
    IdempotencyReply reply;
    std::string_view sentence;
};

/// One row for each pair of state and event that is possible.
inline constexpr auto idempotency_transitions = [] {
    using S = IdempotencyState;
    using E = IdempotencyEvent;
    using R = IdempotencyReply;
    return std::array{
        IdempotencyTransition{S::absent, E::begin, S::in_progress, R::begun,
                              "the first attempt begins"},
        IdempotencyTransition{S::absent, E::stale_answer, S::absent, R::lost,
                              "the key was released, has expired, or its begin was rolled back"},
        IdempotencyTransition{S::absent, E::forget, S::absent, R::unknown,
                              "there is nothing to erase"},
        IdempotencyTransition{S::in_progress, E::begin, S::in_progress, R::in_progress,
                              "another attempt holds the key under its lease"},
        IdempotencyTransition{S::in_progress, E::checkpoint, S::in_progress, R::done,
                              "the recovery point is kept and the lease begins again"},
        IdempotencyTransition{S::in_progress, E::finish, S::completed, R::done,
                              "the response is kept"},
        IdempotencyTransition{S::in_progress, E::release, S::absent, R::done,
                              "nothing was done, and the key is free"},
        IdempotencyTransition{S::in_progress, E::release_lease, S::abandoned, R::done,
                              "something may have been done before: the next attempt resumes"},
        IdempotencyTransition{S::in_progress, E::stale_answer, S::in_progress, R::lost,
                              "a later attempt has begun"},
        IdempotencyTransition{S::in_progress, E::forget, S::in_progress, R::refused,
                              "its attempt may still finish it"},
        IdempotencyTransition{S::in_progress, E::lease_ends, S::abandoned, R::none,
                              "the holder may have stopped"},
        IdempotencyTransition{S::abandoned, E::begin, S::in_progress, R::resumed,
                              "the next attempt continues from the recovery point"},
        IdempotencyTransition{S::abandoned, E::checkpoint, S::in_progress, R::done,
                              "no other attempt has begun, so the holder keeps the key"},
        IdempotencyTransition{S::abandoned, E::finish, S::completed, R::done,
                              "no other attempt has begun, so the late response counts"},
        IdempotencyTransition{S::abandoned, E::release, S::absent, R::done,
                              "nothing was done, and the key is free"},
        IdempotencyTransition{S::abandoned, E::release_lease, S::abandoned, R::done,
                              "something may have been done before: the next attempt resumes"},
        IdempotencyTransition{S::abandoned, E::stale_answer, S::abandoned, R::lost,
                              "a later attempt has begun"},
        IdempotencyTransition{S::abandoned, E::forget, S::abandoned, R::refused,
                              "its attempt may still finish it"},
        IdempotencyTransition{S::completed, E::begin, S::completed, R::replayed,
                              "the stored response is the answer"},
        IdempotencyTransition{S::completed, E::checkpoint, S::completed, R::refused,
                              "a completed key has no recovery point"},
        IdempotencyTransition{S::completed, E::finish, S::completed, R::repeated,
                              "the first response holds"},
        IdempotencyTransition{S::completed, E::release, S::completed, R::refused,
                              "a completed key is not free before it expires"},
        IdempotencyTransition{S::completed, E::release_lease, S::completed, R::refused,
                              "a completed key is not free before it expires"},
        IdempotencyTransition{S::completed, E::stale_answer, S::completed, R::lost,
                              "a later attempt has completed the key"},
        IdempotencyTransition{S::completed, E::forget, S::forgotten, R::done,
                              "the response and the request's fingerprint are erased"},
        IdempotencyTransition{S::completed, E::retention_ends, S::expired, R::none,
                              "the response is forgotten"},
        IdempotencyTransition{S::expired, E::begin, S::in_progress, R::begun,
                              "the key stands for a new intent, whatever its request"},
        IdempotencyTransition{S::expired, E::checkpoint, S::expired, R::refused,
                              "a completed key has no recovery point"},
        IdempotencyTransition{S::expired, E::finish, S::expired, R::repeated,
                              "the first response holds"},
        IdempotencyTransition{S::expired, E::release, S::expired, R::refused,
                              "a completed key is free at its next begin"},
        IdempotencyTransition{S::expired, E::release_lease, S::expired, R::refused,
                              "a completed key is free at its next begin"},
        IdempotencyTransition{S::expired, E::stale_answer, S::expired, R::lost,
                              "a later attempt has completed the key"},
        IdempotencyTransition{S::expired, E::forget, S::expired, R::unknown,
                              "its row is deleted by the next sweep"},
        IdempotencyTransition{S::expired, E::sweep, S::absent, R::none, "its row is deleted"},
        IdempotencyTransition{S::forgotten, E::begin, S::forgotten, R::refused,
                              "what it stands for was done, and nobody knows the answer"},
        IdempotencyTransition{S::forgotten, E::checkpoint, S::forgotten, R::refused,
                              "a completed key has no recovery point"},
        IdempotencyTransition{S::forgotten, E::finish, S::forgotten, R::refused,
                              "the first response cannot be compared any more"},
        IdempotencyTransition{S::forgotten, E::release, S::forgotten, R::refused,
                              "a completed key is not free before it expires"},
        IdempotencyTransition{S::forgotten, E::release_lease, S::forgotten, R::refused,
                              "a completed key is not free before it expires"},
        IdempotencyTransition{S::forgotten, E::stale_answer, S::forgotten, R::lost,
                              "a later attempt has completed the key"},
        IdempotencyTransition{S::forgotten, E::forget, S::forgotten, R::done,
                              "it was erased before"},
        IdempotencyTransition{S::forgotten, E::retention_ends, S::expired, R::none,
                              "the key is free at its next begin"},
    };
}();

/// The row for a possible pair; nullptr for others: time does nothing to a key in other states, and
/// nobody holds the lease of a key that is absent.
constexpr const IdempotencyTransition *find_transition(IdempotencyState from,
                                                       IdempotencyEvent event) {
    for (const IdempotencyTransition &t : idempotency_transitions)
        if (t.from == from && t.event == event)
            return &t;
    return nullptr;
}

/// The answer for a caller. Of an absent key every answer is stale.
constexpr IdempotencyReply reply_to(IdempotencyState from, IdempotencyEvent event) {
    const IdempotencyTransition *t = find_transition(from, event);
    return t != nullptr ? t->reply : IdempotencyReply::lost;
}

/// The event of a release. The work of an earlier attempt, or of this one before its recovery
/// point, stays known.
constexpr IdempotencyEvent release_event(std::int32_t attempt, bool has_recovery_point) {
    return attempt == 1 && !has_recovery_point ? IdempotencyEvent::release
                                               : IdempotencyEvent::release_lease;
}

/// The state of a key: `lease_until` of its row, or nothing where there is no row; `expires_at` of
/// one that is completed. Instants in microseconds.
constexpr IdempotencyState idempotency_state(std::optional<std::int64_t> lease_until,
                                             std::optional<std::int64_t> expires_at,
                                             bool is_forgotten, std::int64_t now) {
    if (!lease_until)
        return IdempotencyState::absent;
    if (expires_at && *expires_at <= now)
        return IdempotencyState::expired;
    if (expires_at)
        return is_forgotten ? IdempotencyState::forgotten : IdempotencyState::completed;
    return *lease_until > now ? IdempotencyState::in_progress : IdempotencyState::abandoned;
}

constexpr bool idempotency_is_total() {
    for (std::size_t s = 0; s < idempotency_state_names.size(); ++s)
        for (std::size_t e = 0; e <= static_cast<std::size_t>(IdempotencyEvent::forget); ++e) {
            const auto state = static_cast<IdempotencyState>(s);
            const auto event = static_cast<IdempotencyEvent>(e);
            const bool is_under_lease =
                event >= IdempotencyEvent::checkpoint && event <= IdempotencyEvent::release_lease;
            if ((find_transition(state, event) != nullptr) !=
                (state != IdempotencyState::absent || !is_under_lease))
                return false;
        }
    return true;
}
static_assert(idempotency_is_total());

} // namespace stacksaga::core
