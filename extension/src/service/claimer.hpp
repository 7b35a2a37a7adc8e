// Claimers: which node, of which ring, has the name that a service claims under.
#pragma once
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

} // namespace stacksaga
