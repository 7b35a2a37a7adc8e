// What must hold in every state, and what a right end is.
#pragma once
#include "moves.hpp"

namespace stacksaga::truth {

/// What is wrong with the state, or nullptr.
const char *judge(const Plans &plans, const State &state);

/// Which end a parked saga is to have a way to.
enum class Goal : std::uint8_t { any, completed, failed };

/// The saga has ended, rightly and as wanted.
bool is_right_end(const Plans &plans, const State &state, Goal goal);

/// Ends that the saga must have a way to while it is parked, by what is true.
std::vector<Goal> goals_of(const Plans &plans, const State &state);

/// Neither a person nor anything outside is waited for, so workers must be able to do something.
bool is_left_to_workers(const Plans &plans, const State &state);

/// What the order of two answers may not decide.
bool is_undone(const Stored &saga);

} // namespace stacksaga::truth
