// Subscriptions as the rest reads them.
#include "src/outbox/subscription/subscription.hpp"

#include "core/outbox/snapshot_window.hpp"

#include "pg/errors.hpp"
#include "pg/settings.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/outbox/log/log_lock.hpp"
#include "src/outbox/log/log_tick.hpp"
#include "src/ring/rings.hpp"

namespace stacksaga {

namespace {

// -infinity: it is not paused; infinity: until somebody ends the pause.
#define PAUSED_UNTIL                                                                               \
    " CASE WHEN paused_at IS NULL THEN '-infinity' ELSE coalesce(paused_until, 'infinity') END"    \
    " AS paused_until"
#define SUBSCRIPTION_COLUMNS                                                                                            \
    "SELECT subscription_id, ring_id, subscription, topic, handler, handler_oid, fallback,"                             \
    "       fallback_oid, takes_batch, definer::text, definer_oid, search_path,"                                        \
    "       stop_on_first_failure, start_origin, start_snapshot::text, (retry).max_attempts, (retry).initial_interval," \
    "       (retry).multiplier, (retry).max_interval, (retry).jitter, (retry).retry_on,"                                \
    "       (retry).never_on, partitions, successor, taken_over_at," PAUSED_UNTIL                                       \
    " FROM stacksaga.subscription"
enum class SubscriptionColumn : uint8_t {
    subscription_id,
    ring_id,
    subscription,
    topic,
    handler,
    handler_oid,
    fallback,
    fallback_oid,
    takes_batch,
    definer,
    definer_oid,
    search_path,
    stop_on_first_failure,
    start_origin,
    start_snapshot,
    max_attempts,
    initial_interval,
    multiplier,
    max_interval,
    jitter,
    retry_on,
    never_on,
    partitions,
    successor,
    taken_over_at,
    paused_until,
};
constinit pg::Select<SubscriptionColumn> find_by_name{SUBSCRIPTION_COLUMNS
                                                      " WHERE ring_id = $1 AND subscription = $2"};
constinit pg::Select<SubscriptionColumn> find_by_id{SUBSCRIPTION_COLUMNS
                                                    " WHERE subscription_id = $1"};
enum class ServedColumn : uint8_t { subscription_id, paused_until };
constinit pg::Select<ServedColumn> list_with_handlers{
    "SELECT subscription_id," PAUSED_UNTIL " FROM stacksaga.subscription"
    " WHERE ring_id = ANY ($1) AND (handler IS NOT NULL OR fallback IS NOT NULL)"
    " ORDER BY subscription_id"};

/// From pairs of tick and number.
std::span<const core::LogPosition> positions_of(Datum array) {
    ArrayType *values = DatumGetArrayTypeP(array);
    const auto *numbers = reinterpret_cast<const int64 *>(ARR_DATA_PTR(values));
    const auto count = static_cast<size_t>(ArrayGetNItems(ARR_NDIM(values), ARR_DIMS(values))) / 2;
    auto *positions =
        static_cast<core::LogPosition *>(palloc(sizeof(core::LogPosition) * (count + 1)));
    for (size_t i = 0; i < count; ++i)
        positions[i] = {.tick = numbers[2 * i], .number = numbers[2 * i + 1]};
    return {positions, count};
}

const Subscription *read_subscription(const pg::RowsOf<SubscriptionColumn> &rows) {
    using Column = SubscriptionColumn;
    auto *s = new (palloc0(sizeof(Subscription))) Subscription{};
    s->id = rows.int4(0, Column::subscription_id);
    s->ring_id = rows.int4(0, Column::ring_id);
    s->name = copy_view(rows.text(0, Column::subscription));
    s->topic = copy_view(rows.text(0, Column::topic));
    s->handler = read_function(rows, 0, Column::handler, Column::handler_oid);
    s->fallback = read_function(rows, 0, Column::fallback, Column::fallback_oid);
    s->takes_batch = rows.boolean(0, Column::takes_batch);
    s->definer = read_definer(rows, 0);
    s->search_path = copy_text(rows.optional_text(0, Column::search_path));
    s->stop_on_first_failure = rows.boolean(0, Column::stop_on_first_failure);
    s->retry = read_rules(rows, 0);
    s->partitions = rows.int4(0, Column::partitions);
    s->paused_until = rows.time(0, Column::paused_until);
    const bool is_prefix = s->topic.back() == '*';
    s->filter = {.ring_id = s->ring_id,
                 .partitions = s->partitions,
                 .topic = is_prefix ? s->topic.substr(0, s->topic.size() - 1) : s->topic,
                 .is_prefix = is_prefix,
                 .start_origin = rows.optional_int8(0, Column::start_origin).value_or(0),
                 .start = nullptr};
    if (std::optional<std::string_view> successor = rows.optional_text(0, Column::successor)) {
        s->successor = copy_view(*successor);
        s->filter.is_over = true;
    }
    if (!rows.is_null(0, Column::taken_over_at))
        s->filter.taken_over = positions_of(rows.value(0, Column::taken_over_at));
    if (std::optional<std::string_view> text = rows.optional_text(0, Column::start_snapshot)) {
        s->start = snapshot_of_text(*text);
        s->filter.start = &s->start;
    }
    return s;
}

} // namespace

const Subscription &find_subscription(std::string_view name) {
    const auto rows = find_by_name.run(pg::param(current_ring().ring_id), pg::param(name));
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
    const auto rows = find_by_id.run(pg::param(subscription_id));
    return rows.empty() ? nullptr : read_subscription(rows);
}

const Subscription *hold_subscription(int32 subscription_id, bool wait) {
    return hold_settings(subscription_id, wait) ? find_subscription(subscription_id) : nullptr;
}

void require_no_handler(const Subscription &s) {
    if (s.handler)
        ereport(ERROR,
                (errcode(pg::sg409), errmsg("subscription \"%s\" has a handler", clip(s.name)),
                 errdetail("Its messages are handled by %s.", s.handler.signature),
                 errhint("Create another subscription, without a handler, for a service.")));
}

Handled subscriptions_with_handlers(int32 ring_id, TimestampTz now) {
    const auto rows = list_with_handlers.run(pg::param_array(served_rings(ring_id)));
    auto *ids = static_cast<int32 *>(palloc(sizeof(int32) * (rows.count() + 1)));
    Handled handled{.ids = {}, .next = DT_NOEND};
    size_t count = 0;
    for (uint64 i = 0; i < rows.count(); ++i) {
        const TimestampTz paused_until = rows.time(i, ServedColumn::paused_until);
        if (paused_until > now)
            handled.next = std::min(handled.next, paused_until);
        else
            ids[count++] = rows.int4(i, ServedColumn::subscription_id);
    }
    handled.ids = {ids, count};
    return handled;
}

} // namespace stacksaga
