// alter_subscription and drop_subscription: both need a subscription that no session works on.
#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"
#include "pg/stored_text.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/common/wake.hpp"
#include "src/handler/running_handler.hpp"
#include "src/outbox/delivery/delivery_loss.hpp"
#include "src/outbox/log/handled_topics.hpp"
#include "src/outbox/log/log_lock.hpp"
#include "src/outbox/log/message_waiters.hpp"
#include "src/outbox/subscription/position.hpp"
#include "src/outbox/subscription/subscription.hpp"
#include "src/outbox/subscription/subscription_argument.hpp"
#include "src/outbox/subscription/subscription_lock.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement alter_functions{
    "UPDATE stacksaga.subscription"
    "   SET handler = coalesce($2, handler), handler_oid = coalesce($3, handler_oid),"
    "       takes_batch = coalesce($4, takes_batch), fallback = coalesce($5, fallback),"
    "       fallback_oid = coalesce($6, fallback_oid), definer = $7::name, search_path = $8,"
    "       definer_oid = $9"
    " WHERE subscription_id = $1"};
constinit pg::Statement alter_stopping{
    "UPDATE stacksaga.subscription SET stop_on_first_failure = $2 WHERE subscription_id = $1"};
constinit pg::Statement alter_retry{
    "UPDATE stacksaga.subscription"
    "   SET retry = ROW($2, $3, $4, $5, $6, $7, $8)::stacksaga.retry_policy"
    " WHERE subscription_id = $1"};
// Of the settings in the content these can change.
constinit pg::Statement alter_content{
    "UPDATE stacksaga.subscription"
    "   SET content = (content::jsonb || pg_catalog.jsonb_build_object('handler', handler,"
    "         'stop_on_first_failure', stop_on_first_failure, 'fallback', fallback,"
    "         'definer', definer, 'retry', to_jsonb(retry)))::text"
    " WHERE subscription_id = $1"};
enum class UnhandledColumn : uint8_t { messages, dead };
constinit pg::Select<UnhandledColumn> count_unhandled{
    "SELECT b.messages, (SELECT count(*) FROM stacksaga.dead_message AS d"
    "                     WHERE d.subscription_id = $1 AND d.discarded_at IS NULL) AS dead"
    "  FROM stacksaga_internal.outbox_backlog($1) AS b"};
constinit pg::Statement delete_positions{
    "DELETE FROM stacksaga.subscription_position WHERE subscription_id = $1"};
constinit pg::Statement delete_batches{
    "DELETE FROM stacksaga.message_batch WHERE subscription_id = $1", pg::Plans::by_statistics};
constinit pg::Statement delete_lost{"DELETE FROM stacksaga.lost_batch WHERE subscription_id = $1"};
constinit pg::Statement delete_retries{
    "DELETE FROM stacksaga.message_retry WHERE subscription_id = $1"};
constinit pg::Statement delete_dead{
    "DELETE FROM stacksaga.dead_message WHERE subscription_id = $1"};
constinit pg::Statement delete_subscription{
    "DELETE FROM stacksaga.subscription WHERE subscription_id = $1"};

/// Locks the partition; SG409 while another session works on it.
void require_free(const Subscription &s, int16 partition, TimestampTz now) {
    std::optional<Position> position = lock_position(s.id, partition, false);
    if (!position)
        raise_in_use(s,
                     psprintf("Another session delivers from its partition %d, answers for a batch "
                              "of it, or alters the subscription.",
                              partition),
                     "Try again when that session's transaction has ended.");
    require_unleased(s, *position, now);
}

/// SG409 while it has messages that were not handled.
void require_handled(const Subscription &s) {
    const auto rows = count_unhandled.run(pg::param(s.id));
    const int64 unread = rows.int8(0, UnhandledColumn::messages),
                dead = rows.int8(0, UnhandledColumn::dead);
    if (unread == 0 && dead == 0)
        return;
    ereport(ERROR,
            (errcode(pg::sg409),
             errmsg("subscription \"%s\" has messages that were not handled", clip(s.name)),
             errdetail("Unread or to be tried again: " INT64_FORMAT "; dead: " INT64_FORMAT ".",
                       unread, dead),
             errhint("Let its consumers handle them, redrive or discard the dead ones; or pass "
                     "discard => true, which deletes them all for this subscription.")));
}

/// A subscription with functions belongs to the role that they run as.
void require_owner(const Subscription &s, const Caller &caller) {
    if ((!s.handler && !s.fallback) || may_replace(s.definer, caller))
        return;
    const char *objection = objection_to(s.definer);
    ereport(ERROR,
            (errcode(pg::sg403), errmsg("subscription \"%s\" is another role's", clip(s.name)),
             objection == nullptr
                 ? errdetail("Its functions run as role \"%s\", and \"%s\" is not a member of it.",
                             s.definer.name, caller.role.name)
                 : errdetail("Its functions run as role \"%s\": %s.", s.definer.name, objection),
             errhint("Do it as that role or as a member of it, or ask a superuser.")));
}

