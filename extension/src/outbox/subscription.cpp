// create_subscription, alter_subscription, drop_subscription, and subscriptions as the rest reads
// them.
#include "src/outbox/subscription.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/query.hpp"
#include "pg/scope.hpp"
#include "pg/settings.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/common/wake.hpp"
#include "src/handler/running_handler.hpp"
#include "src/outbox/delivery_retry.hpp"
#include "src/outbox/handled_topics.hpp"
#include "src/outbox/log_lock.hpp"
#include "src/outbox/log_tick.hpp"
#include "src/outbox/position.hpp"
#include "src/outbox/subscription_argument.hpp"
#include "src/ring/ring.hpp"

namespace stacksaga {

namespace {

constexpr int subscription_bytes_max = 63;

#define SUBSCRIPTION_COLUMNS                                                                                            \
    "SELECT subscription_id, ring_id, subscription, topic, handler, handler_oid, fallback,"                             \
    "       fallback_oid, takes_batch, definer::text, definer_oid, search_path,"                                        \
    "       stop_on_first_failure, start_origin, start_snapshot::text, (retry).max_attempts, (retry).initial_interval," \
    "       (retry).multiplier, (retry).max_interval, (retry).jitter, (retry).retry_on,"                                \
    "       (retry).never_on FROM stacksaga.subscription"
constinit pg::Statement find_by_name{SUBSCRIPTION_COLUMNS
                                     " WHERE ring_id = $1 AND subscription = $2"};
constinit pg::Statement find_by_id{SUBSCRIPTION_COLUMNS " WHERE subscription_id = $1"};
constinit pg::Statement list_with_handlers{
    "SELECT subscription_id FROM stacksaga.subscription"
    " WHERE ring_id = ANY ($1) AND (handler IS NOT NULL OR fallback IS NOT NULL)"
    " ORDER BY subscription_id"};
constinit pg::Statement default_policy{
    "SELECT p.max_attempts, p.initial_interval, p.multiplier, p.max_interval, p.jitter,"
    "       p.retry_on, p.never_on FROM stacksaga.retry_policy() AS p"};
#define CONTENT(topic, handler, stop_on_first_failure, start_at, fallback, definer, retry)         \
    "pg_catalog.jsonb_build_object('topic', " topic ", 'handler', " handler ","                    \
    "  'stop_on_first_failure', " stop_on_first_failure ", 'start_at', " start_at ","              \
    "  'fallback', " fallback ", 'definer', " definer ", 'retry', to_jsonb(" retry "))::text"
constinit pg::Statement make_content{
    "SELECT " CONTENT("$1::text", "$2::text", "$3::boolean", "$4::text", "$5::text", "$6::text",
                      "ROW($7, $8, $9, $10, $11, $12, $13)::stacksaga.retry_policy")};
constinit pg::Statement find_content{
    "SELECT subscription_id, content, definer::text, definer_oid FROM stacksaga.subscription"
    " WHERE ring_id = $1 AND subscription = $2"};
constinit pg::Statement is_other_definers{"SELECT $1::jsonb - 'definer' = $2::jsonb - 'definer'"};
// One line for what differs, the fields of the policy among the settings.
constinit pg::Statement compare_contents{
    "SELECT pg_catalog.string_agg(pg_catalog.format('\"%s\" is %s, not %s', key, a.value, b.value),"
    "         '; ' ORDER BY key)"
    "  FROM pg_catalog.jsonb_each(($1::jsonb - 'retry') || ($1::jsonb -> 'retry')) AS a"
    "  JOIN pg_catalog.jsonb_each(($2::jsonb - 'retry') || ($2::jsonb -> 'retry')) AS b USING (key)"
    " WHERE a.value IS DISTINCT FROM b.value"};
constinit pg::Statement refresh{
    "UPDATE stacksaga.subscription"
    "   SET handler_oid = $2, fallback_oid = $3, search_path = $4, definer = $6::name,"
    "       definer_oid = $7, content = $8"
    " WHERE subscription_id = $1"
    "   AND (handler_oid, fallback_oid, search_path, definer, definer_oid)"
    "       IS DISTINCT FROM ($2, $3, $4, $6::name, $7)"
    "   AND content = $5"}; // another session may just have altered it
constinit pg::Statement insert_subscription{
    "INSERT INTO stacksaga.subscription (ring_id, subscription, topic, content, definer, handler,"
    "       handler_oid, takes_batch, fallback, fallback_oid, search_path, stop_on_first_failure,"
    "       start_origin, start_snapshot, created_at, retry)"
    " VALUES ($1, $2, $3, $4, $5::name, $6, $7, $8, $9, $10, $11, $12, $13, $14::pg_snapshot, $15,"
    "         ROW($16, $17, $18, $19, $20, $21, $22)::stacksaga.retry_policy)"
    " ON CONFLICT (ring_id, subscription) DO NOTHING RETURNING subscription_id"};
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
constinit pg::Statement alter_content{"UPDATE stacksaga.subscription SET content = " CONTENT(
    "topic", "handler", "stop_on_first_failure", "content::jsonb ->> 'start_at'", "fallback",
    "definer", "retry") " WHERE subscription_id = $1"};
constinit pg::Statement find_consumer{
    "SELECT consumer FROM stacksaga.subscription_position"
    " WHERE subscription_id = $1 AND partition = $2 ORDER BY version DESC LIMIT 1"};
constinit pg::Statement delete_positions{
    "DELETE FROM stacksaga.subscription_position WHERE subscription_id = $1"};
constinit pg::Statement delete_batches{
    "DELETE FROM stacksaga.message_batch WHERE subscription_id = $1", pg::Plans::by_statistics};
constinit pg::Statement delete_retries{
    "DELETE FROM stacksaga.message_retry WHERE subscription_id = $1"};
constinit pg::Statement delete_dead{
    "DELETE FROM stacksaga.dead_message WHERE subscription_id = $1"};
constinit pg::Statement delete_subscription{
    "DELETE FROM stacksaga.subscription WHERE subscription_id = $1"};

const Subscription *read_subscription(const pg::Rows &rows) {
    auto *s = new (palloc0(sizeof(Subscription))) Subscription{};
    s->id = rows.int4(0, 0);
    s->ring_id = rows.int4(0, 1);
    s->name = copy_view(rows.text(0, 2));
    s->topic = copy_view(rows.text(0, 3));
    s->handler = read_function(rows, 0, 4);
    s->fallback = read_function(rows, 0, 6);
    s->takes_batch = rows.boolean(0, 8);
    s->definer = read_definer(rows, 0, 9);
    s->search_path = copy_text(rows, 0, 11);
    s->stop_on_first_failure = rows.boolean(0, 12);
    s->retry = read_rules(rows, 0, 15);
    const bool is_prefix = s->topic.back() == '*';
    s->filter = {.ring_id = s->ring_id,
                 .topic = is_prefix ? s->topic.substr(0, s->topic.size() - 1) : s->topic,
                 .is_prefix = is_prefix,
                 .start_origin = rows.optional_int8(0, 13).value_or(0),
                 .start = nullptr};
    if (std::optional<std::string_view> text = rows.optional_text(0, 14)) {
        s->start = snapshot_of_text(*text);
        s->filter.start = &s->start;
    }
    return s;
}

} // namespace

const Subscription &find_subscription(std::string_view name) {
    pg::Rows rows = find_by_name.run(pg::param(current_ring().ring_id), pg::param(name));
    if (rows.empty())
        ereport(ERROR,
                (errcode(pg::sg404), errmsg("subscription \"%s\" does not exist", clip(name)),
                 errdetail("Ring (%s, %s) has no subscription of this name.", pg::settings.region,
                           pg::settings.cluster),
                 errhint("Create it with stacksaga.create_subscription(), or set stacksaga.region "
                         "and stacksaga.cluster to the ring that it is in.")));
    return *read_subscription(rows);
}

const Subscription *find_subscription(int32 subscription_id) {
    pg::Rows rows = find_by_id.run(pg::param(subscription_id));
    return rows.empty() ? nullptr : read_subscription(rows);
}

const Subscription *hold_subscription(int32 subscription_id, bool wait) {
    return hold_settings(subscription_id, wait) ? find_subscription(subscription_id) : nullptr;
}

std::span<const int32> subscriptions_with_handlers(int32 ring_id) {
    pg::Rows rows = list_with_handlers.run(pg::param_array(served_rings(ring_id)));
    auto *ids = static_cast<int32 *>(palloc(sizeof(int32) * (rows.count() + 1)));
    for (uint64 i = 0; i < rows.count(); ++i)
        ids[i] = rows.int4(i, 0);
    return {ids, static_cast<size_t>(rows.count())};
}

namespace {

struct NewSubscription {
    std::string_view name;
    std::string_view topic;
    NewFunction handler, fallback;
    bool stop_on_first_failure;
    std::string_view start_at;
    Policy policy{};
    const char *search_path;
    Caller caller; // while this is carried out the current role is another one
};

void check_topic_pattern(std::string_view topic) {
    check_name(topic, "topic", topic_bytes_max);
    const size_t star = topic.find('*');
    if (star != std::string_view::npos && star + 1 != topic.size())
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"topic\" has * in its middle"),
                        errdetail("The value is \"%s\".", clip(topic)),
                        errhint("A * is allowed only at the end, where it matches any suffix.")));
}

