#include "roles/assignment.hpp"

#include "core/scratch.hpp"

#include <cstddef>

namespace stacksaga::coordinator {
namespace {

std::vector<core::Member> views_of(std::span<const Member> members) {
    std::vector<core::Member> views;
    views.reserve(members.size());
    for (const Member &member : members)
        views.push_back({member.name, member.weight});
    return views;
}

} // namespace

std::vector<std::int32_t> quotas(std::span<const Member> members,
                                 std::span<const std::int32_t> held, std::int32_t slots) {
    std::vector<std::byte> memory(core::quotas_scratch_bytes(members.size()));
    core::Scratch scratch(memory.data());
    std::vector<std::int32_t> result(members.size());
    core::quotas(views_of(members), held, slots, scratch, result);
    return result;
}

std::vector<std::int32_t> assign(std::span<const Member> members,
                                 std::span<const std::int32_t> owners, AssignmentRule rule) {
    std::vector<std::byte> memory(core::assign_scratch_bytes(members.size(), owners.size(), rule));
    std::vector<std::int32_t> next(owners.begin(), owners.end());
    core::assign(views_of(members), next, rule, core::Scratch(memory.data()));
    return next;
}

} // namespace stacksaga::coordinator
