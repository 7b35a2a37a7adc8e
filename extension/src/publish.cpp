// publish and publish_batch: one insert into the current generation of the log.
#include "src/outbox.hpp"

#include "pg/array.hpp"
#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/query.hpp"
#include "pg/random.hpp"
#include "pg/result.hpp"
#include "pg/scope.hpp"
#include "pg/settings.hpp"
#include "src/limits.hpp"
#include "src/log_table.hpp"
#include "src/ring.hpp"
#include "src/token.hpp"
#include "src/wake.hpp"

namespace stacksaga {

namespace {

constexpr int64 batch_max = 100000;

// Into the partition itself: finding it from the root would cost as much as the row does.
#define INSERT_INTO(generation)                                                                    \
    "INSERT INTO stacksaga.outbox_message_" #generation                                            \
    " (number, transaction_id, origin, token, published_at, ring_id, generation, partition,"       \
    "  message_id, topic, key, type, payload, headers, deliver_at)"
#define ONE_MESSAGE(generation)                                                                    \
    INSERT_INTO(generation)                                                                        \
    " VALUES (pg_catalog.nextval('stacksaga.outbox_number_seq'), $1, $2,"                          \
    "   $3::stacksaga.ring_token, $4, $5, " #generation ", $6, $7, $8, $9, $10, $11, $12, $13)"
// The arrays are read from end to end, so numbers rise with their positions.
#define MANY_MESSAGES(generation)                                                                  \
    INSERT_INTO(generation)                                                                        \
    " SELECT pg_catalog.nextval('stacksaga.outbox_number_seq'), $1, $2,"                           \
    "        m.token::stacksaga.ring_token, $3, $4, " #generation                                  \
    ", m.partition, m.id, $5, m.key,"                                                              \
    "        m.type, m.payload, '{}', NULL"                                                        \
    "   FROM unnest($6::bigint[], $7::integer[], $8::uuid[], $9::jsonb[], $10::text[],"            \
    "               $11::text[])"                                                                  \
    "     AS m(token, partition, id, payload, key, type)"
constinit std::array<pg::Statement, generations> insert_one{
    pg::Statement{ONE_MESSAGE(0)}, pg::Statement{ONE_MESSAGE(1)}, pg::Statement{ONE_MESSAGE(2)}};
constinit std::array<pg::Statement, generations> insert_many{pg::Statement{MANY_MESSAGES(0)},
                                                             pg::Statement{MANY_MESSAGES(1)},
                                                             pg::Statement{MANY_MESSAGES(2)}};
constinit pg::Statement has_object{"SELECT pg_catalog.jsonb_typeof($1) = 'object'"};

/// Only a hint: which of the generations is filled makes no difference to readers.
size_t current_generation() {
    return static_cast<size_t>(last_value_of("outbox_generation_seq") % generations);
}

/// The transaction has its id before it takes a number: what a tick relies on.
int64 own_transaction() {
    return static_cast<int64>(U64FromFullTransactionId(GetTopFullTransactionId()));
}

int64 this_origin() {
    return static_cast<int64>(GetSystemIdentifier());
}

/// The ring that the session publishes in. The default ring is there from the start, as number 1.
int32 ring_of_session() {
    constexpr int32 default_ring = 1;
    if (strcmp(pg::settings.region, "default") == 0 && strcmp(pg::settings.cluster, "default") == 0)
        return default_ring;
    return current_ring().ring_id;
}

void check_topic(std::string_view topic) {
    check_name(topic, "topic", topic_bytes_max);
    if (topic.back() == '*')
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"topic\" must not end in *"),
                        errdetail("The value is \"%s\".", clip(topic)),
                        errhint("Publish to one topic; a subscription may name many so.")));
}

void check_message(const NewMessage &m) {
    check_topic(m.topic);
    if (m.key)
        check_name(*m.key, "key", key_bytes_max);
    if (m.type)
        check_name(*m.type, "type");
    if (m.payload)
        check_payload(*m.payload, "payload");
    if (m.headers) {
        check_payload(*m.headers, "headers");
        if (!has_object.run(pg::param_datum(JSONBOID, *m.headers)).boolean(0, 0))
            ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"headers\" must be an object"),
                            errdetail("The value is a jsonb of another type."),
                            errhint("Pass an object such as {\"traceparent\": \"...\"}.")));
    }
    if (m.deliver_at && TIMESTAMP_NOT_FINITE(*m.deliver_at))
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"deliver_at\" must be finite"),
                        errdetail("The value is %s.",
                                  TIMESTAMP_IS_NOBEGIN(*m.deliver_at) ? "-infinity" : "infinity"),
                        errhint("Pass the instant from which on the message may be delivered.")));
}

Datum empty_object() {
    return DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
}

pg::Param jsonb_param(std::optional<Datum> value) {
    return pg::param_datum(JSONBOID, value.value_or(0), !value.has_value());
}

core::Token token_of(std::optional<std::string_view> key, const pg_uuid_t &id) {
    return key ? token_of_text(*key) : token_of_uuid(id);
}

} // namespace

pg_uuid_t publish_message(int32 ring_id, const NewMessage &m) {
    check_message(m);
    const TimestampTz now = pg::clock_now();
    const pg_uuid_t id = m.message_id ? *m.message_id : pg::make_uuid_v7(now);
    const core::Token token = token_of(m.key, id);
    pg::Statement &insert = insert_one[current_generation()];
    insert.run(pg::param(own_transaction()), pg::param(this_origin()), pg::param(token.value()),
               pg::param_time(now), pg::param(ring_id), pg::param(partition_of(token)),
               pg::param(id), pg::param(m.topic), pg::param(m.key), pg::param(m.type),
               jsonb_param(m.payload),
               pg::param_datum(JSONBOID, m.headers ? *m.headers : empty_object()),
               pg::param_time(m.deliver_at));
    wake_workers_at_commit();
    return id;
}

