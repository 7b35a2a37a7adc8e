// Shards of Citus that have moved away from a transaction in spite of its lock.
//
// The lock by which Citus lets a move wait for writers is numbered by the position of the shard
// among those of its table, and a split of a lower shard shifts the positions: a move in mode
// block_writes then waits for no transaction that was open before, and what that one has written is
// in the placement that is dropped (seen with 13.2.2). So a transaction notes the placement of each
// shard that it reads or writes, as it is before; at its end, where Citus's metadata has changed
// since the first of them, it locks them again by their present positions and compares.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

struct Param;

/// Which shards of the tables that are distributed by token a statement reads or writes.
struct ShardUse {
    uint32 token_parameters; ///< a bit for each parameter that is a token
    bool all_shards;         ///< it names no token
    bool writes;

    bool any() const { return token_parameters != 0 || all_shards; }
};

/// That of a statement that names tables as stacksaga.NAME, and tokens as $1::stacksaga.ring_token.
ShardUse shards_of_statement(std::string_view sql);

/// To be called before such a statement runs. Inside with_spi.
void note_shards(const ShardUse &use, std::span<const Param> params);

/// To be called when the transaction has written all that it will. Raises 40001 if a shard has
/// moved, or was split, since it was noted, in a transaction that writes.
void require_shards_in_place();

} // namespace stacksaga::pg
