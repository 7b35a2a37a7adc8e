// Rings: virtual clusters, each with its own nodes, slots, windows and work.
#pragma once
#include "pg/table/table.hpp"

namespace stacksaga {

struct Ring {
    int32 ring_id;
    int32 slots; ///< a power of two
};
static_assert(std::is_trivially_destructible_v<Ring>);

inline constexpr int ring_name_bytes_max = 63;

/// The ring that is there from the start (tables/10_ring.sql); neither its number nor its slots
/// can change.
inline constexpr Ring default_ring{.ring_id = 1, .slots = 256};

/// Whether the settings stacksaga.region and stacksaga.cluster name the default ring.
bool is_default_ring_current();

/// All inside with_spi; each reads one row.

/// The ring that the settings stacksaga.region and stacksaga.cluster name. SG404 when there is
/// none. Reads nothing for the default ring.
Ring current_ring();

/// SG404 when there is no such ring.
Ring find_ring(std::string_view region, std::string_view cluster);

/// A ring by its number, which is valid.
Ring ring_of_id(int32 ring_id);

/// The ring and those that it has adopted, by itself or through another one, as long as these have
/// no live owner again; in the current memory context.
std::span<const int32> served_rings(int32 ring_id);

/// SG400 unless both are 1 to ring_name_bytes_max bytes long.
void check_ring_name(std::string_view region, std::string_view cluster);

/// Makes the slot rows of a ring that has none: pg_dump keeps no slots.
void ensure_slots(const Ring &ring);

/// Raises the ring's epoch and returns it. Locks the counter to the end of the transaction, so it
/// comes after every lock on a slot and before every change of a slot row, or callers deadlock.
int64 raise_epoch(int32 ring_id);

/// The ring's epoch; 0 before the first window or take-over.
int64 ring_epoch(int32 ring_id);

// The tables of rings that are read without a statement, as far as they are.
enum class RingColumn : uint8 { ring_id = 1, region, cluster, slots };
enum class RingIndex : uint8 { by_name };
enum class NodeIndex : uint8 { primary_key };

extern constinit pg::Table ring_table;
extern constinit pg::Table node_table;

} // namespace stacksaga
