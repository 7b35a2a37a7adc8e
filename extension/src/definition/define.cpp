// define_saga: versions of definitions.
//
// The SQL face hands a definition over as jsonb: one text decides whether it is new, and composite
// parameters never meet a saved plan.
#include "core/saga/saga_state.hpp"
#include "core/saga/step_kind.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/dedupe/dedupe.hpp"
#include "src/definition/define_step.hpp"
#include "src/definition/stored_definition.hpp"
#include "src/outbox/outbox.hpp"

namespace stacksaga {

namespace {

enum class PolicyColumn : uint8_t {
    max_attempts,
    initial_interval,
    multiplier,
    max_interval,
    jitter,
    retry_on,
    never_on,
};
constinit pg::Select<PolicyColumn> read_policy{
    "SELECT p.max_attempts, p.initial_interval, p.multiplier, p.max_interval, p.jitter,"
    "       p.retry_on, p.never_on"
    "  FROM jsonb_to_record($1) AS p("
    "         max_attempts integer, initial_interval interval, multiplier double precision,"
    "         max_interval interval, jitter double precision, retry_on text[], never_on text[])"};

// Arguments that were added later are part of the content only where they are given, so the same
// definition keeps its version.
constinit pg::Statement make_content{
    "SELECT (jsonb_strip_nulls(jsonb_build_object('on_failure', nullif($6::text, 'compensate'),"
    "         'events_topic', $7::text, 'keep', $8::interval))"
    "       || jsonb_build_object('deadline', $2::interval, 'retry', $3::jsonb,"
    "         'compensation_retry', $4::jsonb, 'on_compensation_failure', $5::text,"
    "         'steps', (SELECT jsonb_agg(e - 'search_path'"
    "             - CASE e -> 'compensation_queue' WHEN 'null' THEN 'compensation_queue' ELSE '' END"
    "             - CASE e -> 'fallback_compensation_topic'"
    "                    WHEN 'null' THEN 'fallback_compensation_topic' ELSE '' END"
    "             - CASE e -> 'on_failure' WHEN 'null' THEN 'on_failure' ELSE '' END ORDER BY n)"
    "                     FROM jsonb_array_elements($1) WITH ORDINALITY AS s(e, n))))::text"};

// A definition of the caller's; for a superuser, also another role's.
enum class KnownColumn : uint8_t { definition_id, version, is_current, definer, definer_oid };
constinit pg::Select<KnownColumn> find_content{
    "SELECT definition_id, version, is_current, definer::text, definer_oid"
    "  FROM stacksaga.saga_definition"
    " WHERE saga = $1 AND content = $2 AND (definer = $3::name OR $4)"
    " ORDER BY definer = $3::name DESC, is_current DESC, version DESC LIMIT 1"};
enum class CurrentColumn : uint8_t { definer, definer_oid };
constinit pg::Select<CurrentColumn> find_current{
    "SELECT definer::text, definer_oid FROM stacksaga.saga_definition"
    " WHERE saga = $1 AND is_current"};
constinit pg::Statement set_definer{
    "UPDATE stacksaga.saga_definition SET definer = $2::name, definer_oid = $3"
    " WHERE definition_id = $1"};
constinit pg::Statement lock_definitions{
    "LOCK TABLE stacksaga.saga_definition IN SHARE ROW EXCLUSIVE MODE"};
constinit pg::Statement retire_current{
    "UPDATE stacksaga.saga_definition SET is_current = false WHERE saga = $1 AND is_current"};
constinit pg::Statement make_current{
    "UPDATE stacksaga.saga_definition SET is_current = true WHERE definition_id = $1"};
enum class InsertedColumn : uint8_t { definition_id, version };
constinit pg::Select<InsertedColumn> insert_definition{
    "INSERT INTO stacksaga.saga_definition (saga, version, is_current, content, definer, deadline,"
    "       compensation_retry, on_compensation_failure, defined_at, definer_oid, on_failure,"
    "       events_topic, keep)"
    " SELECT $1, coalesce(max(version), 0) + 1, true, $2, $3::name, $4,"
    "        jsonb_populate_record(NULL::stacksaga.retry_policy, $5), $6, $7, $8,"
    "        $9, $10, $11"
    "   FROM stacksaga.saga_definition WHERE saga = $1"
    " RETURNING definition_id, version"};
constinit pg::Statement insert_step{
    "INSERT INTO stacksaga.definition_step (definition_id, step_no, step, kind, stage, action,"
    "       action_oid, compensation, compensation_oid, verify, verify_oid, search_path, queue,"
    "       timeout, effect, compensate_when, retry, signal, delay, child_saga, fallback,"
    "       fallback_oid, topic, compensation_topic, compensation_queue,"
    "       fallback_compensation_topic, on_failure)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
    "         jsonb_populate_record(NULL::stacksaga.retry_policy, $17), $18, $19, $20, $21, $22,"
    "         $23, $24, $25, $26, $27)"};
constinit pg::Statement refresh_step{
    "UPDATE stacksaga.definition_step"
    "   SET action_oid = $3, compensation_oid = $4, verify_oid = $5, search_path = $6,"
    "       fallback_oid = $7"
    " WHERE definition_id = $1 AND step_no = $2"
    "   AND (action_oid, compensation_oid, verify_oid, search_path, fallback_oid)"
    "       IS DISTINCT FROM ($3, $4, $5, $6, $7)"};
// The sagas that start one another, as they are defined now: does `$1` lead to `$2`?
constinit pg::Statement leads_to{
    "WITH RECURSIVE reached(saga) AS ("
    "       SELECT $1::text"
    "        UNION"
    "       SELECT s.child_saga FROM reached r"
    "         JOIN stacksaga.saga_definition d ON d.saga = r.saga AND d.is_current"
    "         JOIN stacksaga.definition_step s ON s.definition_id = d.definition_id"
    "        WHERE s.child_saga IS NOT NULL)"
    "SELECT EXISTS (SELECT FROM reached WHERE saga = $2)"};
constinit pg::Statement effective_policy{
    "SELECT coalesce(nullif($1, 'null'), nullif($2, 'null'), to_jsonb(stacksaga.retry_policy()))"};
constinit pg::Statement step_policy{
    "SELECT coalesce(nullif($1 -> ($2 - 1) -> 'retry', 'null'), nullif($3, 'null'),"
    "         to_jsonb(stacksaga.retry_policy()))"};

pg::Param param_oid(const HandlerCheck &h) {
    return pg::param_datum(OIDOID, ObjectIdGetDatum(h.function), h.signature == nullptr);
}
pg::Param param_signature(const HandlerCheck &h) {
    return h.signature == nullptr ? pg::param_null(TEXTOID)
                                  : pg::param(std::string_view{h.signature});
}

void insert_steps(int32 definition_id, std::span<const NewStep> steps, pg::Param steps_json,
                  pg::Param saga_policy) {
    for (const NewStep &s : steps) {
        pg::Rows policy = step_policy.run(steps_json, pg::param(int32{s.no}), saga_policy);
        insert_step.run(
            pg::param(definition_id), pg::param(s.no), pg::param(s.name),
            pg::param(core::traits_of(s.kind).name), pg::param(s.stage), param_signature(s.action),
            param_oid(s.action), param_signature(s.compensation), param_oid(s.compensation),
            param_signature(s.verify), param_oid(s.verify), pg::param(s.search_path),
            pg::param(s.queue), s.timeout, pg::param(s.effect), pg::param(s.compensate_when),
            pg::param_datum(JSONBOID, policy.value(0)), pg::param(s.signal), s.delay,
            pg::param(s.child_saga), pg::param(s.fallback), param_oid(s.fallback_function),
            pg::param(s.topic), pg::param(s.compensation_topic), pg::param(s.compensation_queue),
            pg::param(s.fallback_compensation_topic), pg::param(s.on_failure));
    }
}

/// Under the lock on definitions, so that of two definitions that together make a circle the second
/// one sees the first.
void refuse_circles(std::string_view saga, std::span<const NewStep> steps) {
    for (const NewStep &s : steps)
        if (s.child_saga && leads_to.run(pg::param(*s.child_saga), pg::param(saga)).boolean(0))
            refuse_definition(s.name,
                              psprintf("saga \"%s\" would contain itself by way of \"%s\"",
                                       clip(saga), clip(*s.child_saga)),
                              "Start the other saga from a service, or leave the step out.");
}

/// SG403 unless the caller may replace a definition of this definer.
void require_definer(std::string_view saga, const Definer &definer, const Caller &caller) {
    if (may_replace(definer, caller))
        return;
    const char *objection = objection_to(definer);
    ereport(ERROR, (errcode(pg::sg403), errmsg("saga \"%s\" is another role's", clip(saga)),
                    objection == nullptr
                        ? errdetail("Role \"%s\" has defined it, and \"%s\" is not a member of it.",
                                    definer.name, caller.role.name)
                        : errdetail("Role \"%s\" has defined it: %s.", definer.name, objection),
                    errhint("Define it as its definer or as a member of it; a superuser may define "
                            "it as any role, by SET ROLE.")));
}

void require_definer_of_current(std::string_view saga, const Caller &caller) {
    const auto current = find_current.run(pg::param(saga));
    if (!current.empty())
        require_definer(saga, read_definer(current, 0), caller);
}

void refresh_functions(int32 definition_id, std::span<const NewStep> steps) {
    for (const NewStep &s : steps)
        refresh_step.run(pg::param(definition_id), pg::param(s.no), param_oid(s.action),
                         param_oid(s.compensation), param_oid(s.verify), pg::param(s.search_path),
                         param_oid(s.fallback_function));
    refresh_definitions();
}

struct DefinitionArguments {
    std::string_view saga;
    Datum steps;
    pg::Param deadline;
    pg::Param retry;
    pg::Param compensation_retry;
    std::string_view on_compensation_failure;
    std::string_view on_failure;
    std::optional<std::string_view> events_topic;
    pg::Param keep;
    Caller caller; // the current role is not the caller while this is worked on
};

/// Records that a version, new or known, becomes the current one.
void record_version(std::string_view saga, int32 version) {
    record_action({.action = "define",
                   .object = object_text("saga", saga),
                   .detail = psprintf("version %d", version)});
}

/// Makes the version that has this content already the current one, defined by the caller.
int32 define_again(const DefinitionArguments &a, const pg::RowsOf<KnownColumn> &known,
                   std::span<const NewStep> steps) {
    const pg::Param id = pg::param(known.int4(0, KnownColumn::definition_id));
    const Definer before = read_definer(known, 0);
    const Definer &definer = a.caller.role;
    if (!(before == definer)) {
        require_definer(a.saga, before, a.caller);
        set_definer.run(id, pg::param(std::string_view{definer.name}),
                        pg::param_datum(OIDOID, ObjectIdGetDatum(definer.oid)));
    }
    if (!known.boolean(0, KnownColumn::is_current)) {
        retire_current.run(pg::param(a.saga));
        make_current.run(id);
        record_version(a.saga, known.int4(0, KnownColumn::version));
    }
    refresh_functions(known.int4(0, KnownColumn::definition_id), steps);
    return known.int4(0, KnownColumn::version);
}

void require_coordinator() {
    if (has_own_oids())
        ereport(ERROR, (errcode(pg::sg409), errmsg("sagas are defined on the coordinator of Citus"),
                        errdetail("This node is a worker: it has a copy of the definitions."),
                        errhint("Call define_saga() on the coordinator. Sagas are started on any "
                                "node.")));
}

int32 define(const DefinitionArguments &a) {
    require_coordinator();
    std::span<NewStep> steps = read_new_steps(
        a.steps, {.policy = a.retry, .on_failure = a.on_failure, .definer = a.caller.role.oid});
    pg::Rows policy = effective_policy.run(a.compensation_retry, a.retry);
    pg::Param compensation_policy = pg::param_datum(JSONBOID, policy.value(0));
    check_policy(given_policy(read_policy.run(compensation_policy), 0), "");

    pg::Param saga = pg::param(a.saga);
    pg::Param steps_json = pg::param_datum(JSONBOID, a.steps);
    pg::Rows made = make_content.run(steps_json, a.deadline, a.retry, a.compensation_retry,
                                     pg::param(a.on_compensation_failure), pg::param(a.on_failure),
                                     pg::param(a.events_topic), a.keep);
    pg::Param content = pg::param(made.text(0));
    pg::Param definer_name = pg::param(std::string_view{a.caller.role.name});
    auto find = [&] {
        return find_content.run(saga, content, definer_name, pg::param(a.caller.is_superuser));
    };

    auto known = find();
    if (known.empty() || !known.boolean(0, KnownColumn::is_current)) {
        lock_definitions.run();
        require_definer_of_current(a.saga, a.caller);
        refuse_circles(a.saga, steps);
        known = find(); // another session may have been first
    }
    if (!known.empty())
        return define_again(a, known, steps);
    retire_current.run(saga);
    const auto inserted =
        insert_definition.run(saga, content, definer_name, a.deadline, compensation_policy,
                              pg::param(a.on_compensation_failure), pg::param_time(pg::clock_now()),
                              pg::param_datum(OIDOID, ObjectIdGetDatum(a.caller.role.oid)),
                              pg::param(a.on_failure), pg::param(a.events_topic), a.keep);
    int32 version = inserted.int4(0, InsertedColumn::version);
    insert_steps(inserted.int4(0, InsertedColumn::definition_id), steps, steps_json, a.retry);
    record_version(a.saga, version);
    return version;
}

pg::Param jsonb_or_null(const pg::Arguments &arguments, int i) {
    return pg::param_datum(JSONBOID, arguments.datum(i), arguments.is_null(i));
}

} // namespace

// define_saga_content(name text, steps jsonb, deadline interval, retry jsonb,
//                     compensation_retry jsonb, on_compensation_failure text, on_failure text,
//                     events_topic text, keep interval) -> integer
STACKSAGA_FUNCTION(define_saga_content) {
    pg::Arguments arguments(fcinfo);
    DefinitionArguments a{};
    a.saga = arguments.required_text(0, "name");
    check_name(a.saga, "name");
    arguments.require(1, "steps");
    a.steps = arguments.datum(1);
    a.deadline = pg::param_datum(INTERVALOID, arguments.datum(2), arguments.is_null(2));
    if (!arguments.is_null(2))
        pg::interval_length(arguments.datum(2), "deadline", true);
    a.retry = jsonb_or_null(arguments, 3);
    a.compensation_retry = jsonb_or_null(arguments, 4);
    if (!arguments.is_null(3))
        check_definition_text(arguments.datum(3), "retry");
    if (!arguments.is_null(4))
        check_definition_text(arguments.datum(4), "compensation_retry");
    a.on_compensation_failure = arguments.required_text(5, "on_compensation_failure");
    if (a.on_compensation_failure != "park" && a.on_compensation_failure != "continue")
        refuse_definition(
            "", "on_compensation_failure must be park or continue",
            "park stops at the compensation that failed; continue compensates the rest first.");
    a.on_failure = arguments.required_text(6, "on_failure");
    if (!core::on_failure_of(a.on_failure))
        refuse_definition("", psprintf("its on_failure \"%s\" is not known", clip(a.on_failure)),
                          on_failure_hint);
    a.events_topic = arguments.optional_text(7);
    if (a.events_topic)
        check_topic(*a.events_topic, "events_topic");
    a.keep = pg::param_datum(INTERVALOID, arguments.datum(8), arguments.is_null(8));
    if (!arguments.is_null(8))
        pg::signed_microseconds(arguments.datum(8), "keep");

    a.caller = current_caller();
    int32 version = pg::as_owner(
        [&] { return pg::with_spi([&] { return require_short_retries(a.saga, define(a)); }); });
    PG_RETURN_INT32(version);
}

} // namespace stacksaga