void begin_positions(int32 subscription_id, TimestampTz now, bool at_now) {
    // start_snapshot says which messages are older than the subscription, so any tick before it is
    // a valid beginning; the last one leaves the least to read.
    const core::LogPosition begin{.tick = at_now ? last_tick() : 0, .number = 0};
    for (int16 partition = 0; partition < log_partitions; ++partition) {
        Position position{};
        position.partition = partition;
        move_position(subscription_id, position, begin, now);
    }
}

/// Whether the caller may refresh it under `content`. A superuser takes over a subscription that
/// differs in its definer alone; one that another role of that name has created stays as it is.
bool is_same(const NewSubscription &s, const pg::Rows &known, std::string_view content) {
    const std::string_view before = known.text(0, 1);
    if (before != content)
        return s.caller.is_superuser &&
               is_other_definers.run(pg::param(before), pg::param(content)).boolean(0, 0);
    const Definer definer = read_definer(known, 0, 2);
    if (definer == s.caller.role || s.caller.is_superuser)
        return true;
    ereport(ERROR,
            (errcode(pg::sg403), errmsg("subscription \"%s\" is another role's", clip(s.name)),
             errdetail("Role \"%s\" has created it: %s.", definer.name, objection_to(definer)),
             errhint("A superuser may create it again as any role, by SET ROLE.")));
}

