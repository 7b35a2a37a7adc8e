// accept_sequence: messages of one producer, numbered from 1 without gaps within an epoch.
#include "core/ring/token.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/dedupe.hpp"
#include "src/dedupe/key_lock.hpp"
#include "src/ring/token_functions.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement advance_producer{
    "UPDATE stacksaga.producer_sequence SET sequence = $4, updated_at = $5"
    " WHERE token OPERATOR(stacksaga.=) $1::stacksaga.ring_token AND producer = $2"
    "   AND epoch = $3 AND sequence = $4 - 1"};
enum class ProducerColumn : uint8_t { epoch, sequence };
constinit pg::Select<ProducerColumn> select_producer{
    "SELECT epoch, sequence FROM stacksaga.producer_sequence"
    " WHERE token OPERATOR(stacksaga.=) $1::stacksaga.ring_token AND producer = $2"};
constinit pg::Statement insert_producer{
    "INSERT INTO stacksaga.producer_sequence (token, producer, epoch, sequence, updated_at,"
    "       created_at)"
    " VALUES ($1::stacksaga.ring_token, $2, $3, 1, $4, $4)"
    " ON CONFLICT (token, producer) DO NOTHING"};
constinit pg::Statement reset_producer{
    "UPDATE stacksaga.producer_sequence SET epoch = $3, sequence = 1, updated_at = $4"
    " WHERE token OPERATOR(stacksaga.=) $1::stacksaga.ring_token AND producer = $2"
    "   AND epoch < $3"};

struct Numbered {
    std::string_view producer;
    core::Token token;
    int64 epoch;
    int64 sequence;
};

struct Position {
    int64 epoch;
    int64 sequence;
};

const char *position_text(const std::optional<Position> &position) {
    if (!position)
        return "nothing of this producer has been accepted";
    return psprintf("it is at epoch " INT64_FORMAT ", sequence " INT64_FORMAT, position->epoch,
                    position->sequence);
}

[[noreturn]] void raise_fenced(const Numbered &n, const Position &position) {
    ereport(ERROR, (errcode(pg::sg412), errmsg("producer \"%s\" is fenced", clip(n.producer)),
                    errdetail("The epoch given is " INT64_FORMAT "; %s.", n.epoch,
                              position_text(position)),
                    errhint("Stop: a newer instance of this producer has taken over.")));
}

[[noreturn]] void raise_gap(const Numbered &n, const std::optional<Position> &position) {
    const bool continues = position && position->epoch == n.epoch;
    ereport(ERROR,
            (errcode(pg::sr425), errmsg("sequence of producer \"%s\" has a gap", clip(n.producer)),
             errdetail("Epoch " INT64_FORMAT ", sequence " INT64_FORMAT " was given; %s.", n.epoch,
                       n.sequence, position_text(position)),
             errhint("Send sequence " INT64_FORMAT " of epoch " INT64_FORMAT " first.",
                     continues ? position->sequence + 1 : int64{1}, n.epoch)));
}

/// A constant text: outlives SPI. Null: another node has written the row since it was read, where
/// Citus has distributed the table, so that the lock of this node is not the only one.
const char *try_accept(const Numbered &n) {
    pg::Param token = pg::param(n.token.value()), producer = pg::param(n.producer),
              epoch = pg::param(n.epoch), now = pg::param_time(pg::clock_now());
    CRASH_POINT("sequence: locked");
    if (advance_producer.touch(token, producer, epoch, pg::param(n.sequence), now) == 1)
        return "accepted";
    const auto rows = select_producer.run(token, producer);
    std::optional<Position> position;
    if (!rows.empty())
        position =
            Position{rows.int8(0, ProducerColumn::epoch), rows.int8(0, ProducerColumn::sequence)};
    if (position && n.epoch < position->epoch)
        raise_fenced(n, *position);
    if (position && n.epoch == position->epoch && n.sequence <= position->sequence)
        return "duplicate";
    if (n.sequence != 1 || (position && n.epoch == position->epoch))
        raise_gap(n, position);
    const uint64 written = position ? reset_producer.touch(token, producer, epoch, now)
                                    : insert_producer.touch(token, producer, epoch, now);
    return written == 1 ? "accepted" : nullptr;
}

const char *accept(const Numbered &n) {
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        if (const char *answer = try_accept(n))
            return answer;
    }
}

int64 number_argument(const pg::Arguments &arguments, int i, const char *name, int64 least) {
    int64 value = arguments.required_int8(i, name);
    if (value < least)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"%s\" is out of range", name),
                        errdetail("The value is " INT64_FORMAT ".", value),
                        errhint("Use " INT64_FORMAT " or more.", least)));
    return value;
}

} // namespace

// accept_sequence(producer, epoch, sequence) -> text
STACKSAGA_FUNCTION(accept_sequence) {
    pg::Arguments arguments(fcinfo);
    std::string_view producer = key_argument(arguments, 0, "producer");
    Numbered n{producer, token_of_text(producer), number_argument(arguments, 1, "epoch", 0),
               number_argument(arguments, 2, "sequence", 1)};
    require_writable("accept_sequence()");
    PG_RETURN_TEXT_P(cstring_to_text(with_key([&] {
        lock_key(pg::LockClass::producer, n.token);
        return accept(n);
    })));
}

} // namespace stacksaga
