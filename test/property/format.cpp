#include "trace.hpp"

#include <fmt/format.h>

namespace stacksaga::property {

namespace {

std::string line_of(const Event &e, const Story &story) {
    if (e.kind == EventKind::operation) {
        const Operation &o = e.operation;
        return fmt::format("{}{}{}: {}", name_of(o.action),
                           o.step > 0 ? fmt::format(" s{}", o.step) : "",
                           o.message > 0 ? fmt::format(", message {}", o.message) : "", e.text);
    }
    const StepPlan &step = story.definition->step(e.step);
    switch (e.kind) {
    case EventKind::call: {
        const Fate fate = story.plan.fate(step, e.direction, e.attempt);
        return fmt::format("{} {}{} attempt {} is called with {}: {}", name_of(e.direction),
                           step.name, e.falls_back ? " (fallback)" : "", e.attempt, e.text,
                           fate.sqlstate.empty() ? "done" : "raises " + fate.sqlstate);
    }
    case EventKind::verify: {
        constexpr std::string_view words[] = {"done", "not_done", "unknown", "raises", "nonsense"};
        return fmt::format("verify {} attempt {} is called: {}", step.name, e.attempt,
                           words[static_cast<size_t>(story.plan.finding(step, e.attempt))]);
    }
    case EventKind::claim:
        return fmt::format("{} {}{} attempt {} is claimed with {}, lease {}", name_of(e.direction),
                           step.name, e.falls_back ? " (fallback)" : "", e.attempt, e.text,
                           e.lease);
    case EventKind::answer:
        return fmt::format("{} {} is answered {}{} under lease {}: {}", name_of(e.direction),
                           step.name, name_of(e.word),
                           e.word == Word::done ? fmt::format(" \"{}/{}\"", step.name, e.output)
                                                : "",
                           e.lease, e.text);
    case EventKind::extend:
        return fmt::format("{} {} is extended under lease {}: {}", name_of(e.direction), step.name,
                           e.lease, e.text);
    case EventKind::operation:
        break;
    }
    return "";
}

} // namespace

std::string tell(const Story &story) {
    std::string text = define_statement(*story.definition) + ";\n";
    text += fmt::format("saga {}, id {}", story.plan.number(), story.plan.saga_id());
    if (story.plan.start_after() > 0)
        text += fmt::format(", run_at in {} hours", story.plan.start_after());
    if (story.plan.deadline())
        text += fmt::format(", deadline {} minutes", *story.plan.deadline());
    text += fmt::format("\ninput {}\n", story.plan.input(*story.definition));
    for (const Event &e : story.events)
        text += fmt::format("  hour {:3}  {}\n", e.tick, line_of(e, story));
    return text;
}

} // namespace stacksaga::property
