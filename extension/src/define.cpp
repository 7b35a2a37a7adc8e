// define_saga and the constructors of its steps.
//
// The SQL face hands a definition over as jsonb: one text decides whether it is new, and composite
// parameters never meet a saved plan.
#include "core/retry.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/query.hpp"
#include "pg/scope.hpp"
#include "src/definition.hpp"
#include "src/handler.hpp"
#include "src/limits.hpp"
#include "src/retry_window.hpp"

namespace stacksaga {

namespace {

constexpr int64 steps_max = 1000;

constinit pg::Statement count_bad_elements{
    "SELECT count(*) FILTER (WHERE jsonb_typeof(e) <> 'object'), count(*)"
    "  FROM jsonb_array_elements($1) AS e"};

// Effective policies: the step's own, else the saga's, else the defaults of retry_policy().
constinit pg::Statement read_steps{
    "SELECT s.name, s.kind, s.action, s.compensation, s.queue, s.compensable, s.stage, s.timeout,"
    "       s.effect, s.compensate_when, s.verify, s.search_path, s.fallback,"
    "       p.max_attempts, p.initial_interval, p.multiplier, p.max_interval, p.jitter,"
    "       p.retry_on, p.never_on"
    "  FROM ROWS FROM (jsonb_to_recordset($1) AS ("
    "         name text, kind text, action text, compensation text, queue text,"
    "         compensable boolean, stage integer, timeout interval, effect text,"
    "         compensate_when text, verify text, search_path text, fallback text, retry jsonb))"
    "       WITH ORDINALITY AS s(name, kind, action, compensation, queue, compensable, stage,"
    "         timeout, effect, compensate_when, verify, search_path, fallback, retry, position),"
    "       jsonb_to_record(coalesce(nullif(s.retry, 'null'), nullif($2, 'null'),"
    "         to_jsonb(stacksaga.retry_policy()))) AS p("
    "         max_attempts integer, initial_interval interval, multiplier double precision,"
    "         max_interval interval, jitter double precision, retry_on text[], never_on text[])"
    " ORDER BY s.position"};

constinit pg::Statement read_policy{
    "SELECT p.max_attempts, p.initial_interval, p.multiplier, p.max_interval, p.jitter,"
    "       p.retry_on, p.never_on"
    "  FROM jsonb_to_record($1) AS p("
    "         max_attempts integer, initial_interval interval, multiplier double precision,"
    "         max_interval interval, jitter double precision, retry_on text[], never_on text[])"};

constinit pg::Statement make_content{
    "SELECT jsonb_build_object('definer', $6::text, 'deadline', $2::interval, 'retry', $3::jsonb,"
    "         'compensation_retry', $4::jsonb, 'on_compensation_failure', $5::text,"
    "         'steps', (SELECT jsonb_agg(e - 'search_path' ORDER BY n)"
    "                     FROM jsonb_array_elements($1) WITH ORDINALITY AS s(e, n)))::text"};

constinit pg::Statement find_content{
    "SELECT definition_id, version, is_current FROM stacksaga.saga_definition"
    " WHERE saga = $1 AND content = $2"};
constinit pg::Statement lock_definitions{
    "LOCK TABLE stacksaga.saga_definition IN SHARE ROW EXCLUSIVE MODE"};
constinit pg::Statement retire_current{
    "UPDATE stacksaga.saga_definition SET is_current = false WHERE saga = $1 AND is_current"};
constinit pg::Statement make_current{
    "UPDATE stacksaga.saga_definition SET is_current = true WHERE definition_id = $1"};
constinit pg::Statement insert_definition{
    "INSERT INTO stacksaga.saga_definition (saga, version, is_current, content, definer, deadline,"
    "       compensation_retry, on_compensation_failure, defined_at)"
    " SELECT $1, coalesce(max(version), 0) + 1, true, $2, $3::name, $4,"
    "        jsonb_populate_record(NULL::stacksaga.retry_policy, $5), $6, $7"
    "   FROM stacksaga.saga_definition WHERE saga = $1"
    " RETURNING definition_id, version"};
constinit pg::Statement insert_step{
    "INSERT INTO stacksaga.definition_step (definition_id, step_no, step, kind, stage, action,"
    "       action_oid, compensation, compensation_oid, verify, verify_oid, search_path, queue,"
    "       timeout, effect, compensate_when, retry)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
    "         jsonb_populate_record(NULL::stacksaga.retry_policy, $17))"};
constinit pg::Statement refresh_step{
    "UPDATE stacksaga.definition_step"
    "   SET action_oid = $3, compensation_oid = $4, verify_oid = $5, search_path = $6"
    " WHERE definition_id = $1 AND step_no = $2"
    "   AND (action_oid, compensation_oid, verify_oid, search_path)"
    "       IS DISTINCT FROM ($3, $4, $5, $6)"};
constinit pg::Statement effective_policy{
    "SELECT coalesce(nullif($1, 'null'), nullif($2, 'null'), to_jsonb(stacksaga.retry_policy()))"};
constinit pg::Statement step_policy{
    "SELECT coalesce(nullif($1 -> ($2 - 1) -> 'retry', 'null'), nullif($3, 'null'),"
    "         to_jsonb(stacksaga.retry_policy()))"};

/// A definition is refused: names the step in DETAIL.
[[noreturn]] void refuse(std::string_view step, const char *problem, const char *hint) {
    ereport(ERROR, (errcode(pg::sg400), errmsg("saga definition is not valid: %s", problem),
                    step.empty() ? errdetail("The problem lies in the definition as a whole.")
                                 : errdetail("The problem lies in step \"%s\".", clip(step)),
                    errhint("%s", hint)));
}

struct NewStep {
    std::string_view name;
    std::string_view kind;
    std::optional<std::string_view> queue;
    HandlerCheck action, compensation, verify;
    bool has_compensation;
    std::optional<int32> stage_given;
    int16 stage;
    Datum timeout;
    std::string_view effect;
    std::string_view compensate_when;
    std::optional<std::string_view> search_path;
};

/// An interval of a step, in microseconds.
int64 read_interval(const pg::Rows &rows, uint64 row, int column, const char *name, bool positive,
                    std::string_view step) {
    Datum interval = rows.value(row, column);
    std::optional<int64> length = pg::interval_in_range(interval, positive);
    if (!length)
        refuse(step,
               psprintf("its %s %s is out of range", name,
                        DatumGetCString(DirectFunctionCall1(interval_out, interval))),
               positive ? "Use a finite interval that is greater than zero."
                        : "Use a finite interval that is not negative.");
    return *length;
}

void check_policy(const pg::Rows &rows, uint64 row, int first, std::string_view step) {
    constexpr const char *hint = "Look at the arguments of stacksaga.retry_policy().";
    for (int i = 0; i < 5; ++i)
        if (rows.is_null(row, first + i))
            refuse(step, "a field of its retry policy is null", hint);
    core::RetryPolicy policy{
        .max_attempts = rows.int4(row, first),
        .initial_interval_us = read_interval(rows, row, first + 1, "initial_interval", false, step),
        .max_interval_us = read_interval(rows, row, first + 3, "max_interval", false, step),
        .multiplier = rows.float8(row, first + 2),
        .jitter = rows.float8(row, first + 4),
    };
    core::PolicyField bad = core::validate(policy);
    if (bad != core::PolicyField::none)
        refuse(step,
               psprintf("its retry policy is out of range: %s %s", core::name_of(bad).data(),
                        core::rule_of(bad).data()),
               hint);
    for (int list = 5; list < 7; ++list) {
        if (rows.is_null(row, first + list))
            continue;
        Datum *values;
        bool *nulls;
        int count;
        deconstruct_array(DatumGetArrayTypeP(rows.value(row, first + list)), TEXTOID, -1, false,
                          TYPALIGN_INT, &values, &nulls, &count);
        for (int i = 0; i < count; ++i) {
            size_t length = nulls[i] ? 0 : pg::view_of_text(values[i]).size();
            if (length != 2 && length != 5)
                refuse(step,
                       "retry_on and never_on hold SQLSTATEs of five characters or classes "
                       "of two",
                       "Write '40001' or '40', say.");
        }
    }
}

HandlerCheck check_handler(const pg::Rows &rows, uint64 row, int column, const char *role_of,
                           HandlerKind kind, std::string_view step, Oid definer) {
    std::optional<std::string_view> text = rows.optional_text(row, column);
    if (!text)
        return {};
    HandlerCheck check = resolve_handler(*text, kind, definer);
    if (check.reason != nullptr)
        refuse(
            step,
            psprintf("its %s function %s cannot be used: %s", role_of, clip(*text), check.reason),
            "Name a function with its argument type, such as "
            "'shop.reserve(stacksaga.step_call)'.");
    return check;
}

NewStep read_step(const pg::Rows &rows, uint64 row, Oid definer) {
    NewStep s{};
    s.name = rows.optional_text(row, 0).value_or("");
    if (s.name.empty())
        refuse("", psprintf("the name of step %d is empty", static_cast<int>(row + 1)),
               "Give every step a name.");
    if (s.name.size() > name_bytes_max)
        refuse(s.name, psprintf("its name is longer than %d bytes", name_bytes_max),
               "Use a shorter name.");
    s.kind = rows.optional_text(row, 1).value_or("");
    bool is_sql = s.kind == "sql";
    s.queue = rows.optional_text(row, 4);
    if (is_sql) {
        s.action = check_handler(rows, row, 2, "action", HandlerKind::action, s.name, definer);
        if (!OidIsValid(s.action.function))
            refuse(s.name, "it has no action", "Name the function that the step runs.");
        s.compensation =
            check_handler(rows, row, 3, "compensation", HandlerKind::action, s.name, definer);
    } else if (s.kind == "queue") {
        if (!s.queue || s.queue->empty() || s.queue->size() > queue_bytes_max)
            refuse(s.name, psprintf("its queue must be 1 to %d bytes long", queue_bytes_max),
                   "Name the queue that a service claims it from.");
    } else {
        refuse(s.name, psprintf("its kind \"%s\" is not known", clip(s.kind)),
               "Make steps with stacksaga.sql_step() or stacksaga.queue_step().");
    }
    s.verify = check_handler(rows, row, 10, "verify", HandlerKind::verify, s.name, definer);
    s.search_path = rows.optional_text(row, 11);
    s.has_compensation = is_sql ? OidIsValid(s.compensation.function)
                                : (!rows.is_null(row, 5) && rows.boolean(row, 5));
    if (rows.optional_text(row, 12))
        refuse(s.name, "fallbacks are not supported", "Leave fallback out.");

    if (!rows.is_null(row, 6)) {
        s.stage_given = rows.int4(row, 6);
        if (*s.stage_given < 1)
            refuse(s.name, "its stage is less than 1", "Number stages from 1 on.");
    }
    if (rows.is_null(row, 7))
        refuse(s.name, "its timeout is null", "Leave timeout out for the default of 30 seconds.");
    s.timeout = rows.value(row, 7);
    read_interval(rows, row, 7, "timeout", true, s.name);

    std::optional<std::string_view> effect = rows.optional_text(row, 8);
    s.effect = effect.value_or(s.has_compensation ? "compensable" : "guarded");
    if (s.effect != "idempotent" && s.effect != "guarded" && s.effect != "compensable" &&
        s.effect != "irreversible")
        refuse(s.name, psprintf("its effect \"%s\" is not known", clip(s.effect)),
               "Use idempotent, guarded, compensable or irreversible.");
    if (s.effect == "irreversible" && !is_sql)
        s.has_compensation = false; // compensable is true by default
    if (s.effect == "compensable" && !s.has_compensation)
        refuse(s.name, "its effect is compensable and it has no compensation",
               "Give it a compensation or another effect.");
    if (s.effect == "irreversible" && s.has_compensation)
        refuse(s.name, "its effect is irreversible and it has a compensation",
               "Leave the compensation out, or make the effect compensable.");
    s.compensate_when = rows.optional_text(row, 9).value_or("");
    if (s.compensate_when != "started" && s.compensate_when != "completed")
        refuse(s.name, psprintf("its compensate_when \"%s\" is not known", clip(s.compensate_when)),
               "Use started or completed.");
    check_policy(rows, row, 13, s.name);
    return s;
}

/// Numbers the stages from 1 without gaps. Without explicit numbers every step is its own stage;
/// with them, steps run in the order of their numbers, equal ones side by side.
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
                refuse(s.name, "its stage comes again after a later one",
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
                refuse(steps[i].name, "its name is used twice", "Give every step its own name.");
        bool undone =
            steps[i].effect == "compensable" || OidIsValid(steps[i].compensation.function);
        if (pivot != nullptr && undone && steps[i].stage >= pivot->stage)
            refuse(steps[i].name,
                   psprintf("it is compensable and does not come before the irreversible step "
                            "\"%s\", past which nothing rolls back",
                            clip(pivot->name)),
                   "Move it before the irreversible step, or give it another effect "
                   "(compensable => false for a queue step).");
    }
}

std::span<NewStep> read_definition_steps(Datum steps_json, pg::Param saga_policy, Oid definer) {
    pg::Param steps = pg::param_datum(JSONBOID, steps_json);
    Jsonb *list_json = DatumGetJsonbP(steps_json);
    if (!JB_ROOT_IS_ARRAY(list_json) || JB_ROOT_IS_SCALAR(list_json))
        refuse("", "steps must be an array", "Pass ARRAY[stacksaga.sql_step(...), ...].");
    pg::Rows shape = count_bad_elements.run(steps);
    if (shape.int8(0, 0) > 0)
        refuse("", "steps must be a one-dimensional array without nulls",
               "Pass ARRAY[stacksaga.sql_step(...), ...].");
    if (shape.int8(0, 1) == 0)
        refuse("", "it has no step", "Pass at least one step.");
    if (shape.int8(0, 1) > steps_max)
        refuse("", psprintf("it has more than %d steps", static_cast<int>(steps_max)),
               "Split it into several sagas.");
    pg::Rows rows = read_steps.run(steps, saga_policy);
    auto *list = static_cast<NewStep *>(palloc0(sizeof(NewStep) * rows.count()));
    for (uint64 i = 0; i < rows.count(); ++i)
        list[i] = read_step(rows, i, definer);
    std::span<NewStep> result{list, rows.count()};
    number_stages(result);
    check_names_and_pivot(result);
    return result;
}

pg::Param param_oid(const HandlerCheck &h) {
    return pg::param_datum(OIDOID, ObjectIdGetDatum(h.function), h.signature == nullptr);
}
pg::Param param_signature(const HandlerCheck &h) {
    return h.signature == nullptr ? pg::param_null(TEXTOID)
                                  : pg::param(std::string_view{h.signature});
}

void insert_steps(int32 definition_id, std::span<const NewStep> steps, pg::Param steps_json,
                  pg::Param saga_policy) {
    int16 no = 0;
    for (const NewStep &s : steps) {
        ++no;
        pg::Rows policy = step_policy.run(steps_json, pg::param(int32{no}), saga_policy);
        insert_step.run(
            pg::param(definition_id), pg::param(no), pg::param(s.name), pg::param(s.kind),
            pg::param(s.stage), param_signature(s.action), param_oid(s.action),
            param_signature(s.compensation), param_oid(s.compensation), param_signature(s.verify),
            param_oid(s.verify), pg::param(s.search_path), pg::param(s.queue),
            pg::param_datum(INTERVALOID, s.timeout), pg::param(s.effect),
            pg::param(s.compensate_when), pg::param_datum(JSONBOID, policy.value(0, 0)));
    }
}

void refresh_functions(int32 definition_id, std::span<const NewStep> steps) {
    int16 no = 0;
    for (const NewStep &s : steps) {
        ++no;
        refresh_step.run(pg::param(definition_id), pg::param(no), param_oid(s.action),
                         param_oid(s.compensation), param_oid(s.verify), pg::param(s.search_path));
    }
    forget_definition(definition_id);
}

struct DefinitionArguments {
    std::string_view saga;
    Datum steps;
    pg::Param deadline;
    pg::Param retry;
    pg::Param compensation_retry;
    std::string_view on_compensation_failure;
};

int32 define(const DefinitionArguments &a, Oid definer, std::string_view definer_name) {
    std::span<NewStep> steps = read_definition_steps(a.steps, a.retry, definer);
    pg::Rows policy = effective_policy.run(a.compensation_retry, a.retry);
    pg::Param compensation_policy = pg::param_datum(JSONBOID, policy.value(0, 0));
    check_policy(read_policy.run(compensation_policy), 0, 0, "");

    pg::Param saga = pg::param(a.saga);
    pg::Param steps_json = pg::param_datum(JSONBOID, a.steps);
    pg::Rows made = make_content.run(steps_json, a.deadline, a.retry, a.compensation_retry,
                                     pg::param(a.on_compensation_failure), pg::param(definer_name));
    pg::Param content = pg::param(made.text(0, 0));

    pg::Rows known = find_content.run(saga, content);
    if (known.empty() || !known.boolean(0, 2)) {
        lock_definitions.run();
        known = find_content.run(saga, content); // another session may have been first
    }
    if (!known.empty()) {
        int32 id = known.int4(0, 0), version = known.int4(0, 1);
        if (!known.boolean(0, 2)) {
            retire_current.run(saga);
            make_current.run(pg::param(id));
        }
        refresh_functions(id, steps);
        return version;
    }
    retire_current.run(saga);
    pg::Rows inserted = insert_definition.run(
        saga, content, pg::param(definer_name), a.deadline, compensation_policy,
        pg::param(a.on_compensation_failure), pg::param_time(pg::clock_now()));
    int32 version = inserted.int4(0, 1);
    insert_steps(inserted.int4(0, 0), steps, steps_json, a.retry);
    return version;
}

pg::Param jsonb_or_null(const pg::Arguments &arguments, int i) {
    return pg::param_datum(JSONBOID, arguments.datum(i), arguments.is_null(i));
}

} // namespace

