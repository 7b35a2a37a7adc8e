// sql_step, queue_step and their like: each makes a stacksaga.step_definition of its arguments.
//
// They run with the caller's search_path where they look up names of functions in it.
#include "core/saga/step_kind.hpp"

#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "src/common/limits.hpp"
#include "src/definition/stored_definition.hpp"
#include "src/handler/handler.hpp"

namespace stacksaga {

namespace {

/// The columns that not every kind of step has; those left out are null.
struct OwnColumns {
    pg::Param action = pg::param_null(TEXTOID);
    pg::Param compensation = pg::param_null(TEXTOID);
    pg::Param queue = pg::param_null(TEXTOID);
    pg::Param compensable = pg::param_null(BOOLOID);
    pg::Param signal = pg::param_null(TEXTOID);
    pg::Param delay = pg::param_null(INTERVALOID);
    pg::Param saga = pg::param_null(TEXTOID);
    pg::Param topic = pg::param_null(TEXTOID);
    pg::Param compensation_topic = pg::param_null(TEXTOID);
    pg::Param compensation_queue = pg::param_null(TEXTOID);
    pg::Param fallback_compensation_topic = pg::param_null(TEXTOID);
};

pg::Param argument(FunctionCallInfo fcinfo, int i) {
    return {InvalidOid, fcinfo->args[i].value, fcinfo->args[i].isnull};
}

/// A function's name, looked up in the caller's search_path.
pg::Param function_argument(FunctionCallInfo fcinfo, int i) {
    if (fcinfo->args[i].isnull)
        return pg::param_null(TEXTOID);
    return pg::param(
        std::string_view{qualified_signature(pg::view_of_text(fcinfo->args[i].value))});
}

void refuse_condition(Datum skip_unless) {
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("argument \"skip_unless\" is not supported yet"),
                    errdetail("The value is \"%s\".", clip(pg::view_of_text(skip_unless))),
                    errhint("Leave it out, and have the step itself do nothing where the "
                            "condition does not hold.")));
}

/// A step whose name is argument 0 and whose common arguments begin at `common`: stage, timeout,
/// retry, effect, compensate_when, verify, fallback. The last two of all are on_failure and
/// skip_unless.
Datum make_step(FunctionCallInfo fcinfo, StepKind kind, const OwnColumns &own, int common) {
    const int skip_unless = fcinfo->nargs - 1;
    if (!fcinfo->args[skip_unless].isnull)
        refuse_condition(fcinfo->args[skip_unless].value);
    TupleDesc descriptor;
    if (get_call_result_type(fcinfo, nullptr, &descriptor) != TYPEFUNC_COMPOSITE)
        elog(ERROR, "return type must be a row type");
    const std::array columns{
        argument(fcinfo, 0),
        pg::param(core::traits_of(kind).name),
        own.action,
        own.compensation,
        own.queue,
        own.compensable,
        own.signal,
        own.delay,
        own.saga,
        own.topic,
        own.compensation_topic,
        argument(fcinfo, common),
        argument(fcinfo, common + 1),
        argument(fcinfo, common + 2),
        argument(fcinfo, common + 3),
        argument(fcinfo, common + 4),
        function_argument(fcinfo, common + 5),
        core::traits_of(kind).fallback == core::FallbackKind::function
            ? function_argument(fcinfo, common + 6)
            : argument(fcinfo, common + 6),
        pg::param(std::string_view{namespace_search_path}),
        own.compensation_queue,
        own.fallback_compensation_topic,
        argument(fcinfo, skip_unless - 1),
    };
    Datum values[columns.size()];
    bool nulls[columns.size()];
    for (size_t i = 0; i < columns.size(); ++i) {
        values[i] = columns[i].value;
        nulls[i] = columns[i].isnull;
    }
    return HeapTupleGetDatum(heap_form_tuple(descriptor, values, nulls));
}

} // namespace

// sql_step(name, action, compensation, ...common) -> step_definition
STACKSAGA_FUNCTION(sql_step) {
    OwnColumns own;
    own.action = function_argument(fcinfo, 1);
    own.compensation = function_argument(fcinfo, 2);
    return make_step(fcinfo, StepKind::sql, own, 3);
}

// queue_step(name, queue, compensable, ...common, compensation_queue) -> step_definition
STACKSAGA_FUNCTION(queue_step) {
    OwnColumns own;
    own.queue = argument(fcinfo, 1);
    own.compensable = argument(fcinfo, 2);
    own.compensation_queue = argument(fcinfo, 10);
    return make_step(fcinfo, StepKind::queue, own, 3);
}

// signal_step(name, signal, ...common) -> step_definition
STACKSAGA_FUNCTION(signal_step) {
    OwnColumns own;
    own.signal = argument(fcinfo, 1);
    return make_step(fcinfo, StepKind::signal, own, 2);
}

// timer_step(name, delay, ...common) -> step_definition
STACKSAGA_FUNCTION(timer_step) {
    OwnColumns own;
    own.delay = argument(fcinfo, 1);
    return make_step(fcinfo, StepKind::timer, own, 2);
}

// child_step(name, saga, ...common) -> step_definition
STACKSAGA_FUNCTION(child_step) {
    OwnColumns own;
    own.saga = argument(fcinfo, 1);
    return make_step(fcinfo, StepKind::child, own, 2);
}

// message_step(name, topic, compensation_topic, ...common, fallback_compensation_topic)
//     -> step_definition
STACKSAGA_FUNCTION(message_step) {
    OwnColumns own;
    own.topic = argument(fcinfo, 1);
    own.compensation_topic = argument(fcinfo, 2);
    own.fallback_compensation_topic = argument(fcinfo, 10);
    return make_step(fcinfo, StepKind::message, own, 3);
}

} // namespace stacksaga
