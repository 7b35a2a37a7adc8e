#include "src/outbox/message_row.hpp"

#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "src/handler/handler.hpp"
#include "src/ring/token_functions.hpp"

namespace stacksaga {

namespace {

constexpr size_t message_columns = 9;

/// batch_id, message_id, topic, key, type, payload, headers, attempt, published_at.
void fill(const Message &m, int64 batch_id, Datum *values, bool *nulls) {
    auto *id = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));
    *id = m.id;
    const std::array<Datum, message_columns> row{Int64GetDatum(batch_id),
                                                 UUIDPGetDatum(id),
                                                 m.topic,
                                                 m.key,
                                                 m.type,
                                                 m.payload,
                                                 m.headers,
                                                 Int32GetDatum(m.attempt),
                                                 TimestampTzGetDatum(m.published_at)};
    std::copy(row.begin(), row.end(), values);
    std::fill(nulls, nulls + message_columns, false);
    nulls[0] = batch_id == 0;
    nulls[3] = m.key == 0;
    nulls[4] = m.type == 0;
    nulls[5] = m.payload == 0;
}

} // namespace

void add_message(pg::ResultSet &result, const Message &m, int64 batch_id) {
    Datum values[message_columns];
    bool nulls[message_columns];
    fill(m, batch_id, values, nulls);
    result.add_row(values, nulls);
}

Datum message_datum(const Message &m) {
    // Blessed and cached by the type cache for the session.
    TupleDesc descriptor = lookup_rowtype_tupdesc(message_type(), -1);
    Datum values[message_columns];
    bool nulls[message_columns];
    fill(m, 0, values, nulls);
    Datum result = HeapTupleGetDatum(heap_form_tuple(descriptor, values, nulls));
    ReleaseTupleDesc(descriptor);
    return result;
}

Datum message_array_datum(std::span<const Message> messages) {
    auto *elements = static_cast<Datum *>(palloc(sizeof(Datum) * (messages.size() + 1)));
    std::transform(messages.begin(), messages.end(), elements, message_datum);
    return PointerGetDatum(construct_array(elements, static_cast<int>(messages.size()),
                                           message_type(), -1, false, TYPALIGN_DOUBLE));
}

namespace {

/// A key and a jsonb value of a growing object.
void push(JsonbParseState **state, std::string_view key, JsonbValue *value) {
    JsonbValue name{};
    name.type = jbvString;
    name.val.string.val = const_cast<char *>(key.data());
    name.val.string.len = static_cast<int>(key.size());
    pushJsonbValue(state, WJB_KEY, &name);
    pushJsonbValue(state, WJB_VALUE, value);
}

void push_text(JsonbParseState **state, std::string_view key, std::string_view text) {
    JsonbValue value{};
    value.type = jbvString;
    value.val.string.val = pnstrdup(text.data(), text.size());
    value.val.string.len = static_cast<int>(text.size());
    push(state, key, &value);
}

void push_jsonb(JsonbParseState **state, std::string_view key, Datum datum) {
    JsonbValue value{};
    Jsonb *json = DatumGetJsonbP(datum);
    if (JB_ROOT_IS_SCALAR(json)) {
        JsonbExtractScalar(&json->root, &value);
    } else {
        value.type = jbvBinary;
        value.val.binary.data = &json->root;
        value.val.binary.len = static_cast<int>(VARSIZE(json) - VARHDRSZ);
    }
    push(state, key, &value);
}

/// RFC 3339, in UTC.
std::string_view rfc3339(TimestampTz time) {
    pg_tm tm{};
    fsec_t fraction;
    if (timestamp2tm(time, nullptr, &tm, &fraction, nullptr, nullptr) != 0)
        ereport(ERROR,
                (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE), errmsg("timestamp out of range")));
    return psprintf("%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", tm.tm_year, tm.tm_mon, tm.tm_mday,
                    tm.tm_hour, tm.tm_min, tm.tm_sec, fraction);
}

/// A path of a URI (RFC 3986): allowed characters as they are, other bytes of UTF-8 as %XX.
std::string_view uri_path(std::string_view text) {
    constexpr std::string_view allowed =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,;=:@/";
    constexpr std::string_view digits = "0123456789ABCDEF";
    const std::string_view utf8 = utf8_of_text(text);
    auto *path = static_cast<char *>(palloc(3 * utf8.size() + 1));
    size_t size = 0;
    for (char c : utf8) {
        if (allowed.find(c) != std::string_view::npos) {
            path[size++] = c;
            continue;
        }
        const auto byte = static_cast<unsigned char>(c);
        path[size++] = '%';
        path[size++] = digits[byte >> 4];
        path[size++] = digits[byte & 15];
    }
    return {path, size};
}

/// An extension attribute of CloudEvents has a name of lower-case letters and digits.
bool is_attribute_name(std::string_view name) {
    return !name.empty() && name.size() <= 20 && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    });
}

bool is_own_attribute(std::string_view name) {
    constexpr std::array<std::string_view, 9> own{"specversion", "id",           "source",
                                                  "type",        "time",         "subject",
                                                  "data",        "partitionkey", "datacontenttype"};
    return std::find(own.begin(), own.end(), name) != own.end();
}

/// Headers with such names and text values become attributes, traceparent among them.
void push_headers(JsonbParseState **state, Jsonb *headers) {
    JsonbIterator *iterator = JsonbIteratorInit(&headers->root);
    JsonbValue value;
    std::string_view name;
    for (JsonbIteratorToken token = JsonbIteratorNext(&iterator, &value, true); token != WJB_DONE;
         token = JsonbIteratorNext(&iterator, &value, true)) {
        if (token == WJB_KEY)
            name = {value.val.string.val, static_cast<size_t>(value.val.string.len)};
        else if (token == WJB_VALUE && value.type == jbvString && is_attribute_name(name) &&
                 !is_own_attribute(name))
            push(state, name, &value);
    }
}

} // namespace

// cloudevent(topic, key, type, payload, headers, message_id, published_at) -> jsonb
STACKSAGA_FUNCTION(cloudevent) {
    pg::Arguments arguments(fcinfo);
    const std::string_view topic = arguments.required_text(0, "topic");
    const std::optional<std::string_view> key = arguments.optional_text(1);
    const pg_uuid_t id = arguments.required_uuid(5, "message_id");
    arguments.require(6, "published_at");
    const TimestampTz published_at = DatumGetTimestampTz(arguments.datum(6));
    JsonbParseState *state = nullptr;
    pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
    push_text(&state, "specversion", "1.0");
    push_text(&state, "id", DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&id))));
    const std::string_view path = uri_path(topic);
    push_text(&state, "source",
              psprintf("/stacksaga/%.*s", static_cast<int>(path.size()), path.data()));
    push_text(&state, "type", arguments.optional_text(2).value_or(topic));
    if (!TIMESTAMP_NOT_FINITE(published_at))
        push_text(&state, "time", rfc3339(published_at));
    if (key) {
        push_text(&state, "subject", *key);
        push_text(&state, "partitionkey", *key);
    }
    if (!arguments.is_null(4)) {
        Jsonb *headers = DatumGetJsonbP(arguments.datum(4));
        if (JB_ROOT_IS_OBJECT(headers))
            push_headers(&state, headers);
    }
    if (!arguments.is_null(3)) {
        push_text(&state, "datacontenttype", "application/json");
        push_jsonb(&state, "data", arguments.datum(3));
    }
    PG_RETURN_JSONB_P(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, nullptr)));
}

} // namespace stacksaga
