// signal_saga: delivers a signal that a signal step waits for.
#include "core/saga/definition.hpp"
#include "core/saga/saga.hpp"
#include "core/saga/saga_engine.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/step_kind.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/saga/store.hpp"

namespace stacksaga {

namespace {

constexpr int message_id_bytes_max = 255;

constinit pg::Statement find_message{
    "SELECT step_no IS NOT NULL FROM stacksaga.saga_signal"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND message_id = $3"};
// Runs under the saga's lock, so numbers are given one at a time.
constinit pg::Statement insert_signal{
    "INSERT INTO stacksaga.saga_signal (saga_id, token, signal_no, signal, message_id, payload,"
    "       arrived_at)"
    " SELECT $1, $2::stacksaga.ring_token, coalesce(max(s.signal_no), 0) + 1, $3, $4, $5, $6"
    "   FROM stacksaga.saga_signal s"
    "  WHERE s.saga_id = $1 AND s.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

struct Signal {
    pg_uuid_t saga_id;
    std::string_view name;
    Datum payload;
    std::optional<std::string_view> message_id;
};

bool is_waited_for(const core::Definition &d, std::string_view signal) {
    return std::any_of(d.steps.begin(), d.steps.end(), [&](const Step &s) {
        return s.waits_for() == core::StepWait::signal && s.signal == signal;
    });
}

/// Whether the signal was accepted before, taken by a step or not. SG409 when no step will ever
/// take it.
bool was_accepted(const Saga &saga, const Signal &signal) {
    if (!signal.message_id)
        return false;
    const pg::Rows rows =
        find_message.run(pg::param(saga.id), pg::param(saga.token), pg::param(*signal.message_id));
    if (!rows.empty() && !rows.boolean(0) && core::is_final(saga.status()))
        ereport(ERROR, (errcode(pg::sg409),
                        errmsg("saga %s ended before a step took signal \"%s\"", uuid_text(saga.id),
                               clip(signal.name)),
                        errdetail("Message \"%s\" was accepted, and the saga is %s.",
                                  clip(*signal.message_id), core::name_of(saga.status()).data()),
                        errhint("No step read this signal. Handle it outside of the saga.")));
    return !rows.empty();
}

/// False when the message was accepted before.
bool accept(const Signal &signal) {
    Saga &saga = require_saga_to_signal(signal.saga_id, pg::clock_now());
    if (was_accepted(saga, signal))
        return false;
    if (!is_waited_for(*saga.definition, signal.name))
        ereport(ERROR, (errcode(pg::sg404),
                        errmsg("saga %s has no step that waits for signal \"%s\"",
                               uuid_text(saga.id), clip(signal.name)),
                        errdetail("It runs version %d of \"%s\".", saga.definition->version,
                                  clip(saga.definition->saga)),
                        errhint("Send the signal that a signal_step() of its definition names.")));
    if (core::is_final(saga.status()) || !saga.acts())
        ereport(ERROR, (errcode(pg::sg409),
                        errmsg("saga %s takes no signals any more", uuid_text(saga.id)),
                        errdetail("It is %s.", core::name_of(saga.status()).data()),
                        errhint("saga_timeline() shows how it ended.")));
    if (!core::awaits_signal(saga, signal.name))
        ereport(ERROR, (errcode(pg::sg409),
                        errmsg("saga %s has no step left for signal \"%s\"", uuid_text(saga.id),
                               clip(signal.name)),
                        errdetail("Every step that waits for it is done or has a signal already."),
                        errhint("Give a signal that is sent again its message_id.")));
    insert_signal.run(pg::param(saga.id), pg::param(saga.token), pg::param(signal.name),
                      pg::param(signal.message_id), pg::param_datum(JSONBOID, signal.payload),
                      pg::param_time(saga.now));
    saga.has_signals_loaded = false; // there is one more
    CRASH_POINT("signal: written, not taken");
    core::take_signals(saga);
    write_saga(saga);
    return true;
}

} // namespace

// signal_saga(saga_id, signal, payload, message_id) -> boolean
STACKSAGA_FUNCTION(signal_saga) {
    pg::Arguments arguments(fcinfo);
    Signal signal{};
    signal.saga_id = arguments.required_uuid(0, "saga_id");
    signal.name = arguments.required_text(1, "signal");
    check_name(signal.name, "signal");
    arguments.require(2, "payload");
    signal.payload = arguments.datum(2);
    check_payload(signal.payload, "payload");
    signal.message_id = arguments.optional_text(3);
    if (signal.message_id)
        check_length(*signal.message_id, "message_id", message_id_bytes_max);
    PG_RETURN_BOOL(pg::with_spi([&] { return accept(signal); }));
}

} // namespace stacksaga
