// In which order the due steps of a queue are handed out: by rank, then turn by turn among groups,
// then by due time; and of every eight steps that are handed out while lower ranks wait, one is the
// longest-waiting of those.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace stacksaga::core {

/// A compensation has rank 0; any other step has the priority of its saga, 1 (first) to 5.
inline constexpr std::int16_t compensation_rank = 0;
inline constexpr std::int16_t usual_rank = 3;
inline constexpr std::int16_t lowest_rank = 5;
/// One step in this number is of a lower rank, when one waits.
inline constexpr std::int32_t steps_per_turn = 8;

/// A due step, as far as its place in the order depends on it.
struct WaitingStep {
    std::string_view group; ///< empty: all steps without a group take one shared turn
    std::int64_t due_at;
    std::size_t index;     ///< where the caller finds the step
    std::size_t round = 0; ///< set by order_by_turns(): how many of its group go before it
};

/// Orders steps of one rank: in each round one step of each group, its oldest one left. A round
/// goes through the groups in the order of their keys, beginning with the first one after `after`.
inline void order_by_turns(std::span<WaitingStep> steps, std::string_view after) {
    std::sort(steps.begin(), steps.end(), [](const WaitingStep &a, const WaitingStep &b) {
        if (a.group != b.group)
            return a.group < b.group;
        return a.due_at != b.due_at ? a.due_at < b.due_at : a.index < b.index;
    });
    for (std::size_t i = 1; i < steps.size(); ++i)
        steps[i].round = steps[i].group == steps[i - 1].group ? steps[i - 1].round + 1 : 0;
    std::sort(steps.begin(), steps.end(), [after](const WaitingStep &a, const WaitingStep &b) {
        if (a.round != b.round)
            return a.round < b.round;
        const bool a_waits = a.group <= after;
        const bool b_waits = b.group <= after;
        return a_waits != b_waits ? b_waits : a.group < b.group;
    });
}

/// Chooses one of the groups that it is shown one by one, each with the same probability: behind it
/// begins a session that has claimed from no group yet. Such sessions serve all groups alike.
class GroupDraw {
public:
    /// Whether this one takes the place of the one chosen before. `random01` in [0, 1).
    constexpr bool takes(double random01) { return random01 * ++shown_ < 1; }

private:
    double shown_ = 0;
};

/// The group that such a session goes on behind, of the groups of steps that are in order: those of
/// the first round.
template <class F> std::string_view draw_group(std::span<const WaitingStep> ordered, F &&random01) {
    GroupDraw draw;
    std::string_view drawn;
    for (const WaitingStep &step : ordered) {
        if (step.round > 0)
            break;
        if (draw.takes(random01()))
            drawn = step.group;
    }
    return drawn;
}

/// Which of a queue's steps are of a lower rank: counts what one session hands out.
class LowerRankTurn {
public:
    constexpr LowerRankTurn() = default;
    /// A session begins anywhere in the eight: sessions that claim once give lower ranks their part
    /// as well. `random01` in [0, 1).
    constexpr explicit LowerRankTurn(double random01)
        : handed_out_(static_cast<std::int32_t>(random01 * steps_per_turn)) {}

    /// Whether the turn of the lower ranks may come while `count` steps are handed out.
    constexpr bool may_come_within(std::int32_t count) const {
        return handed_out_ + count >= steps_per_turn;
    }
    /// Whether the next step is to be of a lower rank.
    constexpr bool has_come() const { return handed_out_ >= steps_per_turn - 1; }
    /// A step was handed out. `was_lower`: it was of a lower rank, or none of a lower rank waits.
    constexpr void note(bool was_lower) {
        handed_out_ = was_lower ? 0 : std::min(handed_out_ + 1, steps_per_turn - 1);
    }

private:
    std::int32_t handed_out_ = 0; ///< since the last one of a lower rank
};

} // namespace stacksaga::core
