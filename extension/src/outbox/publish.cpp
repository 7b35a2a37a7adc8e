// publish and publish_batch: rows for the current generation of the log.
#include "core/ring/token.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/random.hpp"
#include "pg/settings.hpp"
#include "pg/statement/array.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/outbox/log/handled_topics.hpp"
#include "src/outbox/log/log_append.hpp"
#include "src/outbox/log/message_waiters.hpp"
#include "src/outbox/outbox.hpp"
#include "src/outbox/published_messages.hpp"
#include "src/ring/rings.hpp"
#include "src/ring/token_functions.hpp"

namespace stacksaga {

void check_topic(std::string_view topic, const char *argument) {
    check_name(topic, argument, topic_bytes_max);
    if (topic.back() == '*')
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("argument \"%s\" must not end in *", argument),
                 errdetail("The value is \"%s\".", clip(topic)),
                 errhint("Publish to one topic; only a subscription may name many by a *.")));
}

namespace {

constexpr int batch_max = 100'000;

/// The ring that the session publishes in.
int32 ring_of_session() {
    if (is_default_ring_current())
        return default_ring.ring_id;
    return pg::with_spi([] { return current_ring().ring_id; });
}

const char *json_text(Datum value) {
    Jsonb *json = DatumGetJsonbP(value);
    return JsonbToCString(nullptr, &json->root, static_cast<int>(VARSIZE(json)));
}

void check_message(const NewMessage &m) {
    check_topic(m.topic, "topic");
    if (m.key)
        check_length(*m.key, "key", key_bytes_max);
    if (m.type)
        check_name(*m.type, "type");
    if (m.payload)
        check_payload(*m.payload, "payload");
    if (m.headers) {
        check_payload(*m.headers, "headers");
        if (!JB_ROOT_IS_OBJECT(DatumGetJsonbP(*m.headers)))
            ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"headers\" must be an object"),
                            errdetail("The value is %s.", clip(json_text(*m.headers))),
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

Datum text_datum(std::string_view text) {
    return PointerGetDatum(pg::make_text(text));
}

Datum text_datum(std::optional<std::string_view> text) {
    return text ? text_datum(*text) : Datum{0};
}

core::Token token_of(std::optional<std::string_view> key, const pg_uuid_t &id) {
    return key ? token_of_text(*key) : token_of_uuid(id);
}

} // namespace

pg_uuid_t publish_message(int32 ring_id, const NewMessage &m) {
    const TimestampTz now = pg::clock_now();
    const pg_uuid_t id = m.message_id ? *m.message_id : pg::make_uuid_v7(now);
    const NewRow row{.token = token_of(m.key, id),
                     .id = id,
                     .topic = text_datum(m.topic),
                     .key = text_datum(m.key),
                     .type = text_datum(m.type),
                     .payload = m.payload.value_or(0),
                     .headers = m.headers ? *m.headers : empty_object(),
                     .deliver_at = m.deliver_at};
    append_to_log(ring_id, now, {&row, 1});
    wake_workers_for_topic(m.topic);
    wake_receivers_of_topic(ring_id, m.topic);
    return id;
}

namespace {

/// The texts of an optional array, one a message.
pg::Elements text_argument(const pg::Arguments &arguments, int i, const char *name,
                           const pg::Elements &payloads) {
    if (arguments.is_null(i))
        return {};
    pg::Elements texts = pg::array_argument(arguments, i, name, TEXTOID, batch_max);
    pg::require_same_length(texts, name, payloads, "payloads");
    return texts;
}

std::optional<std::string_view> text_at(const pg::Elements &a, int i) {
    if (!a.has(i))
        return std::nullopt;
    return pg::view_of_text(a.values[i]);
}

struct NewBatch {
    std::string_view topic;
    pg::Elements payloads, keys, types;
};

/// As check_length(), which gets the name of an element only for an error: making it for each of
/// many elements costs.
void check_element(const pg::Elements &texts, const char *argument, int i, int bytes_max) {
    std::optional<std::string_view> text = text_at(texts, i);
    if (text && (text->empty() || text->size() > static_cast<size_t>(bytes_max) ||
                 GetDatabaseEncoding() == PG_SQL_ASCII))
        check_length(*text, psprintf("%s[%d]", argument, i + 1), bytes_max);
}

void check_batch(const NewBatch &b) {
    check_topic(b.topic, "topic");
    for (int i = 0; i < b.payloads.count; ++i) {
        if (b.payloads.nulls[i])
            ereport(ERROR, (errcode(pg::sg400), errmsg("a payload must not be null"),
                            errdetail("Element %d of \"payloads\" is NULL.", i + 1),
                            errhint("Pass the jsonb value null for a message without content.")));
        if (!payload_fits(b.payloads.values[i]))
            check_payload(b.payloads.values[i], psprintf("payloads[%d]", i + 1));
        check_element(b.keys, "keys", i, key_bytes_max);
        check_element(b.types, "types", i, name_bytes_max);
    }
}

void publish_batch(const NewBatch &b, pg::ResultSet &result) {
    const auto count = static_cast<size_t>(b.payloads.count);
    if (count == 0)
        return;
    const TimestampTz now = pg::clock_now();
    const Datum topic = text_datum(b.topic), headers = empty_object();
    auto *rows = static_cast<NewRow *>(palloc(sizeof(NewRow) * count));
    for (size_t i = 0; i < count; ++i) {
        const pg_uuid_t id = pg::make_uuid_v7(now);
        const int n = static_cast<int>(i);
        new (&rows[i]) NewRow{.token = token_of(text_at(b.keys, n), id),
                              .id = id,
                              .topic = topic,
                              .key = b.keys.has(n) ? b.keys.values[i] : 0,
                              .type = b.types.has(n) ? b.types.values[i] : 0,
                              .payload = b.payloads.values[i],
                              .headers = headers,
                              .deliver_at = std::nullopt};
    }
    const int32 ring_id = ring_of_session();
    append_to_log(ring_id, now, {rows, count});
    wake_workers_for_topic(b.topic);
    wake_receivers_of_topic(ring_id, b.topic);
    for (size_t i = 0; i < count; ++i) {
        note_published(
            {.id = rows[i].id, .topic = b.topic, .key = text_at(b.keys, static_cast<int>(i))});
        result.add(pg::of(UUIDPGetDatum(&rows[i].id)));
    }
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
    check_message(m);
    auto *id = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));
    *id = publish_message(ring_of_session(), m);
    note_published({.id = *id, .topic = m.topic, .key = m.key});
    PG_RETURN_UUID_P(id);
}

// publish_batch(topic, payloads, keys, types) -> SETOF uuid
STACKSAGA_FUNCTION(publish_batch) {
    pg::Arguments arguments(fcinfo);
    NewBatch b{};
    b.topic = arguments.required_text(0, "topic");
    arguments.require(1, "payloads");
    b.payloads = pg::array_argument(arguments, 1, "payloads", JSONBOID, batch_max);
    b.keys = text_argument(arguments, 2, "keys", b.payloads);
    b.types = text_argument(arguments, 3, "types", b.payloads);
    check_batch(b);
    pg::ResultSet result(fcinfo);
    publish_batch(b, result);
    return pg::ResultSet::finish();
}

} // namespace stacksaga
