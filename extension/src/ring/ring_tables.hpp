// The tables of rings that are read without a statement, as far as they are.
#pragma once
#include "pg/table/table.hpp"

namespace stacksaga {

enum class RingColumn : uint8 { ring_id = 1, region, cluster, slots };
enum class RingIndex : uint8 { by_name };
enum class NodeIndex : uint8 { primary_key };

extern constinit pg::Table ring_table;
extern constinit pg::Table node_table;

} // namespace stacksaga