// define_saga_content(name text, steps jsonb, deadline interval, retry jsonb,
//                     compensation_retry jsonb, on_compensation_failure text) -> integer
STACKSAGA_FUNCTION(define_saga_content) {
    pg::Arguments arguments(fcinfo);
    DefinitionArguments a{};
    a.saga = arguments.required_text(0, "name");
    check_name(a.saga, "name");
    arguments.require(1, "steps");
    a.steps = arguments.datum(1);
    a.deadline = pg::param_datum(INTERVALOID, arguments.datum(2), arguments.is_null(2));
    if (!arguments.is_null(2))
        pg::interval_microseconds(arguments.datum(2), "deadline", true);
    a.retry = jsonb_or_null(arguments, 3);
    a.compensation_retry = jsonb_or_null(arguments, 4);
    a.on_compensation_failure = arguments.required_text(5, "on_compensation_failure");
    if (a.on_compensation_failure != "park" && a.on_compensation_failure != "continue")
        refuse("", "on_compensation_failure must be park or continue",
               "park stops at the compensation that failed; continue compensates the rest first.");

    Oid definer = GetUserId();
    std::string_view definer_name{GetUserNameFromId(definer, false)};
    int32 version = pg::as_owner([&] {
        return pg::with_spi(
            [&] { return require_short_retries(a.saga, define(a, definer, definer_name)); });
    });
    PG_RETURN_INT32(version);
}

