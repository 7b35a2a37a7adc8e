#include "src/common/limits.hpp"

#include "core/common/invisible.hpp"
#include "core/saga/classify.hpp"
#include "core/time/length.hpp"
#include "core/work/spread.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/json_text.hpp"
#include "pg/settings.hpp"

namespace stacksaga {

const char *clip(std::string_view text) {
    if (text.size() <= quoted_bytes_max)
        return printable(text);
    int length = pg_mbcliplen(text.data(), static_cast<int>(text.size()), quoted_bytes_max);
    return psprintf("%s...", printable(text.substr(0, static_cast<size_t>(length))));
}

const char *printable(std::string_view text) {
    // The other encodings of servers know hardly any such character.
    if (GetDatabaseEncoding() != PG_UTF8 && GetDatabaseEncoding() != PG_SQL_ASCII)
        return pnstrdup(text.data(), text.size());
    StringInfoData out;
    initStringInfo(&out);
    while (!text.empty()) {
        const core::Character c = core::first_character(text);
        if (core::is_invisible(c.code)) {
            const core::Escape escape = core::escape_of(c.code);
            appendBinaryStringInfo(&out, escape.text.data(), static_cast<int>(escape.size));
        } else {
            appendBinaryStringInfo(&out, text.data(), static_cast<int>(c.bytes));
        }
        text.remove_prefix(c.bytes);
    }
    return out.data;
}

// printable(text) -> text
STACKSAGA_FUNCTION(printable) {
    pg::Arguments args(fcinfo);
    PG_RETURN_DATUM(PointerGetDatum(pg::make_text(printable(args.required_text(0, "text")))));
}

void check_encoding(std::string_view text, const char *argument) {
    if (GetDatabaseEncoding() != PG_SQL_ASCII ||
        pg_verify_mbstr(PG_UTF8, text.data(), static_cast<int>(text.size()), true))
        return;
    ereport(
        ERROR,
        (errcode(pg::sg400), errmsg("argument \"%s\" is not UTF-8", argument),
         errdetail("The encoding of this database is SQL_ASCII, which takes any bytes; programs "
                   "that read names and keys expect UTF-8."),
         errhint("Send it in UTF-8.")));
}

const char *uuid_text(const pg_uuid_t &id) {
    return DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&id)));
}

const char *interval_text(int64 microseconds) {
    Datum interval = pg::interval_of_microseconds(microseconds);
    interval = DirectFunctionCall1(interval_justify_hours, interval);
    return DatumGetCString(DirectFunctionCall1(interval_out, interval));
}

int64 spread_argument(const pg::Arguments &arguments, int i) {
    arguments.require(i, "spread");
    const int64 spread = pg::interval_microseconds(arguments.datum(i), "spread", false);
    if (spread > core::spread_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"spread\" is too long"),
                        errdetail("The value is %s.", interval_text(spread)),
                        errhint("Use at most %s; call it again later for the rest.",
                                interval_text(core::spread_max))));
    return spread;
}

std::optional<int64> retry_after_argument(const pg::Arguments &arguments, int i) {
    if (arguments.is_null(i))
        return std::nullopt;
    const core::Length length = pg::interval_length(arguments.datum(i), "retry_after", false);
    const int64 after = core::longest(length), retention = dedupe_retention_us();
    if (after > retention)
        ereport(ERROR,
                (errcode(pg::sg400),
                 errmsg("argument \"retry_after\" is longer than keys are kept"),
                 errdetail("The value is %s, and stacksaga.dedupe_retention is %s.",
                           interval_text(after), interval_text(retention)),
                 errhint("Use a shorter retry_after, or raise stacksaga.dedupe_retention.")));
    return core::microseconds_from(pg::clock_now(), length);
}

void raise_unknown_saga(const pg_uuid_t &id) {
    ereport(ERROR, (errcode(pg::sg404), errmsg("saga %s does not exist", uuid_text(id)),
                    errdetail("No saga in this database has this id."),
                    errhint("start_saga() returns the id of the saga that it starts.")));
}

void check_length(std::string_view name, const char *argument, int bytes_max) {
    check_encoding(name, argument);
    if (name.empty())
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"%s\" must not be empty", argument),
                        errdetail("The value is an empty string."),
                        errhint("Use 1 to %d bytes.", bytes_max)));
    if (name.size() > static_cast<size_t>(bytes_max))
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"%s\" is too long", argument),
                        errdetail("It has %zu bytes and begins \"%s\".", name.size(), clip(name)),
                        errhint("Use 1 to %d bytes.", bytes_max)));
}

