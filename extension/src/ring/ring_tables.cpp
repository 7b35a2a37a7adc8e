#include "src/ring/ring_tables.hpp"

namespace stacksaga {

namespace {

constexpr std::array ring_columns{
    pg::TableColumn{"ring_id", INT4OID},
    pg::TableColumn{"region", TEXTOID},
    pg::TableColumn{"cluster", TEXTOID},
    pg::TableColumn{"slots", INT4OID},
};
constexpr std::array ring_indexes{
    pg::TableIndex{.name = "ring_region_cluster_key",
                   .key = {RingColumn::region, RingColumn::cluster},
                   .is_unique = true},
};

enum class NodeColumn : uint8 { node = 1 };
constexpr std::array node_columns{pg::TableColumn{"node", TEXTOID}};
constexpr std::array node_indexes{
    pg::TableIndex{.name = "node_pkey", .key = {NodeColumn::node}, .is_unique = true},
};

} // namespace

constinit pg::Table ring_table{{.name = "ring",
                                .columns = ring_columns,
                                .indexes = ring_indexes,
                                .described = pg::Described::what_is_read}};
constinit pg::Table node_table{{.name = "node",
                                .columns = node_columns,
                                .indexes = node_indexes,
                                .described = pg::Described::what_is_read}};

} // namespace stacksaga
