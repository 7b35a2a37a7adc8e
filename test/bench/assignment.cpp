// What a coordinator computes in one publish cycle, without the database.
#include "roles/proposal.hpp"

#include "core/ring/slots.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

namespace stacksaga::coordinator {
namespace {

std::vector<Member> members(std::size_t count) {
    std::vector<Member> result;
    for (std::size_t i = 0; i < count; ++i)
        result.push_back({"checkout-service-" + std::to_string(i), 1});
    std::ranges::sort(result, {}, &Member::name);
    return result;
}

/// All slots are free: every member lacks some, which is the dearest case.
void assign_free_ring(benchmark::State &state, Strategy strategy) {
    const auto all = members(static_cast<std::size_t>(state.range(0)));
    const std::vector<std::int32_t> owners(static_cast<std::size_t>(state.range(1)), nobody);
    for (auto _ : state)
        benchmark::DoNotOptimize(assign(all, owners, strategy));
    state.SetComplexityN(state.range(0));
}
BENCHMARK_CAPTURE(assign_free_ring, consistent, Strategy::consistent)
    ->ArgsProduct({{10, 50, 100, 500, 1000, 5000}, {256}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(assign_free_ring, consistent_4096, Strategy::consistent)
    ->ArgsProduct({{100, 500, 1000, 2500, 5000}, {4096}})
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oN);
BENCHMARK_CAPTURE(assign_free_ring, contiguous_4096, Strategy::contiguous)
    ->Args({5000, 4096})
    ->Unit(benchmark::kMillisecond);

/// One of the members has just joined.
void assign_after_join(benchmark::State &state) {
    const auto all = members(static_cast<std::size_t>(state.range(0)));
    const std::vector<std::int32_t> free(static_cast<std::size_t>(state.range(1)), nobody);
    const std::vector<Member> before(all.begin(), all.end() - 1);
    const auto owners = assign(before, free, Strategy::consistent);
    for (auto _ : state)
        benchmark::DoNotOptimize(assign(all, owners, Strategy::consistent));
}
BENCHMARK(assign_after_join)->ArgsProduct({{50, 1000}, {256, 4096}})->Unit(benchmark::kMicrosecond);

/// A whole cycle: range(0) rings of 50 nodes and 256 slots, one node of each gone.
void propose_for_rings(benchmark::State &state) {
    constexpr std::size_t nodes_of_a_ring = 50;
    constexpr std::int32_t slot_count = 256;
    std::vector<Node> nodes;
    for (const Member &member : members(nodes_of_a_ring))
        nodes.push_back({member.name, NodeKind::worker, NodeState::active, member.weight});
    nodes.back().state = NodeState::dead;
    std::vector<Slot> slots;
    for (std::int32_t i = 0; i < slot_count; ++i) {
        const core::Range range = core::slot_range(i, slot_count);
        slots.push_back({i, range.first.value(), range.last.value(),
                         nodes[static_cast<std::size_t>(i) % nodes.size()].name});
    }
    for (auto _ : state) {
        for (std::int64_t ring = 0; ring < state.range(0); ++ring)
            benchmark::DoNotOptimize(propose(Instant{}, Strategy::consistent, nodes, slots));
    }
    state.SetComplexityN(state.range(0));
}
BENCHMARK(propose_for_rings)
    ->RangeMultiplier(10)
    ->Range(1, 1000)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oN);

} // namespace
} // namespace stacksaga::coordinator
