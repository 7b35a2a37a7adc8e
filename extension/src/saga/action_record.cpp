#include "src/saga/action_record.hpp"

#include "core/saga/saga_state.hpp"

#include "pg/statement/query.hpp"
#include "src/common/operator_action.hpp"

namespace stacksaga {

namespace {

// Runs under the saga's lock, so numbers are given one at a time.
constinit pg::Statement insert_action{
    "INSERT INTO stacksaga.saga_action (saga_id, token, action_no, action, step_no, outcome, role,"
    "       acted_at, status_before, status_after, reason, on_behalf_of, handler)"
    " SELECT $1, $2::stacksaga.ring_token, coalesce(max(a.action_no), 0) + 1, $3, $4, $5,"
    "        $6::name, $7, $8, $9, $10, $11, $12"
    "   FROM stacksaga.saga_action a"
    "  WHERE a.saga_id = $1 AND a.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

} // namespace

void write_action(const Saga &saga, const ActionRecord &r) {
    insert_action.run(pg::param(saga.id), pg::param(saga.token), pg::param(r.action),
                      r.step_no ? pg::param(*r.step_no) : pg::param_null(INT2OID),
                      pg::param(r.outcome), pg::param(acting_role()), pg::param_time(saga.now),
                      pg::param(core::name_of(r.status_before)),
                      pg::param(core::name_of(saga.status())), pg::param(r.reason), on_behalf_of(),
                      handler_that_acts());
}

} // namespace stacksaga
