#include "src/outbox/outbox_tables.hpp"

namespace stacksaga {

namespace {

constexpr pg::Nulls nullable = pg::Nulls::allowed;

constexpr pg::TableColumn token{"token", INT8OID, pg::Nulls::refused, "ring_token"};

constexpr std::array columns_of_log{
    pg::TableColumn{"number", INT8OID},
    pg::TableColumn{"transaction_id", INT8OID},
    pg::TableColumn{"origin", INT8OID},
    token,
    pg::TableColumn{"published_at", TIMESTAMPTZOID},
    pg::TableColumn{"ring_id", INT4OID},
    pg::TableColumn{"generation", INT2OID},
    pg::TableColumn{"stripe", INT2OID},
    pg::TableColumn{"message_id", UUIDOID},
    pg::TableColumn{"topic", TEXTOID},
    pg::TableColumn{"key", TEXTOID, nullable},
    pg::TableColumn{"type", TEXTOID, nullable},
    pg::TableColumn{"payload", JSONBOID, nullable},
    pg::TableColumn{"headers", JSONBOID},
    pg::TableColumn{"deliver_at", TIMESTAMPTZOID, nullable},
};
constexpr std::array log_indexes_0{
    pg::TableIndex{.name = "outbox_message_0_number",
                   .key = {LogColumn::stripe, LogColumn::number}},
    pg::TableIndex{.name = "outbox_message_0_transaction",
                   .key = {LogColumn::transaction_id, LogColumn::stripe, LogColumn::number}},
};
constexpr std::array log_indexes_1{
    pg::TableIndex{.name = "outbox_message_1_number",
                   .key = {LogColumn::stripe, LogColumn::number}},
    pg::TableIndex{.name = "outbox_message_1_transaction",
                   .key = {LogColumn::transaction_id, LogColumn::stripe, LogColumn::number}},
};
constexpr std::array log_indexes_2{
    pg::TableIndex{.name = "outbox_message_2_number",
                   .key = {LogColumn::stripe, LogColumn::number}},
    pg::TableIndex{.name = "outbox_message_2_transaction",
                   .key = {LogColumn::transaction_id, LogColumn::stripe, LogColumn::number}},
};

constexpr std::array tick_columns{
    pg::TableColumn{"tick", INT8OID},
    pg::TableColumn{"number_before", INT8OID},
    pg::TableColumn{"number_after", INT8OID},
    pg::TableColumn{"origin", INT8OID},
    pg::TableColumn{"ticked_at", TIMESTAMPTZOID},
    pg::TableColumn{"snapshot", PG_SNAPSHOTOID},
};
constexpr std::array tick_indexes{
    pg::TableIndex{.name = "outbox_tick_pkey", .key = {TickColumn::tick}, .is_unique = true},
};

constexpr std::array position_columns{
    pg::TableColumn{"subscription_id", INT4OID},
    pg::TableColumn{"partition", INT2OID},
    pg::TableColumn{"version", INT8OID},
    pg::TableColumn{"tick", INT8OID},
    pg::TableColumn{"number", INT8OID},
    pg::TableColumn{"written_at", TIMESTAMPTZOID},
    pg::TableColumn{"batch_id", INT8OID, nullable},
    pg::TableColumn{"batch_tick", INT8OID, nullable},
    pg::TableColumn{"batch_number", INT8OID, nullable},
    pg::TableColumn{"batch_size", INT4OID, nullable},
    pg::TableColumn{"batch_total", INT4OID, nullable},
    pg::TableColumn{"room", INT4OID},
    pg::TableColumn{"lease_until", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"consumer", TEXTOID, nullable},
    pg::TableColumn{"lost_tick", INT8OID, nullable},
    pg::TableColumn{"lost_number", INT8OID, nullable},
    pg::TableColumn{"answered_at", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"released_batch", INT8OID, nullable},
    pg::TableColumn{"released_until", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"release_reason", TEXTOID, nullable},
};
constexpr std::array position_indexes{
    pg::TableIndex{.name = "subscription_position_pkey",
                   .key = {PositionColumn::subscription_id, PositionColumn::partition,
                           PositionColumn::version},
                   .is_unique = true},
};

constexpr std::array retry_columns{
    pg::TableColumn{"subscription_id", INT4OID},
    token,
    pg::TableColumn{"number", INT8OID},
    pg::TableColumn{"tick", INT8OID},
    pg::TableColumn{"partition", INT2OID},
    pg::TableColumn{"attempt", INT4OID},
    pg::TableColumn{"crashes", INT4OID},
    pg::TableColumn{"state", TEXTOID, pg::Nulls::refused, "message_retry_state"},
    pg::TableColumn{"due_at", TIMESTAMPTZOID},
    pg::TableColumn{"failed_since", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"published_at", TIMESTAMPTZOID},
    pg::TableColumn{"batch_id", INT8OID, nullable},
    pg::TableColumn{"failed_in", INT8OID, nullable},
    pg::TableColumn{"message_id", UUIDOID},
    pg::TableColumn{"topic", TEXTOID},
    pg::TableColumn{"key", TEXTOID, nullable},
};
constexpr std::array retry_indexes{
    pg::TableIndex{.name = "message_retry_pkey",
                   .key = {RetryColumn::subscription_id, RetryColumn::token, RetryColumn::tick,
                           RetryColumn::number},
                   .is_unique = true},
    pg::TableIndex{.name = "message_retry_due",
                   .key = {RetryColumn::subscription_id, RetryColumn::partition,
                           RetryColumn::due_at, RetryColumn::tick, RetryColumn::number}},
    pg::TableIndex{.name = "message_retry_active",
                   .key = {RetryColumn::subscription_id, RetryColumn::token, RetryColumn::tick,
                           RetryColumn::number},
                   .predicate = "((state)::text <> ALL (ARRAY['delayed'::text, 'held'::text, "
                                "'held_fallback'::text]))"},
};

constexpr std::array dead_columns{
    pg::TableColumn{"subscription_id", INT4OID},
    token,
    pg::TableColumn{"number", INT8OID},
    pg::TableColumn{"tick", INT8OID},
    pg::TableColumn{"partition", INT2OID},
    pg::TableColumn{"attempts", INT4OID},
    pg::TableColumn{"since", TIMESTAMPTZOID},
    pg::TableColumn{"dead_since", TIMESTAMPTZOID},
    pg::TableColumn{"published_at", TIMESTAMPTZOID},
    pg::TableColumn{"failed_in", INT8OID, nullable},
    pg::TableColumn{"message_id", UUIDOID},
    pg::TableColumn{"topic", TEXTOID},
    pg::TableColumn{"key", TEXTOID, nullable},
};
constexpr std::array dead_indexes{
    pg::TableIndex{.name = "dead_message_pkey",
                   .key = {DeadColumn::subscription_id, DeadColumn::token, DeadColumn::tick,
                           DeadColumn::number},
                   .is_unique = true},
    pg::TableIndex{.name = "dead_message_place",
                   .key = {DeadColumn::subscription_id, DeadColumn::partition, DeadColumn::tick}},
    pg::TableIndex{.name = "dead_message_open",
                   .key = {DeadColumn::subscription_id, DeadColumn::partition, DeadColumn::token,
                           DeadColumn::tick, DeadColumn::number},
                   .predicate = "(discarded_at IS NULL)"},
};

enum class SubscriptionColumn : uint8 { subscription_id = 1 };
constexpr std::array subscription_columns{pg::TableColumn{"subscription_id", INT4OID}};
constexpr std::array subscription_indexes{
    pg::TableIndex{.name = "subscription_pkey",
                   .key = {SubscriptionColumn::subscription_id},
                   .is_unique = true},
};

} // namespace

constinit std::array<pg::Table, generations> log_tables{
    pg::Table{{.name = "outbox_message_0",
               .columns = columns_of_log,
               .indexes = log_indexes_0,
               .described = pg::Described::what_is_read}},
    pg::Table{{.name = "outbox_message_1",
               .columns = columns_of_log,
               .indexes = log_indexes_1,
               .described = pg::Described::what_is_read}},
    pg::Table{{.name = "outbox_message_2",
               .columns = columns_of_log,
               .indexes = log_indexes_2,
               .described = pg::Described::what_is_read}},
};
constinit pg::Table tick_table{
    {.name = "outbox_tick", .columns = tick_columns, .indexes = tick_indexes}};
constinit pg::Table position_table{{.name = "subscription_position",
                                    .columns = position_columns,
                                    .indexes = position_indexes,
                                    .described = pg::Described::what_is_read}};
constinit pg::Table retry_table{{.name = "message_retry",
                                 .columns = retry_columns,
                                 .indexes = retry_indexes,
                                 .described = pg::Described::what_is_read}};
constinit pg::Table dead_table{{.name = "dead_message",
                                .columns = dead_columns,
                                .indexes = dead_indexes,
                                .described = pg::Described::what_is_read}};
constinit pg::Table subscription_table{{.name = "subscription",
                                        .columns = subscription_columns,
                                        .indexes = subscription_indexes,
                                        .described = pg::Described::what_is_read}};

} // namespace stacksaga
