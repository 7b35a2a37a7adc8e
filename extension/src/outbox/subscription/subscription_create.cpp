// create_subscription: a subscription is made, or repeated as it is.
#include "core/outbox/partition.hpp"
#include "core/outbox/snapshot_window.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"
#include "pg/stored_text.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/common/wake.hpp"
#include "src/outbox/delivery/delivery_loss.hpp"
#include "src/outbox/delivery/delivery_retry.hpp"
#include "src/outbox/log/handled_topics.hpp"
#include "src/outbox/log/log_lock.hpp"
#include "src/outbox/log/log_tick.hpp"
#include "src/outbox/subscription/position.hpp"
#include "src/outbox/subscription/subscription.hpp"
#include "src/outbox/subscription/subscription_argument.hpp"
#include "src/outbox/subscription/subscription_lock.hpp"
#include "src/ring/rings.hpp"

namespace stacksaga {

namespace {

constexpr int subscription_bytes_max = 63;

enum class PolicyColumn : uint8_t {
    max_attempts,
    initial_interval,
    multiplier,
    max_interval,
    jitter,
    retry_on,
    never_on,
};
constinit pg::Select<PolicyColumn> default_policy{
    "SELECT p.max_attempts, p.initial_interval, p.multiplier, p.max_interval, p.jitter,"
    "       p.retry_on, p.never_on FROM stacksaga.retry_policy() AS p"};
constinit pg::Statement make_content{
    "SELECT (pg_catalog.jsonb_build_object('topic', $1::text, 'handler', $2::text,"
    "  'stop_on_first_failure', $3::boolean, 'start_at', $4::text, 'fallback', $5::text,"
    "  'definer', $6::text, 'partitions', $14::integer,"
    "  'retry', to_jsonb(ROW($7, $8, $9, $10, $11, $12, $13)::stacksaga.retry_policy))"
    " || CASE WHEN $15::text IS NULL THEN '{}'"
    "         ELSE pg_catalog.jsonb_build_object('successor_of', $15::text) END)::text"};
enum class KnownColumn : uint8_t { subscription_id, content, definer, definer_oid };
using Known = pg::RowsOf<KnownColumn>;
constinit pg::Select<KnownColumn> find_content{
    "SELECT subscription_id, content, definer::text, definer_oid FROM stacksaga.subscription"
    " WHERE ring_id = $1 AND subscription = $2"};
constinit pg::Statement is_other_definers{"SELECT $1::jsonb - 'definer' = $2::jsonb - 'definer'"};
// One line for what differs, the fields of the policy among the settings.
constinit pg::Statement compare_contents{
    "SELECT pg_catalog.string_agg(pg_catalog.format('\"%s\" is %s, not %s', key,"
    "         coalesce(a.value, 'null'), coalesce(b.value, 'null')),"
    "         '; ' ORDER BY key)"
    "  FROM pg_catalog.jsonb_each(($1::jsonb - 'retry') || ($1::jsonb -> 'retry')) AS a"
    "  FULL JOIN pg_catalog.jsonb_each(($2::jsonb - 'retry') || ($2::jsonb -> 'retry')) AS b USING (key)"
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
    "       start_origin, start_snapshot, created_at, retry, partitions, taken_over_at)"
    " VALUES ($1, $2, $3, $4, $5::name, $6, $7, $8, $9, $10, $11, $12, $13, $14::pg_snapshot, $15,"
    "         ROW($16, $17, $18, $19, $20, $21, $22)::stacksaga.retry_policy, $23, $24)"
    " ON CONFLICT (ring_id, subscription) DO NOTHING RETURNING subscription_id"};

constinit pg::Statement end_reading{
    "UPDATE stacksaga.subscription SET successor = $2 WHERE subscription_id = $1"};

struct NewSubscription {
    std::string_view name;
    std::string_view topic;
    NewFunction handler, fallback;
    bool stop_on_first_failure;
    std::string_view start_at;
    std::optional<std::string_view> successor_of;
    int32 partitions;
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

void begin_positions(int32 subscription_id, int32 partitions, TimestampTz now, bool at_now) {
    // start_snapshot says which messages are older than the subscription, so any tick before it is
    // a valid beginning; the last one leaves the least to read.
    const core::LogPosition begin{.tick = at_now ? last_tick() : 0, .number = 0};
    for (int16 partition = 0; partition < partitions; ++partition) {
        Position position{};
        position.partition = partition;
        move_position(subscription_id, position, begin, now);
    }
}

/// The state that a subscription takes over: how far the other one has read, and from where on that
/// one was to read at all.
struct Predecessor {
    const Subscription *subscription;
    std::span<core::LogPosition> read; ///< by its partitions, or by the finer ones of its own
};

/// Messages given to consumers that have not answered stay with the subscription, as retries: its
/// position moves behind it.
void keep_what_was_given(const Subscription &s, Position &position, TimestampTz now) {
    end_lost_batch(s, position, now);
    const core::LogPosition end = std::max(position.at, position.lost_until);
    const std::span<Message> given =
        read_log_again(s.filter, position.partition, position.at, end).messages;
    mark_in_doubt(position, given);
    copy_out_unhandled(s, given,
                       "its consumer had not answered when another subscription took over", now);
    move_position(s.id, position, end, now);
}

/// Locks the other subscription, which no consumer may be working for.
Predecessor hold_predecessor(const NewSubscription &s, TimestampTz now) {
    const Subscription &other = lock_subscription(*s.successor_of);
    if (!other.successor.empty())
        ereport(ERROR,
                (errcode(pg::sg409),
                 errmsg("subscription \"%s\" has a successor already", clip(other.name)),
                 errdetail("Subscription \"%s\" has taken over from it.", clip(other.successor)),
                 errhint("Name that one as successor_of.")));
    const std::optional<Positions> positions = read_positions(other.id, other.partitions);
    if (!positions)
        elog(ERROR, "subscription %d has no positions", other.id);
    for (const Position &position : *positions)
        require_unleased(other, position, now);
    return {.subscription = &other, .read = {}};
}

/// Ends its reading, in the transaction that has its lock.
void take_over(Predecessor &p, std::string_view successor, TimestampTz now) {
    const Subscription &other = *p.subscription;
    const std::optional<Positions> positions = read_positions(other.id, other.partitions);
    const auto coarse = static_cast<size_t>(other.partitions);
    const size_t fine = std::max(coarse, other.filter.taken_over.size());
    auto *read = static_cast<core::LogPosition *>(palloc(sizeof(core::LogPosition) * fine));
    for (Position position : *positions)
        keep_what_was_given(other, position, now);
    const std::optional<Positions> ends = read_positions(other.id, other.partitions);
    for (size_t i = 0; i < fine; ++i) {
        read[i] = (*ends)[i * coarse / fine].at;
        if (!other.filter.taken_over.empty())
            read[i] = std::max(read[i],
                               other.filter.taken_over[i * other.filter.taken_over.size() / fine]);
    }
    p.read = {read, fine};
    end_reading.run(pg::param(other.id), pg::param(successor));
}

/// The positions begin where the other subscription ended; where a partition covers several of
/// its, at the one that is the furthest behind.
void begin_behind(int32 subscription_id, int32 partitions, const Predecessor &p, TimestampTz now) {
    const auto count = static_cast<size_t>(partitions);
    for (size_t i = 0; i < count; ++i) {
        const size_t first = i * p.read.size() / count,
                     last = std::max((i + 1) * p.read.size() / count, first + 1);
        Position position{};
        position.partition = static_cast<int16>(i);
        move_position(subscription_id, position,
                      *std::min_element(p.read.begin() + static_cast<std::ptrdiff_t>(first),
                                        p.read.begin() + static_cast<std::ptrdiff_t>(last)),
                      now);
    }
}

/// Identifies the messages that were read: pairs of tick and number.
pg::Param taken_over_param(const Predecessor *p, int32 partitions) {
    if (p == nullptr || p->read.size() <= static_cast<size_t>(partitions))
        return pg::param_null(INT8ARRAYOID);
    auto *numbers = static_cast<int64 *>(palloc(sizeof(int64) * 2 * p->read.size()));
    for (size_t i = 0; i < p->read.size(); ++i) {
        numbers[2 * i] = p->read[i].tick;
        numbers[2 * i + 1] = p->read[i].number;
    }
    return pg::param_array(std::span<const int64>{numbers, 2 * p->read.size()});
}

/// Whether the caller may refresh it under `content`. A superuser takes over a subscription that
/// differs in its definer alone; one that another role of that name has created stays as it is.
bool is_same(const NewSubscription &s, const Known &known, std::string_view content) {
    const std::string_view before = known.text(0, KnownColumn::content);
    if (before != content)
        return s.caller.is_superuser &&
               is_other_definers.run(pg::param(before), pg::param(content)).boolean(0);
    const Definer definer = read_definer(known, 0);
    if (definer == s.caller.role || s.caller.is_superuser)
        return true;
    ereport(ERROR,
            (errcode(pg::sg403), errmsg("subscription \"%s\" is another role's", clip(s.name)),
             errdetail("Role \"%s\" has created it: %s.", definer.name, objection_to(definer)),
             errhint("A superuser may create it again as any role, by SET ROLE.")));
}

void repeat(const NewSubscription &s, const Known &known, std::string_view content) {
    if (!is_same(s, known, content)) {
        pg::Rows differences = compare_contents.run(pg::param(known.text(0, KnownColumn::content)),
                                                    pg::param(content));
        ereport(ERROR, (errcode(pg::sg409),
                        errmsg("subscription \"%s\" exists with other settings", clip(s.name)),
                        errdetail("Its setting %s.", copy_text(differences.optional_text(0))),
                        errhint("Repeat it with the settings it has, or change them by "
                                "stacksaga.alter_subscription(); for another topic, start_at "
                                "or number of partitions choose another name.")));
    }
    refresh.run(pg::param(known.int4(0, KnownColumn::subscription_id)), s.handler.oid(),
                s.fallback.oid(), pg::param(std::string_view{s.search_path}),
                pg::param(known.text(0, KnownColumn::content)),
                pg::param(std::string_view{s.caller.role.name}),
                pg::param_datum(OIDOID, ObjectIdGetDatum(s.caller.role.oid)), pg::param(content));
}

/// Its number; nothing when another session has just committed one of that name.
std::optional<int32> insert(const NewSubscription &s, int32 ring_id, std::string_view content,
                            const Predecessor *predecessor) {
    // Until the commit other sessions do not see that its positions need the log from there on.
    lock_out_maintenance();
    const auto &p = s.policy;
    pg::Param origin = pg::param_null(INT8OID), snapshot = pg::param_null(TEXTOID);
    if (predecessor != nullptr) { // messages older than that one are older than this one
        const LogFilter &filter = predecessor->subscription->filter;
        if (filter.start != nullptr) {
            origin = pg::param(filter.start_origin);
            snapshot = pg::param(std::string_view{snapshot_text(*filter.start)});
        }
    } else if (s.start_at == "now") {
        origin = pg::param(static_cast<int64>(GetSystemIdentifier()));
        snapshot = pg::param(std::string_view{snapshot_text(current_snapshot())});
    }
    pg::Rows made = insert_subscription.run(
        pg::param(ring_id), pg::param(s.name), pg::param(s.topic), pg::param(content),
        pg::param(std::string_view{s.caller.role.name}), s.handler.signature(), s.handler.oid(),
        pg::param(s.handler.takes_batch), s.fallback.signature(), s.fallback.oid(),
        pg::param(std::string_view{s.search_path}), pg::param(s.stop_on_first_failure), origin,
        snapshot, pg::param_time(pg::clock_now()), p[0], p[1], p[2], p[3], p[4], p[5], p[6],
        pg::param(s.partitions), taken_over_param(predecessor, s.partitions));
    if (made.empty())
        return std::nullopt;
    return made.int4(0);
}

void create(NewSubscription &s, bool has_policy) {
    if (!has_policy) {
        const auto rows = default_policy.run();
        const auto field = [&](PolicyColumn c, Oid type) {
            const NullableDatum d = rows.nullable(0, c);
            return pg::param_datum(type, d.value, d.isnull);
        };
        s.policy = {field(PolicyColumn::max_attempts, INT4OID),
                    field(PolicyColumn::initial_interval, INTERVALOID),
                    field(PolicyColumn::multiplier, FLOAT8OID),
                    field(PolicyColumn::max_interval, INTERVALOID),
                    field(PolicyColumn::jitter, FLOAT8OID),
                    field(PolicyColumn::retry_on, TEXTARRAYOID),
                    field(PolicyColumn::never_on, TEXTARRAYOID)};
    }
    const auto &p = s.policy;
    const Ring ring = current_ring();
    const std::string_view content = pg::with_stored_text([&] {
        return copy_view(
            make_content
                .run(pg::param(s.topic), s.handler.signature(), pg::param(s.stop_on_first_failure),
                     pg::param(s.start_at), s.fallback.signature(),
                     pg::param(std::string_view{s.caller.role.name}), p[0], p[1], p[2], p[3], p[4],
                     p[5], p[6], pg::param(s.partitions), pg::param(s.successor_of))
                .text(0));
    });
    const TimestampTz now = pg::clock_now();
    std::optional<int32> made;
    std::optional<Predecessor> predecessor;
    while (!made) { // another session may create it or drop it meanwhile
        const Known known = find_content.run(pg::param(ring.ring_id), pg::param(s.name));
        if (!known.empty()) {
            repeat(s, known, content);
            return;
        }
        if (s.successor_of && !predecessor) {
            predecessor = hold_predecessor(s, now);
            lock_out_maintenance();
            take_over(*predecessor, s.name, now);
        }
        made = insert(s, ring.ring_id, content, predecessor ? &*predecessor : nullptr);
    }
    if (predecessor)
        begin_behind(*made, s.partitions, *predecessor, now);
    else
        begin_positions(*made, s.partitions, now, s.start_at == "now");
    announce_handled_topics();
    wake_workers_at_commit();
    record_action({.action = "create", .object = object_text("subscription", s.name)});
}

} // namespace

// create_subscription(subscription, topic, handler, stop_on_first_failure, retry, start_at,
//                     fallback, partitions, successor_of) -> void
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
    s.partitions = arguments.required_int4(7, "partitions");
    if (!core::is_partition_count(s.partitions))
        ereport(
            ERROR,
            (errcode(pg::sg400), errmsg("argument \"partitions\" is out of range"),
             errdetail("The value is %d.", s.partitions),
             errhint(
                 "Use a power of two, at most %d: each partition serves one consumer at a time.",
                 core::partitions_max)));
    s.successor_of = arguments.optional_text(8);
    if (s.successor_of && s.start_at != "now")
        ereport(ERROR, (errcode(pg::sg400), errmsg("successor_of and start_at exclude each other"),
                        errdetail("The value of start_at is \"%s\".", clip(s.start_at)),
                        errhint("Leave start_at out: the subscription begins where \"%s\" ends.",
                                clip(*s.successor_of))));
    s.search_path = pstrdup(namespace_search_path);
    s.caller = current_caller();
    with_fixed_settings([&] { create(s, policy.has_value()); });
    PG_RETURN_VOID();
}

} // namespace stacksaga