void drop(std::string_view name, bool discards, const Caller &caller) {
    const Subscription &s = find_subscription(name);
    require_owner(s, caller);
    if (running_handler.is_of_subscription(s.id))
        raise_in_use(s, "Its own handler is calling.",
                     "Drop it in another transaction than that of its handler.");
    const TimestampTz now = pg::clock_now();
    for (int16 partition = 0; partition < s.partitions; ++partition)
        require_free(s, partition, now);
    if (!discards)
        require_handled(s);
    delete_positions.run(pg::param(s.id));
    delete_batches.run(pg::param(s.id));
    delete_lost.run(pg::param(s.id));
    delete_retries.run(pg::param(s.id));
    delete_dead.run(pg::param(s.id));
    delete_subscription.run(pg::param(s.id));
    announce_handled_topics();
    wake_receivers_at_commit(s);
    record_action({.action = "drop", .object = object_text("subscription", s.name)});
}

/// The arguments of alter_subscription(); NULL ones are empty.
struct Alteration {
    NewFunction handler, fallback;
    std::optional<bool> stop_on_first_failure;
    std::optional<Policy> retry;
    const char *search_path;
    Caller caller; // while this is carried out the current role is another one

    bool has_function() const { return handler || fallback; }
};

/// All functions of a subscription run as one role, so a function that stays must be the caller's.
void require_definer(const Subscription &s, const Alteration &a) {
    if (!a.has_function() || a.caller.role == s.definer)
        return;
    const bool keeps_handler = s.handler && !a.handler;
    if (!keeps_handler && (!s.fallback || a.fallback))
        return;
    ereport(ERROR,
            (errcode(pg::sg409),
             errmsg("the functions of subscription \"%s\" run as another role", clip(s.name)),
             errdetail("Its %s %s runs as role \"%s\", and would run as role \"%s\".",
                       keeps_handler ? "handler" : "fallback",
                       keeps_handler ? s.handler.signature : s.fallback.signature, s.definer.name,
                       a.caller.role.name),
             errhint("Alter it as that role, or pass each function that it has, to run as you.")));
}

/// Ends all batches: their consumers have worked by rules that no longer hold.
void end_batches(const Subscription &s, TimestampTz now) {
    const std::optional<Positions> positions = read_positions(s.id, s.partitions);
    if (!positions)
        elog(ERROR, "subscription %d has no positions", s.id);
    for (Position position : *positions) {
        require_unleased(s, position, now);
        if (position.batch_id == 0)
            continue;
        end_lost_batch(s, position, now);
        move_position(s.id, position, position.at, now);
    }
}

void alter(std::string_view name, const Alteration &a) {
    const Subscription &s = lock_subscription(name);
    require_owner(s, a.caller);
    require_definer(s, a);
    const TimestampTz now = pg::clock_now();
    const bool stops = a.stop_on_first_failure.value_or(s.stop_on_first_failure);
    if (stops != s.stop_on_first_failure || (a.handler && !s.handler))
        end_batches(s, now);
    if (a.has_function())
        alter_functions.run(pg::param(s.id), a.handler.signature(), a.handler.oid(),
                            a.handler ? pg::param(a.handler.takes_batch) : pg::param_null(BOOLOID),
                            a.fallback.signature(), a.fallback.oid(),
                            pg::param(std::string_view{a.caller.role.name}),
                            pg::param(std::string_view{a.search_path}),
                            pg::param_datum(OIDOID, ObjectIdGetDatum(a.caller.role.oid)));
    if (a.retry) {
        const Policy &p = *a.retry;
        alter_retry.run(pg::param(s.id), p[0], p[1], p[2], p[3], p[4], p[5], p[6]);
    }
    if (stops != s.stop_on_first_failure) {
        alter_stopping.run(pg::param(s.id), pg::param(stops));
        apply_stopping(s.id, stops);
    }
    pg::with_stored_text([&] { alter_content.run(pg::param(s.id)); });
    announce_handled_topics();
    wake_workers_at_commit();
    wake_receivers_at_commit(s);
    record_action({.action = "alter", .object = object_text("subscription", s.name)});
}

} // namespace

// alter_subscription(subscription, handler, stop_on_first_failure, retry, fallback) -> void
//
// Runs with the caller's search_path, as create_subscription does.
STACKSAGA_FUNCTION(alter_subscription) {
    pg::Arguments arguments(fcinfo);
    const std::string_view name = arguments.required_text(0, "subscription");
    Alteration a{};
    a.handler = function_argument(arguments, 1, "handler", true);
    if (!arguments.is_null(2))
        a.stop_on_first_failure = DatumGetBool(arguments.datum(2));
    a.retry = policy_argument(arguments, 3);
    a.fallback = function_argument(arguments, 4, "fallback", false);
    if (!a.has_function() && !a.stop_on_first_failure && !a.retry)
        ereport(ERROR, (errcode(pg::sg400), errmsg("no setting to change was given"),
                        errdetail("All settings for subscription \"%s\" are null.", clip(name)),
                        errhint("Pass handler, stop_on_first_failure, retry or fallback.")));
    a.search_path = pstrdup(namespace_search_path);
    a.caller = current_caller();
    with_fixed_settings([&] { alter(name, a); });
    PG_RETURN_VOID();
}

// drop_subscription(subscription, discard) -> void
STACKSAGA_FUNCTION(drop_subscription) {
    pg::Arguments arguments(fcinfo);
    const std::string_view name = arguments.required_text(0, "subscription");
    const bool discards = arguments.required_bool(1, "discard");
    const Caller caller = current_caller();
    with_fixed_settings([&] { drop(name, discards, caller); });
    PG_RETURN_VOID();
}

} // namespace stacksaga
