#include "src/saga/saga_change.hpp"

#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/counters.hpp"
#include "src/common/limits.hpp"
#include "src/saga/attribute_rows.hpp"
#include "src/saga/saga_tables.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement insert_parked{
    "INSERT INTO stacksaga.parked_saga VALUES ($1, $2::stacksaga.ring_token, $3)"
    " ON CONFLICT (saga_id, token) DO UPDATE SET since = excluded.since"};
constinit pg::Statement delete_parked{
    "DELETE FROM stacksaga.parked_saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

void require_allowed(const SagaChange &c) {
    if (core::may_change(c.from, c.from_direction, c.to, c.to_direction, c.is_child))
        return;
    ereport(ERROR, (errcode(pg::sg409),
                    errmsg("saga %s may not change from %s to %s", uuid_text(c.id),
                           core::name_of(c.from).data(), core::name_of(c.to).data()),
                    errdetail("Its direction is %s and would be %s.",
                              core::name_of(c.from_direction).data(),
                              core::name_of(c.to_direction).data()),
                    errhint("saga_transitions() lists the changes that are allowed.")));
}

void count(const SagaChange &c) {
    if (c.from_direction != c.to_direction)
        count_event(Counter::sagas_compensated);
    if (c.from == c.to)
        return;
    count_saga(c.from, -1);
    count_saga(c.to, 1);
    if (c.to == core::Status::completed)
        count_event(Counter::sagas_completed);
    else if (c.to == core::Status::failed)
        count_event(Counter::sagas_failed);
    else if (c.to == core::Status::parked)
        count_event(Counter::sagas_parked);
}

/// Adds the saga to the list of parked sagas, or removes it.
void note_parked(const pg_uuid_t &saga_id, int64 saga_token, bool is_parked) {
    const pg::Param id = pg::param(saga_id);
    const pg::Param token = pg::param(saga_token);
    pg::as_owner([&] {
        pg::with_spi([&] {
            if (is_parked)
                insert_parked.touch(id, token, pg::param_time(pg::clock_now()));
            else
                delete_parked.touch(id, token);
        });
    });
}

core::Status status_in(const pg::TableRow &row) {
    return *core::status_of(row.text(SagaColumn::status));
}

core::Direction direction_in(const pg::TableRow &row) {
    return *core::direction_of(row.text(SagaColumn::direction));
}

} // namespace

void apply_change(const SagaChange &change) {
    require_allowed(change);
    if ((change.from == core::Status::parked) != (change.to == core::Status::parked))
        note_parked(change.id, change.token, change.to == core::Status::parked);
    if (change.has_attributes && change.from != change.to)
        change_attribute_rows(change.id, change.to);
    count(change);
}

void apply_row_change(const pg::TableRow &before, const pg::TableRow &after) {
    apply_change({.id = before.uuid(SagaColumn::saga_id),
                  .token = before.int8(SagaColumn::token),
                  .is_child = !before.is_null(SagaColumn::parent_id),
                  .has_attributes = !before.is_null(SagaColumn::attributes),
                  .from = status_in(before),
                  .from_direction = direction_in(before),
                  .to = status_in(after),
                  .to_direction = direction_in(after)});
}

} // namespace stacksaga
