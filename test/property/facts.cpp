// What the database holds when the sagas of a batch have come to rest.
#include "database.hpp"

#include <fmt/format.h>

namespace stacksaga::property {

namespace {

constexpr const char *select_ends = R"(
    SELECT (s.input ->> 'no')::integer, s.status, s.parked_step IS NOT NULL,
           coalesce(s.error, '') <> '',
           (SELECT count(*) FROM stacksaga.work w
             WHERE w.saga_id = s.saga_id AND w.token::bigint = s.token::bigint
               AND w.due_at < 'infinity' AND NOT (s.status = 'parked'
                        AND w.purpose IN ('deadline', 'compensation_request')))
      FROM stacksaga.saga s)";
constexpr const char *select_markers = R"(
    SELECT (s.input ->> 'no')::integer, e.step_no, e.direction, e.attempt
      FROM stacksaga.effect e JOIN stacksaga.saga s ON s.saga_id = e.saga_id)";
constexpr const char *select_ledger = R"(
    SELECT saga_no, substr(step, 2)::integer, direction, attempt FROM property.ledger)";
// Changes that are not in the table, changes from a final status, and sagas that went forward
// again.
constexpr const char *select_bad_changes = R"(
    SELECT (s.input ->> 'no')::integer, format('%s to %s', c.from_status, c.to_status)
      FROM property.change c JOIN stacksaga.saga s ON s.saga_id = c.saga_id
     WHERE NOT EXISTS (
           SELECT FROM stacksaga.saga_transitions() t
            WHERE (t.from_status, t.to_status, t.direction)
                  = (c.from_status, c.to_status, c.direction))
        OR c.from_status IN ('completed', 'failed')
        OR c.direction = 'act' AND EXISTS (
           SELECT FROM property.change b
            WHERE b.saga_id = c.saga_id AND b.change_no < c.change_no
              AND b.direction = 'compensate'))";

constexpr const char *select_bad_events = R"(
    SELECT (s.input ->> 'no')::integer, e.changes, e.events
      FROM property.other_events e JOIN stacksaga.saga s ON s.saga_id = e.saga_id)";

constexpr const char *select_lost_leases = R"(
    SELECT count(*), count(d.verify), count(d.fallback),
           count(*) FILTER (WHERE d.effect = 'irreversible')
      FROM stacksaga.failure f
      JOIN stacksaga.saga s ON s.saga_id = f.saga_id
      JOIN stacksaga.definition_step d USING (definition_id, step_no)
     WHERE f.direction = 'act' AND f.error LIKE 'the lease ran out%')";

Direction direction_of(const std::string &name) {
    return name == "act" ? Direction::act : Direction::compensate;
}

int number(const support::Rows &rows, int row, int column) {
    return static_cast<int>(rows.number(row, column));
}

} // namespace

std::map<int, Facts> Database::read_facts() {
    std::map<int, Facts> all;
    const support::Rows ends = run_sql(select_ends);
    for (int i = 0; i < ends.size(); ++i)
        all[number(ends, i, 0)] = {.status = ends.text(i, 1),
                                   .names_parked_step = ends.text(i, 2) == "t",
                                   .has_error = ends.text(i, 3) == "t",
                                   .work_left = number(ends, i, 4)};
    const auto read = [&](const char *sql, std::vector<Mark> Facts::*marks) {
        const support::Rows rows = run_sql(sql);
        for (int i = 0; i < rows.size(); ++i)
            (all[number(rows, i, 0)].*marks)
                .push_back({.step = number(rows, i, 1),
                            .direction = direction_of(rows.text(i, 2)),
                            .attempt = number(rows, i, 3)});
    };
    read(select_markers, &Facts::markers);
    read(select_ledger, &Facts::ledger);
    return all;
}

void Database::check_promises() {
    const std::map<int, Facts> facts = read_facts();
    for (Trace &trace : traces_) {
        const auto place = facts.find(trace.plan.number());
        if (place == facts.end())
            trace.object("the database has lost it");
        else
            trace.broken_promise = broken_promise(trace, place->second);
    }
}

void Database::check_changes() {
    const support::Rows rows = run_sql(select_bad_changes);
    for (int i = 0; i < rows.size(); ++i)
        trace_of(number(rows, i, 0)).broken_promise =
            fmt::format("its status went from {}", rows.text(i, 1));
    const support::Rows events = run_sql(select_bad_events);
    for (int i = 0; i < events.size(); ++i)
        trace_of(number(events, i, 0)).broken_promise = fmt::format(
            "its changes are {}, and its events {}", events.text(i, 1), events.text(i, 2));
}

void Database::count_lost_leases() {
    const support::Rows rows = run_sql(select_lost_leases);
    lost_leases_.all += rows.number(0, 0);
    lost_leases_.with_verify += rows.number(0, 1);
    lost_leases_.with_fallback += rows.number(0, 2);
    lost_leases_.irreversible += rows.number(0, 3);
}

std::string Database::report(const Trace &trace) {
    std::string text = fmt::format("-- saga {} (--seed {} --saga {})\n", trace.plan.number(), seed_,
                                   trace.plan.number());
    text +=
        fmt::format("model and engine: {}\npromises: {}\n", trace.disagreement.value_or("agree"),
                    trace.broken_promise.value_or("kept"));
    text +=
        format_trace(trace) + "the model says\n" + trace.model.describe() + "saga_timeline says\n";
    const support::Rows lines =
        run_sql("SELECT stacksaga.saga_timeline($1::uuid)", {trace.plan.saga_id()});
    for (int i = 0; i < lines.size(); ++i)
        text += "  " + lines.text(i, 0) + "\n";
    return text;
}

} // namespace stacksaga::property
