// Small models of the same kind: a state of plain bytes, what can happen next, and what is wrong.
// All orders are explored; each is small enough to be explored whole.
#pragma once
#include "explore.hpp"

#include <deque>
#include <functional>
#include <map>

namespace stacksaga::truth {

template <class State> struct SmallModel {
    std::string_view name;
    State first;
    /// Calls `take(label, next)` for each move.
    std::function<void(const State &, const std::function<void(std::string, const State &)> &)>
        next;
    std::function<const char *(const State &)> judge;
};

template <class State> Counts explore_small(const SmallModel<State> &model, Violations &found) {
    struct Node {
        State state;
        std::size_t parent;
        std::string label;
    };
    std::vector<Node> nodes{{.state = model.first, .parent = 0, .label = {}}};
    std::map<std::string, std::size_t> seen;
    const auto bytes_of = [](const State &s) {
        return std::string(reinterpret_cast<const char *>(&s), sizeof(State));
    };
    seen.emplace(bytes_of(model.first), 0);
    for (std::size_t here = 0; here < nodes.size(); ++here) {
        const State state = nodes[here].state;
        if (const char *wrong = model.judge(state)) {
            Violation violation{
                .length = 0, .shape = std::string(model.name), .history = {}, .shapes = 1};
            for (std::size_t at = here; at != 0; at = nodes[at].parent)
                violation.history.insert(violation.history.begin(), nodes[at].label);
            violation.length = violation.history.size();
            add(found, wrong, std::move(violation));
            continue;
        }
        model.next(state, [&](std::string label, const State &next) {
            if (seen.emplace(bytes_of(next), nodes.size()).second)
                nodes.push_back({.state = next, .parent = here, .label = std::move(label)});
        });
    }
    return {.shapes = 1, .states = static_cast<long>(nodes.size())};
}

/// A client of idempotency keys that follows docs/dedupe.md, and crashes at each line.
Counts explore_client(Violations &found);
/// A consumer of the outbox, its fallback, its dead messages, and an operator who redrives them.
Counts explore_consumer(Violations &found);
/// The runs of a schedule, which take long, fail, and are started again.
Counts explore_schedule(Violations &found);

} // namespace stacksaga::truth
