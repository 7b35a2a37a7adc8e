#include "src/dedupe/dedupe.hpp"

#include "core/ring/token.hpp"
#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/settings.hpp"
#include "src/common/limits.hpp"
#include "src/ring/token_functions.hpp"

namespace stacksaga {

namespace {

// Beyond it a duration is a mistake, and adding it to an instant could overflow.
constexpr int64 duration_max_us = int64{100} * 366 * USECS_PER_DAY;

} // namespace

std::string_view key_argument(const pg::Arguments &arguments, int i, const char *name) {
    std::string_view key = arguments.required_text(i, name);
    check_length(key, name, key_bytes_max);
    return key;
}

std::string_view scope_argument(const pg::Arguments &arguments, int i, const char *name) {
    std::string_view scope = arguments.required_text(i, name);
    check_length(scope, name, scope_bytes_max);
    return scope;
}

core::Token token_of_scoped_key(std::string_view scope, std::string_view key) {
    constexpr char separator = '\x1f';
    std::array<char, scope_bytes_max + 1 + key_bytes_max> text;
    const size_t size = scope.size() + 1 + key.size();
    Assert(size <= text.size());
    memcpy(text.data(), scope.data(), scope.size());
    text[scope.size()] = separator;
    memcpy(text.data() + scope.size() + 1, key.data(), key.size());
    return token_of_text({text.data(), size});
}

namespace {

void check_duration(int64 duration, Datum interval, const char *name) {
    if (duration > duration_max_us)
        ereport(ERROR, (errcode(pg::sg400), errmsg("interval \"%s\" is out of range", name),
                        errdetail("The value is %s.",
                                  DatumGetCString(DirectFunctionCall1(interval_out, interval))),
                        errhint("Use at most 100 years.")));
}

} // namespace

int64 duration_argument(Datum interval, const char *name) {
    const int64 duration = pg::interval_microseconds(interval, name, true);
    check_duration(duration, interval, name);
    return duration;
}

int64 retention_argument(const pg::Arguments &arguments, int i) {
    if (arguments.is_null(i))
        return int64{pg::settings.dedupe_retention} * USECS_PER_SEC;
    const Datum interval = arguments.datum(i);
    const core::Length retention = pg::interval_length(interval, "retention", true);
    check_duration(core::longest(retention), interval, "retention");
    return core::microseconds_from(pg::clock_now(), retention);
}

void require_writable(const char *function) {
    if (!XactReadOnly)
        return;
    ereport(ERROR,
            (errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
             errmsg("%s cannot run in a read-only transaction", function),
             RecoveryInProgress() ? errdetail("This server is a standby.")
                                  : errdetail("The transaction may not write."),
             errhint("Call it on the primary, in a transaction that may write; do nothing whose "
                     "repetition it should prevent.")));
}

} // namespace stacksaga
