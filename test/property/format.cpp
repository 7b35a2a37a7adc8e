#include "trace.hpp"

#include <fmt/format.h>

namespace stacksaga::property {

namespace {

std::string line_of(const Event &e, const Trace &trace) {
    if (e.kind == EventKind::operation) {
        const Operation &o = e.operation;
        return fmt::format("{}{}{}: {}", name_of(o.action),
                           o.step > 0 ? fmt::format(" s{}", o.step) : "",
                           o.message > 0 ? fmt::format(", message {}", o.message) : "", e.text);
    }
    const StepPlan &step = trace.definition->step(e.step);
    switch (e.kind) {
    case EventKind::call: {
        const Outcome outcome = trace.plan.outcome(step, e.direction, e.attempt);
        return fmt::format("{} {}{} attempt {} is called with {}: {}", name_of(e.direction),
                           step.name, e.falls_back ? " (fallback)" : "", e.attempt, e.text,
                           outcome.sqlstate.empty() ? "done" : "raises " + outcome.sqlstate);
    }
    case EventKind::verify:
        return fmt::format("verify {} attempt {} is called: {}", step.name, e.attempt,
                           name_of(trace.plan.finding(step, e.attempt)));
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

std::string format_trace(const Trace &trace) {
    std::string text = define_statement(*trace.definition) + ";\n";
    text += fmt::format("saga {}, id {}", trace.plan.number(), trace.plan.saga_id());
    if (trace.plan.start_after() > 0)
        text += fmt::format(", run_at in {} hours", trace.plan.start_after());
    if (trace.plan.deadline())
        text += fmt::format(", deadline {} minutes", *trace.plan.deadline());
    text += fmt::format("\ninput {}\n", trace.plan.input(*trace.definition));
    for (const Event &e : trace.events)
        text += fmt::format("  hour {:3}  {}\n", e.tick, line_of(e, trace));
    return text;
}

} // namespace stacksaga::property
