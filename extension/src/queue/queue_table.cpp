#include "src/queue/queue_table.hpp"

namespace stacksaga {

namespace {

constexpr pg::Nulls nullable = pg::Nulls::allowed;

constexpr std::array queue_columns{
    pg::TableColumn{"ring_id", INT4OID},
    pg::TableColumn{"queue", TEXTOID},
    pg::TableColumn{"max_running", INT4OID, nullable},
    pg::TableColumn{"max_running_per_group", INT4OID, nullable},
    pg::TableColumn{"rate", INT4OID, nullable},
    pg::TableColumn{"rate_interval", INTERVALOID, nullable},
    pg::TableColumn{"paused_at", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"pause_reason", TEXTOID, nullable},
};
constexpr std::array queue_indexes{
    pg::TableIndex{
        .name = "queue_pkey", .key = {QueueColumn::ring_id, QueueColumn::queue}, .is_unique = true},
};

constexpr std::array queue_claims_columns{
    pg::TableColumn{"ring_id", INT4OID},
    pg::TableColumn{"queue", TEXTOID},
    pg::TableColumn{"claimed_at", TIMESTAMPTZARRAYOID},
    pg::TableColumn{"claims", INT4ARRAYOID},
};
constexpr std::array queue_claims_indexes{
    pg::TableIndex{.name = "queue_claims_pkey",
                   .key = {QueueClaimsColumn::ring_id, QueueClaimsColumn::queue},
                   .is_unique = true},
};

} // namespace

constinit pg::Table queue_table{{.name = "queue",
                                 .columns = queue_columns,
                                 .indexes = queue_indexes,
                                 .newer_versions = pg::NewerVersions::used}};
constinit pg::Table queue_claims_table{{.name = "queue_claims",
                                        .columns = queue_claims_columns,
                                        .indexes = queue_claims_indexes,
                                        .newer_versions = pg::NewerVersions::used}};

} // namespace stacksaga
