#include "src/outbox/delivery/delivery_row.hpp"

#include "core/outbox/message_state.hpp"
#include "core/ring/token.hpp"

#include "pg/crash_point.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/select.hpp"

namespace stacksaga {

namespace {

using State = core::MessageState;
using Event = core::MessageEvent;

#define OF_MESSAGE                                                                                 \
    " WHERE subscription_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"         \
    "   AND tick = $3 AND number = $4"
#define MESSAGE_COLUMNS                                                                                \
    "token::bigint, number, tick, partition, attempt, message_id, published_at, topic, key, type,"     \
    " payload, headers, state, crashes, failed_since IS NOT NULL AS has_failed, last_error, in_doubt," \
    " postponed"
enum class MessageColumn : uint8_t {
    token,
    number,
    tick,
    partition,
    attempt,
    message_id,
    published_at,
    topic,
    key,
    type,
    payload,
    headers,
    state,
    crashes,
    has_failed,
    last_error,
    in_doubt,
    postponed,
};
constinit pg::Select<MessageColumn> select_due{
    "SELECT " MESSAGE_COLUMNS " FROM stacksaga.message_retry"
    " WHERE subscription_id = $1 AND partition = $2 AND due_at <= $3"
    "   AND state = ANY ($5)"
    " ORDER BY due_at, tick, number LIMIT $4"};
constinit pg::Select<MessageColumn> select_one{"SELECT " MESSAGE_COLUMNS
                                               " FROM stacksaga.message_retry" OF_MESSAGE};
constinit pg::Select<MessageColumn> select_given{
    "SELECT " MESSAGE_COLUMNS " FROM stacksaga.message_retry"
    " WHERE subscription_id + 0 = $1 AND partition + 0 = $2 AND batch_id = $3" // by the batch alone
    "   AND state = ANY ($4)"
    " ORDER BY tick, number"};
// The failure as operators may read it, as a list of one: $6 is the attempt. Of a list only the
// last ten are kept.
#define DETAILS(DETAIL, CONTEXT)                                                                   \
    "CASE WHEN " DETAIL " IS NOT NULL OR " CONTEXT " IS NOT NULL THEN"                             \
    "     pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object("                             \
    "         'attempt', $6, 'detail', " DETAIL ", 'context', " CONTEXT ")) END"
#define LAST_TEN(LIST)                                                                             \
    "CASE WHEN pg_catalog.jsonb_array_length(" LIST ") >= 10 THEN " LIST " - 0"                    \
    "     ELSE coalesce(" LIST ", '[]') END"
// failed_since stays the time of the first failure, and a message that fails leaves its batch.
constinit pg::Statement insert_retry{
    "INSERT INTO stacksaga.message_retry (subscription_id, token, number, tick, partition, attempt,"
    "       crashes, state, due_at, failed_since, published_at, failed_in, message_id, topic, key,"
    "       type, payload, headers, last_error, in_doubt, postponed, error_details)"
    " VALUES ($1, $2::stacksaga.ring_token, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,"
    "         $15, $16, $17, $18, $19, $20, $23, " DETAILS(
        "$21",
        "$22") ")"
               " ON CONFLICT (subscription_id, token, tick, number) DO UPDATE"
               "   SET attempt = excluded.attempt, crashes = excluded.crashes, state = excluded.state,"
               "       due_at = excluded.due_at,"
               "       failed_since = coalesce(message_retry.failed_since, excluded.failed_since),"
               "       batch_id = NULL, failed_in = excluded.failed_in, last_error = excluded.last_error,"
               "       in_doubt = message_retry.in_doubt OR excluded.in_doubt,"
               "       postponed = excluded.postponed,"
               "       error_details = CASE WHEN excluded.error_details IS NULL"
               "                            THEN message_retry.error_details"
               "                            ELSE (" LAST_TEN(
                   "message_retry.error_details") ")"
                                                  "                                 || excluded.error_details END"};
constinit pg::Statement insert_dead{
    "INSERT INTO stacksaga.dead_message (subscription_id, token, number, tick, partition, attempts,"
    "       since, dead_since, published_at, failed_in, message_id, topic, key, type, payload,"
    "       headers, last_error, in_doubt, error_details)"
    " SELECT $1, $2::stacksaga.ring_token, $3, $4, $5, $6,"
    "        coalesce((SELECT r.failed_since FROM stacksaga.message_retry AS r"
    "                   WHERE r.subscription_id = $1 AND r.tick = $4 AND r.number = $3"
    "                     AND r.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token), $7),"
    "        $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,"
    "        CASE WHEN n.details IS NULL THEN o.details"
    "             ELSE (" LAST_TEN(
        "o.details") ") || n.details END"
                     "   FROM (SELECT " DETAILS(
                         "$18",
                         "$19") ") AS n(details)"
                                "   LEFT JOIN (SELECT r.error_details FROM stacksaga.message_retry AS r"
                                "               WHERE r.subscription_id = $1 AND r.tick = $4 AND r.number = $3"
                                "                 AND r.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token) AS o(details) ON true"
                                " ON CONFLICT DO NOTHING"};
constinit pg::Statement delete_row{"DELETE FROM stacksaga.message_retry" OF_MESSAGE};
// Those that were in the batch: one that failed or whose process crashed before is delivered alone.
constinit pg::Statement count_crashes{
    "UPDATE stacksaga.message_retry"
    "   SET state = $5, crashes = crashes + 1, batch_id = NULL, last_error = $6"
    " WHERE subscription_id = $1 AND partition = $2 AND due_at <= $3 AND state = $4"
    "   AND failed_since IS NULL AND crashes = 0"};
// Due since they were published: those of a key in their order, and before a delayed one behind
// them.
constinit pg::Statement release_all{
    "UPDATE stacksaga.message_retry SET state = $3, due_at = published_at"
    " WHERE subscription_id = $1 AND state = $2"};
// Those behind the first message that blocks their key.
constinit pg::Statement hold_all{
    "WITH blocking AS ("
    "  SELECT token::bigint AS token, tick, number FROM stacksaga.message_retry"
    "   WHERE subscription_id = $1 AND key IS NOT NULL AND state <> 'delayed'"
    "   UNION ALL"
    "  SELECT token::bigint, tick, number FROM stacksaga.dead_message"
    "   WHERE subscription_id = $1 AND key IS NOT NULL AND discarded_at IS NULL),"
    " first AS ("
    "  SELECT DISTINCT ON (token) token, tick, number FROM blocking ORDER BY token, tick, number)"
    " UPDATE stacksaga.message_retry AS r SET state = $3, due_at = 'infinity', batch_id = NULL"
    "   FROM first AS f"
    "  WHERE r.subscription_id = $1 AND r.token::bigint = f.token AND r.key IS NOT NULL"
    "    AND (r.tick, r.number) > (f.tick, f.number) AND r.state = $2"};
constinit pg::Statement give_to_consumer{
    "UPDATE stacksaga.message_retry SET state = $5, batch_id = $6" OF_MESSAGE};
constinit pg::Statement give_back{
    "UPDATE stacksaga.message_retry SET state = $5, batch_id = NULL"
    " WHERE subscription_id + 0 = $1 AND partition + 0 = $2 AND batch_id = $3" // by the batch alone
    "   AND state = $4"};

pg::Param text_param(Datum value) {
    return pg::param_datum(TEXTOID, value, value == 0);
}
pg::Param jsonb_param(Datum value) {
    return pg::param_datum(JSONBOID, value, value == 0);
}
pg::Param batch_param(int64 batch_id) {
    return batch_id == 0 ? pg::param_null(INT8OID) : pg::param(batch_id);
}
pg::Param state_param(State state) {
    return pg::param(core::name_of(state));
}

/// The names of the states that `is_wanted`, as an array.
template <class F> pg::Param states_param(F &&is_wanted) {
    std::array<std::string_view, core::message_state_names.size()> names{};
    size_t count = 0;
    for (size_t i = 0; i < names.size(); ++i)
        if (is_wanted(static_cast<State>(i)))
            names[count++] = core::message_state_names[i];
    return pg::param_array(std::span<const std::string_view>{names.data(), count});
}

Message message_of_row(const pg::RowsOf<MessageColumn> &rows, uint64 row) {
    using Column = MessageColumn;
    auto or_zero = [&](Column column) {
        const NullableDatum value = rows.nullable(row, column);
        return value.isnull ? Datum{0} : value.value;
    };
    Message m{};
    m.token = core::Token::from_int64(rows.int8(row, Column::token));
    m.number = rows.int8(row, Column::number);
    m.tick = rows.int8(row, Column::tick);
    m.partition = rows.int2(row, Column::partition);
    m.attempt = rows.int4(row, Column::attempt) + 1;
    m.id = rows.uuid(row, Column::message_id);
    m.published_at = rows.time(row, Column::published_at);
    m.topic = rows.value(row, Column::topic);
    m.key = or_zero(Column::key);
    m.type = or_zero(Column::type);
    m.payload = or_zero(Column::payload);
    m.headers = rows.value(row, Column::headers);
    m.state = retry_state_of(rows.text(row, Column::state));
    m.crashes = rows.int4(row, Column::crashes);
    m.has_failed = rows.boolean(row, Column::has_failed);
    m.last_error = or_zero(Column::last_error);
    m.in_doubt = rows.boolean(row, Column::in_doubt);
    m.postponed = rows.int4(row, Column::postponed);
    return m;
}

} // namespace

core::MessageState retry_state_of(std::string_view name) {
    const std::optional<core::MessageState> state = core::message_state_of(name);
    if (!state)
        elog(ERROR, "unexpected state \"%.*s\" of a message", static_cast<int>(name.size()),
             name.data());
    return *state;
}

core::MessageState next_state(core::MessageState from, core::MessageEvent event) {
    const core::MessageTransition *transition = core::find_transition(from, event);
    if (transition == nullptr)
        elog(ERROR, "event %s is not possible for a message that is %s",
             core::name_of(event).data(), core::name_of(from).data());
    return transition->to;
}

std::span<Message> due_rows(const Subscription &s, int16 partition, int32 limit, TimestampTz now,
                            bool (*is_wanted)(State)) {
    const auto rows = select_due.run(pg::param(s.id), pg::param(partition), pg::param_time(now),
                                     pg::param(limit), states_param(is_wanted));
    auto *messages = static_cast<Message *>(palloc(sizeof(Message) * (rows.count() + 1)));
    for (uint64 row = 0; row < rows.count(); ++row)
        messages[row] = message_of_row(rows, row);
    std::sort(messages, messages + rows.count(), by_place);
    return {messages, static_cast<size_t>(rows.count())};
}

std::optional<Message> find_retry(const Subscription &s, core::Token token, int64 tick,
                                  int64 number) {
    const auto rows = select_one.run(pg::param(s.id), pg::param(token.value()), pg::param(tick),
                                     pg::param(number));
    if (rows.empty())
        return std::nullopt;
    return message_of_row(rows, 0);
}

std::span<Message> messages_given(const Subscription &s, int16 partition, int64 batch_id,
                                  bool with_held) {
    const auto is_wanted = [&](State state) {
        return state == State::leased || (with_held && state == State::held);
    };
    const auto rows = select_given.run(pg::param(s.id), pg::param(partition), pg::param(batch_id),
                                       states_param(is_wanted));
    auto *messages = static_cast<Message *>(palloc(sizeof(Message) * (rows.count() + 1)));
    for (uint64 row = 0; row < rows.count(); ++row)
        messages[row] = message_of_row(rows, row);
    return {messages, static_cast<size_t>(rows.count())};
}

void write_retry(const Subscription &s, const Message &m, const RetryRow &row) {
    insert_retry.run(
        pg::param(s.id), pg::param(m.token.value()), pg::param(m.number), pg::param(m.tick),
        pg::param(m.partition), pg::param(row.attempt), pg::param(row.crashes),
        state_param(row.state), pg::param_time(row.due_at), pg::param_time(row.failed_since),
        pg::param_time(m.published_at), batch_param(row.failed_in), pg::param(m.id),
        text_param(m.topic), text_param(m.key), text_param(m.type), jsonb_param(m.payload),
        jsonb_param(m.headers), pg::param(row.error), pg::param(m.in_doubt),
        pg::param(row.detail.detail), pg::param(row.detail.context), pg::param(row.postponed));
    CRASH_POINT("retry: written");
}

void delete_retry(const Subscription &s, const Message &m) {
    delete_row.run(pg::param(s.id), pg::param(m.token.value()), pg::param(m.tick),
                   pg::param(m.number));
}

void write_dead(const Subscription &s, const Message &m, int64 failed_in, std::string_view error,
                const ErrorDetail &detail, TimestampTz now) {
    insert_dead.run(pg::param(s.id), pg::param(m.token.value()), pg::param(m.number),
                    pg::param(m.tick), pg::param(m.partition), pg::param(m.attempt),
                    pg::param_time(now), pg::param_time(m.published_at), batch_param(failed_in),
                    pg::param(m.id), text_param(m.topic), text_param(m.key), text_param(m.type),
                    jsonb_param(m.payload), jsonb_param(m.headers), pg::param(error),
                    pg::param(m.in_doubt), pg::param(detail.detail), pg::param(detail.context));
    CRASH_POINT("dead: written, still a retry");
    delete_retry(s, m);
}

void count_crash(const Subscription &s, int16 partition, std::string_view error, TimestampTz now) {
    for (const core::MessageTransition &t : core::message_transitions)
        if (t.event == Event::process_dies && core::is_retry(t.from))
            count_crashes.run(pg::param(s.id), pg::param(partition), pg::param_time(now),
                              state_param(t.from), state_param(t.to), pg::param(error));
}

void note_delivery(const Subscription &s, std::span<const Message> messages, int64 batch_id) {
    for (const Message &m : messages)
        if (m.is_retry())
            give_to_consumer.run(
                pg::param(s.id), pg::param(m.token.value()), pg::param(m.tick), pg::param(m.number),
                state_param(next_state(m.state, Event::hand_out)), pg::param(batch_id));
}

void note_given_back(const Subscription &s, int16 partition, int64 batch_id) {
    give_back.run(pg::param(s.id), pg::param(partition), pg::param(batch_id),
                  state_param(State::leased),
                  state_param(next_state(State::leased, Event::give_back)));
}

void mark_in_doubt(const Position &p, std::span<Message> messages) {
    for (Message &m : messages)
        m.in_doubt = m.end() <= p.lost_until;
}

void apply_stopping(int32 subscription_id, bool stops) {
    const auto run_for = [&](pg::Statement &statement, Event event, auto &&is_meant) {
        for (const core::MessageTransition &t : core::message_transitions)
            if (t.event == event && is_meant(t.from))
                statement.run(pg::param(subscription_id), state_param(t.from), state_param(t.to));
    };
    if (stops) {
        run_for(hold_all, Event::hold, core::is_held_at_once);
        return;
    }
    for (State state : {State::ready, State::leased}) // which were released before
        release_all.run(pg::param(subscription_id), state_param(state), state_param(state));
    run_for(release_all, Event::release, core::is_held);
}

// message_transitions() -> TABLE(from_state, event, to_state, sentence)
STACKSAGA_FUNCTION(message_transitions) {
    pg::ResultSet result(fcinfo);
    auto text = [](std::string_view s) { return pg::of(PointerGetDatum(pg::make_text(s))); };
    for (const core::MessageTransition &t : core::message_transitions)
        result.add(text(core::name_of(t.from)), text(core::name_of(t.event)),
                   text(core::name_of(t.to)), text(t.sentence));
    return result.finish();
}

} // namespace stacksaga
