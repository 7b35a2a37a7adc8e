// The settings stacksaga.*, defined in one table in settings.cpp.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

enum class Coordination : int { standalone, coordinator };

struct Settings {
    int batch_bytes; ///< of what a batch gives to its consumer, as text
    int batch_size;
    bool check_plans;
    char *clock_offset;
    int64 clock_offset_us; ///< parsed from clock_offset
    char *cluster;
    int coordination; ///< a Coordination
    char *databases;
    int dedupe_retention; ///< s
    bool error_detail;
    int failed_saga_retention; ///< s; negative: for ever
    int key_retention;         ///< s; negative: for ever
    int max_payload;           ///< bytes
    int message_timeout;       ///< ms; 0: none
    bool notify;
    char *on_behalf_of;
    int outbox_retention; ///< s
    int poll_interval;    ///< ms
    char *region;
    double retry_budget;      ///< retries for each first attempt; negative: no limit
    int saga_retention;       ///< s; negative: for ever
    char *worker_rings;       ///< empty: all
    int worker_stall_timeout; ///< ms; 0: none
    int workers;
};
/// Read everywhere, written by settings.cpp alone.
extern const Settings &settings;

/// Called by _PG_init.
void define_settings();

/// Splits stacksaga.databases; calls `each(const char *name)`. False when the list is malformed.
template <class F> bool for_each_database(F &&each) {
    char *copy = pstrdup(settings.databases);
    List *names = NIL;
    if (!SplitIdentifierString(copy, ',', &names))
        return false;
    ListCell *cell;
    foreach (cell, names)
        each(static_cast<const char *>(lfirst(cell)));
    return true;
}

/// Whether the background workers of a database serve this ring: stacksaga.worker_rings lists it as
/// region/cluster, or is empty.
bool is_ring_served(std::string_view region, std::string_view cluster);

} // namespace stacksaga::pg
