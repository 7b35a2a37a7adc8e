#include "pg/settings.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"

namespace stacksaga::pg {

namespace {

/// Written by PostgreSQL's settings machinery and assign_clock_offset() alone.
constinit Settings values{};

constexpr int batch_bytes_default = 16 * 1024 * 1024, batch_bytes_min = 64 * 1024,
              batch_bytes_max = 1024 * 1024 * 1024;
constexpr int batch_size_default = 256, batch_size_max = 4096;
constexpr int dedupe_retention_default = 7 * 24 * 60 * 60;
constexpr int dedupe_retention_max = 10 * 366 * 24 * 60 * 60; // ten years
constexpr int max_payload_default = 1024 * 1024;
constexpr int payload_limit = 256 * 1024 * 1024; // the maximum of one string of jsonb
constexpr int saga_retention_default = 7 * 24 * 3600,
              failed_saga_retention_default = 30 * 24 * 3600;
constexpr int key_retention_default = 90 * 24 * 3600;
constexpr size_t on_behalf_of_bytes_max = 255;
constexpr int outbox_retention_default = 3 * 24 * 60 * 60;
constexpr int message_timeout_default = 30 * 1000;
constexpr int poll_interval_default = 1000, poll_interval_min = 10, poll_interval_max = 60 * 1000;
constexpr double retry_budget_default = 0.2, retry_budget_max = 1000;
constexpr int worker_stall_timeout_default = 60 * 1000;
constexpr int workers_default = 1, workers_max = 64;

const config_enum_entry coordination_options[] = {
    {"standalone", static_cast<int>(Coordination::standalone), false},
    {"coordinator", static_cast<int>(Coordination::coordinator), false},
    {nullptr, 0, false},
};

bool check_clock_offset(char **value, void **extra, GucSource) {
    int64 microseconds = 0;
    if (!parse_clock_offset(*value, &microseconds)) {
        GUC_check_errdetail("The value must be an interval, such as '5 minutes'.");
        return false;
    }
    auto *parsed = static_cast<int64 *>(settings_alloc(sizeof(int64)));
    if (parsed == nullptr)
        return false;
    *parsed = microseconds;
    *extra = parsed;
    return true;
}
void assign_clock_offset(const char *, void *extra) {
    values.clock_offset_us = *static_cast<int64 *>(extra);
}

bool check_ring_name(char **value, void **, GucSource) {
    size_t length = strlen(*value);
    if (length == 0 || length > 63) {
        GUC_check_errdetail("The name must be 1 to 63 bytes long.");
        return false;
    }
    return true;
}

/// Names in double quotes keep their blanks and commas.
bool check_worker_rings(char **value, void **, GucSource) {
    List *rings = NIL;
    if (!SplitGUCList(pstrdup(*value), ',', &rings)) {
        GUC_check_errdetail("The value is not a list of names.");
        return false;
    }
    ListCell *cell;
    foreach (cell, rings) {
        const std::string_view ring = static_cast<const char *>(lfirst(cell));
        const size_t slash = ring.find('/');
        if (slash == std::string_view::npos || slash == 0 || slash + 1 == ring.size()) {
            GUC_check_errdetail("\"%s\" is not a region and a cluster.", ring.data());
            GUC_check_errhint("Write each ring as region/cluster, such as default/default.");
            return false;
        }
    }
    return true;
}

bool check_key_retention(int *value, void **, GucSource) {
    if (*value == 0) {
        GUC_check_errdetail("A key that is forgotten at once would start its saga again.");
        GUC_check_errhint("Use 1 s or more, or -1 to keep keys for ever.");
        return false;
    }
    return true;
}

bool check_on_behalf_of(char **value, void **, GucSource) {
    if (strlen(*value) > on_behalf_of_bytes_max) {
        GUC_check_errdetail("The value must be at most %zu bytes long.", on_behalf_of_bytes_max);
        return false;
    }
    return true;
}

} // namespace

constinit const Settings &settings = values;

// All have the flag allow_in_parallel: a function of a query that runs in parallel, or VACUUM, may
// load the library, and without the flag the session would lose what its configuration says.
void define_settings() {
    DefineCustomIntVariable(
        "stacksaga.batch_bytes",
        "Sets behind how many bytes of messages or of calls of steps a batch ends.", nullptr,
        &values.batch_bytes, batch_bytes_default, batch_bytes_min, batch_bytes_max, PGC_USERSET,
        allow_in_parallel | GUC_UNIT_BYTE, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("stacksaga.batch_size",
                            "Sets how many due items a worker takes in one transaction.", nullptr,
                            &values.batch_size, batch_size_default, 1, batch_size_max, PGC_SIGHUP,
                            allow_in_parallel, nullptr, nullptr, nullptr);
    DefineCustomBoolVariable(
        "stacksaga.check_plans",
        "Refuses statements of the extension that are not planned by an index, for tests.", nullptr,
        &values.check_plans, false, PGC_SUSET, allow_in_parallel | GUC_NOT_IN_SAMPLE, nullptr,
        nullptr, nullptr);
    DefineCustomStringVariable(
        "stacksaga.clock_offset", "Moves the extension's clock by an interval, for tests.", nullptr,
        &values.clock_offset, "0", PGC_SUSET, allow_in_parallel | GUC_NOT_IN_SAMPLE,
        check_clock_offset, assign_clock_offset, nullptr);
    DefineCustomStringVariable("stacksaga.cluster",
                               "Names the virtual cluster that new work belongs to.", nullptr,
                               &values.cluster, "default", PGC_USERSET, allow_in_parallel,
                               check_ring_name, nullptr, nullptr);
    DefineCustomEnumVariable(
        "stacksaga.coordination", "Says who assigns slots to this server's workers.",
        "standalone: they share it; coordinator: they take granted ranges.", &values.coordination,
        static_cast<int>(Coordination::standalone), coordination_options, PGC_SIGHUP,
        allow_in_parallel, nullptr, nullptr, nullptr);
    DefineCustomStringVariable("stacksaga.databases",
                               "Lists the databases in which preloaded workers run.", nullptr,
                               &values.databases, "", PGC_SIGHUP,
                               allow_in_parallel | GUC_LIST_INPUT, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("stacksaga.dedupe_retention",
                            "Sets how long idempotency keys and accepted messages are remembered.",
                            "A saga whose retries may take longer cannot be defined.",
                            &values.dedupe_retention, dedupe_retention_default, 1,
                            dedupe_retention_max, PGC_SUSET, allow_in_parallel | GUC_UNIT_S,
                            nullptr, nullptr, nullptr);
    DefineCustomBoolVariable(
        "stacksaga.error_detail", "Stores DETAIL and CONTEXT of the errors of handlers.",
        "Both may hold values of rows. saga_error_detail() and message_error_detail() show them to "
        "operators.",
        &values.error_detail, true, PGC_SIGHUP, allow_in_parallel, nullptr, nullptr, nullptr);
    DefineCustomIntVariable(
        "stacksaga.failed_saga_retention", "Sets how long a failed saga is kept after its end.",
        "-1 keeps them for ever.", &values.failed_saga_retention, failed_saga_retention_default, -1,
        INT_MAX, PGC_SIGHUP, allow_in_parallel | GUC_UNIT_S, nullptr, nullptr, nullptr);
    DefineCustomIntVariable(
        "stacksaga.key_retention",
        "Sets how long the key of a saga is remembered after its end, when the saga is removed.",
        "-1 remembers keys for ever.", &values.key_retention, key_retention_default, -1, INT_MAX,
        PGC_SIGHUP, allow_in_parallel | GUC_UNIT_S, check_key_retention, nullptr, nullptr);
    DefineCustomIntVariable(
        "stacksaga.max_payload", "Sets the largest input, output or payload that is accepted.",
        nullptr, &values.max_payload, max_payload_default, 1024, payload_limit, PGC_SUSET,
        allow_in_parallel | GUC_UNIT_BYTE, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("stacksaga.message_timeout",
                            "Sets how long one call of a message handler may take.", "0: no limit.",
                            &values.message_timeout, message_timeout_default, 0, INT_MAX,
                            PGC_SIGHUP, allow_in_parallel | GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomBoolVariable(
        "stacksaga.notify", "Makes ticks of the outbox notify the channel stacksaga_outbox.",
        nullptr, &values.notify, false, PGC_SIGHUP, allow_in_parallel, nullptr, nullptr, nullptr);
    DefineCustomStringVariable("stacksaga.on_behalf_of",
                               "Says whom the session's operator acts for, as it is recorded.",
                               nullptr, &values.on_behalf_of, "", PGC_USERSET, allow_in_parallel,
                               check_on_behalf_of, nullptr, nullptr);
    DefineCustomIntVariable(
        "stacksaga.outbox_retention",
        "Sets how long the log keeps messages for subscriptions that do not read them.", nullptr,
        &values.outbox_retention, outbox_retention_default, 1, INT_MAX, PGC_SIGHUP,
        allow_in_parallel | GUC_UNIT_S, nullptr, nullptr, nullptr);
    DefineCustomIntVariable(
        "stacksaga.poll_interval", "Sets how often an idle worker polls for due work.", nullptr,
        &values.poll_interval, poll_interval_default, poll_interval_min, poll_interval_max,
        PGC_SIGHUP, allow_in_parallel | GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomRealVariable(
        "stacksaga.retry_budget", "Sets how many retries a first attempt pays for.",
        "For each queue, definition of SQL steps, and subscription with a handler; ten a second are always let through; -1: all.",
        &values.retry_budget, retry_budget_default, -1, retry_budget_max, PGC_SUSET,
        allow_in_parallel, nullptr, nullptr, nullptr);
    DefineCustomStringVariable("stacksaga.region", "Names the region that new work belongs to.",
                               nullptr, &values.region, "default", PGC_USERSET, allow_in_parallel,
                               check_ring_name, nullptr, nullptr);
    DefineCustomIntVariable(
        "stacksaga.saga_retention", "Sets how long a completed saga is kept after its end.",
        "-1 keeps them for ever.", &values.saga_retention, saga_retention_default, -1, INT_MAX,
        PGC_SIGHUP, allow_in_parallel | GUC_UNIT_S, nullptr, nullptr, nullptr);
    DefineCustomStringVariable(
        "stacksaga.worker_rings", "Lists the rings that workers serve, as region/cluster.",
        "Empty: every ring of their database.", &values.worker_rings, "", PGC_SIGHUP,
        allow_in_parallel | GUC_LIST_INPUT, check_worker_rings, nullptr, nullptr);
    DefineCustomIntVariable("stacksaga.worker_stall_timeout",
                            "Sets how long a worker may not run in the middle of a transaction.",
                            "Then its process is ended, and others take its slots. 0: never.",
                            &values.worker_stall_timeout, worker_stall_timeout_default, 0, INT_MAX,
                            PGC_SIGHUP, allow_in_parallel | GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("stacksaga.workers", "Sets how many workers a database gets.", nullptr,
                            &values.workers, workers_default, 0, workers_max, PGC_SIGHUP,
                            allow_in_parallel, nullptr, nullptr, nullptr);
    reserve_settings_prefix("stacksaga");
}

bool is_ring_served(std::string_view region, std::string_view cluster) {
    List *rings = NIL;
    if (settings.worker_rings[0] == '\0' ||
        !SplitGUCList(pstrdup(settings.worker_rings), ',', &rings))
        return true;
    ListCell *cell;
    foreach (cell, rings) {
        const std::string_view ring = static_cast<const char *>(lfirst(cell));
        if (ring.size() == region.size() + 1 + cluster.size() && ring.starts_with(region) &&
            ring[region.size()] == '/' && ring.ends_with(cluster))
            return true;
    }
    return false;
}

} // namespace stacksaga::pg
