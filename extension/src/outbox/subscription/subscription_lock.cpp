#include "src/outbox/subscription/subscription_lock.hpp"

#include "pg/errors.hpp"
#include "pg/statement/query.hpp"
#include "src/common/limits.hpp"
#include "src/handler/running_handler.hpp"
#include "src/outbox/log/log_lock.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement find_consumer{
    "SELECT consumer FROM stacksaga.subscription_position"
    " WHERE subscription_id = $1 AND partition = $2 ORDER BY version DESC LIMIT 1"};

} // namespace

void raise_in_use(const Subscription &s, const char *detail, const char *hint) {
    ereport(ERROR, (errcode(pg::sg409), errmsg("subscription \"%s\" is in use", clip(s.name)),
                    errdetail("%s", detail), errhint("%s", hint)));
}

void require_unleased(const Subscription &s, const Position &position, TimestampTz now) {
    if (!position.is_leased(now))
        return;
    pg::Rows rows = find_consumer.run(pg::param(s.id), pg::param(position.partition));
    raise_in_use(s,
                 psprintf("Consumer \"%s\" holds batch " INT64_FORMAT " of it under a lease.",
                          clip(rows.text(0)), position.batch_id),
                 "Stop its consumers, and let them acknowledge what they hold or their leases run "
                 "out.");
}

const Subscription &lock_subscription(std::string_view name) {
    for (;;) { // it may be dropped, and created again, while we wait
        const Subscription &s = find_subscription(name);
        if (running_handler.is_of_subscription(s.id))
            raise_in_use(s, "Its own handler is calling.",
                         "Alter it in another transaction than that of its handler.");
        lock_settings(s.id);
        bool is_there = true;
        for (int16 partition = 0; partition < s.partitions; ++partition)
            is_there = lock_position(s.id, partition, true).has_value() && is_there;
        if (is_there)
            return *find_subscription(s.id);
    }
}

} // namespace stacksaga