bool has_control_character(std::string_view text) {
    const bool is_utf8 = GetDatabaseEncoding() == PG_UTF8;
    for (size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<uint8>(text[i]);
        if (byte < 0x20 || byte == 0x7F)
            return true;
        if (is_utf8 && byte == 0xC2 && i + 1 < text.size() &&
            static_cast<uint8>(text[i + 1]) < 0xA0)
            return true;
    }
    return false;
}

void check_name(std::string_view name, const char *argument, int bytes_max) {
    check_length(name, argument, bytes_max);
    if (has_control_character(name))
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("argument \"%s\" holds a control character", argument),
                 errdetail("A name is printed as it is, also by programs that do not escape it."),
                 errhint("Use letters, digits, spaces and signs that can be printed.")));
}

namespace {

constexpr uint64 text_factor_max = 2;

bool has_allowed_size(Datum value) {
    return toast_raw_datum_size(value) <= static_cast<Size>(pg::settings.max_payload);
}

/// Calls `use` with the value outside of TOAST, and frees the copy that this took.
template <class Use> auto with_json(Datum value, Use &&use) {
    Jsonb *json = DatumGetJsonbP(value);
    const auto result = use(json);
    if (JsonbPGetDatum(json) != value)
        pfree(json);
    return result;
}

bool has_allowed_text(Datum value, int size_max) {
    const uint64 limit = text_factor_max * static_cast<uint64>(size_max);
    return with_json(value, [&](Jsonb *json) { return pg::json_text_fits(json, limit); });
}

} // namespace

bool payload_fits(Datum value) {
    return has_allowed_size(value) && has_allowed_text(value, pg::settings.max_payload);
}

void check_payload(Datum value, const char *argument) {
    if (!has_allowed_size(value))
        ereport(ERROR, (errcode(pg::sg413), errmsg("argument \"%s\" is too large", argument),
                        errdetail("It has %zu bytes; stacksaga.max_payload is %d bytes.",
                                  toast_raw_datum_size(value), pg::settings.max_payload),
                        errhint("Store the data elsewhere and pass a reference, or raise "
                                "stacksaga.max_payload.")));
    check_text_of_json(value, argument, pg::settings.max_payload);
}

void check_text_of_json(Datum value, const char *argument, int size_max) {
    if (has_allowed_text(value, size_max))
        return;
    const uint64 text = with_json(value, [](Jsonb *json) { return pg::json_text_bytes(json); });
    ereport(ERROR,
            (errcode(pg::sg413), errmsg("the text of argument \"%s\" is too large", argument),
             errdetail("It has %zu bytes, and its text would have " UINT64_FORMAT
                       "; a text may have " UINT64_FORMAT ".",
                       toast_raw_datum_size(value), text,
                       text_factor_max * static_cast<uint64>(size_max)),
             errhint("Pass numbers with huge exponents as strings, or raise "
                     "stacksaga.max_payload: a text may have twice as many bytes.")));
}

void check_definition_text(Datum value, const char *argument) {
    constexpr int size_max = 1024 * 1024;
    check_text_of_json(value, argument, std::max(pg::settings.max_payload, size_max));
}

void check_error_text(std::string_view text, const char *argument) {
    check_encoding(text, argument);
    if (text.size() > static_cast<size_t>(error_bytes_max))
        ereport(ERROR, (errcode(pg::sg413), errmsg("argument \"%s\" is too large", argument),
                        errdetail("It has %zu bytes.", text.size()),
                        errhint("Use at most %d bytes.", error_bytes_max)));
}

const char *find_bad_state(Datum list) {
    Datum *values;
    bool *nulls;
    int count;
    deconstruct_array(DatumGetArrayTypeP(list), TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls,
                      &count);
    for (int i = 0; i < count; ++i) {
        if (nulls[i])
            return "NULL";
        const std::string_view text = pg::view_of_text(values[i]);
        if (!core::is_state_or_class(text))
            return psprintf("\"%s\"", clip(text));
    }
    return nullptr;
}

int64 dedupe_retention_us() {
    return int64{pg::settings.dedupe_retention} * USECS_PER_SEC;
}

} // namespace stacksaga
