#include "src/saga/saga_traits.hpp"

#include "pg/json_text.hpp"
#include "src/common/limits.hpp"

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

} // namespace stacksaga
