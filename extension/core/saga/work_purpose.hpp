// The purpose of a row of table work. Every purpose but `step` is a notice to the saga itself,
// which no handler runs.
#pragma once

#include "core/saga/saga_state.hpp"

namespace stacksaga::core {

/// In the order of the enum stacksaga.work_purpose.
enum class WorkPurpose : uint8_t {
    step,                 ///< a step to run, to wait for or to verify, in one direction
    deadline,             ///< the deadline of the saga
    child_settled,        ///< the child saga of a step has ended
    compensation_request, ///< the parent saga requests that this one compensate
};

inline constexpr std::array<std::string_view, 4> work_purpose_names{
    "step", "deadline", "child_settled", "compensation_request"};

constexpr std::string_view name_of(WorkPurpose p) {
    return name_in(work_purpose_names, p);
}
constexpr std::optional<WorkPurpose> work_purpose_of(std::string_view name) {
    return enum_of<WorkPurpose>(work_purpose_names, name);
}
static_assert(work_purpose_of("compensation_request") == WorkPurpose::compensation_request);

} // namespace stacksaga::core