namespace {

/// The arguments of a step's constructor, by position, as columns of a step_definition.
class StepColumns {
public:
    explicit StepColumns(FunctionCallInfo fcinfo) : fcinfo_(fcinfo) {}

    pg::Param argument(int i) const {
        return {InvalidOid, fcinfo_->args[i].value, fcinfo_->args[i].isnull};
    }
    /// A function's name, looked up in the caller's search_path.
    pg::Param function(int i) const {
        if (fcinfo_->args[i].isnull)
            return pg::param_null(TEXTOID);
        return pg::param(
            std::string_view{qualified_signature(pg::view_of_text(fcinfo_->args[i].value))});
    }
    /// name, kind, action, compensation, queue, compensable, stage, timeout, retry, effect,
    /// compensate_when, verify, fallback; search_path comes last by itself.
    Datum make(const std::array<pg::Param, 13> &columns) const {
        TupleDesc descriptor;
        if (get_call_result_type(fcinfo_, nullptr, &descriptor) != TYPEFUNC_COMPOSITE)
            elog(ERROR, "return type must be a row type");
        Datum values[columns.size() + 1];
        bool nulls[columns.size() + 1];
        for (size_t i = 0; i < columns.size(); ++i) {
            values[i] = columns[i].value;
            nulls[i] = columns[i].isnull;
        }
        values[columns.size()] = CStringGetTextDatum(namespace_search_path);
        nulls[columns.size()] = false;
        return HeapTupleGetDatum(heap_form_tuple(descriptor, values, nulls));
    }

private:
    FunctionCallInfo fcinfo_;
};

} // namespace

// sql_step and queue_step run with the caller's search_path, and are the place where the names of
// functions are looked up in it.

// sql_step(name, action, compensation, stage, timeout, retry, effect, compensate_when, verify,
//          fallback) -> step_definition
STACKSAGA_FUNCTION(sql_step) {
    StepColumns c(fcinfo);
    return c.make({c.argument(0), pg::param(std::string_view{"sql"}), c.function(1), c.function(2),
                   pg::param_null(TEXTOID), pg::param_null(BOOLOID), c.argument(3), c.argument(4),
                   c.argument(5), c.argument(6), c.argument(7), c.function(8), c.function(9)});
}

// queue_step(name, queue, compensable, stage, timeout, retry, effect, compensate_when, verify,
//            fallback) -> step_definition
STACKSAGA_FUNCTION(queue_step) {
    StepColumns c(fcinfo);
    return c.make({c.argument(0), pg::param(std::string_view{"queue"}), pg::param_null(TEXTOID),
                   pg::param_null(TEXTOID), c.argument(1), c.argument(2), c.argument(3),
                   c.argument(4), c.argument(5), c.argument(6), c.argument(7), c.function(8),
                   c.argument(9)});
}

} // namespace stacksaga
