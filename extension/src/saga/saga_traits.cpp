#include "src/saga/saga_traits.hpp"

#include "core/ring/murmur3.hpp"
#include "core/ring/token.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/json_text.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/ring/token_functions.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/saga/store.hpp"

namespace stacksaga {

namespace {

/// " of element 3" in a message; empty when the argument is not an array.
const char *of_element(int element) {
    return element == 0 ? "" : psprintf(" of element %d", element);
}

std::string_view string_of(const JsonbValue &value) {
    return {value.val.string.val, static_cast<size_t>(value.val.string.len)};
}

[[noreturn]] void refuse_attributes(const char *detail, const char *hint) {
    ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"attributes\" is not valid"),
                    errdetail("%s", detail), errhint("%s", hint)));
}

void check_attribute_name(std::string_view name, int element) {
    check_encoding(name, "attributes");
    const char *hint = psprintf("Use names of 1 to %d bytes without control characters.",
                                attribute_name_bytes_max);
    if (has_control_character(name)) // not quoted: the message may go to a terminal
        refuse_attributes(psprintf("A name%s holds a control character.", of_element(element)),
                          hint);
    if (name.empty() || name.size() > attribute_name_bytes_max)
        refuse_attributes(
            psprintf("Name \"%s\"%s has %zu bytes.", clip(name), of_element(element), name.size()),
            hint);
}

/// How many bytes the value has; nothing unless it is a string, a number or a boolean.
std::optional<size_t> size_of(const JsonbValue &value) {
    if (value.type == jbvString)
        return static_cast<size_t>(value.val.string.len);
    if (value.type == jbvNumeric)
        return pg::number_text_bytes(value.val.numeric);
    if (value.type == jbvBool)
        return size_t{1};
    return std::nullopt;
}

const char *kind_of(const JsonbValue &value) {
    if (value.type == jbvNull)
        return "null";
    return JsonContainerIsArray(value.val.binary.data) ? "an array" : "an object";
}

void check_value(std::string_view name, const JsonbValue &value, int element) {
    const std::optional<size_t> size = size_of(value);
    if (!size)
        refuse_attributes(
            psprintf("\"%s\"%s is %s.", clip(name), of_element(element), kind_of(value)),
            "Use strings, numbers and booleans.");
    if (*size > attribute_value_bytes_max)
        refuse_attributes(
            psprintf("\"%s\"%s has %zu bytes.", clip(name), of_element(element), *size),
            psprintf("Use values of at most %d bytes; put the rest into the input.",
                     attribute_value_bytes_max));
}

void check_each(Jsonb *object, int element) {
    JsonbIterator *iterator = JsonbIteratorInit(&object->root);
    std::string_view name;
    JsonbValue value;
    JsonbIteratorToken token;
    while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE) {
        if (token == WJB_KEY) {
            name = string_of(value);
            check_attribute_name(name, element);
        } else if (token == WJB_VALUE) {
            if (value.type == jbvString)
                check_encoding(string_of(value), "attributes");
            check_value(name, value, element);
        }
    }
}

} // namespace

int16 priority_argument(const pg::Arguments &arguments, int i) {
    const int32 priority = arguments.required_int4(i, "priority");
    if (priority < first_priority || priority > last_priority)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"priority\" is out of range"),
                        errdetail("The value is %d.", priority),
                        errhint("Use %d (first) to %d (last).", first_priority, last_priority)));
    return static_cast<int16>(priority);
}

void check_group_key(std::string_view group_key, const char *argument, int element) {
    check_encoding(group_key, argument);
    if (!group_key.empty() && group_key.size() <= key_bytes_max)
        return;
    ereport(ERROR,
            (errcode(pg::sg400), errmsg("argument \"%s\" is not valid", argument),
             element == 0 ? errdetail("It has %zu bytes.", group_key.size())
                          : errdetail("Element %d has %zu bytes.", element, group_key.size()),
             errhint("Use 1 to %d bytes, or NULL for no group.", key_bytes_max)));
}

std::optional<Datum> checked_attributes(Datum value, int element) {
    check_payload(value, "attributes");
    Jsonb *object = DatumGetJsonbP(value);
    if (!JB_ROOT_IS_OBJECT(object))
        refuse_attributes(psprintf("The value%s is %s.", of_element(element),
                                   JB_ROOT_IS_SCALAR(object) ? "a scalar" : "an array"),
                          "Pass an object, '{}' for no attributes.");
    const int count = static_cast<int>(JB_ROOT_COUNT(object));
    if (count > attributes_max)
        refuse_attributes(psprintf("The object%s has %d attributes.", of_element(element), count),
                          psprintf("Use at most %d; put the rest into the input.", attributes_max));
    if (count == 0)
        return std::nullopt;
    check_each(object, element);
    return JsonbPGetDatum(object);
}

// ------------------------------------------------------------------------------ rows of attributes

namespace {

using pg::assign;
using Column = AttributeColumn;

/// The value as a text that equal values share: 1 and 1.0 are equal numbers, "1" is not a number.
const char *canonical_value(const JsonbValue &value) {
    if (value.type == jbvString)
        return psprintf("\"%.*s", value.val.string.len, value.val.string.val);
    if (value.type == jbvBool)
        return value.val.boolean ? "true" : "false";
    const Datum trimmed =
        DirectFunctionCall1(numeric_trim_scale, NumericGetDatum(value.val.numeric));
    return DatumGetCString(DirectFunctionCall1(numeric_out, trimmed));
}

/// Separates name and value: no name holds a control character.
int64 hash_of(const JsonbValue &name, const JsonbValue &value) {
    const char *pair =
        psprintf("%.*s\x1f%s", name.val.string.len, name.val.string.val, canonical_value(value));
    return static_cast<int64>(core::murmur3_x64_128(utf8_of_text(pair)).h1);
}

} // namespace

std::span<const int64> hashes_of(Datum attributes) {
    Jsonb *object = DatumGetJsonbP(attributes);
    auto *hashes = static_cast<int64 *>(palloc(sizeof(int64) * (JB_ROOT_COUNT(object) + 1)));
    int64 *end = hashes;
    JsonbIterator *iterator = JsonbIteratorInit(&object->root);
    JsonbValue name{}, value{};
    JsonbIteratorToken token;
    while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE) {
        if (token == WJB_KEY)
            name = value;
        else if (token == WJB_VALUE)
            *end++ = hash_of(name, value);
    }
    std::sort(hashes, end);
    return {hashes, std::unique(hashes, end)};
}

void insert_attribute_rows(const Saga &saga) {
    for (const int64 hash : hashes_of(*saga.traits.attributes))
        attribute_table.insert(
            std::array{assign(Column::saga_id, pg::param(saga.id)),
                       assign(Column::token, pg::param(saga.token)),
                       assign(Column::attribute, pg::param(hash)),
                       assign(Column::definition_id, pg::param(saga.definition->id)),
                       assign(Column::status, pg::param(core::name_of(saga.row.status))),
                       assign(Column::created_at, pg::param_time(saga.now))});
}

void change_attribute_rows(const pg_uuid_t &saga_id, core::Status status) {
    const std::array change{assign(Column::status, pg::param(core::name_of(status)))};
    const std::array key{pg::param(saga_id)};
    const pg::Param token = pg::param(core::token_of_uuid(saga_id.data).value());
    pg::as_owner([&] {
        pg::with_spi([&] {
            for (pg::TableRow &row : attribute_table.find({.key = key,
                                     .implied = pg::assign(Column::token, token),
                                     .lock = pg::RowLock::no_key_update}))
                attribute_table.update(row, change);
        });
    });
}

} // namespace stacksaga
