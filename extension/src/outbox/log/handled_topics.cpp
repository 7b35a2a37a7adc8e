#include "src/outbox/log/handled_topics.hpp"

#include "pg/settings.hpp"
#include "pg/statement/function.hpp"
#include "pg/table/lookup.hpp"
#include "pg/table/relation_change.hpp"
#include "src/common/wake.hpp"
#include "src/outbox/outbox_tables.hpp"

namespace stacksaga {

namespace {

/// The topics that subscriptions name, of all rings: a ring that adopted another one serves its
/// topics.
struct Topics {
    MemoryContext memory = nullptr;
    List *patterns = NIL; ///< of C strings
    Oid table = InvalidOid;
};
constinit Topics topics{};
constinit uint64 changes = 1;   // of the table, as this session has noticed
constinit uint64 known_at = 0;  // what `changes` was when the topics were read
constinit uint64 relied_on = 0; // by this transaction, not to wake workers; 0: it has not
constinit bool is_watching = false;

Oid find_table() {
    return get_relname_relid("subscription", get_namespace_oid("stacksaga", false));
}

void note_change(Datum, Oid table) {
    if (!OidIsValid(table) || table == topics.table)
        ++changes;
}

/// A subscription may have been committed since a message of this transaction was appended. When
/// one is committed while this transaction commits, workers find the message at their next poll.
void look_once_more() {
    if (relied_on == 0)
        return;
    AcceptInvalidationMessages();
    if (relied_on != changes)
        wake_workers_at_commit();
}

void watch() {
    if (is_watching)
        return;
    pg::watch_relations(note_change);
    is_watching = true;
}

/// The value of a text column; none for a null.
std::optional<std::string_view> text_of(TupleTableSlot *row, AttrNumber column) {
    bool is_null;
    const Datum value = slot_getattr(row, column, &is_null);
    if (is_null)
        return std::nullopt;
    return pg::view_of_text(value);
}

void add_pattern(std::string_view topic) {
    MemoryContext caller = MemoryContextSwitchTo(topics.memory);
    topics.patterns = lappend(topics.patterns, pnstrdup(topic.data(), topic.size()));
    MemoryContextSwitchTo(caller);
}

void read_topics() {
    if (topics.memory == nullptr)
        topics.memory = AllocSetContextCreate(TopMemoryContext, "stacksaga handled topics",
                                              ALLOCSET_SMALL_SIZES);
    topics.patterns = NIL;
    MemoryContextReset(topics.memory);
    topics.table = find_table();
    const uint64 before = changes; // reading may notice a change
    const AttrNumber topic = get_attnum(topics.table, "topic"),
                     handler = get_attnum(topics.table, "handler"),
                     fallback = get_attnum(topics.table, "fallback");
    pg::each_row(subscription_table, SubscriptionIndex::primary_key, {}, [=](TupleTableSlot *row) {
        if (text_of(row, handler) || text_of(row, fallback))
            add_pattern(*text_of(row, topic));
        return true;
    });
    known_at = before;
}

bool takes(std::string_view pattern, std::string_view topic) {
    return pattern.ends_with('*') ? topic.starts_with(pattern.substr(0, pattern.size() - 1))
                                  : topic == pattern;
}

bool is_handled(std::string_view topic) {
    ListCell *cell;
    foreach (cell, topics.patterns)
        if (takes(static_cast<const char *>(lfirst(cell)), topic))
            return true;
    return false;
}

} // namespace

constinit const pg::TransactionUser handled_topic_events{
    .before_commit = look_once_more,
    .at_end = [] { relied_on = 0; },
};

void wake_workers_for_topic(std::string_view topic) {
    watch();
    if (known_at != changes)
        read_topics();
    // With stacksaga.notify services wait for the notification that comes with a tick.
    if (pg::settings.notify || is_handled(topic))
        wake_workers_at_commit();
    else if (relied_on == 0)
        relied_on = known_at;
}

void announce_handled_topics() {
    CacheInvalidateRelcacheByRelid(find_table());
}

} // namespace stacksaga
