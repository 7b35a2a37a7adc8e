#include "database.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include <fmt/format.h>

namespace stacksaga::property {

namespace {

// Virtual hours within which every saga must have come to rest.
constexpr int ticks_max = 600;
constexpr int claims_max = 1000;
// A tick at which a worker's transaction is rolled back before it is run again.
constexpr int ticks_per_crash = 5;

constexpr const char *start_sagas = R"(
    SELECT s.saga_id, s.created, property.clock()
      FROM unnest($1::text[], $2::jsonb[], $3::uuid[], $4::integer[], $5::integer[])
               AS p(saga, input, saga_id, start_after, deadline),
           stacksaga.start_saga(p.saga, p.input, saga_id => p.saga_id,
               run_at => stacksaga.clock_now() + make_interval(mins => p.start_after),
               deadline => make_interval(mins => p.deadline),
               priority => 1 + get_byte(uuid_send(p.saga_id), 15) % 5) AS s)";
constexpr const char *run_pending = "SELECT stacksaga.run_pending(1000000), property.clock()";
constexpr const char *claim_steps = R"(
    SELECT input ->> 'no', step, direction, attempt, idempotency_key, results, lease,
           (extract(epoch FROM lease_until) * 1000000)::bigint, property.clock(), by_fallback
      FROM stacksaga.claim_steps($1, 'service', $2::integer, make_interval(mins => $3::integer)))";
constexpr const char *answer_steps = R"(
    SELECT status, refusal, until, property.clock()
      FROM property.answer($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[],
                           $6::integer[]))";
constexpr const char *operate_sagas = R"(
    SELECT status, refusal, property.clock()
      FROM property.operate($1::uuid[], $2::text[], $3::text[], $4::integer[]))";
constexpr const char *select_statuses = R"(
    SELECT (input ->> 'no')::integer, status FROM stacksaga.saga)";

/// The text form of an array; nullopt is NULL.
class ArrayText {
public:
    void add(std::string_view value) {
        separate();
        text_ += '"';
        for (char c : value) {
            if (c == '"' || c == '\\')
                text_ += '\\';
            text_ += c;
        }
        text_ += '"';
    }
    void add_null() {
        separate();
        text_ += "NULL";
    }
    template <class Number> void add_number(Number value) { add(fmt::format("{}", value)); }
    [[nodiscard]] std::string text() const { return text_ + "}"; }

private:
    void separate() { text_ += text_.size() > 1 ? "," : ""; }
    std::string text_ = "{";
};

int number_of(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size())
        throw std::runtime_error(fmt::format("not a number: \"{}\"", text));
    return value;
}

/// Steps are named s1, s2, ...
int step_no_of(std::string_view name) {
    return number_of(name.substr(1));
}
Direction direction_of(std::string_view name) {
    return name == "act" ? Direction::act : Direction::compensate;
}

/// The fields of "a|b|c", `count` of them, the last one with all that is left.
std::vector<std::string> split(std::string_view text, size_t count) {
    std::vector<std::string> fields;
    while (fields.size() + 1 < count) {
        const size_t end = text.find('|');
        if (end == std::string_view::npos)
            throw std::runtime_error(fmt::format("unexpected notice: {}", text));
        fields.emplace_back(text.substr(0, end));
        text.remove_prefix(end + 1);
    }
    fields.emplace_back(text);
    return fields;
}

std::string key_of(const Trace &trace, const Call &call) {
    return fmt::format("{}:{}:{}{}", trace.plan.saga_id(), call.step, name_of(call.direction),
                       call.falls_back ? ":fallback" : "");
}

} // namespace

Database::Database(const std::string &name, const std::string &script, uint64_t seed)
    : seed_(seed), session_("dbname=" + name, "-c statement_timeout=2min") {
    support::Session("").run(("CREATE DATABASE " + name).c_str());
    session_.on_notice([this](std::string_view notice) { heard_.emplace_back(notice); });
    run_sql("CREATE EXTENSION stacksaga");
    session_.run_script(script);
}

Window Database::window_to(Time now) {
    const Window w{now_, now};
    now_ = now;
    return w;
}