void repeat(const NewSubscription &s, const pg::Rows &known, std::string_view content) {
    if (!is_same(s, known, content)) {
        pg::Rows differences =
            compare_contents.run(pg::param(known.text(0, 1)), pg::param(content));
        ereport(ERROR, (errcode(pg::sg409),
                        errmsg("subscription \"%s\" exists with other settings", clip(s.name)),
                        errdetail("Its setting %s.", copy_text(differences, 0, 0)),
                        errhint("Repeat it with the settings it has, or change them by "
                                "stacksaga.alter_subscription(); for another topic or start_at "
                                "choose another name.")));
    }
    refresh.run(pg::param(known.int4(0, 0)), s.handler.oid(), s.fallback.oid(),
                pg::param(std::string_view{s.search_path}), pg::param(known.text(0, 1)),
                pg::param(std::string_view{s.caller.role.name}),
                pg::param_datum(OIDOID, ObjectIdGetDatum(s.caller.role.oid)), pg::param(content));
}

/// Its number; nothing when another session has just committed one of that name.
std::optional<int32> insert(const NewSubscription &s, int32 ring_id, std::string_view content) {
    // Until the commit other sessions do not see that its positions need the log from there on.
    lock_out_maintenance();
    const auto &p = s.policy;
    const bool at_now = s.start_at == "now";
    pg::Rows made = insert_subscription.run(
        pg::param(ring_id), pg::param(s.name), pg::param(s.topic), pg::param(content),
        pg::param(std::string_view{s.caller.role.name}), s.handler.signature(), s.handler.oid(),
        pg::param(s.handler.takes_batch), s.fallback.signature(), s.fallback.oid(),
        pg::param(std::string_view{s.search_path}), pg::param(s.stop_on_first_failure),
        at_now ? pg::param(static_cast<int64>(GetSystemIdentifier())) : pg::param_null(INT8OID),
        at_now ? pg::param(std::string_view{snapshot_text(current_snapshot())})
               : pg::param_null(TEXTOID),
        pg::param_time(pg::clock_now()), p[0], p[1], p[2], p[3], p[4], p[5], p[6]);
    if (made.empty())
        return std::nullopt;
    return made.int4(0, 0);
}

void record(std::string_view action, std::string_view subscription) {
    record_action({.action = action, .object = object_text("subscription", subscription)});
}

void create(NewSubscription &s, bool has_policy) {
    if (!has_policy) {
        pg::Rows rows = default_policy.run();
        for (int field = 0; field < policy_fields; ++field) {
            bool isnull;
            Datum value = rows.datum(0, field, &isnull);
            s.policy[static_cast<size_t>(field)] =
                pg::param_datum(SPI_gettypeid(SPI_tuptable->tupdesc, field + 1), value, isnull);
        }
    }
    const auto &p = s.policy;
    const Ring ring = current_ring();
    const std::string_view content =
        copy_view(make_content
                      .run(pg::param(s.topic), s.handler.signature(),
                           pg::param(s.stop_on_first_failure), pg::param(s.start_at),
                           s.fallback.signature(), pg::param(std::string_view{s.caller.role.name}),
                           p[0], p[1], p[2], p[3], p[4], p[5], p[6])
                      .text(0, 0));
    std::optional<int32> made;
    while (!made) { // another session may create it or drop it meanwhile
        pg::Rows known = find_content.run(pg::param(ring.ring_id), pg::param(s.name));
        if (!known.empty()) {
            repeat(s, known, content);
            return;
        }
        made = insert(s, ring.ring_id, content);
    }
    begin_positions(*made, pg::clock_now(), s.start_at == "now");
    announce_handled_topics();
    wake_workers_at_commit();
    record("create", s.name);
}

