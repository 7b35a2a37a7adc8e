// Whether the dedupe window outlasts the retries that could repeat an effect.
#include "core/common/retry.hpp"
#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/settings.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/dedupe.hpp"

namespace stacksaga {

namespace {

// Steps that only wait repeat nothing: a child is started once, however often it is waited for; but
// their fallbacks are services. The compensations' policy comes once a step, with the step's
// timeout; no deadline bounds it.
enum class PolicyColumn : uint8_t {
    step,
    timeout,
    name,
    deadline,
    max_attempts,
    initial_interval,
    multiplier,
    max_interval,
    jitter,
};
constinit pg::Select<PolicyColumn> select_policies{
    "SELECT s.step, s.timeout, p.name, p.deadline, (p.retry).max_attempts,"
    "       (p.retry).initial_interval, (p.retry).multiplier, (p.retry).max_interval,"
    "       (p.retry).jitter"
    "  FROM stacksaga.saga_definition d"
    "  JOIN stacksaga.definition_step s USING (definition_id),"
    "       LATERAL (VALUES (CASE WHEN s.kind IN ('signal', 'child') THEN 'the fallback'"
    "                             ELSE 'the action' END, s.retry, d.deadline),"
    "                       ('the compensation', d.compensation_retry, NULL))"
    "               AS p(name, retry, deadline)"
    " WHERE d.saga = $1 AND d.version = $2 AND s.effect <> 'idempotent'"
    "   AND (s.kind IN ('sql', 'queue', 'message') OR s.fallback IS NOT NULL)"
    "   AND (p.name <> 'the compensation' OR s.effect = 'compensable'"
    "        OR s.compensation IS NOT NULL)"
    " ORDER BY s.step_no, p.name"};

struct Window {
    std::string_view step;
    std::string_view of;
    int64 length_us;
    int32 attempts;
};

std::optional<Window> window_of(const pg::RowsOf<PolicyColumn> &rows, uint64 row) {
    using enum PolicyColumn;
    auto microseconds = [&](PolicyColumn column) {
        return core::longest(*pg::interval_in_range(rows.value(row, column), false));
    };
    core::RetryPolicy policy{.max_attempts = rows.int4(row, max_attempts),
                             .initial_interval_us = microseconds(initial_interval),
                             .max_interval_us = microseconds(max_interval),
                             .multiplier = rows.float8(row, multiplier),
                             .jitter = rows.float8(row, jitter)};
    const int64 latest =
        rows.is_null(row, deadline) ? std::numeric_limits<int64>::max() : microseconds(deadline);
    if (policy.max_attempts == 0)
        return std::nullopt;
    // Null: a wait without bound.
    const int64 once = rows.is_null(row, timeout) ? 0 : microseconds(timeout);
    const int64 longest = core::longest_window(policy, once);
    return Window{rows.text(row, step), rows.text(row, name), std::min(longest, latest),
                  policy.max_attempts};
}

} // namespace

int32 require_short_retries(std::string_view saga, int32 version) {
    const int64 retention_us = int64{pg::settings.dedupe_retention} * USECS_PER_SEC;
    const auto rows = select_policies.run(pg::param(saga), pg::param(version));
    for (uint64 row = 0; row < rows.count(); ++row) {
        std::optional<Window> window = window_of(rows, row);
        if (window && window->length_us > retention_us)
            ereport(
                ERROR,
                (errcode(pg::sg400),
                 errmsg("saga definition is not valid: its retries may outlast what is remembered "
                        "of them"),
                 errdetail("The problem lies in step \"%s\": %d attempts of %s may take %s; "
                           "stacksaga.dedupe_retention is %s.",
                           clip(window->step), window->attempts, window->of.data(),
                           interval_text(window->length_us), interval_text(retention_us)),
                 errhint("Allow fewer attempts or shorter pauses, give the saga a deadline, "
                         "declare the effect idempotent if it is, or raise "
                         "stacksaga.dedupe_retention.")));
    }
    return version;
}

} // namespace stacksaga
