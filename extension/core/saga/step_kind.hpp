// The kinds of steps, as data: one row of traits for each. A kind differs from others by its row,
// by its constructor (definition/define_step.cpp) and by what a worker does when it is due
// (work_item.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stacksaga::core {

enum class StepKind : std::uint8_t { sql, queue, signal, timer, child, message };

/// The event that ends an attempt.
enum class StepWait : std::uint8_t {
    nothing, ///< the worker's transaction
    claim,   ///< the answer of a service that claimed it
    answer,  ///< the answer to a message
    signal,
    time,
    child, ///< the end of another saga
};

/// The kind of a fallback that is named by text.
enum class FallbackKind : std::uint8_t { function, queue, topic };

struct StepKindTraits {
    StepKind kind;
    std::string_view name;
    StepWait waits_for;
    FallbackKind fallback;
    bool has_effect;                 ///< an attempt acts somewhere, so its outcome may be unknown
    bool needs_timeout;              ///< no wait without bound
    bool compensable_by_default;     ///< without naming a compensation
    std::string_view default_effect; ///< of a step without compensation
    std::string_view sentence;
};

inline constexpr std::array step_kinds{
    StepKindTraits{StepKind::sql, "sql", StepWait::nothing, FallbackKind::function, true, true,
                   false, "guarded",
                   "the worker calls a function in the transaction of its marker"},
    StepKindTraits{StepKind::queue, "queue", StepWait::claim, FallbackKind::queue, true, true, true,
                   "guarded", "a service claims it and answers under its lease"},
    StepKindTraits{StepKind::signal, "signal", StepWait::signal, FallbackKind::queue, false, false,
                   false, "guarded", "it waits for signal_saga()"},
    StepKindTraits{StepKind::timer, "timer", StepWait::time, FallbackKind::queue, false, true,
                   false, "guarded", "it waits for a delay to pass"},
    StepKindTraits{StepKind::child, "child", StepWait::child, FallbackKind::queue, false, true,
                   true, "irreversible", "it starts another saga and waits for its end"},
    StepKindTraits{StepKind::message, "message", StepWait::answer, FallbackKind::topic, true, true,
                   false, "guarded", "it publishes a command and waits for the answer"},
};

constexpr const StepKindTraits &traits_of(StepKind kind) {
    return step_kinds[static_cast<std::size_t>(kind)];
}

constexpr std::optional<StepKind> step_kind_of(std::string_view name) {
    for (const StepKindTraits &t : step_kinds)
        if (t.name == name)
            return t.kind;
    return std::nullopt;
}

/// A table of one entry a kind, such as the functions that run it, which names its kinds: an entry
/// in the wrong place does not compile.
template <class Entry> constexpr bool is_in_order_of_kinds(const Entry &entries) {
    if (entries.size() != step_kinds.size())
        return false;
    for (std::size_t i = 0; i < entries.size(); ++i)
        if (static_cast<std::size_t>(entries[i].kind) != i)
            return false;
    return true;
}
static_assert(is_in_order_of_kinds(step_kinds));

} // namespace stacksaga::core
