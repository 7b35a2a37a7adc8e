#include "src/definition/define_step.hpp"

#include "core/common/retry.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/step_kind.hpp"
#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "src/common/limits.hpp"
#include "src/outbox/outbox.hpp"

namespace stacksaga {

namespace {

constexpr int64 steps_max = 1000;

enum class ShapeColumn : uint8_t { bad, elements };
constinit pg::Select<ShapeColumn> count_bad_elements{
    "SELECT count(*) FILTER (WHERE jsonb_typeof(e) <> 'object') AS bad, count(*) AS elements"
    "  FROM jsonb_array_elements($1) AS e"};

// Effective policies: the step's own, else the saga's, else the defaults of retry_policy().
enum class StepColumn : uint8_t {
    name,
    kind,
    action,
    compensation,
    queue,
    compensable,
    stage,
    timeout,
    effect,
    compensate_when,
    verify,
    search_path,
    fallback,
    signal,
    delay,
    saga,
    topic,
    compensation_topic,
    compensation_queue,
    fallback_compensation_topic,
    on_failure,
    max_attempts,
    initial_interval,
    multiplier,
    max_interval,
    jitter,
    retry_on,
    never_on,
};
constinit pg::Select<StepColumn> read_steps{
    "SELECT s.name, s.kind, s.action, s.compensation, s.queue, s.compensable, s.stage, s.timeout,"
    "       s.effect, s.compensate_when, s.verify, s.search_path, s.fallback, s.signal, s.delay,"
    "       s.saga, s.topic, s.compensation_topic, s.compensation_queue,"
    "       s.fallback_compensation_topic, s.on_failure,"
    "       p.max_attempts, p.initial_interval, p.multiplier, p.max_interval, p.jitter,"
    "       p.retry_on, p.never_on"
    "  FROM ROWS FROM (jsonb_to_recordset($1) AS ("
    "         name text, kind text, action text, compensation text, queue text,"
    "         compensable boolean, stage integer, timeout interval, effect text,"
    "         compensate_when text, verify text, search_path text, fallback text, signal text,"
    "         delay interval, saga text, topic text, compensation_topic text, compensation_queue text,"
    "         fallback_compensation_topic text, on_failure text, retry jsonb))"
    "       WITH ORDINALITY AS s(name, kind, action, compensation, queue, compensable, stage,"
    "         timeout, effect, compensate_when, verify, search_path, fallback, signal, delay, saga,"
    "         topic, compensation_topic, compensation_queue, fallback_compensation_topic,"
    "         on_failure, retry, position),"
    "       jsonb_to_record(coalesce(nullif(s.retry, 'null'), nullif($2, 'null'),"
    "         to_jsonb(stacksaga.retry_policy()))) AS p("
    "         max_attempts integer, initial_interval interval, multiplier double precision,"
    "         max_interval interval, jitter double precision, retry_on text[], never_on text[])"
    " ORDER BY s.position"};

using StepRows = pg::RowsOf<StepColumn>;

// Whether a child may have to be compensated after an irreversible step of its own.
constinit pg::Statement find_child{
    "SELECT EXISTS (SELECT FROM stacksaga.definition_step s"
    "                WHERE s.definition_id = d.definition_id AND s.effect = 'irreversible')"
    "  FROM stacksaga.saga_definition d WHERE d.saga = $1 AND d.is_current"};

} // namespace

[[noreturn]] void refuse_definition(std::string_view step, const char *problem, const char *hint) {
    ereport(ERROR, (errcode(pg::sg400), errmsg("saga definition is not valid: %s", problem),
                    step.empty() ? errdetail("The problem lies in the definition as a whole.")
                                 : errdetail("The problem lies in step \"%s\".", clip(step)),
                    errhint("%s", hint)));
}

namespace {

/// An interval of a step.
core::Length read_interval(Datum interval, const char *name, bool positive, std::string_view step) {
    std::optional<core::Length> length = pg::interval_in_range(interval, positive);
    if (!length)
        refuse_definition(step,
                          psprintf("its %s %s is out of range", name,
                                   DatumGetCString(DirectFunctionCall1(interval_out, interval))),
                          positive ? "Use a finite interval that is greater than zero."
                                   : "Use a finite interval that is not negative.");
    return *length;
}

/// One of a retry policy, in microseconds.
int64 read_pause(NullableDatum interval, const char *name, std::string_view step) {
    const core::Length length = read_interval(interval.value, name, false, step);
    if (length.months != 0)
        refuse_definition(
            step,
            psprintf("its %s %s has months", name,
                     DatumGetCString(DirectFunctionCall1(interval_out, interval.value))),
            pg::no_months_hint);
    return length.microseconds;
}

void check_states(NullableDatum list, const char *name, std::string_view step) {
    const char *state = list.isnull ? nullptr : find_bad_state(list.value);
    if (state != nullptr)
        refuse_definition(step,
                          psprintf("its %s holds %s, which is neither an SQLSTATE nor a class "
                                   "of them",
                                   name, state),
                          "Write '40001' or '40', say: five or two digits and upper-case "
                          "letters.");
}

} // namespace

void check_policy(const GivenPolicy &given, std::string_view step) {
    constexpr const char *hint = "See the arguments of stacksaga.retry_policy().";
    for (const NullableDatum &field : {given.max_attempts, given.initial_interval, given.multiplier,
                                       given.max_interval, given.jitter})
        if (field.isnull)
            refuse_definition(step, "a field of its retry policy is null", hint);
    const core::RetryPolicy policy{
        .max_attempts = DatumGetInt32(given.max_attempts.value),
        .initial_interval_us = read_pause(given.initial_interval, "initial_interval", step),
        .max_interval_us = read_pause(given.max_interval, "max_interval", step),
        .multiplier = DatumGetFloat8(given.multiplier.value),
        .jitter = DatumGetFloat8(given.jitter.value),
    };
    core::PolicyField bad = core::validate(policy);
    if (bad != core::PolicyField::none)
        refuse_definition(step,
                          psprintf("its retry policy is out of range: %s %s",
                                   core::name_of(bad).data(), core::rule_of(bad).data()),
                          hint);
    check_states(given.retry_on, "retry_on", step);
    check_states(given.never_on, "never_on", step);
}

namespace {

HandlerCheck check_handler(std::optional<std::string_view> text, const char *role_of,
                           HandlerKind kind, std::string_view step, Oid definer) {
    if (!text)
        return {};
    HandlerCheck check = resolve_handler(*text, kind, definer);
    if (check.reason != nullptr)
        refuse_definition(
            step,
            psprintf("its %s function %s cannot be used: %s", role_of, clip(*text), check.reason),
            "Name a function with its argument type, such as "
            "'shop.reserve(stacksaga.step_call)'.");
    return check;
}

void check_queue(std::string_view queue, const char *role_of, std::string_view step) {
    check_encoding(queue, "steps");
    if (queue.empty() || queue.size() > queue_bytes_max || has_control_character(queue))
        refuse_definition(step,
                          psprintf("its %s must be 1 to %d bytes long, without control characters",
                                   role_of, queue_bytes_max),
                          "Name the queue that a service claims it from.");
}

/// Reads the part of a step that its kind decides, and sets has_compensation.
void read_sql_step(NewStep &s, const StepRows &rows, uint64 row, Oid definer) {
    s.action = check_handler(rows.optional_text(row, StepColumn::action), "action",
                             HandlerKind::action, s.name, definer);
    if (!OidIsValid(s.action.function))
        refuse_definition(s.name, "it has no action", "Name the function that the step runs.");
    s.compensation = check_handler(rows.optional_text(row, StepColumn::compensation),
                                   "compensation", HandlerKind::action, s.name, definer);
    s.fallback_function = check_handler(rows.optional_text(row, StepColumn::fallback), "fallback",
                                        HandlerKind::action, s.name, definer);
    if (s.fallback_function.signature != nullptr)
        s.fallback = s.fallback_function.signature;
    s.has_compensation = OidIsValid(s.compensation.function);
}

void read_queue_step(NewStep &s, const StepRows &rows, uint64 row, Oid) {
    s.queue = rows.optional_text(row, StepColumn::queue);
    check_queue(s.queue.value_or(""), "queue", s.name);
    s.compensation_queue = rows.optional_text(row, StepColumn::compensation_queue);
    if (s.compensation_queue)
        check_queue(*s.compensation_queue, "compensation queue", s.name);
    const bool is_said = !rows.is_null(row, StepColumn::compensable);
    const bool is_compensable = is_said && rows.boolean(row, StepColumn::compensable);
    if (is_said && !is_compensable && s.compensation_queue)
        refuse_definition(s.name, "its compensable is false and it has a compensation queue",
                          "Leave one of them out.");
    s.has_compensation = is_compensable || s.compensation_queue;
    s.is_silent_on_undoing = !is_said && !s.compensation_queue;
}

void read_signal_step(NewStep &s, const StepRows &rows, uint64 row, Oid) {
    s.signal = rows.optional_text(row, StepColumn::signal);
    check_encoding(s.signal.value_or(""), "steps");
    if (!s.signal || s.signal->empty() || s.signal->size() > name_bytes_max ||
        has_control_character(*s.signal))
        refuse_definition(s.name,
                          psprintf("its signal must be 1 to %d bytes long, without control "
                                   "characters",
                                   name_bytes_max),
                          "Name the signal that signal_saga() sends.");
    // A signal needs no compensation, but the fallback that replaces it may.
    s.has_compensation = !rows.is_null(row, StepColumn::fallback) &&
                         rows.optional_text(row, StepColumn::effect) == "compensable";
}

void read_timer_step(NewStep &s, const StepRows &rows, uint64 row, Oid) {
    if (rows.is_null(row, StepColumn::delay))
        refuse_definition(s.name, "its delay is null", "Say how long the step waits.");
    const Datum delay = rows.value(row, StepColumn::delay);
    read_interval(delay, "delay", false, s.name);
    s.delay = pg::param_datum(INTERVALOID, delay);
}

void read_child_step(NewStep &s, const StepRows &rows, uint64 row, Oid) {
    s.child_saga = rows.optional_text(row, StepColumn::saga);
    if (!s.child_saga)
        refuse_definition(s.name, "its saga is null", "Name the saga that the step starts.");
    pg::Rows child = find_child.run(pg::param(*s.child_saga));
    if (child.empty())
        refuse_definition(s.name, psprintf("its saga \"%s\" is not defined", clip(*s.child_saga)),
                          "Define the child first; no saga can contain itself.");
    s.has_compensation = !child.boolean(0);
}

void check_topic(std::string_view topic, const char *role_of, std::string_view step) {
    check_encoding(topic, "steps");
    if (topic.empty() || topic.size() > topic_bytes_max || topic.back() == '*' ||
        has_control_character(topic))
        refuse_definition(step,
                          psprintf("its %s must be 1 to %d bytes long, without control characters, "
                                   "and not end in *",
                                   role_of, topic_bytes_max),
                          "Name the topic that the command is published to.");
}

void read_message_step(NewStep &s, const StepRows &rows, uint64 row, Oid) {
    s.topic = rows.optional_text(row, StepColumn::topic);
    check_topic(s.topic.value_or(""), "topic", s.name);
    s.compensation_topic = rows.optional_text(row, StepColumn::compensation_topic);
    if (s.compensation_topic)
        check_topic(*s.compensation_topic, "compensation topic", s.name);
    s.has_compensation = s.compensation_topic.has_value();
    s.fallback_compensation_topic =
        rows.optional_text(row, StepColumn::fallback_compensation_topic);
    if (!s.fallback_compensation_topic)
        return;
    check_topic(*s.fallback_compensation_topic, "fallback compensation topic", s.name);
    if (rows.is_null(row, StepColumn::fallback))
        refuse_definition(s.name, "it has a fallback compensation topic and no fallback",
                          "Name the fallback, or leave fallback_compensation_topic out.");
    if (!s.compensation_topic)
        refuse_definition(s.name, "its fallback has a compensation and its action has none",
                          "Name the compensation_topic too, or leave "
                          "fallback_compensation_topic out.");
}

/// Reads the columns that belong to one kind.
struct StepReader {
    StepKind kind;
    void (*read)(NewStep &s, const StepRows &rows, uint64 row, Oid definer);
};
constexpr std::array readers{
    StepReader{StepKind::sql, read_sql_step},
    StepReader{StepKind::queue, read_queue_step},
    StepReader{StepKind::signal, read_signal_step},
    StepReader{StepKind::timer, read_timer_step},
    StepReader{StepKind::child, read_child_step},
    StepReader{StepKind::message, read_message_step},
};
static_assert(core::is_in_order_of_kinds(readers));

void read_kind(NewStep &s, const StepRows &rows, uint64 row, Oid definer) {
    std::string_view name = rows.optional_text(row, StepColumn::kind).value_or("");
    std::optional<StepKind> kind = core::step_kind_of(name);
    if (!kind)
        refuse_definition(s.name, psprintf("its kind \"%s\" is not known", clip(name)),
                          "Make steps with stacksaga.sql_step(), queue_step() and their like.");
    s.kind = *kind;
    s.delay = pg::param_null(INTERVALOID);
    readers[static_cast<size_t>(s.kind)].read(s, rows, row, definer);
    const core::StepKindTraits &traits = core::traits_of(s.kind);
    if (!traits.has_effect && rows.is_null(row, StepColumn::fallback) &&
        !rows.is_null(row, StepColumn::verify))
        refuse_definition(
            s.name,
            psprintf("its outcome is never unknown: a %s step needs no verify", traits.name.data()),
            "Leave verify out.");
    s.verify = check_handler(rows.optional_text(row, StepColumn::verify), "verify",
                             HandlerKind::verify, s.name, definer);
    if (traits.fallback == core::FallbackKind::function)
        return;
    s.fallback = rows.optional_text(row, StepColumn::fallback);
    if (s.fallback && traits.fallback == core::FallbackKind::topic)
        check_topic(*s.fallback, "fallback", s.name);
    else if (s.fallback)
        check_queue(*s.fallback, "fallback", s.name);
}

void read_timeout(NewStep &s, const StepRows &rows, uint64 row) {
    s.timeout = pg::param_null(INTERVALOID);
    if (!rows.is_null(row, StepColumn::timeout)) {
        const Datum timeout = rows.value(row, StepColumn::timeout);
        s.timeout = pg::param_datum(INTERVALOID, timeout);
        read_interval(timeout, "timeout", true, s.name);
    } else if (core::traits_of(s.kind).needs_timeout) {
        refuse_definition(s.name, "its timeout is null",
                          "Leave timeout out for the default of 30 seconds.");
    }
}

void read_effect(NewStep &s, const StepRows &rows, uint64 row) {
    std::optional<std::string_view> effect = rows.optional_text(row, StepColumn::effect);
    s.effect = effect.value_or(s.has_compensation ? "compensable"
                                                  : core::traits_of(s.kind).default_effect);
    if (s.effect != "idempotent" && s.effect != "guarded" && s.effect != "compensable" &&
        s.effect != "irreversible")
        refuse_definition(s.name, psprintf("its effect \"%s\" is not known", clip(s.effect)),
                          "Use idempotent, guarded, compensable or irreversible.");
    if (s.is_silent_on_undoing && effect.value_or("compensable") == "compensable")
        refuse_definition(
            s.name, "it does not say what undoes it",
            "Pass compensation_queue => '...', or compensable => true (its own queue, with "
            "direction 'compensate'), or compensable => false, or an effect without a "
            "compensation: guarded, idempotent or irreversible.");
    if (s.effect == "compensable" && !s.has_compensation)
        refuse_definition(s.name,
                          core::traits_of(s.kind).waits_for == core::StepWait::child
                              ? psprintf("its effect is compensable and its saga \"%s\" has an "
                                         "irreversible step",
                                         clip(*s.child_saga))
                              : "its effect is compensable and it has no compensation",
                          "Give it a compensation or another effect.");
    // A child is not required to have compensations.
    if (s.effect != "compensable" && s.has_compensation &&
        core::traits_of(s.kind).waits_for != core::StepWait::child)
        refuse_definition(s.name,
                          psprintf("its effect is %s and it has a compensation", clip(s.effect)),
                          "Leave the compensation out, or make the effect compensable.");
    s.compensate_when = rows.optional_text(row, StepColumn::compensate_when).value_or("");
    if (s.compensate_when != "started" && s.compensate_when != "completed")
        refuse_definition(
            s.name, psprintf("its compensate_when \"%s\" is not known", clip(s.compensate_when)),
            "Use started or completed.");
}

void read_on_failure(NewStep &s, const StepRows &rows, uint64 row, std::string_view of_saga) {
    s.on_failure = rows.optional_text(row, StepColumn::on_failure).value_or(of_saga);
    if (!core::on_failure_of(s.on_failure))
        refuse_definition(s.name,
                          psprintf("its on_failure \"%s\" is not known", clip(s.on_failure)),
                          on_failure_hint);
}

NewStep read_step(const StepRows &rows, uint64 row, const SagaDefaults &saga) {
    NewStep s{};
    s.no = static_cast<int16>(row + 1);
    s.name = rows.optional_text(row, StepColumn::name).value_or("");
    if (s.name.empty())
        refuse_definition("", psprintf("the name of step %d is empty", s.no),
                          "Give every step a name.");
    check_encoding(s.name, "steps");
    if (s.name.size() > name_bytes_max)
        refuse_definition(s.name, psprintf("its name is longer than %d bytes", name_bytes_max),
                          "Use a shorter name.");
    if (has_control_character(s.name))
        refuse_definition("", psprintf("the name of step %d holds a control character", s.no),
                          "Use letters, digits, spaces and signs that can be printed.");
    read_kind(s, rows, row, saga.definer);
    s.search_path = rows.optional_text(row, StepColumn::search_path);
    if (!rows.is_null(row, StepColumn::stage)) {
        s.stage_given = rows.int4(row, StepColumn::stage);
        if (*s.stage_given < 1)
            refuse_definition(s.name, "its stage is less than 1", "Number stages from 1 on.");
    }
    read_timeout(s, rows, row);
    read_effect(s, rows, row);
    read_on_failure(s, rows, row, saga.on_failure);
    check_policy(given_policy(rows, row), s.name);
    return s;
}

/// Numbers the stages from 1 without gaps. Without explicit numbers every step is its own stage.
/// With them, stages run in the order of their numbers, and the steps of one stage in parallel.
void number_stages(std::span<NewStep> steps) {
    bool all_given = std::all_of(steps.begin(), steps.end(),
                                 [](const NewStep &s) { return s.stage_given.has_value(); });
    if (all_given) {
        for (NewStep &s : steps) {
            int16 smaller = 0; // distinct numbers below this one
            for (size_t i = 0; i < steps.size(); ++i) {
                bool first = true;
                for (size_t j = 0; j < i; ++j)
                    first = first && steps[j].stage_given != steps[i].stage_given;
                if (first && *steps[i].stage_given < *s.stage_given)
                    ++smaller;
            }
            s.stage = static_cast<int16>(smaller + 1);
        }
        return;
    }
    int16 stage = 0;
    int32 last_given = 0;
    const NewStep *previous = nullptr;
    for (NewStep &s : steps) {
        bool joins = previous != nullptr && s.stage_given.has_value() &&
                     s.stage_given == previous->stage_given;
        if (s.stage_given && !joins) {
            if (*s.stage_given <= last_given)
                refuse_definition(
                    s.name, "its stage comes again after a later one",
                    "List the steps of a stage next to each other, in the order of the stages.");
            last_given = *s.stage_given;
        }
        s.stage = joins ? stage : ++stage;
        previous = &s;
    }
}

void check_names_and_pivot(std::span<const NewStep> steps) {
    const NewStep *pivot = nullptr;
    for (const NewStep &s : steps)
        if (s.effect == "irreversible" && (pivot == nullptr || s.stage < pivot->stage))
            pivot = &s;
    for (size_t i = 0; i < steps.size(); ++i) {
        for (size_t j = 0; j < i; ++j)
            if (steps[i].name == steps[j].name)
                refuse_definition(steps[i].name, "its name is used twice",
                                  "Give every step its own name.");
        if (pivot != nullptr && steps[i].effect == "compensable" && steps[i].stage >= pivot->stage)
            refuse_definition(
                steps[i].name,
                psprintf("it is compensable and does not come before the irreversible step "
                         "\"%s\", past which nothing rolls back",
                         clip(pivot->name)),
                "Move it before the irreversible step, or give it another effect "
                "(compensable => false for a queue step).");
    }
}

} // namespace

std::span<NewStep> read_new_steps(Datum steps_json, const SagaDefaults &saga) {
    pg::Param steps = pg::param_datum(JSONBOID, steps_json);
    Jsonb *list_json = DatumGetJsonbP(steps_json);
    if (!JB_ROOT_IS_ARRAY(list_json) || JB_ROOT_IS_SCALAR(list_json))
        refuse_definition("", "steps must be an array",
                          "Pass ARRAY[stacksaga.sql_step(...), ...].");
    const auto shape = count_bad_elements.run(steps);
    if (shape.int8(0, ShapeColumn::bad) > 0)
        refuse_definition("", "steps must be a one-dimensional array without nulls",
                          "Pass ARRAY[stacksaga.sql_step(...), ...].");
    if (shape.int8(0, ShapeColumn::elements) == 0)
        refuse_definition("", "it has no step", "Pass at least one step.");
    if (shape.int8(0, ShapeColumn::elements) > steps_max)
        refuse_definition("", psprintf("it has more than %d steps", static_cast<int>(steps_max)),
                          "Split it into several sagas.");
    check_definition_text(steps_json, "steps");
    const auto rows = read_steps.run(steps, saga.policy);
    auto *list = static_cast<NewStep *>(palloc0(sizeof(NewStep) * rows.count()));
    for (uint64 i = 0; i < rows.count(); ++i)
        list[i] = read_step(rows, i, saga);
    std::span<NewStep> result{list, rows.count()};
    number_stages(result);
    check_names_and_pivot(result);
    return result;
}

} // namespace stacksaga
