// Claimers: the node that has the name that a service claims under, and sessions that claim from a
// queue that no definition names.
#pragma once
#include "pg/pg.hpp"
#include "src/ring/node.hpp"
#include "src/ring/rings.hpp"

namespace stacksaga {

/// A claimer that is a registered node, in whatever ring.
struct Claimer {
    NodeIdentity node;
    std::string_view kind;
};
static_assert(std::is_trivially_destructible_v<Claimer>);

/// The node of that name; nullopt when nobody registered it. A node's name is the name of one node
/// in one ring, so a session that claims from another ring is the same claimer, and holds nothing
/// there. A claimer that should hold slots of `ring` and holds none gets a WARNING once a minute,
/// in each session. Inside with_spi, in which the kind stays valid.
std::optional<Claimer> find_claimer(const Ring &ring, std::string_view name);

// A session that claims from a queue which no definition names keeps a shared lock on a tag that
// stands for the queue, until the session ends. doctor() reads these locks: the services wait for
// ever, mostly because the name is misspelt. No row is written, and claims from queues that a
// definition names are not slowed down.

/// Call when a claim found nothing: checks at most once a minute whether a definition names the
/// queue. Inside with_spi.
void note_empty_claim(int32 ring_id, std::string_view queue, TimestampTz now);

} // namespace stacksaga