namespace {

/// The texts of an optional array, one a message.
pg::Elements text_argument(const pg::Arguments &arguments, int i, const char *name,
                           const pg::Elements &payloads) {
    if (arguments.is_null(i))
        return {};
    pg::Elements texts = pg::array_argument(arguments, i, name, TEXTOID);
    pg::require_same_length(texts, name, payloads, "payloads");
    return texts;
}

std::optional<std::string_view> text_at(const pg::Elements &a, int i) {
    if (!a.has(i))
        return std::nullopt;
    return pg::view_of_text(a.values[i]);
}

pg::Param texts_param(const pg::Elements &a, int count) {
    if (a.values == nullptr)
        return pg::param_null(TEXTARRAYOID);
    int dimension = count, lower = 1;
    ArrayType *array = construct_md_array(a.values, a.nulls, 1, &dimension, &lower, TEXTOID, -1,
                                          false, TYPALIGN_INT);
    return {TEXTARRAYOID, PointerGetDatum(array), false};
}

struct NewBatch {
    std::string_view topic;
    pg::Elements payloads, keys, types;
};

void check_batch(const NewBatch &b) {
    check_topic(b.topic);
    if (b.payloads.count > batch_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"payloads\" has too many elements"),
                        errdetail("It has %d elements.", b.payloads.count),
                        errhint("Publish at most " INT64_FORMAT " messages at once.", batch_max)));
    for (int i = 0; i < b.payloads.count; ++i) {
        if (b.payloads.nulls[i])
            ereport(ERROR, (errcode(pg::sg400), errmsg("a payload must not be null"),
                            errdetail("Element %d of \"payloads\" is NULL.", i + 1),
                            errhint("Pass the jsonb value null for a message without content.")));
        check_payload(b.payloads.values[i], "payloads");
        if (std::optional<std::string_view> key = text_at(b.keys, i))
            check_name(*key, "keys", key_bytes_max);
        if (std::optional<std::string_view> type = text_at(b.types, i))
            check_name(*type, "types");
    }
}

void publish_batch(const NewBatch &b, pg::ResultSet &result) {
    const auto count = static_cast<size_t>(b.payloads.count);
    if (count == 0)
        return;
    const TimestampTz now = pg::clock_now();
    auto *ids = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t) * count));
    auto *tokens = static_cast<int64 *>(palloc(sizeof(int64) * count));
    auto *partitions = static_cast<int32 *>(palloc(sizeof(int32) * count));
    for (size_t i = 0; i < count; ++i) {
        ids[i] = pg::make_uuid_v7(now);
        const core::Token token = token_of(text_at(b.keys, static_cast<int>(i)), ids[i]);
        tokens[i] = token.value();
        partitions[i] = partition_of(token);
    }
    ArrayType *payloads =
        construct_array(b.payloads.values, b.payloads.count, JSONBOID, -1, false, TYPALIGN_INT);
    const int32 ring_id = ring_of_session();
    pg::Statement &insert = insert_many[current_generation()];
    insert.run(pg::param(own_transaction()), pg::param(this_origin()), pg::param_time(now),
               pg::param(ring_id), pg::param(b.topic),
               pg::param_array(std::span<const int64>{tokens, count}),
               pg::param_array(std::span<const int32>{partitions, count}),
               pg::param_array(std::span<const pg_uuid_t>{ids, count}),
               pg::param_datum(JSONBARRAYOID, PointerGetDatum(payloads)),
               texts_param(b.keys, b.payloads.count), texts_param(b.types, b.payloads.count));
    wake_workers_at_commit();
    for (size_t i = 0; i < count; ++i)
        result.add(pg::of(UUIDPGetDatum(&ids[i])));
}

} // namespace

// publish(topic, payload, key, type, headers, message_id, deliver_at) -> uuid
STACKSAGA_FUNCTION(publish) {
    pg::Arguments arguments(fcinfo);
    NewMessage m{};
    m.topic = arguments.required_text(0, "topic");
    arguments.require(1, "payload");
    m.payload = arguments.datum(1);
    m.key = arguments.optional_text(2);
    m.type = arguments.optional_text(3);
    if (!arguments.is_null(4))
        m.headers = arguments.datum(4);
    if (!arguments.is_null(5))
        m.message_id = arguments.required_uuid(5, "message_id");
    if (!arguments.is_null(6))
        m.deliver_at = DatumGetTimestampTz(arguments.datum(6));
    auto *id = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));
    *id = pg::with_spi([&] { return publish_message(ring_of_session(), m); });
    PG_RETURN_UUID_P(id);
}

// publish_batch(topic, payloads, keys, types) -> SETOF uuid
STACKSAGA_FUNCTION(publish_batch) {
    pg::Arguments arguments(fcinfo);
    NewBatch b{};
    b.topic = arguments.required_text(0, "topic");
    arguments.require(1, "payloads");
    b.payloads = pg::array_argument(arguments, 1, "payloads", JSONBOID);
    b.keys = text_argument(arguments, 2, "keys", b.payloads);
    b.types = text_argument(arguments, 3, "types", b.payloads);
    check_batch(b);
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { publish_batch(b, result); });
    return pg::ResultSet::finish();
}

} // namespace stacksaga