[[noreturn]] void raise_in_use(const Subscription &s, const char *detail, const char *hint) {
    ereport(ERROR, (errcode(pg::sg409), errmsg("subscription \"%s\" is in use", clip(s.name)),
                    errdetail("%s", detail), errhint("%s", hint)));
}

/// SG409 when a batch holds the partition.
void require_unleased(const Subscription &s, const Position &position, TimestampTz now) {
    if (!position.is_leased(now))
        return;
    pg::Rows rows = find_consumer.run(pg::param(s.id), pg::param(position.partition));
    raise_in_use(s,
                 psprintf("Consumer \"%s\" holds batch " INT64_FORMAT " of it under a lease.",
                          clip(rows.text(0, 0)), position.batch_id),
                 "Stop its consumers, and let them acknowledge what they hold or their leases run "
                 "out.");
}

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

void drop(std::string_view name) {
    const Subscription &s = find_subscription(name);
    if (running_handler.is_of_subscription(s.id))
        raise_in_use(s, "Its own handler is calling.",
                     "Drop it in another transaction than that of its handler.");
    const TimestampTz now = pg::clock_now();
    for (int16 partition = 0; partition < log_partitions; ++partition)
        require_free(s, partition, now);
    delete_positions.run(pg::param(s.id));
    delete_batches.run(pg::param(s.id));
    delete_retries.run(pg::param(s.id));
    delete_dead.run(pg::param(s.id));
    delete_subscription.run(pg::param(s.id));
    announce_handled_topics();
    record("drop", s.name);
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

/// The subscription, with its settings and its partitions locked; waits for sessions that work on
/// it.
const Subscription &lock_subscription(std::string_view name) {
    for (;;) { // it may be dropped, and created again, while we wait
        const Subscription &s = find_subscription(name);
        if (running_handler.is_of_subscription(s.id))
            raise_in_use(s, "Its own handler is calling.",
                         "Alter it in another transaction than that of its handler.");
        lock_settings(s.id);
        bool is_there = true;
        for (int16 partition = 0; partition < log_partitions; ++partition)
            is_there = lock_position(s.id, partition, true).has_value() && is_there;
        if (is_there)
            return *find_subscription(s.id);
    }
}

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
    const std::optional<Positions> positions = read_positions(s.id);
    if (!positions)
        elog(ERROR, "subscription %d has no positions", s.id);
    for (Position position : *positions) {
        require_unleased(s, position, now);
        if (position.batch_id != 0)
            move_position(s.id, position, position.at, now);
    }
}

void alter(std::string_view name, const Alteration &a) {
    const Subscription &s = lock_subscription(name);
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
    alter_content.run(pg::param(s.id));
    announce_handled_topics();
    wake_workers_at_commit();
    record("alter", s.name);
}

/// As the owner, with settings on which neither SQL nor the text of `content` depends.
template <class F> void with_fixed_settings(F &&body) {
    static constexpr std::array settings{pg::pinned_path, pg::Setting{"intervalstyle", "postgres"}};
    pg::with_settings(settings, [&] { pg::as_owner([&] { pg::with_spi(body); }); });
}

} // namespace

// create_subscription(subscription, topic, handler, stop_on_first_failure, retry, start_at,
//                     fallback) -> void
//
// Runs with the caller's search_path to look up the names of functions, and then with its own.
STACKSAGA_FUNCTION(create_subscription) {
    pg::Arguments arguments(fcinfo);
    NewSubscription s{};
    s.name = arguments.required_text(0, "subscription");
    check_name(s.name, "subscription", subscription_bytes_max);
    s.topic = arguments.required_text(1, "topic");
    check_topic_pattern(s.topic);
    s.handler = function_argument(arguments, 2, "handler", true);
    s.stop_on_first_failure = arguments.required_bool(3, "stop_on_first_failure");
    auto policy = policy_argument(arguments, 4);
    if (policy)
        s.policy = *policy;
    s.start_at = arguments.required_text(5, "start_at");
    if (s.start_at != "now" && s.start_at != "earliest")
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"start_at\" is not known"),
                        errdetail("The value is \"%s\".", clip(s.start_at)),
                        errhint("Use now, or earliest for all messages that are kept.")));
    s.fallback = function_argument(arguments, 6, "fallback", false);
    s.search_path = pstrdup(namespace_search_path);
    s.caller = current_caller();
    with_fixed_settings([&] { create(s, policy.has_value()); });
    PG_RETURN_VOID();
}

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

// drop_subscription(subscription) -> void
STACKSAGA_FUNCTION(drop_subscription) {
    const std::string_view name = pg::Arguments(fcinfo).required_text(0, "subscription");
    pg::with_spi([&] { drop(name); });
    PG_RETURN_VOID();
}

} // namespace stacksaga
