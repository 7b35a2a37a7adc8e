// The next owner of each slot: core/assignment.hpp for callers that own names and allocate.
#pragma once

#include "core/assignment.hpp"
#include "roles/control_store.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// A node that slots are assigned to.
struct Member {
    std::string name;
    double weight = 1; ///< finite and > 0
};

using core::nobody;

/// The number of slots for each member; see core::quotas().
[[nodiscard]] std::vector<std::int32_t>
quotas(std::span<const Member> members, std::span<const std::int32_t> held, std::int32_t slots);

/// The index of each slot's next owner; see core::assign().
[[nodiscard]] std::vector<std::int32_t>
assign(std::span<const Member> members, std::span<const std::int32_t> owners, AssignmentRule rule);

} // namespace stacksaga::coordinator
