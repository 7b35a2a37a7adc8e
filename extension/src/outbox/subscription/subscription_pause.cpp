// pause_subscription and resume_subscription.
//
// They wait for nobody: who gathers messages reads the subscription first, so a call that has read
// it before the commit may still give a batch, and a handler that runs goes on.
#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/common/wake.hpp"
#include "src/outbox/log/message_waiters.hpp"
#include "src/outbox/subscription/subscription.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement lock_row{
    "SELECT FROM stacksaga.subscription WHERE subscription_id = $1 FOR NO KEY UPDATE"};
constinit pg::Statement write_pause{
    "UPDATE stacksaga.subscription"
    "   SET paused_at = $2, paused_until = $3, pause_reason = $4 WHERE subscription_id = $1"};

/// The subscription, which no other session pauses or resumes until this transaction ends.
const Subscription &lock_to_pause(std::string_view name) {
    for (;;) { // it may be dropped, and created again, while we wait
        const int32 id = find_subscription(name).id;
        if (lock_row.run(pg::param(id)).empty())
            continue;
        if (const Subscription *s = find_subscription(id))
            return *s;
    }
}

void require_paused(const Subscription &s, bool is_wanted) {
    if (s.is_paused(pg::clock_now()) == is_wanted)
        return;
    ereport(ERROR,
            (errcode(pg::sg409),
             errmsg(is_wanted ? "subscription \"%s\" is not paused"
                              : "subscription \"%s\" is paused already",
                    clip(s.name)),
             errdetail(is_wanted ? "It is unchanged." : "It stays paused."),
             errhint("The view stacksaga.subscriptions shows which subscriptions are paused.")));
}

} // namespace

// pause_subscription(subscription, reason, until) -> void
STACKSAGA_FUNCTION(pause_subscription) {
    pg::Arguments arguments(fcinfo);
    const std::string_view name = arguments.required_text(0, "subscription");
    const std::string_view reason = required_reason(arguments, 1);
    const std::optional<TimestampTz> until = optional_until(arguments, 2);
    pg::with_spi([&] {
        const Subscription &s = lock_to_pause(name);
        require_paused(s, false);
        write_pause.run(pg::param(s.id), pg::param_time(pg::clock_now()), pg::param_time(until),
                        pg::param(reason));
        record_action(
            {.action = "pause", .object = object_text("subscription", s.name), .reason = reason});
    });
    PG_RETURN_VOID();
}

// resume_subscription(subscription, reason) -> void
STACKSAGA_FUNCTION(resume_subscription) {
    pg::Arguments arguments(fcinfo);
    const std::string_view name = arguments.required_text(0, "subscription");
    const std::string_view reason = required_reason(arguments, 1);
    pg::with_spi([&] {
        const Subscription &s = lock_to_pause(name);
        require_paused(s, true);
        write_pause.run(pg::param(s.id), pg::param_null(TIMESTAMPTZOID),
                        pg::param_null(TIMESTAMPTZOID), pg::param_null(TEXTOID));
        wake_workers_at_commit();
        wake_receivers_at_commit(s);
        record_action(
            {.action = "resume", .object = object_text("subscription", s.name), .reason = reason});
    });
    PG_RETURN_VOID();
}

} // namespace stacksaga
