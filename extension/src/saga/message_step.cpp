#include "src/saga/message_step.hpp"

#include "core/ring/token.hpp"
#include "core/saga/saga.hpp"
#include "core/saga/saga_engine.hpp"
#include "core/saga/saga_state.hpp"
#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/random.hpp"
#include "pg/statement/function.hpp"
#include "src/common/limits.hpp"
#include "src/outbox/outbox.hpp"
#include "src/saga/step_call.hpp"
#include "src/saga/step_results.hpp"

namespace stacksaga {

namespace {

using core::Direction;

// The lease is text: JavaScript's numbers do not hold it.
constinit pg::Statement make_command{
    "SELECT pg_catalog.jsonb_build_object('saga_id', $1::uuid, 'saga', $2::text, 'step', $3::text,"
    "         'direction', $4::text, 'attempt', $5::integer, 'input', $6::jsonb,"
    "         'results', $7::jsonb, 'idempotency_key', $8::text, 'deadline', $9::text,"
    "         'lease', $10::bigint::text, 'by_fallback', $11::boolean)"};

/// As jsonb writes a timestamptz where the time zone is UTC, whatever the session's time zone is.
std::string_view utc_text(TimestampTz time) {
    pg_tm tm{};
    fsec_t fraction;
    if (timestamp2tm(time, nullptr, &tm, &fraction, nullptr, nullptr) != 0)
        ereport(ERROR,
                (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE), errmsg("timestamp out of range")));
    tm.tm_isdst = 1; // the offset is known
    auto *text = static_cast<char *>(palloc(MAXDATELEN + 1));
    EncodeDateTime(&tm, fraction, true, 0, nullptr, USE_XSD_DATES, text);
    return text;
}

Datum command_of(Saga &saga, const Step &step, const Work &attempt) {
    std::string_view direction = core::name_of(attempt.direction);
    pg::Rows rows = make_command.run(
        pg::param(saga.id), pg::param(saga.definition->saga), pg::param(step.name),
        pg::param(direction), pg::param(attempt.attempt), pg::param_datum(JSONBOID, saga.input),
        pg::param_datum(JSONBOID, step_results(saga)),
        pg::param(std::string_view{
            idempotency_key_of(saga.id, step.no, attempt.direction, attempt.falling_back)}),
        pg::param(utc_text(core::attempt_deadline(saga, step, attempt.direction))),
        pg::param(*attempt.lease), pg::param(attempt.falling_back));
    return rows.value(0, 0);
}

} // namespace

std::string_view topic_of(const Step &step, Direction direction, bool falling_back) {
    if (direction == Direction::act)
        return falling_back ? step.fallback_queue : step.topic;
    return falling_back && !step.fallback_compensation_topic.empty()
               ? step.fallback_compensation_topic
               : step.compensation_topic;
}

void run_message_step(Saga &saga, const Step &step, const Work &work, std::string_view worker) {
    Work attempt = work;
    attempt.attempt = work.attempt + 1;
    attempt.lease = core::make_lease(attempt.attempt, attempt.direction, pg::random_bits());
    attempt.worker = worker;
    core::attempt_begins(saga);
    publish_message(saga.ring_id, {.topic = topic_of(step, attempt.direction, attempt.falling_back),
                                   .key = std::string_view{uuid_text(saga.id)},
                                   .type = step.name,
                                   .payload = command_of(saga, step, attempt),
                                   .headers = saga.headers,
                                   .message_id = command_id(uuid_text(saga.id),
                                                            psprintf(INT64_FORMAT, *attempt.lease)),
                                   .deliver_at = std::nullopt});
    CRASH_POINT("message step: published, does not wait");
    const TimestampTz until = core::time_plus(saga.now, step.timeout);
    core::claim_work(saga, attempt, until, until);
}

} // namespace stacksaga
