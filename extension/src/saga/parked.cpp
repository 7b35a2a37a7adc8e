#include "src/saga/parked.hpp"

#include "pg/clock.hpp"
#include "pg/query.hpp"
#include "pg/scope.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement insert_parked{
    "INSERT INTO stacksaga.parked_saga VALUES ($1, $2::stacksaga.ring_token, $3)"
    " ON CONFLICT (saga_id, token) DO UPDATE SET since = excluded.since"};
constinit pg::Statement delete_parked{
    "DELETE FROM stacksaga.parked_saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

} // namespace

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

} // namespace stacksaga