int Database::run(int first, int last, bool report_all, std::vector<std::string> &reports) {
    traces_.clear();
    definitions_.clear();
    calendar_.clear();
    operations_.clear();
    first_ = first;
    tick_ = 0;
    for (int number = first; number < last; ++number) {
        if (definitions_.empty() || definitions_.back().number != number / sagas_per_definition)
            definitions_.push_back(make_definition(seed_, number / sagas_per_definition));
        traces_.emplace_back(definitions_.back(), seed_, number);
    }
    for (const Definition &d : definitions_)
        run_sql(define_statement(d).c_str());
    start_all();
    const auto is_over = [](const Trace &s) { return s.is_over(); };
    while (!std::ranges::all_of(traces_, is_over) && tick_ < ticks_max)
        run_tick();
    for (Trace &trace : traces_)
        if (!trace.is_over())
            trace.object(fmt::format("it has not come to rest within {} hours", ticks_max));
    check_promises();
    check_changes();
    count_lost_leases();
    int failures = 0;
    for (const Trace &trace : traces_) {
        const bool failed = trace.disagreement || trace.broken_promise;
        failures += failed ? 1 : 0;
        if (failed || report_all)
            reports.push_back(report(trace));
    }
    run_sql("SELECT property.forget()");
    return failures;
}

void Database::start_all() {
    run_sql("SET stacksaga.clock_offset = '0'");
    now_ = run_sql("SELECT property.clock()").number(0, 0);
    ArrayText names, inputs, ids, delays, deadlines;
    for (const Trace &trace : traces_) {
        names.add(trace.definition->name);
        inputs.add(trace.plan.input(*trace.definition));
        ids.add(trace.plan.saga_id());
        trace.plan.start_after() > 0 ? delays.add_number(trace.plan.start_after() * 60)
                                     : delays.add_null();
        trace.plan.deadline() ? deadlines.add_number(*trace.plan.deadline()) : deadlines.add_null();
    }
    const support::Rows rows = run_sql(
        start_sagas, {names.text(), inputs.text(), ids.text(), delays.text(), deadlines.text()});
    if (static_cast<size_t>(rows.size()) != traces_.size())
        throw std::runtime_error("not every saga was started");
    const Window w = window_to(rows.number(rows.size() - 1, 2));
    for (Trace &trace : traces_) {
        trace.model.start(w, trace.plan.start_after() * 60);
        for (const Operation &operation : trace.plan.operations(*trace.definition)) {
            operations_[operation.tick].emplace_back(&trace, operation);
            ++trace.answers_to_come;
        }
    }
}

void Database::run_tick() {
    run_sql("BEGIN");
    run_sql(fmt::format("SET LOCAL stacksaga.clock_offset = '{} hours'", tick_).c_str());
    if (tick_ % ticks_per_crash == 1)
        crash_drill();
    Time since = 0;
    bool busy = true;
    bool workers_first = tick_ % 2 == 0;
    while (busy) {
        since = now_ = std::max(now_, Time{run_sql("SELECT property.clock()").number(0, 0)});
        // A claim may settle a lease that lapsed and return nothing.
        busy = !workers_first || run_workers() > 0;
        workers_first = true;
        busy = give_answers() || busy;
        busy = operate() || busy;
        busy = run_services() || busy;
        busy = run_workers() > 0 || busy;
    }
    for (Trace &trace : traces_)
        if (!trace.disagreement && !trace.model.is_dry(since))
            trace.object(fmt::format("something that is due is left at hour {}", tick_) +
                         work_of(trace));
    compare_statuses();
    rescue_parked();
    run_sql("COMMIT");
    ++tick_;
}

// What was done in a transaction that is rolled back has not happened: nothing of it may be seen.
void Database::crash_drill() {
    run_sql("SAVEPOINT before");
    run_sql(run_pending);
    heard_.clear();
    run_sql("ROLLBACK TO SAVEPOINT before");
    run_sql("RELEASE SAVEPOINT before");
}

long long Database::run_workers() {
    heard_.clear();
    const support::Rows rows = run_sql(run_pending);
    const Window w = window_to(rows.number(0, 1));
    polled_at_ = w.to;
    for (const std::string &notice : heard_)
        noticed(notice, w);
    heard_.clear();
    return rows.number(0, 0);
}

// kind|saga|step|direction|attempt|idempotency key|by_fallback|results
void Database::noticed(std::string_view notice, Window w) {
    const std::vector<std::string> fields = split(notice, 8);
    const bool is_call = fields[0] != "verify";
    const Call call{.step = step_no_of(fields[2]),
                    .direction = direction_of(fields[3]),
                    .attempt = number_of(fields[4]),
                    .results = fields[7],
                    .falls_back = fields[6] == "t"};
    Trace &trace = trace_of(number_of(fields[1]));
    trace.events.push_back({.kind = is_call ? EventKind::call : EventKind::verify,
                            .tick = tick_,
                            .step = call.step,
                            .direction = call.direction,
                            .attempt = call.attempt,
                            .falls_back = call.falls_back,
                            .text = call.results});
    if (trace.disagreement)
        return;
    const bool runs_fallback = fields[0] == "fallback";
    if (is_call && runs_fallback != (call.falls_back && call.direction == Direction::act))
        trace.object("by_fallback is not what is called");
    else if (fields[5] != key_of(trace, call))
        trace.object("the idempotency key is " + fields[5]);
    else if (is_call && !trace.model.called(call, w))
        trace.object("this call should not have been made");
    else if (!is_call && !trace.model.verified(call, w))
        trace.object("verify should not have been asked");
}

