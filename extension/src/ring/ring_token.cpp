// The comparisons of the type ring_token.
//
// They do what those of bigint do, but are functions of this module: PostgreSQL finds a function of
// LANGUAGE internal that is not one of its own by its name, one after the other, each time that a
// statement begins, which took longer than all else that a statement on a few rows does.
#include "pg/statement/function.hpp"

namespace stacksaga {

namespace {

int64 left(FunctionCallInfo fcinfo) {
    return PG_GETARG_INT64(0);
}

int64 right(FunctionCallInfo fcinfo) {
    return PG_GETARG_INT64(1);
}

} // namespace

STACKSAGA_FUNCTION(ring_token_eq) {
    PG_RETURN_BOOL(left(fcinfo) == right(fcinfo));
}

STACKSAGA_FUNCTION(ring_token_ne) {
    PG_RETURN_BOOL(left(fcinfo) != right(fcinfo));
}

STACKSAGA_FUNCTION(ring_token_lt) {
    PG_RETURN_BOOL(left(fcinfo) < right(fcinfo));
}

STACKSAGA_FUNCTION(ring_token_le) {
    PG_RETURN_BOOL(left(fcinfo) <= right(fcinfo));
}

STACKSAGA_FUNCTION(ring_token_gt) {
    PG_RETURN_BOOL(left(fcinfo) > right(fcinfo));
}

STACKSAGA_FUNCTION(ring_token_ge) {
    PG_RETURN_BOOL(left(fcinfo) >= right(fcinfo));
}

STACKSAGA_FUNCTION(ring_token_cmp) {
    PG_RETURN_INT32((left(fcinfo) > right(fcinfo)) - (left(fcinfo) < right(fcinfo)));
}

STACKSAGA_FUNCTION(ring_token_of_integer) {
    PG_RETURN_INT64(PG_GETARG_INT32(0));
}

STACKSAGA_FUNCTION(ring_token_smaller) {
    PG_RETURN_INT64(std::min(left(fcinfo), right(fcinfo)));
}

STACKSAGA_FUNCTION(ring_token_larger) {
    PG_RETURN_INT64(std::max(left(fcinfo), right(fcinfo)));
}

} // namespace stacksaga
