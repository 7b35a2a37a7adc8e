// accept_message: whether a consumer sees a message for the first time. The record commits with the
// consumer's effects.
#include "core/ring/token.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/statement/attempt.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/dedupe.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement insert_message{
    "INSERT INTO stacksaga.accepted_message (token, consumer, message_id, expires_at, created_at)"
    " VALUES ($1::stacksaga.ring_token, $2, $3, $4, $5)"
    " ON CONFLICT (token, consumer, message_id) DO NOTHING"};
constinit pg::Statement select_message{"SELECT expires_at FROM stacksaga.accepted_message"
                                       " WHERE token OPERATOR(stacksaga.=) $1::stacksaga.ring_token"
                                       "   AND consumer = $2 AND message_id = $3"};
constinit pg::Statement renew_message{
    "UPDATE stacksaga.accepted_message SET expires_at = $4, created_at = $6"
    " WHERE token OPERATOR(stacksaga.=) $1::stacksaga.ring_token"
    "   AND consumer = $2 AND message_id = $3 AND expires_at = $5"};

struct Message {
    pg::Param token, consumer, id;
    TimestampTz now;
    TimestampTz expires_at;
};

/// Inserts the record; false when there is one, after waiting for a transaction that inserts it.
bool insert(const Message &m) {
    bool inserted = false;
    auto statement = [&] {
        inserted = insert_message.touch(m.token, m.consumer, m.id, pg::param_time(m.expires_at),
                                        pg::param_time(m.now)) == 1;
    };
    if (!IsolationUsesXactSnapshot())
        statement();
    else if (!pg::attempt_write(statement)) // the transaction that it waited for is newer
        return false;
    CRASH_POINT("accepted message: written");
    return inserted;
}

bool accept(const Message &m) {
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        if (insert(m))
            return true;
        pg::Rows rows = select_message.run(m.token, m.consumer, m.id);
        if (rows.empty())
            continue; // the sweep has removed it
        TimestampTz expires_at = rows.time(0);
        if (expires_at > m.now)
            return false;
        if (renew_message.touch(m.token, m.consumer, m.id, pg::param_time(m.expires_at),
                                pg::param_time(expires_at), pg::param_time(m.now)) == 1)
            return true;
    }
}

} // namespace

// accept_message(consumer, message_id, retention) -> boolean
STACKSAGA_FUNCTION(accept_message) {
    pg::Arguments arguments(fcinfo);
    std::string_view consumer = scope_argument(arguments, 0, "consumer");
    std::string_view id = key_argument(arguments, 1, "message_id");
    Message m{};
    int64 retention_us = retention_argument(arguments, 2);
    require_writable("accept_message()");
    m.token = pg::param(token_of_scoped_key(consumer, id).value());
    m.consumer = pg::param(consumer);
    m.id = pg::param(id);
    m.now = pg::clock_now();
    m.expires_at = pg::time_plus(m.now, retention_us);
    PG_RETURN_BOOL(pg::with_spi([&] { return accept(m); }));
}

} // namespace stacksaga