bool Database::run_services() {
    bool any = false;
    for (std::string_view queue : queues)
        while (claim_from(queue))
            any = true;
    while (claim_from(spare_queue))
        any = true;
    return any;
}

/// Whether there may be more to claim.
bool Database::claim_from(std::string_view queue) {
    const int lease_minutes = lease_of(queue, tick_);
    const support::Rows rows =
        run_sql(claim_steps, {std::string(queue), fmt::format("{}", claims_max),
                              fmt::format("{}", lease_minutes)});
    if (rows.empty())
        return false;
    const Window w = window_to(rows.number(rows.size() - 1, 8));
    polled_at_ = w.to;
    for (int i = 0; i < rows.size(); ++i) {
        Trace &trace = trace_of(number_of(rows.text(i, 0)));
        const Claim claim{.call = {.step = step_no_of(rows.text(i, 1)),
                                   .direction = direction_of(rows.text(i, 2)),
                                   .attempt = number_of(rows.text(i, 3)),
                                   .results = rows.text(i, 5),
                                   .falls_back = queue == spare_queue},
                          .lease = rows.number(i, 6),
                          .until = rows.number(i, 7),
                          .lease_minutes = lease_minutes};
        trace.events.push_back({.kind = EventKind::claim,
                                .tick = tick_,
                                .step = claim.call.step,
                                .direction = claim.call.direction,
                                .attempt = claim.call.attempt,
                                .lease = claim.lease,
                                .falls_back = claim.call.falls_back,
                                .text = claim.call.results});
        if (!trace.disagreement && (rows.text(i, 9) == "t") != claim.call.falls_back)
            trace.object("by_fallback is not what was claimed");
        if (!trace.disagreement && rows.text(i, 4) != key_of(trace, claim.call))
            trace.object("the idempotency key is " + rows.text(i, 4));
        if (!trace.disagreement && !trace.model.claimed(claim, w))
            trace.object("this claim should not have been given");
        plan_answers(trace, claim);
    }
    return true;
}

void Database::plan_answers(Trace &trace, const Claim &claim) {
    const Call &call = claim.call;
    const Outcome outcome =
        trace.plan.outcome(trace.definition->step(call.step), call.direction, call.attempt);
    const Answer answer{.step = call.step,
                        .direction = call.direction,
                        .lease = claim.lease,
                        .word = outcome.word,
                        .output = call.attempt};
    const auto plan = [&](int tick, const Answer &a, int minutes = 0) {
        calendar_[tick].push_back({&trace, a, call.attempt, minutes});
        ++trace.answers_to_come;
    };
    if (outcome.forges) {
        Answer forged = answer;
        forged.lease ^= 1;
        forged.word = Word::done;
        plan(tick_, forged);
    }
    if (outcome.extend_by > 0)
        plan(tick_ + 1, answer, outcome.extend_by);
    if (outcome.word == Word::silence)
        return;
    plan(tick_ + outcome.answer_after, answer);
    if (outcome.repeat_after >= 0) {
        Answer repeated = answer;
        if (outcome.repeats_other)
            repeated.output = -1;
        plan(tick_ + outcome.answer_after + outcome.repeat_after, repeated);
    }
}

