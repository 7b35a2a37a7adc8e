// The oids of a definition's roles and functions on this node of Citus.
//
// A definition names its roles and functions and keeps the oids that they had where it was defined,
// so that another role or function of the same name does not take their place. Each node has oids
// of its own, so a node keeps the oid that it found when it first read the definition.
#pragma once
#include "src/definition/stored_definition.hpp"

namespace stacksaga {

/// Whether definitions were made on another node, and this one has oids of its own.
bool has_own_oids();

/// Replaces the oids of the definition, and writes those that are new unless the transaction reads
/// only.
void use_own_oids(Definition &definition, std::span<StepFunctions> functions);

} // namespace stacksaga
