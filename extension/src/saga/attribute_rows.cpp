#include "src/saga/attribute_rows.hpp"

#include "core/ring/murmur3.hpp"
#include "core/ring/token.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"
#include "src/ring/token_functions.hpp"
#include "src/saga/saga_tables.hpp"

namespace stacksaga {

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