bool Database::give_answers() {
    const auto entry = calendar_.extract(tick_);
    if (entry.empty())
        return false;
    const std::vector<Planned> &planned = entry.mapped();
    ArrayText ids, steps, leases, words, outputs, minutes;
    for (const Planned &p : planned) {
        const std::string &name = p.trace->definition->step(p.answer.step).name;
        ids.add(p.trace->plan.saga_id());
        steps.add(name);
        leases.add_number(p.answer.lease);
        words.add(p.minutes > 0 ? "extend" : name_of(p.answer.word));
        outputs.add(fmt::format("{}/{}", name, p.answer.output));
        minutes.add_number(p.minutes);
    }
    const support::Rows rows =
        run_sql(answer_steps, {ids.text(), steps.text(), leases.text(), words.text(),
                               outputs.text(), minutes.text()});
    const Window w = window_to(rows.number(rows.size() - 1, 3));
    for (int i = 0; i < rows.size(); ++i) {
        const Planned &p = planned[static_cast<size_t>(i)];
        Trace &trace = *p.trace;
        const Reply reply{.status = rows.text(i, 0), .sqlstate = rows.text(i, 1)};
        const bool accepted = reply.sqlstate.empty();
        --trace.answers_to_come;
        trace.events.push_back({.kind = p.minutes > 0 ? EventKind::extend : EventKind::answer,
                                .tick = tick_,
                                .step = p.answer.step,
                                .direction = p.answer.direction,
                                .attempt = p.attempt,
                                .lease = p.answer.lease,
                                .word = p.answer.word,
                                .output = p.answer.output,
                                .text = accepted ? reply.status : reply.sqlstate,
                                .is_accepted = accepted});
        if (trace.disagreement)
            continue;
        trace.model.was_polled(polled_at_);
        if (p.minutes > 0) {
            const Time until = accepted ? rows.number(i, 2) : 0;
            if (!trace.model.extended(p.answer, p.minutes, reply, until, w))
                trace.object("this extension was answered wrongly");
        } else if (!trace.model.answered(p.answer, reply, w)) {
            trace.object("this answer got a wrong reply");
        }
    }
    return true;
}

// What operators do and which signals arrive at this tick.
bool Database::operate() {
    const auto entry = operations_.extract(tick_);
    if (entry.empty())
        return false;
    ArrayText ids, actions, steps, messages;
    for (const auto &[trace, operation] : entry.mapped()) {
        ids.add(trace->plan.saga_id());
        actions.add(name_of(operation.action));
        steps.add(fmt::format("s{}", operation.step));
        messages.add_number(operation.message);
    }
    const support::Rows rows =
        run_sql(operate_sagas, {ids.text(), actions.text(), steps.text(), messages.text()});
    const Window w = window_to(rows.number(rows.size() - 1, 2));
    for (int i = 0; i < rows.size(); ++i) {
        auto [trace, operation] = entry.mapped()[static_cast<size_t>(i)];
        const Reply reply{.status = rows.text(i, 0), .sqlstate = rows.text(i, 1)};
        const bool accepted = reply.sqlstate.empty();
        --trace->answers_to_come;
        trace->events.push_back({.kind = EventKind::operation,
                                 .tick = tick_,
                                 .step = operation.step,
                                 .direction = Direction::act,
                                 .attempt = 0,
                                 .operation = operation,
                                 .text = accepted ? reply.status : reply.sqlstate,
                                 .is_accepted = accepted});
        if (trace->disagreement)
            continue;
        trace->model.was_polled(polled_at_);
        if (!trace->model.operated(operation, reply, w))
            trace->object(fmt::format("{} got a wrong reply", name_of(operation.action)));
    }
    return true;
}

void Database::rescue_parked() {
    for (Trace &trace : traces_) {
        if (trace.disagreement || trace.answers_to_come > 0 || !trace.model.is_at_rest())
            continue;
        const State &state = trace.model.any_state();
        if (state.status != Status::parked)
            continue;
        if (const std::optional<Action> action = trace.plan.rescue(trace.rescues)) {
            ++trace.rescues;
            ++trace.answers_to_come;
            const bool resolves =
                *action == Action::done || *action == Action::not_done || *action == Action::never;
            operations_[tick_ + 1].emplace_back(
                &trace, Operation{tick_ + 1, *action, resolves ? state.parked_step : 0});
        }
    }
}

std::string Database::work_of(const Trace &trace) {
    const support::Rows rows = run_sql(R"(
        SELECT format('; work: %s %s %s, attempt %s, due %s, lease until %s, verifying %s',
                      w.purpose, w.step_no, w.direction, w.attempt, w.due_at, w.lease_until, w.verifying)
          FROM stacksaga.work w WHERE w.saga_id = $1)",
                                       {trace.plan.saga_id()});
    std::string text;
    for (int i = 0; i < rows.size(); ++i)
        text += rows.text(i, 0);
    return text;
}

void Database::compare_statuses() {
    const support::Rows rows = run_sql(select_statuses);
    for (int i = 0; i < rows.size(); ++i) {
        Trace &trace = trace_of(number_of(rows.text(i, 0)));
        if (!trace.disagreement && !trace.model.has_status(rows.text(i, 1)))
            trace.object(fmt::format("its status is {}", rows.text(i, 1)));
    }
}

} // namespace stacksaga::property
