// compare_and_set and read_value: values whose versions only rise.
//
// A deleted value leaves its row behind, without a value, so that the next one goes on counting: a
// version names one content for ever, and comparing it is enough.
#include "core/ring/token.hpp"

#include "pg/citus/shard_lock.hpp"
#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/dedupe.hpp"
#include "src/dedupe/key_lock.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement create_value{
    "INSERT INTO stacksaga.versioned_value AS v (token, scope, key, version, value, updated_at,"
    "       created_at)"
    " VALUES ($1::stacksaga.ring_token, $2, $3, 1, $4, $5, $5)"
    " ON CONFLICT (token, scope, key) DO UPDATE"
    "   SET version = v.version + 1, value = EXCLUDED.value, updated_at = EXCLUDED.updated_at,"
    "       created_at = EXCLUDED.created_at"
    " WHERE v.value IS NULL"
    " RETURNING version"};
constinit pg::Statement replace_value{
    "UPDATE stacksaga.versioned_value SET version = version + 1, value = $5, updated_at = $6"
    " WHERE token OPERATOR(stacksaga.=) $1::stacksaga.ring_token AND scope = $2 AND key = $3"
    "   AND version = $4 AND value IS NOT NULL"
    " RETURNING version"};
enum class ValueColumn : uint8_t { value, version };
constinit pg::Select<ValueColumn> select_value{
    "SELECT value, version FROM stacksaga.versioned_value"
    " WHERE token OPERATOR(stacksaga.=) $1::stacksaga.ring_token AND scope = $2 AND key = $3"};

struct Key {
    std::string_view scope;
    std::string_view name;
    core::Token token;
};

Key key_arguments(const pg::Arguments &arguments) {
    std::string_view scope = scope_argument(arguments, 0, "scope");
    std::string_view name = key_argument(arguments, 1, "key");
    return {scope, name, token_of_scoped_key(scope, name)};
}

[[noreturn]] void raise_mismatch(const Key &key, std::optional<int64> expected) {
    const auto rows =
        select_value.run(pg::param(key.token.value()), pg::param(key.scope), pg::param(key.name));
    const char *found;
    if (rows.empty())
        found = "it does not exist";
    else if (rows.is_null(0, ValueColumn::value))
        found = psprintf("it was deleted, which was version " INT64_FORMAT,
                         rows.int8(0, ValueColumn::version));
    else
        found = psprintf("its version is " INT64_FORMAT, rows.int8(0, ValueColumn::version));
    ereport(ERROR,
            (errcode(pg::sg412),
             errmsg("value \"%s\" of scope \"%s\" has another version", clip(key.name),
                    clip(key.scope)),
             expected ? errdetail("Version " INT64_FORMAT " was expected; %s.", *expected, found)
                      : errdetail("It was expected not to exist; %s.", found),
             errhint("Read the value again with read_value(), and decide on what it is now.")));
}

int64 compare_and_set(const Key &key, std::optional<int64> expected, const pg::Param &value) {
    pg::Param token = pg::param(key.token.value()), scope = pg::param(key.scope),
              name = pg::param(key.name), now = pg::param_time(pg::clock_now());
    pg::Rows rows = expected
                        ? replace_value.run(token, scope, name, pg::param(*expected), value, now)
                        : create_value.run(token, scope, name, value, now);
    CRASH_POINT("value: written");
    if (rows.empty())
        raise_mismatch(key, expected);
    return rows.int8(0);
}

} // namespace

// compare_and_set(scope, key, expected_version, value) -> bigint
STACKSAGA_FUNCTION(compare_and_set) {
    pg::Arguments arguments(fcinfo);
    Key key = key_arguments(arguments);
    std::optional<int64> expected;
    if (!arguments.is_null(2))
        expected = DatumGetInt64(arguments.datum(2));
    pg::Param value = pg::param_datum(JSONBOID, arguments.datum(3), arguments.is_null(3));
    if (value.isnull && !expected)
        ereport(ERROR, (errcode(pg::sg400), errmsg("there is nothing to delete"),
                        errdetail("Both expected_version and value are NULL."),
                        errhint("Pass the version that is to be deleted, or a value that is to be "
                                "created.")));
    if (!value.isnull)
        check_payload(value.value, "value");
    require_writable("compare_and_set()");
    PG_RETURN_INT64(with_key([&] {
        lock_key(pg::LockClass::versioned_value, key.token);
        return compare_and_set(key, expected, value);
    }));
}

// read_value(scope, key) -> TABLE(value jsonb, version bigint)
STACKSAGA_FUNCTION(read_value) {
    Key key = key_arguments(pg::Arguments(fcinfo));
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] {
        pg::hold_shard("versioned_value", key.token.value()); // compare_and_set() may follow
        const auto rows = select_value.read(pg::param(key.token.value()), pg::param(key.scope),
                                            pg::param(key.name));
        if (!rows.empty() && !rows.is_null(0, ValueColumn::value))
            result.add(pg::of(rows.value(0, ValueColumn::value)),
                       pg::of(rows.value(0, ValueColumn::version)));
    });
    return result.finish();
}

} // namespace stacksaga
